"""Every ONNX operator that is known: a literal table, name → what it does in PyTorch. Another is refused by name.

function(node, inputs, training) → a tensor, or a tuple of them. Inputs are tensors, None where left out, and arrays
where a value is known; `Operator.sizes` names the places that must be known. ONNX: https://onnx.ai/onnx/operators/.
Versions 7 to 24 of the operators; not claimed: control flow, sequences, strings, quantised and random operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from torch.nn import functional

from workloads.onnx import layers, tensors
from workloads.onnx.node import OnnxNode

Function = Callable[[OnnxNode, list[Any], bool], Any]


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

    def run(node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
        return function(inputs[0], **{name: node.get(theirs, value) for theirs, (name, value) in defaults.items()})

    return Operator(run)


def _softmax(function: Callable[..., Any], node: OnnxNode, inputs: list[Any], _training: bool) -> Any:
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
    "PRelu": Operator(tensors.p_relu),
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
    "Clip": Operator(tensors.clip, sizes=(1, 2)),
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
    "ArgMax": Operator(partial(tensors.chosen_index, torch.argmax)),
    "ArgMin": Operator(partial(tensors.chosen_index, torch.argmin)),
    "CumSum": Operator(tensors.cumulative_sum, sizes=(1,)),
    "ReduceL2": Operator(
        partial(tensors.reduced, lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep)), (1,)
    ),
    "ReduceMax": Operator(partial(tensors.reduced, torch.amax), sizes=(1,)),
    "ReduceMean": Operator(partial(tensors.reduced, torch.mean), sizes=(1,)),
    "ReduceMin": Operator(partial(tensors.reduced, torch.amin), sizes=(1,)),
    "ReduceProd": Operator(partial(tensors.reduced, tensors.product_over), sizes=(1,)),
    "ReduceSum": Operator(partial(tensors.reduced, torch.sum), sizes=(1,)),
    "TopK": Operator(tensors.top_k, sizes=(1,)),
}

_SHAPES = {
    "Cast": Operator(tensors.cast),
    "Concat": Operator(tensors.concat),
    "DepthToSpace": Operator(tensors.depth_to_space),
    "Einsum": Operator(tensors.einsum),
    "Expand": Operator(tensors.expand, sizes=(1,)),
    "Flatten": Operator(tensors.flatten),
    "Gather": Operator(tensors.gather, names=("weight",)),
    "GatherElements": Operator(tensors.gather_elements),
    "Identity": Operator(lambda _node, inputs, _training: inputs[0]),
    "Pad": Operator(tensors.pad, sizes=(1, 2, 3)),
    "Reshape": Operator(tensors.reshape, sizes=(1,)),
    "Shape": Operator(tensors.shape_of),
    "Size": Operator(tensors.size_of),
    "Slice": Operator(tensors.take_slice, sizes=(1, 2, 3, 4)),
    "Split": Operator(tensors.split, sizes=(1,)),
    "Squeeze": Operator(tensors.squeeze, sizes=(1,)),
    "Tile": Operator(tensors.tile, sizes=(1,)),
    "Transpose": Operator(tensors.transpose),
    "Trilu": Operator(tensors.trilu, sizes=(1,)),
    "Unsqueeze": Operator(tensors.unsqueeze, sizes=(1,)),
}

OPERATORS: dict[str, Operator] = {**_LAYERS, **_ACTIVATIONS, **_ELEMENTWISE, **_REDUCTIONS, **_SHAPES}
