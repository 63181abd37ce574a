"""FLOP of a training step by what ran: the sizes that torch's profiler recorded of each call, and whether kernels ran.

The formulas are of their own, from the definitions, so that they share nothing with the count that they are held
against: neither its operators' table nor its shapes. A multiply-add is 2 FLOP.

Not claimed: what a kernel executes. It is taken to do what the call that launched it was asked for. Only convolutions
and matrix products are known here, which is all that `STEP`'s model has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from results.errors import Unavailable
from results.records.operations import ProfiledOperation

Shapes = Sequence[Any]


def _convolution(shapes: Shapes, values: Shapes) -> int:
    """aten::convolution(input, weight, bias, stride, padding, dilation, …): each element of the output is a sum of as
    many products as a kernel has weights."""
    inputs, weight = shapes[0], shapes[1]
    stride, padding, dilation = values[3:6]
    outputs = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(inputs[2:], weight[2:], stride, padding, dilation, strict=True)
    ]
    return int(2 * inputs[0] * prod(outputs) * prod(weight))


def _gradients(shapes: Shapes, values: Shapes) -> int:
    """aten::convolution_backward(grad_output, input, weight, …, output_mask): each of the two gradients takes every
    product of the forward pass once more."""
    grad, weight = shapes[0], shapes[2]
    return int(2 * grad[0] * prod(grad[2:]) * prod(weight) * sum(map(bool, values[-1][:2])))


def _product(left: int) -> Callable[[Shapes, Shapes], int]:
    """A product of matrices whose left one is that argument and the right one the next: m · k by k · n, or many."""

    def flop(shapes: Shapes, values: Shapes) -> int:
        return 2 * prod(shapes[left]) * int(shapes[left + 1][-1])

    return flop


CALLS: Mapping[str, Callable[[Shapes, Shapes], int]] = {
    "aten::convolution": _convolution,
    "aten::convolution_backward": _gradients,
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::addmm": _product(1),
}
"""Recorded call → its FLOP of the sizes of its arguments and their values. None of them is made within another."""


def executed_flop(operations: Sequence[ProfiledOperation], cuda: bool) -> tuple[int, int]:
    """(FLOP of the calls that ran, calls that ran nothing on the device). On a CPU a call that was made has run.

    Raises Unavailable where no kernel was recorded at all, or none of these calls.
    """
    calls = [each for each in operations if each.name in CALLS]
    if not calls:
        raise Unavailable("the profiler recorded no product")
    if cuda and all(each.device_time_s is None for each in operations):
        raise Unavailable("the profiler recorded no kernel: CUPTI gave it none (no permission, or another listens)")
    ran = [each for each in calls if not cuda or each.device_time_s]
    flop = sum(CALLS[each.name](each.input_shapes, each.concrete_inputs) for each in ran)
    return flop, len(calls) - len(ran)
