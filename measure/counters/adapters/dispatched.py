"""Runs three counters that see operators as torch runs them: our own, PyTorch's FlopCounterMode and torch.profiler.

`flopledger`, `flop_counter_mode` and `torch_profiler` take a model and its inputs (real tensors), and run it in eval
mode. They return `FlopCount` rows of the forward and the backward pass. The row of a total also lists the calls that
were not counted. `not_understood` has products (convolutions and matrix products) without a formula, and operators that
`analysis.operators.registry` does not know. `ignored` has other arithmetic.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from analysis.operators.attention_conventions import attention_flop
from analysis.operators.registry import PRODUCTS, bucket_of, kind_of, model_flop, unsupported
from measure.counters.rows import UncountedCalls, rows, uncounted
from measure.model.state_snapshot import evaluating, sum_of_outputs
from measure.operations.model_trace import ON_VALUES, trace_any
from results.records.counts import FlopCount


def flopledger(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Count forward and backward of model(*inputs): a total and a row for each kind of operation.

    The counts come from the operation table of this model and input, by `analysis.operators.registry`. Only model FLOP
    are counted: convolutions and matrix products at 2 per multiply-add, taps on zero padding included, without bias.
    The step runs on fake tensors, which need no memory and little time. Where fake tensors fail (a size depends on
    data), it runs on the real ones, and a note says so. A training step is counted by `measure.operations.tracer` on
    the step itself.
    """
    with evaluating(model):
        trace = trace_any(model, inputs, {}, train=None, loss_of=None)
    note = next((f"note: {note}" for note in trace.notes if note.startswith(ON_VALUES)), "")
    counted: list[FlopCount] = []
    for phase in ("forward", "backward"):
        table = [operation for operation in trace.operations if operation.phase == phase]
        if not table:
            continue
        own: Counter[tuple[str, str]] = Counter()
        ignored: Counter[str] = Counter()
        for operation in table:
            flop = model_flop(operation)
            if flop:
                own[operation.kind, "flop"] += flop
            elif bucket_of(operation.name) == "counted":
                ignored[operation.name] += 1
        unknown = unsupported(table)
        counted += rows(
            FlopCount(
                counter="flopledger",
                workload=workload,
                batch_size=batch_size,
                phase=phase,
                native_unit="flop",
                ignored=dict(ignored),
                not_understood=unknown,
                reason=note,
                parameters=None if counted else sum(parameter.numel() for parameter in model.parameters()),
                attention={} if unknown else attention_flop(table).as_row(phase, own.total()),
            ),
            own,
        )
    return counted


def flop_counter_mode(
    model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int
) -> list[FlopCount]:
    """Count forward and backward of model(*inputs): a total and a row for each operator that added any.

    FlopCounterMode counts convolutions, matrix products and attention; its numbers stay as they are. It counts the
    backward pass of a grouped convolution as (1 + groups) times the forward pass (seen in torch 2.11 to 2.15); 2 times
    would be right. Attention whose scores are computed again counts 2.5 times. FlopCounterMode neither counts nor
    reports an operator without a formula. So a second mode sees every operator that FlopCounterMode passed on.
    """
    counter, seen = FlopCounterMode(display=False), UncountedCalls(lambda: False)
    passes: dict[str, tuple[dict[Any, int], Counter[str]]] = {}
    with evaluating(model), seen, counter:
        outputs = model(*inputs)
        forward = dict(counter.get_flop_counts().get("Global", {}))
        passes["forward"] = forward, Counter(seen.calls)
        total = sum_of_outputs(outputs)
        seen.calls.clear()
        if total is not None:
            total.backward()
            both = counter.get_flop_counts().get("Global", {})  # one mode counts both
            passes["backward"] = {name: flop - forward.get(name, 0) for name, flop in both.items()}, seen.calls
    known = {str(operator) for operator in counter.flop_registry}
    counted = []
    for phase, (flops, calls) in passes.items():
        ignored, unknown = uncounted({name: times for name, times in calls.items() if name not in known})
        counted += rows(
            FlopCount(
                counter="flop_counter_mode",
                workload=workload,
                batch_size=batch_size,
                phase=phase,
                native_unit="flop",
                ignored=ignored,
                not_understood=unknown,
            ),
            {(str(operator), "flop"): flop for operator, flop in flops.items() if flop},
        )
    return counted


def torch_profiler(
    model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int
) -> list[FlopCount]:
    """Count forward and backward of model(*inputs): a total and a row for each operator.

    The profiler runs on a CPU with `with_flops=True`, and computes FLOP from the recorded arguments of a few operators.
    conv2d, addmm, mm, bmm and baddbmm count 2 per multiply-add. add and mul (not add_) count 1 per element, by the
    first argument's size. There is no formula for a convolution's backward pass, other convolutions or fused attention.
    Of nested calls (conv2d, convolution, mkldnn_convolution) only the outermost is listed.
    """
    with evaluating(model):
        with _profiler() as forward:
            outputs = model(*inputs)
        counted = _rows(forward.events(), "forward", workload, batch_size)
        if (total := sum_of_outputs(outputs)) is None:
            return counted
        with _profiler() as backward:
            total.backward()
    return counted + _rows(backward.events(), "backward", workload, batch_size)


def _profiler() -> profile:
    return profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        with_flops=True,
        acc_events=True,  # changes nothing for one cycle; without it torch 2.11 warns
    )


def _rows(events: Iterable[Any], phase: str, workload: str, batch_size: int) -> list[FlopCount]:
    """Return the rows of one pass."""
    own: Counter[tuple[str, str]] = Counter()
    ignored: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for event in events:
        if event.flops:
            own[event.name, "flop"] += int(event.flops)
        elif not _is_product(event) and bucket_of(_aten(event)) == "counted":
            ignored[event.name] += not any(bucket_of(_aten(above)) == "counted" for above in _above(event))
        if event.cpu_parent is None:
            unknown.update(_without_formula(event))
    return rows(
        FlopCount(
            counter="torch_profiler",
            workload=workload,
            batch_size=batch_size,
            phase=phase,
            native_unit="flop",
            ignored=dict(+ignored),
            not_understood=dict(unknown),
        ),
        own,
    )


def _without_formula(event: Any) -> Iterator[str]:
    """Yield the names of product calls without FLOP, among this call and those inside it; of nested product calls that
    all have none, only the outermost."""
    if _is_product(event) and (event.flops or not _has_counted_product(event)):
        yield from () if event.flops else (event.name,)
        return
    for child in event.cpu_children:
        yield from _without_formula(child)


def _has_counted_product(event: Any) -> bool:
    return any((_is_product(child) and child.flops) or _has_counted_product(child) for child in event.cpu_children)


def _above(event: Any) -> Iterator[Any]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event


def _aten(event: Any) -> str:
    return str(event.name).replace("::", ".")


def _is_product(event: Any) -> bool:
    """Return whether the call may hold products: it is one, or an unknown operator that is not part of a known call."""
    kind = kind_of(_aten(event))
    if kind:
        return kind in PRODUCTS
    operator = "::" in event.name and not event.name.startswith(("autograd::", "torch::autograd::", "profiler::"))
    return operator and not any(kind_of(_aten(above)) for above in _above(event))
