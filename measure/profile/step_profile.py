"""Profiles a step of a model: the exact cost of each operation, and its measured time.

`profile_step` takes a model and its inputs, and returns a `StepProfile`. Costs come from the operation table
(`measure/operations/tracer.py`). The table is traced on fake tensors where the model is on a CPU and runs on them, else
in one real step. The notes say which. Times come from torch's profiler over several steps of the model as it is,
without hooks or replaced functions. `matching.join` matches the two. The operations' times and the time between them
add up to the mean step under the profiler, to the nanosecond. The argument `compare_steps` is a number of further
steps, which are timed without the profiler. Only an optimizer, if given, changes the model (`model_step.py`). Not
claimed: compiled models, whose operations differ from the table's.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from analysis.devices.precisions import PRECISIONS, unit_of
from analysis.footprint.live_bytes import unsized
from analysis.operators import registry
from analysis.operators.attention_conventions import attention_flop
from analysis.operators.cost import Cost, input_dtype
from analysis.operators.fusion import fused
from analysis.operators.traffic import bytes_moved
from analysis.stats.summary import summarise
from measure.device import apply_precision
from measure.model.module_paths import is_compiled
from measure.model.state_snapshot import arguments, tensors
from measure.operations.tracer import Trace
from measure.profile.model_step import MODES, ModelStep, naming_faults, paths_below, preserve_state, traced
from measure.profile.operation_times import OperationStepTimes, read
from measure.profile.recording import record
from results.process import collector_off
from results.records.answers import StepModule, StepOperation, StepProfile
from results.records.counts import Operation


def profile_step(
    model: torch.nn.Module,
    inputs: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    target: Any = None,
    loss: Callable[..., Any] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    mode: str = "train",
    precision: str = "fp32",
    warm_up: int = 1,
    steps: int = 3,
    compare_steps: int = 0,
    ignore_modules: Collection[type | str] = (),
    input_constructor: Callable[[], Any] | None = None,
    name: str = "",
) -> StepProfile:
    """Profile a step of `model` on the device where it is, each of its modules in the mode (train, eval) that it is in.

    inputs: a tensor, a tuple or list of arguments, or a mapping of them by name; None: what input_constructor makes.
    kwargs: further arguments by name. mode: "train" (forward, loss, backward, and the optimizer's step where one is
    given), "forward" (without gradients) or "generate" (model.generate). loss: function of the output, or of output and
    target if that is not None; None: the sum of all outputs that require a gradient. precision: a name of
    `analysis.devices.precisions`; the loss is not scaled. warm_up, steps: number of steps before, and of profiled ones.
    compare_steps: number of steps that are timed without the profiler, half of them before and half after.
    ignore_modules: classes, their names, or paths, whose operations and parameters are left out of everything. Raises
    ValueError for invalid arguments, ModelFailed (a ValueError) where the model fails, Unavailable where nothing can be
    recorded.
    """
    expect_module(model)
    _check(mode, precision, warm_up, steps, compare_steps)
    if mode == "generate" and not callable(getattr(model, "generate", None)):
        raise ValueError(f"expected a model with a method generate, got {type(model).__name__}")
    if is_compiled(model):
        raise ValueError("expected a model that is not compiled: the operations of a compiled one are not in its table")
    if target is not None and loss is None:
        raise ValueError("expected a loss of output and target, got only a target")
    groups = [] if optimizer is None else optimizer.param_groups
    updated = [id(parameter) for group in groups for parameter in group["params"]]
    if optimizer is not None and {id(parameter) for parameter in model.parameters()}.isdisjoint(updated):
        raise ValueError("expected an optimizer of the model's parameters, got one with none of them")
    ignored = paths_below(model, ignore_modules)
    args, named = _arguments(input_constructor() if inputs is None and input_constructor else inputs, kwargs)
    device = _device(model, (args, named))
    policy = PRECISIONS[precision]
    if device.type != "cpu" or precision != "fp32":
        apply_precision.supported(policy, device)
    step = ModelStep(model, args, named, target, loss, optimizer, mode, policy, device.type)
    described = blank_profile(model, (args, named), device, precision, mode)
    with preserve_state(model, (args, named), trains=optimizer is not None), apply_precision.session(policy, device):
        return profile_ready(
            step, replace(described, model=name or described.model), warm_up=warm_up, steps=steps,
            compare_steps=compare_steps, ignored=ignored,
        )  # fmt: skip


def blank_profile(model: torch.nn.Module, batch: Any, device: torch.device, precision: str, mode: str) -> StepProfile:
    """Return a profile before anything is recorded: its batch size is the first size of the first tensor that has one,
    its world that of torch.distributed."""
    distributed = torch.distributed
    return StepProfile(
        model=type(model).__name__,
        batch_size=next((int(tensor.shape[0]) for tensor in tensors(batch) if tensor.dim()), None),
        device=str(device),
        precision=precision,
        mode=mode,
        world_size=distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1,
    )


def profile_ready(
    step: ModelStep,
    described: StepProfile,
    *,
    warm_up: int = 1,
    steps: int = 3,
    compare_steps: int = 0,
    ignored: frozenset[str] = frozenset(),
) -> StepProfile:
    """Profile a step. described: the profile without results. ignored: paths of modules that are left out.

    The caller sets the flags of the precision, and the model stays as the steps leave it.
    """
    lead = int(described.device.startswith("cuda"))  # one more step: CUPTI is slow with the first kernels
    with naming_faults(step.model):
        step.forget()
        trace = traced(step)
        recorded = record(
            step, described.device, warm_up=warm_up, plain=compare_steps - compare_steps // 2, profiled=lead + steps,
            after=compare_steps // 2, before=step.forget,
        )  # fmt: skip
    counting = range(lead, lead + steps)
    profile = table_of(recorded.profile, trace, step.model, described, ignored=ignored, only=counting)
    return replace(profile, unprofiled_times_s=recorded.plain)


def table_of(
    recording: Any,
    trace: Trace,
    model: torch.nn.Module,
    described: StepProfile,
    *,
    ignored: frozenset[str] = frozenset(),
    only: Collection[int] | None = None,
) -> StepProfile:
    """Return the profile of recorded steps. trace: of the same step. only: positions of the steps to use; None: all."""
    left_out = [operation.index for operation in trace.operations if operation.module in ignored]
    cuda = described.device.startswith("cuda")
    with collector_off():  # none of a recording's many small objects is garbage
        timings = read(recording, trace.operations, cuda=cuda, ignored=left_out, only=only)
    views = {o.index for o in trace.operations if o.kind == "view" and o.index in timings.unrecorded}
    operations = [o for o in trace.operations if o.index not in views and o.module not in ignored]
    groups = fused(operations, trace.storages)
    rows, unknown = operation_rows(operations, timings.steps, described.precision, described.device, groups)
    modules = tuple(module_rows(model, ignored))
    notes = [*trace.notes, *timings.notes]
    unknown_storages = unsized(trace.operations, trace.storages)
    if names := {o.name for o in trace.operations if unknown_storages.intersection((*o.reads, *o.writes))}:
        notes.append(f"bytes of {', '.join(sorted(names))} are lower bounds: some of its storages have no known size")
    if left_out:
        spent_s = fmean(step.left_out_s for step in timings.steps)
        notes.append(f"{len(left_out)} operations of ignored modules are left out, and of each step {spent_s:.3g} s")
    return replace(
        described,
        parameters=sum(module.own_parameters for module in modules),
        operations=rows,
        modules=modules,
        step_times_s=tuple(step.step_s for step in timings.steps),
        between_s=between(trace.operations, timings.steps),
        not_understood=dict(unknown),
        notes=tuple(notes),
        attention={} if unknown else _attention(operations),
    )


def _attention(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return how each convention of attention counts a step's model FLOP, recomputation left out."""
    step = [operation for operation in operations if operation.phase != "recompute"]
    flop = attention_flop([replace(operation, phase="forward") for operation in step])
    return flop.as_row("forward", sum(registry.model_flop(operation) for operation in step))


