"""ONNX operators that move, choose, reduce or convert: reshapes, slices, gathers, padding, reductions, casts.

Each is a function(node, inputs, training) of tensors and of arrays of known values. Which name has which function is in
`workloads/onnx/operators.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from workloads.onnx.constants import slices
from workloads.onnx.node import DTYPES, OnnxNode, around, integers, known_value, single

MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
"""ONNX's way of padding → torch's."""


def shape_of(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Shape, as known numbers."""
    sizes = list(inputs[0].shape)
    return np.array(sizes[node.get("start", 0) : node.get("end", len(sizes))], dtype=np.int64)


def size_of(_node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Size: elements, as a known number."""
    return np.array(int(np.prod(inputs[0].shape)), dtype=np.int64)


def reshape(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Reshape; 0 is the size that was there."""
    sizes = [int(each) for each in known_value(node, inputs, 1)]
    if not node.get("allowzero", 0):
        sizes = [inputs[0].shape[place] if size == 0 else size for place, size in enumerate(sizes)]
    return inputs[0].reshape(sizes)


def flatten(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Flatten into two dimensions."""
    x, axis = inputs[0], node.get("axis", 1)
    return x.flatten(axis) if axis == 1 and x.dim() > 1 else x.reshape(int(np.prod(x.shape[:axis])), -1)


def transpose(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Transpose; all dimensions turned round by default."""
    return inputs[0].permute(node.get("perm", list(reversed(range(inputs[0].dim())))))


def expand(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Expand by broadcasting both ways."""
    sizes = tuple(int(each) for each in known_value(node, inputs, 1))
    return inputs[0].expand(torch.broadcast_shapes(tuple(inputs[0].shape), sizes))


def unsqueeze(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Unsqueeze."""
    axes, x = integers(node, inputs, 1, "axes") or [], inputs[0]
    for axis in sorted(each % (x.dim() + len(axes)) for each in axes):
        inputs = [inputs[0].unsqueeze(axis)]
    return inputs[0]


def squeeze(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Squeeze."""
    axes = integers(node, inputs, 1, "axes")
    return inputs[0].squeeze() if axes is None else inputs[0].squeeze(tuple(axes))


def take_slice(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Slice; backwards by its indices, which torch has no slice for."""
    x = inputs[0]
    for axis, taken in enumerate(slices(node, inputs, x.dim())):
        if taken == slice(None):
            continue
        start, stop, step = taken.indices(x.shape[axis])
        if step < 0:
            wanted = torch.arange(start, stop, step, device=x.device)
            x = x.index_select(axis, wanted)
        else:
            x = x[(slice(None),) * axis + (slice(start, max(start, stop), step),)]
    return x


def split(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Split, into equal parts where nothing else is said."""
    axis, sizes, x = node.get("axis", 0), integers(node, inputs, 1, "split"), inputs[0]
    each = -(-x.shape[axis] // len(node.outputs))
    return x.split(each if sizes is None else sizes, axis)


def gather(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """An embedding where whole rows are taken from a table by data."""
    data, index = inputs
    axis = node.get("axis", 0)
    if isinstance(index, np.ndarray) and index.ndim == 0:
        return data.select(axis, int(index))
    if isinstance(index, np.ndarray):
        index = torch.tensor(index.tolist(), device=data.device)
    elif data.dim() == 2 and axis == 0:
        return functional.embedding(index, data)
    picked = data.index_select(axis, torch.where(index < 0, index + data.shape[axis], index).reshape(-1))
    at = axis % data.dim()
    return picked.reshape(*data.shape[:at], *index.shape, *data.shape[at + 1 :])


def pad(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Pad."""
    pads, x = integers(node, inputs, 1, "pads") or [], inputs[0]
    axes = integers(node, inputs, 3, "axes") or list(range(len(pads) // 2))
    before, after = [0] * x.dim(), [0] * x.dim()
    for axis, first, last in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[axis], after[axis] = first, last
    mode = MODES[node.get("mode", "constant")]
    value = known_value(node, inputs, 2, node.get("value", 0.0))
    if mode == "constant":
        return functional.pad(x, around(before, after), value=single(value))
    while before and before[0] == after[0] == 0 and len(before) > 1:
        before, after = before[1:], after[1:]
    return functional.pad(x, around(before, after), mode=mode)


def clip(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Clip; from 0 to 6 it is ReLU6."""
    low, high = known_value(node, inputs, 1, node.get("min")), known_value(node, inputs, 2, node.get("max"))
    bounds = [None if bound is None else single(bound) for bound in (low, high)]
    return functional.relu6(inputs[0]) if bounds == [0, 6] else torch.clamp(inputs[0], *bounds)


def cast(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Cast."""
    if node.get("to") not in DTYPES:
        raise node.refuse(f"type {node.get('to')} is not known")
    return inputs[0].to(getattr(torch, DTYPES[node.get("to")]))


def reduced(function: Callable[..., Any], node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """A reduction over axes, all of them by default."""
    axes, keep = integers(node, inputs, 1, "axes"), bool(node.get("keepdims", 1))
    if not axes and node.get("noop_with_empty_axes", 0):
        return inputs[0]
    return function(inputs[0], tuple(axes or range(inputs[0].dim())), keep)


def product_over(x: torch.Tensor, axes: Sequence[int], keep: bool) -> Any:
    """A product over several axes, one by one."""
    for axis in sorted((each % x.dim() for each in axes), reverse=True):
        x = x.prod(axis, keep)
    return x


def chosen_index(function: Callable[..., Any], node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """ArgMax, ArgMin."""
    return function(inputs[0], node.get("axis", 0), bool(node.get("keepdims", 1)))


def tile(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Tile."""
    return inputs[0].repeat([int(each) for each in known_value(node, inputs, 1)])


def trilu(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Trilu."""
    k = int(single(known_value(node, inputs, 1, 0)))
    return torch.triu(inputs[0], k) if node.get("upper", 1) else torch.tril(inputs[0], k)


def top_k(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """TopK."""
    k, largest = int(single(known_value(node, inputs, 1, node.get("k")))), bool(node.get("largest", 1))
    return torch.topk(inputs[0], k, node.get("axis", -1), largest, bool(node.get("sorted", 1)))


def cumulative_sum(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """CumSum, forwards and with its own element."""
    node.only("exclusive", 0)
    node.only("reverse", 0)
    return torch.cumsum(inputs[0], int(single(known_value(node, inputs, 1))))


def depth_to_space(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """DepthToSpace in both orders."""
    node.only("mode", "DCR", "CRD")
    b, (n, c, h, w) = node.get("blocksize"), inputs[0].shape
    if node.get("mode", "DCR") == "CRD":
        return functional.pixel_shuffle(inputs[0], b)
    return inputs[0].reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)


def p_relu(_node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """PRelu with a slope a channel."""
    return functional.prelu(inputs[0], inputs[1].reshape(-1))


def concat(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Concat."""
    return torch.cat(inputs, node.get("axis", 0))


def einsum(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """Einsum."""
    return torch.einsum(node.get("equation"), *inputs)


def gather_elements(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
    """GatherElements."""
    return torch.gather(inputs[0], node.get("axis", 0), inputs[1])
