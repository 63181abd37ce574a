"""ONNX operators on known values: what graphs calculate their sizes with, in numpy. A literal table, name → function.

function(node, arrays) → an array, or a tuple of arrays. Division of whole numbers drops the remainder, as ONNX does.
A small file can ask for any size: what grows is bounded before memory is taken (`array_elements` of results/limits.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from workloads.onnx.node import DTYPES, Known, OnnxNode, integers, single

Function = Callable[[OnnxNode, list[Any]], Any]

_NUMPY = {"bfloat16": "float32"}
"""Types that numpy has not → one that holds their values."""


def calculate(node: OnnxNode, arrays: list[Any]) -> tuple[Known, ...]:
    """What a node gives for known values, as arrays: numpy makes a number of an array without dimensions."""
    made = KNOWN[node.op](node, arrays)
    return tuple(np.asarray(each) for each in (made if isinstance(made, tuple) else (made,)))


def _elementwise(function: Callable[..., Any]) -> Function:
    return lambda node, arrays: np.asarray(function(*_broadcast(node, arrays)))


def _folding(function: Callable[..., Any]) -> Function:
    return lambda node, arrays: reduce(function, _broadcast(node, arrays))


def _broadcast(node: OnnxNode, arrays: list[Any]) -> list[Any]:
    """The arrays as they are, if what they broadcast to is not too large."""
    node.bounded(math.prod(np.broadcast_shapes(*(np.shape(each) for each in arrays))))
    return arrays


def _divide(left: Known, right: Known) -> Known:
    if np.issubdtype(left.dtype, np.integer):
        whole: Known = np.trunc(left / right).astype(left.dtype)
        return whole
    return np.asarray(left / right)


def _cast(node: OnnxNode, arrays: list[Any]) -> Known:
    name = DTYPES.get(node.get("to"))
    if name is None:
        raise node.refuse(f"type {node.get('to')} is not known")
    cast: Known = np.asarray(arrays[0]).astype(_NUMPY.get(name, name))
    return cast


def _gather(node: OnnxNode, arrays: list[Any]) -> Known:
    data, axis = arrays[0], node.get("axis", 0)
    node.bounded(arrays[1].size * data.size // max(data.shape[axis], 1))
    taken: Known = np.take(data, arrays[1].astype(np.int64), axis=axis)
    return taken


def _concat(node: OnnxNode, arrays: list[Any]) -> Known:
    node.bounded(sum(each.size for each in arrays))
    return np.concatenate(arrays, axis=node.get("axis", 0))


def _unsqueeze(node: OnnxNode, arrays: list[Any]) -> Known:
    return np.expand_dims(arrays[0], tuple(integers(node, arrays, 1, "axes") or ()))


def _squeeze(node: OnnxNode, arrays: list[Any]) -> Known:
    axes = integers(node, arrays, 1, "axes")
    made: Known = np.squeeze(arrays[0], None if axes is None else tuple(axes))
    return made


def _reshape(_node: OnnxNode, arrays: list[Any]) -> Known:
    sizes = [arrays[0].shape[i] if size == 0 else int(size) for i, size in enumerate(arrays[1])]
    return np.reshape(arrays[0], sizes)


def _flatten(node: OnnxNode, arrays: list[Any]) -> Known:
    axis = node.get("axis", 1)
    return np.reshape(arrays[0], (int(np.prod(arrays[0].shape[:axis])), -1))


def _transpose(node: OnnxNode, arrays: list[Any]) -> Known:
    return np.transpose(arrays[0], node.get("perm"))


def _slice(node: OnnxNode, arrays: list[Any]) -> Known:
    return np.asarray(arrays[0])[slices(node, arrays, arrays[0].ndim)]


def slices(node: OnnxNode, inputs: list[Any], rank: int) -> tuple[slice, ...]:
    """What a Slice takes of each dimension."""
    starts = integers(node, inputs, 1, "starts") or []
    ends = integers(node, inputs, 2, "ends") or []
    axes = integers(node, inputs, 3, "axes") or list(range(len(starts)))
    steps = integers(node, inputs, 4, "steps") or [1] * len(starts)
    taken = [slice(None)] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        backwards_to_the_front = step < 0 and end <= -(2**31)
        taken[axis] = slice(start, None if backwards_to_the_front else end, step)
    return tuple(taken)


def _constant_of_shape(node: OnnxNode, arrays: list[Any]) -> Known:
    value = node.get("value", np.zeros(1, np.float32))
    sizes = [int(size) for size in arrays[0]]
    node.bounded(math.prod(sizes))
    return np.full(sizes, single(value), value.dtype)


def _range(node: OnnxNode, arrays: list[Any]) -> Known:
    start, stop, step = (single(each) for each in arrays)
    if not all(map(math.isfinite, (start, stop, step))) or step == 0:
        raise node.refuse(f"expected a step that is not 0 between numbers, got {start}, {stop}, {step}")
    node.bounded(math.ceil(max((stop - start) / step, 0)))
    return np.arange(start, stop, step, dtype=arrays[0].dtype)


def _expand(node: OnnxNode, arrays: list[Any]) -> Known:
    sizes = np.broadcast_shapes(arrays[0].shape, tuple(int(size) for size in arrays[1]))
    node.bounded(math.prod(sizes))
    return np.broadcast_to(arrays[0], sizes)


def _tile(node: OnnxNode, arrays: list[Any]) -> Known:
    times = [int(each) for each in arrays[1]]
    node.bounded(arrays[0].size * math.prod(times))
    return np.tile(arrays[0], times)


def _split(node: OnnxNode, arrays: list[Any]) -> tuple[Known, ...]:
    axis, sizes = node.get("axis", 0), integers(node, arrays, 1, "split")
    cuts = len(node.outputs) if sizes is None else np.cumsum(sizes)[:-1]
    return tuple(np.split(arrays[0], cuts, axis=axis))


def _trilu(node: OnnxNode, arrays: list[Any]) -> Known:
    k = int(single(arrays[1])) if len(arrays) > 1 and arrays[1] is not None else 0
    return np.triu(arrays[0], k) if node.get("upper", 1) else np.tril(arrays[0], k)


def _reduced(function: Callable[..., Any], node: OnnxNode, arrays: list[Any]) -> Known:
    axes = integers(node, arrays, 1, "axes")
    keep = bool(node.get("keepdims", 1))
    return np.asarray(function(arrays[0], axis=None if axes is None else tuple(axes), keepdims=keep))


KNOWN: dict[str, Function] = {
    "Abs": _elementwise(np.abs),
    "Add": _elementwise(np.add),
    "And": _elementwise(np.logical_and),
    "Cast": _cast,
    "Ceil": _elementwise(np.ceil),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _elementwise(_divide),
    "Equal": _elementwise(np.equal),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _elementwise(np.floor),
    "Gather": _gather,
    "Greater": _elementwise(np.greater),
    "GreaterOrEqual": _elementwise(np.greater_equal),
    "Identity": lambda _node, arrays: arrays[0],
    "Less": _elementwise(np.less),
    "LessOrEqual": _elementwise(np.less_equal),
    "Max": _folding(np.maximum),
    "Min": _folding(np.minimum),
    "Mod": _elementwise(np.mod),
    "Mul": _elementwise(np.multiply),
    "Neg": _elementwise(np.negative),
    "Not": _elementwise(np.logical_not),
    "Or": _elementwise(np.logical_or),
    "Pow": _elementwise(np.power),
    "Range": _range,
    "Reciprocal": _elementwise(np.reciprocal),
    "ReduceMax": partial(_reduced, np.max),
    "ReduceMin": partial(_reduced, np.min),
    "ReduceProd": partial(_reduced, np.prod),
    "ReduceSum": partial(_reduced, np.sum),
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _elementwise(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _elementwise(np.subtract),
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
    "Where": _elementwise(np.where),
}