def operation_rows(
    operations: Sequence[Operation],
    steps: Sequence[OperationStepTimes],
    precision: str,
    device: str,
    groups: Sequence[tuple[int | None, int]] = (),
) -> tuple[tuple[StepOperation, ...], Counter[str]]:
    """Return a row for each operation, numbered from 0; and name → number of calls of operations without a rule.

    groups: one pair an operation, from ideal fusion (`analysis.operators.fusion.fused`).
    """
    positions = {operation.index: position for position, operation in enumerate(operations)}
    unknown: Counter[str] = Counter()
    rows = []
    for position, operation in enumerate(operations):
        is_supported = registry.bucket_of(operation.name) != "not_understood"
        try:
            cost = registry.cost(operation)
        except ValueError:
            cost, is_supported = Cost(0, 0, *bytes_moved(operation)), False
        unknown[operation.name] += not is_supported
        dtype = input_dtype(operation)
        group, fused_bytes = groups[position] if groups else (None, 0)
        rows.append(
            StepOperation(
                index=position,
                name=operation.name,
                kind=operation.kind,
                phase=operation.phase,
                module=operation.module,
                forward_index=None if operation.forward_index is None else positions.get(operation.forward_index),
                unit=_unit(dtype, precision, device) if cost.model_flop else "",
                dtype="" if dtype == "none" else dtype,
                input_shapes=operation.input_shapes,
                output_shapes=operation.output_shapes,
                model_flop=int(cost.model_flop) if is_supported else None,
                other_flop=int(cost.other_flop) if is_supported else None,
                read_bytes=int(cost.read_bytes),
                written_bytes=int(cost.written_bytes),
                group=group,
                fused_bytes=fused_bytes,
                **_times(operation.index, steps),
            )
        )
    return tuple(rows), +unknown


