"""A profiled step: what each operation of a model costs, exactly, and takes, measured. `profile_step` is all of it.

The costs are those of the operation table (`measure/operations/tracer.py`): on fake tensors where the model is on a CPU
and runs on them, else of one real step; the notes say which. The times come from torch's profiler over several steps of
the model as it is, without hooks on it and with no function of torch replaced. `alignment.py` brings both together.

Conservation: the operations' times and the time between them are the mean step, to the nanosecond. The steps' times
are under the profiler; compare_steps times some without it. Nothing is changed but what an optimizer, if one is given,
changes (`step_kinds.py`). Not claimed: anything of a compiled model, whose operations are not those of its table.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from analysis.devices.precisions import PRECISIONS
from analysis.footprint.live_bytes import unsized
from analysis.operators import registry
from analysis.operators.attention_conventions import attention_flop
from analysis.profile.fusion import fused
from measure.device import apply_precision
from measure.model.state_snapshot import arguments, tensors
from measure.operations.tracer import Trace, trace_step
from measure.profile.operation_times import read
from measure.profile.rows import between, in_groups, module_rows, operation_rows
from measure.profile.step_kinds import MODES, ModelStep, naming_faults, paths_below, preserve_state, traced_on_fakes
from measure.profiler.module_ranges import is_compiled
from measure.profiler.work_profiles import check_available, kernel_device
from measure.timing.clocks import clock_for
from measure.timing.profiler_ranges import Ranges, unheard
from results.process import collector_off
from results.records.answers import StepProfile
from results.records.counts import Operation

Step = Callable[[Callable[[str], None]], Any]


@dataclass(frozen=True)
class StepDescription:
    """What a profile says of itself: device as torch names it, precision as in `analysis.devices.precisions`."""

    model: str
    batch_size: int | None
    device: str
    precision: str = "fp32"
    mode: str = "train"
    world_size: int = 1


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
    given), "forward" (without gradients) or "generate" (model.generate). loss: of the output, and of the target where
    that is not None; None: the sum of all outputs that have a gradient. precision: a name of
    `analysis.devices.precisions`, no loss being scaled. compare_steps: as many are timed without the profiler, half of
    them before and half after. ignore_modules: classes, their names, or paths, whose operations and parameters are left
    out of everything. Raises ValueError for what cannot be asked, ModelFailed (a ValueError) where the model fails,
    Unavailable where nothing can be recorded.
    """
    _check(mode, precision, warm_up, steps, compare_steps, model)
    _check_training(model, target, loss, optimizer)
    ignored = paths_below(model, ignore_modules)
    args, named = _arguments(input_constructor() if inputs is None and input_constructor else inputs, kwargs)
    device = _device(model, (args, named))
    policy = PRECISIONS[precision]
    if device.type != "cpu" or precision != "fp32":
        apply_precision.supported(policy, device)
    step = ModelStep(model, args, named, target, loss, optimizer, mode, policy, device.type)
    name, batch_size = name or type(model).__name__, batch_size_of((args, named))
    description = StepDescription(name, batch_size, str(device), precision, mode, world_size())
    with preserve_state(model, (args, named), trains=optimizer is not None), apply_precision.session(policy, device):
        trace, why = traced_on_fakes(step) if device.type == "cpu" else (None, "")
        profile = profile_ready(
            step, model, description, trace=trace, optimizer=optimizer, inputs=(args, named, target), warm_up=warm_up,
            steps=steps, compare_steps=compare_steps, ignored=ignored, before=step.forget,
        )  # fmt: skip
    return replace(profile, notes=(*profile.notes, why)) if why else profile


def profile_ready(
    step: Step,
    model: torch.nn.Module,
    description: StepDescription,
    *,
    trace: Trace | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    inputs: Any = (),
    warm_up: int = 1,
    steps: int = 3,
    compare_steps: int = 0,
    ignored: frozenset[str] = frozenset(),
    before: Callable[[], None] = lambda: None,
) -> StepProfile:
    """Profile a step that announces its phases to `mark`, as `workloads.training.step.TrainingStep` does.

    trace: its operations; None: those of one real step, run first (with an optimizer the second of two). before:
    called before each step, untimed. ignored: modules' paths. The flags of the precision are the caller's affair, and
    the model is left as the steps leave it.
    """
    cuda = description.device.startswith("cuda")
    check_available(cuda)
    with naming_faults(model):
        before()
        if trace is None:
            trace = trace_step(
                step, model=model, optimizer=optimizer, inputs=inputs, steps_before=int(optimizer is not None)
            )
        lead = int(cuda)  # one more under the profiler first: CUPTI takes its time for the first kernels
        recording, unprofiled = _record(step, description.device, warm_up, lead + steps, compare_steps, before)
    counting = range(lead, lead + steps)
    return table_of(recording, trace, model, description, ignored=ignored, unprofiled=unprofiled, only=counting)


