"""Taps of a convolution that lie inside of its image, and how many products its backward pass makes."""

from __future__ import annotations

from collections.abc import Sequence

from results.records import Operation

CONVOLUTIONS = ("aten.convolution", "aten.convolution_backward")


def products_of(operation: Operation) -> int:
    """1, or how many of the image's and the weight's gradients a backward pass makes."""
    return sum(operation.attributes["output_mask"][:2]) if operation.name == CONVOLUTIONS[1] else 1


def taps_inside(operation: Operation) -> int:
    """Multiply-adds of a convolution, or of one gradient of it, without those whose tap lies on its padding. 0 for a
    transposed one."""
    by_name = dict(zip(operation.input_names, operation.input_shapes, strict=True))
    image, weight, asked = by_name["input"], by_name["weight"], operation.attributes
    result = by_name.get("grad_output", operation.output_shapes[0])
    if asked.get("transposed"):
        return 0
    spatial = len(weight) - 2
    inside = 1
    for axis in range(spatial):
        size, kernel = image[2 + axis], weight[2 + axis]
        stride, padding, dilation = (_of_axis(asked[key], axis) for key in ("stride", "padding", "dilation"))
        starts = (place * stride - padding for place in range(result[2 + axis]))
        inside *= sum(0 <= start + tap * dilation < size for start in starts for tap in range(kernel))
    return int(image[0] * weight[0] * weight[1] * inside)


def _of_axis(values: Sequence[int], axis: int) -> int:
    return values[axis] if len(values) > 1 else values[0]
