"""Every ONNX operator that is known: a literal table, name → what it does in PyTorch. Another is refused by name.

function(node, inputs, training) → a tensor, or a tuple of them. Inputs are tensors, None where left out, and arrays
where a value is known; `Operator.sizes` names the places that must be known. ONNX: https://onnx.ai/onnx/operators/.
Versions 7 to 24 of the operators; not claimed: control flow, sequences, strings, quantised and random operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from workloads import onnx_layers as layers
from workloads.onnx_known import slices
from workloads.onnx_nodes import DTYPES, Node, around, integers, known, single

Function = Callable[[Node, list[Any], bool], Any]


@dataclass(frozen=True)
class Operator:
    """What an operator does. sizes: places of inputs whose values must be known. kept: places of floating initialisers
    that training does not change by gradients. names: what its other initialisers are called, by place."""

    function: Function
    sizes: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    names: tuple[str, ...] = ("", "weight", "bias")


def _plain(function: Callable[..., Any], **more: Any) -> Operator:
    """An operator without attributes: a function of its inputs."""
    return Operator(lambda _node, inputs, _training: function(*inputs, **more))


def _folded(function: Callable[[Any, Any], Any]) -> Operator:
    """An operator of any number of inputs, two by two."""
    return Operator(lambda _node, inputs, _training: reduce(function, inputs))


def _with(function: Callable[..., Any], **defaults: Any) -> Operator:
    """A function of one input and of attributes, named as torch's arguments are: ONNX's name → (torch's, default)."""

    def run(node: Node, inputs: list[Any], _training: bool) -> Any:
        return function(inputs[0], **{name: node.get(theirs, value) for theirs, (name, value) in defaults.items()})

    return Operator(run)


def _softmax(function: Callable[..., Any], node: Node, inputs: list[Any], _training: bool) -> Any:
    """Before version 13 over all dimensions from `axis` on."""
    if node.opset >= 13:
        return function(inputs[0], node.get("axis", -1))
    x: torch.Tensor = inputs[0]
    return function(x.flatten(node.get("axis", 1) % x.dim()), -1).reshape(x.shape)


def _divide(left: Any, right: Any) -> Any:
    whole = not any(
        (torch.is_tensor(each) and each.is_floating_point()) or isinstance(each, float) for each in (left, right)
    )
    return torch.div(left, right, rounding_mode="trunc") if whole else torch.div(left, right)


def _shape(node: Node, inputs: list[Any], _training: bool) -> Any:
    sizes = list(inputs[0].shape)
    return np.array(sizes[node.get("start", 0) : node.get("end", len(sizes))], dtype=np.int64)


def _size(_node: Node, inputs: list[Any], _training: bool) -> Any:
    return np.array(int(np.prod(inputs[0].shape)), dtype=np.int64)


def _reshape(node: Node, inputs: list[Any], _training: bool) -> Any:
    sizes = [int(each) for each in known(node, inputs, 1)]
    if not node.get("allowzero", 0):
        sizes = [inputs[0].shape[place] if size == 0 else size for place, size in enumerate(sizes)]
    return inputs[0].reshape(sizes)


def _flatten(node: Node, inputs: list[Any], _training: bool) -> Any:
    x, axis = inputs[0], node.get("axis", 1)
    return x.flatten(axis) if axis == 1 and x.dim() > 1 else x.reshape(int(np.prod(x.shape[:axis])), -1)


def _transpose(node: Node, inputs: list[Any], _training: bool) -> Any:
    return inputs[0].permute(node.get("perm", list(reversed(range(inputs[0].dim())))))


def _expand(node: Node, inputs: list[Any], _training: bool) -> Any:
    sizes = tuple(int(each) for each in known(node, inputs, 1))
    return inputs[0].expand(torch.broadcast_shapes(tuple(inputs[0].shape), sizes))


def _unsqueeze(node: Node, inputs: list[Any], _training: bool) -> Any:
    axes, x = integers(node, inputs, 1, "axes") or [], inputs[0]
    for axis in sorted(each % (x.dim() + len(axes)) for each in axes):
        inputs = [inputs[0].unsqueeze(axis)]
    return inputs[0]


def _squeeze(node: Node, inputs: list[Any], _training: bool) -> Any:
    axes = integers(node, inputs, 1, "axes")
    return inputs[0].squeeze() if axes is None else inputs[0].squeeze(tuple(axes))


def _slice(node: Node, inputs: list[Any], _training: bool) -> Any:
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


def _split(node: Node, inputs: list[Any], _training: bool) -> Any:
    axis, sizes, x = node.get("axis", 0), integers(node, inputs, 1, "split"), inputs[0]
    each = -(-x.shape[axis] // len(node.outputs))
    return x.split(each if sizes is None else sizes, axis)


def _gather(node: Node, inputs: list[Any], _training: bool) -> Any:
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


def _pad(node: Node, inputs: list[Any], _training: bool) -> Any:
    pads, x = integers(node, inputs, 1, "pads") or [], inputs[0]
    axes = integers(node, inputs, 3, "axes") or list(range(len(pads) // 2))
    before, after = [0] * x.dim(), [0] * x.dim()
    for axis, first, last in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[axis], after[axis] = first, last
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[
        node.get("mode", "constant")
    ]
    value = known(node, inputs, 2, node.get("value", 0.0))
    if mode == "constant":
        return functional.pad(x, around(before, after), value=single(value))
    while before and before[0] == after[0] == 0 and len(before) > 1:
        before, after = before[1:], after[1:]
    return functional.pad(x, around(before, after), mode=mode)


def _clip(node: Node, inputs: list[Any], _training: bool) -> Any:
    low, high = known(node, inputs, 1, node.get("min")), known(node, inputs, 2, node.get("max"))
    bounds = [None if bound is None else single(bound) for bound in (low, high)]
    return functional.relu6(inputs[0]) if bounds == [0, 6] else torch.clamp(inputs[0], *bounds)


def _cast(node: Node, inputs: list[Any], _training: bool) -> Any:
    if node.get("to") not in DTYPES:
        raise node.refuse(f"type {node.get('to')} is not known")
    return inputs[0].to(getattr(torch, DTYPES[node.get("to")]))


def _reduced(function: Callable[..., Any], node: Node, inputs: list[Any], _training: bool) -> Any:
    axes, keep = integers(node, inputs, 1, "axes"), bool(node.get("keepdims", 1))
    if not axes and node.get("noop_with_empty_axes", 0):
        return inputs[0]
    return function(inputs[0], tuple(axes or range(inputs[0].dim())), keep)


def _product_over(x: torch.Tensor, axes: Sequence[int], keep: bool) -> Any:
    for axis in sorted((each % x.dim() for each in axes), reverse=True):
        x = x.prod(axis, keep)
    return x


def _chosen_index(function: Callable[..., Any], node: Node, inputs: list[Any], _training: bool) -> Any:
    return function(inputs[0], node.get("axis", 0), bool(node.get("keepdims", 1)))


def _tile(node: Node, inputs: list[Any], _training: bool) -> Any:
    return inputs[0].repeat([int(each) for each in known(node, inputs, 1)])


def _trilu(node: Node, inputs: list[Any], _training: bool) -> Any:
    k = int(single(known(node, inputs, 1, 0)))
    return torch.triu(inputs[0], k) if node.get("upper", 1) else torch.tril(inputs[0], k)


def _top_k(node: Node, inputs: list[Any], _training: bool) -> Any:
    k, largest = int(single(known(node, inputs, 1, node.get("k")))), bool(node.get("largest", 1))
    return torch.topk(inputs[0], k, node.get("axis", -1), largest, bool(node.get("sorted", 1)))


def _cumulative_sum(node: Node, inputs: list[Any], _training: bool) -> Any:
    node.only("exclusive", 0)
    node.only("reverse", 0)
    return torch.cumsum(inputs[0], int(single(known(node, inputs, 1))))


def _depth_to_space(node: Node, inputs: list[Any], _training: bool) -> Any:
    node.only("mode", "CRD", "DCR")
    b, (n, c, h, w) = node.get("blocksize"), inputs[0].shape
    if node.get("mode", "DCR") == "CRD":
        return functional.pixel_shuffle(inputs[0], b)
    return inputs[0].reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)


def _p_relu(_node: Node, inputs: list[Any], _training: bool) -> Any:
    return functional.prelu(inputs[0], inputs[1].reshape(-1))


def _concat(node: Node, inputs: list[Any], _training: bool) -> Any:
    return torch.cat(inputs, node.get("axis", 0))


def _einsum(node: Node, inputs: list[Any], _training: bool) -> Any:
    return torch.einsum(node.get("equation"), *inputs)


def _gather_elements(node: Node, inputs: list[Any], _training: bool) -> Any:
    return torch.gather(inputs[0], node.get("axis", 0), inputs[1])


_LAYERS = {
    "AveragePool": Operator(layers.average_pool),
    "BatchNormalization": Operator(layers.batch_norm, kept=(3, 4), names=("", "weight", "bias", "mean", "variance")),
    "Conv": Operator(layers.convolution),
    "ConvTranspose": Operator(layers.transposed_convolution),
    "Dropout": Operator(layers.dropout, sizes=(1, 2)),
    "Gemm": Operator(layers.gemm),
    "GlobalAveragePool": Operator(layers.global_average),
    "GlobalMaxPool": Operator(layers.global_maximum),
    "GroupNormalization": Operator(layers.group_norm),
    "InstanceNormalization": Operator(layers.instance_norm),
    "LayerNormalization": Operator(layers.layer_norm),
    "MatMul": _plain(torch.matmul),
    "MaxPool": Operator(layers.max_pool),
    "RMSNormalization": Operator(layers.rms_norm),
    "Resize": Operator(layers.resize, sizes=(1, 2, 3)),
    "Upsample": Operator(layers.resize, sizes=(1,)),
}

_ACTIVATIONS = {
    "Elu": _with(functional.elu, alpha=("alpha", 1.0)),
    "Gelu": _with(functional.gelu, approximate=("approximate", "none")),
    "HardSigmoid": Operator(
        lambda node, inputs, _training: torch.clamp(node.get("alpha", 0.2) * inputs[0] + node.get("beta", 0.5), 0, 1)
    ),
    "HardSwish": _plain(functional.hardswish),
    "LeakyRelu": _with(functional.leaky_relu, alpha=("negative_slope", 0.01)),
    "LogSoftmax": Operator(partial(_softmax, torch.log_softmax)),
    "Mish": _plain(functional.mish),
    "PRelu": Operator(_p_relu),
    "Relu": _plain(torch.relu),
    "Selu": _plain(functional.selu),
    "Sigmoid": _plain(torch.sigmoid),
    "Softmax": Operator(partial(_softmax, torch.softmax)),
    "Softplus": _plain(functional.softplus),
    "Softsign": _plain(functional.softsign),
    "Tanh": _plain(torch.tanh),
}

_ELEMENTWISE = {
    "Abs": _plain(torch.abs),
    "Add": _plain(torch.add),
    "And": _plain(torch.logical_and),
    "Ceil": _plain(torch.ceil),
    "Clip": Operator(_clip, sizes=(1, 2)),
    "Cos": _plain(torch.cos),
    "Div": _plain(_divide),
    "Equal": _plain(torch.eq),
    "Erf": _plain(torch.erf),
    "Exp": _plain(torch.exp),
    "Floor": _plain(torch.floor),
    "Greater": _plain(torch.gt),
    "GreaterOrEqual": _plain(torch.ge),
    "IsNaN": _plain(torch.isnan),
    "Less": _plain(torch.lt),
    "LessOrEqual": _plain(torch.le),
    "Log": _plain(torch.log),
    "Max": _folded(torch.maximum),
    "Mean": Operator(lambda _node, inputs, _training: reduce(torch.add, inputs) / len(inputs)),
    "Min": _folded(torch.minimum),
    "Mod": _plain(torch.remainder),
    "Mul": _plain(torch.mul),
    "Neg": _plain(torch.neg),
    "Not": _plain(torch.logical_not),
    "Or": _plain(torch.logical_or),
    "Pow": _plain(torch.pow),
    "Reciprocal": _plain(torch.reciprocal),
    "Round": _plain(torch.round),
    "Sign": _plain(torch.sign),
    "Sin": _plain(torch.sin),
    "Sqrt": _plain(torch.sqrt),
    "Sub": _plain(torch.sub),
    "Sum": _folded(torch.add),
    "Where": _plain(torch.where),
}

_REDUCTIONS = {
    "ArgMax": Operator(partial(_chosen_index, torch.argmax)),
    "ArgMin": Operator(partial(_chosen_index, torch.argmin)),
    "CumSum": Operator(_cumulative_sum, sizes=(1,)),
    "ReduceL2": Operator(partial(_reduced, lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep)), (1,)),
    "ReduceMax": Operator(partial(_reduced, torch.amax), sizes=(1,)),
    "ReduceMean": Operator(partial(_reduced, torch.mean), sizes=(1,)),
    "ReduceMin": Operator(partial(_reduced, torch.amin), sizes=(1,)),
    "ReduceProd": Operator(partial(_reduced, _product_over), sizes=(1,)),
    "ReduceSum": Operator(partial(_reduced, torch.sum), sizes=(1,)),
    "TopK": Operator(_top_k, sizes=(1,)),
}

_SHAPES = {
    "Cast": Operator(_cast),
    "Concat": Operator(_concat),
    "DepthToSpace": Operator(_depth_to_space),
    "Einsum": Operator(_einsum),
    "Expand": Operator(_expand, sizes=(1,)),
    "Flatten": Operator(_flatten),
    "Gather": Operator(_gather, names=("weight",)),
    "GatherElements": Operator(_gather_elements),
    "Identity": Operator(lambda _node, inputs, _training: inputs[0]),
    "Pad": Operator(_pad, sizes=(1, 2, 3)),
    "Reshape": Operator(_reshape, sizes=(1,)),
    "Shape": Operator(_shape),
    "Size": Operator(_size),
    "Slice": Operator(_slice, sizes=(1, 2, 3, 4)),
    "Split": Operator(_split, sizes=(1,)),
    "Squeeze": Operator(_squeeze, sizes=(1,)),
    "Tile": Operator(_tile, sizes=(1,)),
    "Transpose": Operator(_transpose),
    "Trilu": Operator(_trilu, sizes=(1,)),
    "Unsqueeze": Operator(_unsqueeze, sizes=(1,)),
}

OPERATORS: dict[str, Operator] = {**_LAYERS, **_ACTIVATIONS, **_ELEMENTWISE, **_REDUCTIONS, **_SHAPES}