def table_of(
    recording: Any,
    trace: Trace,
    model: torch.nn.Module,
    description: StepDescription,
    *,
    ignored: frozenset[str] = frozenset(),
    unprofiled: tuple[float, ...] = (),
    only: Collection[int] | None = None,
) -> StepProfile:
    """The profile of recorded steps that did a trace's operations. only: the places of those steps among all."""
    left_out = [operation.index for operation in trace.operations if operation.module in ignored]
    cuda = description.device.startswith("cuda")
    with collector_off():  # of a recording's many small objects none is garbage
        found = read(recording, trace.operations, cuda=cuda, ignored=left_out, only=only)
    views = {o.index for o in trace.operations if o.kind == "view" and o.index in found.unrecorded}
    kept = [o for o in trace.operations if o.index not in views and o.module not in ignored]
    rows, unknown = operation_rows(kept, found.steps, description.precision, description.device)
    rows = in_groups(rows, fused(kept, trace.storages))
    modules = tuple(module_rows(model, ignored))
    return StepProfile(
        **vars(description),
        parameters=sum(module.own_parameters for module in modules),
        operations=rows,
        modules=modules,
        step_times_s=tuple(each.step_s for each in found.steps),
        unprofiled_times_s=unprofiled,
        between_s=between(trace.operations, found.steps),
        not_understood=dict(unknown),
        notes=(
            *trace.notes,
            *found.notes,
            *_unsized(trace),
            *_left_out(len(left_out), [each.left_out_s for each in found.steps]),
        ),
        attention={} if unknown else _attention(kept),
    )


def _attention(kept: Sequence[Operation]) -> dict[str, Any]:
    """What conventions of attention count of a step's model FLOP, recomputation left out."""
    step = [operation for operation in kept if operation.phase != "recompute"]
    found = attention_flop([replace(operation, phase="forward") for operation in step])
    return found.as_row("forward", sum(registry.model_flop(operation) for operation in step))


def _unsized(trace: Trace) -> Iterator[str]:
    """A note on operations whose bytes are only known in part."""
    lacking = unsized(trace.operations, trace.storages)
    names = {o.name for o in trace.operations if lacking.intersection((*o.reads, *o.writes))}
    if names:
        yield f"bytes of {', '.join(sorted(names))} are at least so many: what it keeps has no known size"


def _left_out(count: int, times_s: list[float]) -> Iterator[str]:
    if count:
        spent_s = sum(times_s) / len(times_s)
        yield f"{count} operations of ignored modules are left out, and of each step {spent_s:.3g} s"


def _record(
    step: Step, device: str, warm_up: int, steps: int, compare_steps: int, before: Callable[[], None]
) -> tuple[Any, tuple[float, ...]]:
    """Torch's recording of `steps` steps; and the times of others without the profiler, half before and half after."""
    clock = clock_for(device)
    ranged = Ranges(True).step(step)
    profiler = torch.autograd.profiler.profile(use_kineto=True, use_device=kernel_device(device.startswith("cuda")))

    def unprofiled(count: int) -> Iterator[float]:
        for _ in range(count):
            before()
            clock.synchronize()
            start_s = clock.wall_s()
            step(unheard)
            clock.synchronize()
            yield clock.wall_s() - start_s

    with collector_off():
        for _ in range(warm_up):
            before()
            step(unheard)
        times = [*unprofiled(compare_steps - compare_steps // 2)]
        with profiler:
            for _ in range(steps):
                before()
                clock.synchronize()
                ranged()
                clock.synchronize()
        times += unprofiled(compare_steps // 2)
    return profiler.kineto_results, tuple(times)


def _check(mode: str, precision: str, warm_up: int, steps: int, compare_steps: int, model: torch.nn.Module) -> None:
    expect_module(model)
    if mode not in MODES:
        raise ValueError(f"expected a mode ({', '.join(MODES)}), got {mode!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"expected a precision ({', '.join(PRECISIONS)}), got {precision!r}")
    if steps < 1 or warm_up < 0 or compare_steps < 0:
        got = f"{warm_up} to warm up, {steps} and {compare_steps} to compare"
        raise ValueError(f"expected at least one step and none below zero, got {got}")
    if mode == "generate" and not callable(getattr(model, "generate", None)):
        raise ValueError(f"expected a model with a method generate, got {type(model).__name__}")
    if is_compiled(model):
        raise ValueError("expected a model that is not compiled: the operations of a compiled one are not in its table")


def expect_module(model: Any) -> torch.nn.Module:
    """The model, if it is one. Raises ValueError."""
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"expected a torch.nn.Module, got {type(model).__name__}")
    return model


def _check_training(
    model: torch.nn.Module, target: Any, loss: Callable[..., Any] | None, optimizer: torch.optim.Optimizer | None
) -> None:
    if target is not None and loss is None:
        raise ValueError("expected a loss of output and target, got a target alone")
    if optimizer is None:
        return
    mine = {id(parameter) for parameter in model.parameters()}
    if mine.isdisjoint(id(parameter) for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError("expected an optimizer of the model's parameters, got one that has none of them")


def _arguments(inputs: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(arguments by place, arguments by name)."""
    named = dict(kwargs or {})
    if isinstance(inputs, Mapping):
        return (), {**inputs, **named}
    if isinstance(inputs, tuple | list):
        return arguments(inputs), named
    return (() if inputs is None else (inputs,)), named


def _device(model: torch.nn.Module, batch: Any) -> torch.device:
    """The one device beside the CPU that tensors are on, or else the CPU."""
    held = [*model.parameters(), *model.buffers(), *tensors(batch)]
    others = sorted({str(tensor.device) for tensor in held} - {"cpu"})
    if len(others) > 1:
        raise ValueError(f"expected a model on one device, got {', '.join(others)}")
    if others == ["meta"]:
        raise ValueError("expected a model and inputs with values, got tensors on meta, which take no time")
    return torch.device(*others or ["cpu"])


def world_size() -> int:
    """Processes that torch.distributed has started; 1 without it."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def batch_size_of(batch: Any) -> int | None:
    """The first size of the first tensor that has one."""
    return next((int(tensor.shape[0]) for tensor in tensors(batch) if tensor.dim()), None)