def _unit(dtype: str, precision: str, device: str) -> str:
    try:
        return unit_of(dtype, PRECISIONS[precision], device)
    except ValueError:  # complex numbers, say: unknown is empty
        return ""


def _times(index: int, steps: Sequence[OperationStepTimes]) -> dict[str, Any]:
    """Return the time fields of an operation's row; {} if it has no call."""
    if not steps or index not in steps[0].own_s:
        return {}
    spread = summarise([step.own_s[index] for step in steps])
    return {
        "kernels": fmean(step.kernels[index] for step in steps),
        "time_s": fmean(step.own_s[index] for step in steps),
        "median_time_s": spread.median,
        "low_time_s": spread.low,
        "high_time_s": spread.high,
        "host_time_s": fmean(step.host_s[index] for step in steps),
        "waited_s": fmean(step.waited_s[index] for step in steps),
    }


def between(operations: Sequence[Operation], steps: Sequence[OperationStepTimes]) -> dict[str, float]:
    """Return phase → mean seconds in which no operation ran: the waits before the phase's operations. The time after
    the last operation belongs to its phase."""
    times: defaultdict[str, float] = defaultdict(float)
    for operation in operations:
        times[operation.phase] += fmean(step.waited_s.get(operation.index, 0.0) for step in steps)
    last = operations[-1].phase if operations else ""
    times[last] = times.get(last, 0.0) + fmean(step.end_s for step in steps)
    return dict(times)


def module_rows(model: torch.nn.Module, ignored: frozenset[str]) -> Iterator[StepModule]:
    """Yield a row for each name of a module, except ignored ones. Parameters are numbers of elements."""
    named = [(path, module) for path, module in model.named_modules(remove_duplicate=False) if path not in ignored]
    shown = {id(p) for _, module in named for p in module.parameters(recurse=False)}
    seen: set[int] = set()
    for path, module in named:
        own = {id(p): p.numel() for p in module.parameters(recurse=False)}
        below = {id(p): p.numel() for p in module.parameters()}
        yield StepModule(
            module=path,
            type=type(module).__name__,
            settings=module.extra_repr(),
            own_parameters=sum(count for name, count in own.items() if name not in seen),
            parameters=sum(count for name, count in below.items() if name in shown),
        )
        seen |= own.keys()


def _check(mode: str, precision: str, warm_up: int, steps: int, compare_steps: int) -> None:
    if mode not in MODES:
        raise ValueError(f"expected a mode ({', '.join(MODES)}), got {mode!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"expected a precision ({', '.join(PRECISIONS)}), got {precision!r}")
    if steps < 1 or warm_up < 0 or compare_steps < 0:
        got = f"steps={steps}, warm_up={warm_up}, compare_steps={compare_steps}"
        raise ValueError(f"expected steps from 1, warm_up and compare_steps from 0, got {got}")


def expect_module(model: Any) -> torch.nn.Module:
    """Return the model, if it is one. Raises ValueError."""
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"expected a torch.nn.Module, got {type(model).__name__}")
    return model


def _arguments(inputs: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (positional arguments, arguments by name)."""
    named = dict(kwargs or {})
    if isinstance(inputs, Mapping):
        return (), {**inputs, **named}
    if isinstance(inputs, tuple | list):
        return arguments(inputs), named
    return (() if inputs is None else (inputs,)), named


def _device(model: torch.nn.Module, batch: Any) -> torch.device:
    """Return the only device of the tensors besides the CPU, or the CPU. Raises ValueError for several, or for meta."""
    held = [*model.parameters(), *model.buffers(), *tensors(batch)]
    others = sorted({str(tensor.device) for tensor in held} - {"cpu"})
    if len(others) > 1:
        raise ValueError(f"expected a model on one device, got {', '.join(others)}")
    if others == ["meta"]:
        raise ValueError("expected a model and inputs with values, got tensors on meta, which take no time")
    return torch.device(*others or ["cpu"])
