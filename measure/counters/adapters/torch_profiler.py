"""torch.profiler with `with_flops=True` around one pass forward and one back, as its users run it on a CPU.

Its FLOP are what it computes from the recorded arguments of a few operators: conv2d, addmm, mm, bmm and baddbmm at 2 a
multiply-add, and each element of add and mul (not of add_), one FLOP, from the first argument's size. It has no formula
for the backward pass of a convolution, for other convolutions or for fused attention; those it ran are listed as not
understood, as are operators that `analysis.operators.registry` does not know: of nested calls (conv2d, convolution,
mkldnn_convolution) the outermost, once. To repair them from recorded shapes is the cleaning's work.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from analysis.operators.registry import PRODUCTS, bucket_of, kind_of
from measure.counters.rows import rows
from measure.model.state_snapshot import evaluating, summed
from results.records.counts import FlopCount


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Forward and backward of model(*inputs): a total and a row for each operator."""
    with evaluating(model):
        with _profiler() as forward:
            outputs = model(*inputs)
        counted = _rows(forward.events(), "forward", workload, batch_size)
        if (total := summed(outputs)) is None:
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
    """The rows of one pass."""
    own: Counter[tuple[str, str]] = Counter()
    ignored: Counter[str] = Counter()
    not_understood: Counter[str] = Counter()
    for event in events:
        if event.flops:
            own[event.name, "flop"] += int(event.flops)
        elif not _is_product(event) and bucket_of(_aten(event)) == "counted":
            ignored[event.name] += not any(bucket_of(_aten(above)) == "counted" for above in _above(event))
        if event.cpu_parent is None:
            not_understood.update(_without_formula(event))
    blank = FlopCount(
        counter="torch_profiler",
        workload=workload,
        batch_size=batch_size,
        phase=phase,
        native_unit="flop",
        ignored=dict(+ignored),
        not_understood=dict(not_understood),
    )
    return rows(blank, own)


def _without_formula(event: Any) -> Iterator[str]:
    """The product calls in and under this one that no FLOP were counted for; of a chain without any, the first."""
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
    """Whether the call may hold products: it is one, or a stranger that is no part of a call we know."""
    kind = kind_of(_aten(event))
    if kind:
        return kind in PRODUCTS
    operator = "::" in event.name and not event.name.startswith(("autograd::", "torch::autograd::", "profiler::"))
    return operator and not any(kind_of(_aten(above)) for above in _above(event))
