"""ONNX operators that PyTorch has as layers: convolutions, products, normalisations, windows, resizing.

Each is a function(node, inputs, training) of tensors and of arrays of known values. Which name has which function is in
`workloads/onnx/operators.py`; recurrent layers hold weights in an order of their own and are in `recurrent.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from workloads.onnx.node import OnnxNode, around, integers, padding

_CONVOLUTIONS = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}
_MAX_POOLS = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVERAGE_POOLS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def convolution(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """Conv of one to three dimensions; padding that differs between the two sides is an operation of its own."""
    x, weight, *bias = inputs
    rank = weight.dim() - 2
    before, after = padding(node, tuple(x.shape[2:]), tuple(weight.shape[2:]))
    if before != after:
        x, before = functional.pad(x, around(before, after)), [0] * rank
    strides, dilations = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    made: torch.Tensor = _CONVOLUTIONS[rank](
        x, weight, bias[0] if bias else None, strides, before, dilations, node.get("group", 1)
    )
    return made


def transposed_convolution(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """ConvTranspose with written padding, the same on both sides."""
    x, weight, *bias = inputs
    rank = weight.dim() - 2
    node.only("auto_pad", "NOTSET", "VALID")
    before, after = padding(node, tuple(x.shape[2:]), tuple(weight.shape[2:]))
    if before != after or node.get("output_shape") is not None:
        raise node.refuse("expected the same padding on both sides and no output_shape")
    strides, dilations = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    more = node.get("output_padding", [0] * rank)
    made: torch.Tensor = _TRANSPOSED[rank](
        x, weight, bias[0] if bias else None, strides, before, more, node.get("group", 1), dilations
    )
    return made


def gemm(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """alpha·A·B + beta·C; a linear layer where it is one."""
    left, right, *added = inputs
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    bias = added[0] if added else None
    if node.get("transA", 0):
        left = left.t()
    if node.get("transB", 0) and alpha == beta == 1 and (bias is None or bias.dim() == 1):
        return functional.linear(left, right, bias)
    right = right.t() if node.get("transB", 0) else right
    return alpha * torch.mm(left, right) if bias is None else torch.addmm(bias, left, right, beta=beta, alpha=alpha)


def batch_norm(node: OnnxNode, inputs: list[Any], training: bool) -> torch.Tensor:
    """BatchNormalization. ONNX's momentum is the share that is kept, torch's the share that is new."""
    x, weight, bias, mean, variance = inputs
    return functional.batch_norm(
        x, mean, variance, weight, bias, training, 1 - node.get("momentum", 0.9), node.get("epsilon", 1e-5)
    )


def layer_norm(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """LayerNormalization over the last dimensions, from `axis` on."""
    x, weight, *bias = inputs
    axis = node.get("axis", -1)
    return functional.layer_norm(x, x.shape[axis:], weight, bias[0] if bias else None, node.get("epsilon", 1e-5))


def rms_norm(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """RMSNormalization over the last dimensions, from `axis` on."""
    x, weight = inputs
    return functional.rms_norm(x, x.shape[node.get("axis", -1) :], weight, node.get("epsilon", 1e-5))


def instance_norm(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """InstanceNormalization."""
    x, weight, bias = inputs
    return functional.instance_norm(x, weight=weight, bias=bias, eps=node.get("epsilon", 1e-5))


def group_norm(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """GroupNormalization; before version 21 scale and bias are those of a group, which torch has not."""
    x, weight, bias = inputs
    if node.opset < 21 and weight.shape[0] != x.shape[1]:
        raise node.refuse("scale and bias of a group (before version 21) are not known")
    return functional.group_norm(x, node.get("num_groups"), weight, bias, node.get("epsilon", 1e-5))


def max_pool(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """MaxPool without its indices."""
    kernel, strides, before, x = _window(node, inputs[0], -float("inf"))
    dilations = node.get("dilations", [1] * len(kernel))
    pooled: torch.Tensor = _MAX_POOLS[len(kernel)](
        x, kernel, strides, before, dilations, ceil_mode=bool(node.get("ceil_mode", 0))
    )
    return pooled


def average_pool(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """AveragePool; padding that differs between the sides only where it is counted."""
    counts = bool(node.get("count_include_pad", 0))
    kernel, strides, before, x = _window(node, inputs[0], 0.0 if counts else None)
    pooled: torch.Tensor = _AVERAGE_POOLS[len(kernel)](
        x, kernel, strides, before, bool(node.get("ceil_mode", 0)), counts
    )
    return pooled


def _window(
    node: OnnxNode, x: torch.Tensor, fill: float | None
) -> tuple[list[int], list[int], list[int], torch.Tensor]:
    """(kernel, strides, padding on both sides, input); what differs between the sides is put around the input."""
    kernel = list(node.get("kernel_shape"))
    before, after = padding(node, tuple(x.shape[2:]), tuple(kernel))
    if before != after:
        if fill is None:
            raise node.refuse("padding that differs between two sides is not counted here")
        x, before = functional.pad(x, around(before, after), value=fill), [0] * len(kernel)
    return kernel, list(node.get("strides", [1] * len(kernel))), before, x


def global_average(_node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """GlobalAveragePool."""
    x: torch.Tensor = inputs[0]
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


def global_maximum(_node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """GlobalMaxPool."""
    x: torch.Tensor = inputs[0]
    return x.amax(tuple(range(2, x.dim())), keepdim=True)


def dropout(node: OnnxNode, inputs: list[Any], training: bool) -> torch.Tensor:
    """Dropout; its mask is not given out."""
    ratio = float(np.asarray(inputs[1]).reshape(-1)[0]) if len(inputs) > 1 and inputs[1] is not None else None
    return functional.dropout(inputs[0], node.get("ratio", 0.5) if ratio is None else ratio, training)


def resize(node: OnnxNode, inputs: list[Any], _training: bool) -> torch.Tensor:
    """Resize and Upsample of the spatial dimensions, by sizes or by scales."""
    x: torch.Tensor = inputs[0]
    rank = x.dim() - 2
    scales_at = 1 if node.op == "Upsample" else 2
    sizes, scales = integers(node, inputs, 3, "sizes"), _scales(node, inputs, scales_at)
    if sizes is None and scales is not None:
        sizes = [int(size * scale) for size, scale in zip(x.shape, scales, strict=True)]
    if sizes is None or tuple(sizes[:2]) != tuple(x.shape[:2]):
        raise node.refuse("expected sizes or scales that change spatial dimensions alone")
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        return functional.interpolate(x, sizes[2:], mode="nearest")
    name = _LINEAR[rank] if mode == "linear" else "bicubic"
    corners = node.get("coordinate_transformation_mode", "half_pixel") == "align_corners"
    return functional.interpolate(x, sizes[2:], mode=name, align_corners=corners)


def _scales(node: OnnxNode, inputs: list[Any], place: int) -> list[float] | None:
    value = inputs[place] if place < len(inputs) else node.get("scales")
    if isinstance(value, torch.Tensor):
        raise node.refuse("scales depend on data")
    return None if value is None or not np.size(value) else [float(each) for each in np.asarray(value).reshape(-1)]
