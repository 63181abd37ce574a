"""What is put together, chosen and padded on fake tensors, from sizes and dtypes alone, as
`measure/fake/shape_rules.py`."""

from collections.abc import Sequence
from typing import Any

import torch

from measure.fake.shape_rules import FLOATS, UNKNOWN, Rule, has, ordered, part, plain

_FLAT = 3
"""Dimensions up to which there is one layout of what is made anew: with four, channels may be the last."""


def _is_contiguous(tensors: Sequence[torch.Tensor], rank: int) -> bool:
    """Whether what is put together of these is contiguous."""
    return plain(*tensors) or (rank <= _FLAT and all(ordered(tensor) for tensor in tensors))


def _cat_form(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    """cat of tensors of one dtype and as many dimensions."""
    first = tensors[0]
    if not first.dim() or not has(first, dim) or not _is_contiguous(tensors, first.dim()):
        return UNKNOWN
    dim %= first.dim()
    rest = (*first.shape[:dim], *first.shape[dim + 1 :])
    for tensor in tensors:
        if tensor.dtype is not first.dtype or tensor.dim() != first.dim():
            return UNKNOWN
        if (*tensor.shape[:dim], *tensor.shape[dim + 1 :]) != rest:
            return UNKNOWN
    total = sum(tensor.shape[dim] for tensor in tensors)
    return part((*first.shape[:dim], total, *first.shape[dim + 1 :]), first.dtype)


def _stacked(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    first = tensors[0]
    rank = first.dim() + 1
    alike = all(tensor.shape == first.shape and tensor.dtype is first.dtype for tensor in tensors)
    if not alike or not -rank <= dim < rank or not _is_contiguous(tensors, rank):
        return UNKNOWN
    dim %= rank
    return part((*first.shape[:dim], len(tensors), *first.shape[dim:]), first.dtype)


def _selected_backward(grad: torch.Tensor, sizes: Sequence[int], dim: int, index: int) -> Any:
    rank = len(sizes)
    if not -rank <= dim < rank or not -sizes[dim] <= index < sizes[dim]:
        return UNKNOWN
    dim %= rank
    fits = tuple(grad.shape) == (*sizes[:dim], *sizes[dim + 1 :])
    return part(tuple(sizes), grad.dtype) if fits else UNKNOWN


def _padded(x: torch.Tensor, pad: Sequence[int], value: Any = 0) -> Any:
    """constant_pad_nd that makes some side longer and none shorter."""
    sides = len(pad) // 2
    if not 1 <= sides <= x.dim() <= _FLAT or min(pad) < 0 or not any(pad) or 0 in x.shape:
        return UNKNOWN
    more = [0] * (x.dim() - sides) + [pad[2 * place] + pad[2 * place + 1] for place in reversed(range(sides))]
    return part(tuple(size + each for size, each in zip(x.shape, more, strict=True)), x.dtype)


def _comparison_form(x: torch.Tensor, number: Any) -> Any:
    """A tensor with a number: truth values."""
    return part(x.shape, torch.bool) if type(number) in (int, float) and x.dtype in FLOATS and ordered(x) else UNKNOWN


def _chosen(condition: torch.Tensor, x: Any, y: Any) -> Any:
    """where, of tensors of the same sizes."""
    if condition.dtype is not torch.bool or x.dtype is not y.dtype or not condition.shape == x.shape == y.shape:
        return UNKNOWN
    return part(x.shape, x.dtype) if all(ordered(each) for each in (condition, x, y)) else UNKNOWN


def _table() -> dict[Any, Rule]:
    aten = torch.ops.aten
    return {
        aten.cat.default: _cat_form,
        aten.stack.default: _stacked,
        aten.select_backward.default: _selected_backward,
        aten.constant_pad_nd.default: _padded,
        aten.where.self: _chosen,
        **{getattr(aten, name).Scalar: _comparison_form for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    }


JOINED: dict[Any, Rule] = _table()
