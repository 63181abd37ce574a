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
from measure.counters.harness.rows import rows
from measure.model.state_snapshot import evaluating, summed
from results.records.counts import FlopCount

NAME = "torch_profiler"

NO_OPERATOR = ("autograd::", "torch::autograd::", "profiler::")
"""Begin names of the profile's own ranges, around or beside operators."""


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Forward and backward of model(*inputs): a total and a row for each operator."""
    with evaluating(model):
        with _profiler() as forward:
            outputs = model(*inputs)
        total = summed(outputs)
        found = _rows(forward.events(), "forward", workload, batch_size)
        if total is None:
            return found
        with _profiler() as backward:
            total.backward()
    return found + _rows(backward.events(), "backward", workload, batch_size)


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
    listed = list(events)
    for event in listed:
        if event.flops:
            own[event.name, "flop"] += int(event.flops)
        elif (
            not _is_product(event)
            and bucket_of(_aten(event)) == "counted"
            and not any(bucket_of(_aten(above)) == "counted" for above in _above(event))
        ):
            ignored[event.name] += 1
    roots = [event for event in listed if _is_product(event) and not any(_is_product(above) for above in _above(event))]
    missing = Counter(call.name for root in roots for call in _without_formula(root)[0])
    blank = FlopCount(
        counter=NAME,
        workload=workload,
        batch_size=batch_size,
        phase=phase,
        native_unit="flop",
        ignored=dict(ignored),
        not_understood=dict(missing),
    )
    return rows(blank, own)


def _without_formula(event: Any) -> tuple[list[Any], bool]:
    """The product calls in and under this one that no FLOP were counted for, and whether any were counted for another.

    A chain of calls in which none was counted is its outermost one.
    """
    if event.flops:
        return [], True
    inner = [_without_formula(product) for product in _products_under(event)]
    if any(counted for _, counted in inner):
        return [call for missing, _ in inner for call in missing], True
    return [event], False


def _products_under(event: Any) -> Iterator[Any]:
    """The nearest product calls under this one."""
    for child in event.cpu_children:
        if _is_product(child):
            yield child
        else:
            yield from _products_under(child)


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
    operator = "::" in event.name and not event.name.startswith(NO_OPERATOR)
    return operator and not any(kind_of(_aten(above)) for above in _above(event))
