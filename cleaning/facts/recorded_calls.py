"""What torch.profiler writes of a call, against its own law: FLOP follow from the sizes, dtypes are words of torch.

with_flops counts seven operators (`computeFlops` in torch/csrc/profiler/util.cpp, the same from 2.11 to 2.15): products
of matrices and two-dimensional convolutions at 2 a multiply-add, and each element of the first argument of `add` and
`mul`. Of any other call it says nothing.

Not asked: a convolution whose padding was recorded as a word, a call whose sizes are not those of the operator, or
without sizes, and files of other recorders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

from analysis.trace import floating_dtype, is_product, torch_dtype
from results.records import ProfiledOperation

MATRIX, BATCHED, IMAGE = 2, 3, 4
"""Dimensions of a matrix, of a batch of them, and of what a two-dimensional convolution takes."""


def call_faults(call: ProfiledOperation) -> Iterator[str]:
    """What the row of one call says that its sizes, or torch, do not."""
    expected = profiler_flop(call)
    if expected is not None and call.found_flop != expected:
        yield f"{call.found_flop} FLOP by its profiler, which counts {expected} of these sizes"
    if call.name not in LAWS and call.found_flop:
        yield f"{call.found_flop} FLOP by its profiler, which counts none of such a call"
    if is_product(call.name):
        sized = zip(call.input_shapes, call.input_dtypes, strict=False)
        strange = [word for shape, word in sized if _is_tensor(shape) and word and not torch_dtype(word)]
        if strange:
            yield f"of the dtype {strange[0]!r}, which torch has not"


def inner_dtypes(calls: Sequence[ProfiledOperation]) -> set[str]:
    """The floating dtypes of products that hold no other product: those that are computed in."""
    around = {(call.work, call.parent) for call in calls if is_product(call.name)}
    inner = (call for call in calls if is_product(call.name) and (call.work, call.index) not in around)
    return {dtype for call in inner if (dtype := floating_dtype(call.input_shapes, call.input_dtypes))}


def profiler_flop(call: ProfiledOperation) -> int | None:
    """FLOP that with_flops writes for a call of these sizes; None: it writes none, or that is not known."""
    law = LAWS.get(call.name)
    try:
        return law(call) if law is not None else None
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return None


def _is_tensor(shape: object) -> bool:
    return isinstance(shape, tuple) and bool(shape) and all(type(size) is int for size in shape)


def _product(left: int, dimensions: int) -> Callable[[ProfiledOperation], int | None]:
    def law(call: ProfiledOperation) -> int | None:
        one, other = call.input_shapes[left : left + 2]
        if len(one) != dimensions or len(other) != dimensions:
            return None
        return 2 * int(prod(one)) * int(other[-1])

    return law


def _elements(call: ProfiledOperation) -> int | None:
    first = call.input_shapes[0]
    return prod(first) if _is_tensor(first) else None


def _convolution(call: ProfiledOperation) -> int | None:
    image, weight = call.input_shapes[:2]
    stride, padding, dilation, groups = call.concrete_inputs[3:7]
    if len(image) != IMAGE or len(weight) != IMAGE or not all(isinstance(each, tuple) for each in (stride, padding)):
        return None
    out = [
        (size + 2 * padding[at] - dilation[at] * (weight[2 + at] - 1) - 1) // stride[at] + 1
        for at, size in enumerate(image[2:])
    ]
    return int(2 * image[0] * prod(out) * weight[2] * weight[3] * image[1] * weight[0] // groups)


LAWS: Mapping[str, Callable[[ProfiledOperation], int | None]] = {
    "aten::conv2d": _convolution,
    "aten::mm": _product(0, MATRIX),
    "aten::addmm": _product(1, MATRIX),
    "aten::bmm": _product(0, BATCHED),
    "aten::baddbmm": _product(1, BATCHED),
    "aten::add": _elements,
    "aten::mul": _elements,
}
"""Operator → what with_flops counts of a call."""
