"""Work whose outcome is known, for the self-test: FLOP, bytes and precision of what was run.

Each check gets a device and answers with a row that says whether the program measures this work correctly. Rates, times
and energy of known work are in `runners.doctor.self_test`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from analysis.devices import peaks
from analysis.devices.precisions import PRECISIONS
from cleaning.facts.self_test import (
    FAILED,
    FP32_ERROR,
    MEMORY_RATIO,
    OK,
    REPORTED,
    UNAVAILABLE,
    CheckResult,
)
from results.errors import Unavailable
from results.records.operations import ProfiledOperation
from runners.footprint import step as training

__all__ = ["FAILED", "UNAVAILABLE", "OK", "REPORTED", "DeviceUnderTest", "Check", "CheckResult", "within"]


@dataclass(frozen=True)
class DeviceUnderTest:
    """The device that is tested. name: as its driver prints it."""

    device: str
    name: str
    multiprocessors: int | None = None

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def is_stand_in(self) -> bool:
        """Whether it computes nothing (docs/evidence.md)."""
        return peaks.is_stand_in(self.name)


Check = Callable[[DeviceUnderTest], CheckResult]


def within(found: float, low: float, high: float, expected: str, reason: str) -> CheckResult:
    """ok where low ≤ found ≤ high; the reason is given where it is not."""
    fits = low <= found <= high
    return CheckResult("", OK if fits else FAILED, found, expected, "" if fits else reason)


MODEL, IMAGE_SIZE, BATCH = "resnet18", 64, 2


def count(asked: DeviceUnderTest) -> CheckResult:
    """The exact count of a step, on fake tensors ÷ the FLOP of the calls whose kernels ran."""
    from analysis.operators.registry import model_flop
    from measure.profiler.work_profiles import profile_step
    from measure.timing.clocks import clock_for

    step = training.StepOptions(MODEL, "fp32", "sgd", _kind(asked), hyper={"image_size": IMAGE_SIZE})
    counted = sum(model_flop(operation) for operation in training.trace_batch(step, BATCH).operations)
    real = training.parts(step, BATCH, None, asked.device)
    recorded = profile_step(
        real.step, real.model, clock_for(asked.device), work="batch", cuda=asked.is_cuda, most_steps=1
    )
    executed, idle = executed_flop(recorded.operations, asked.is_cuda)
    why = f"{counted} FLOP counted, {executed} by the sizes of the calls that ran"
    idle_too = f"; of {idle} products no kernel was recorded" if idle else ""
    return within(counted / executed if executed else 0.0, 1, 1, "1, exactly", why + idle_too)


def memory(model: str, batch_size: int, image_size: int = 224) -> Check:
    """Bytes of tensors at the highest in a step, seen ÷ predicted; told and not judged where they differ, until a real
    GPU has confirmed the limit."""

    def check(asked: DeviceUnderTest) -> CheckResult:
        step = training.StepOptions(model, "fp32", "sgd", _kind(asked), hyper={"image_size": image_size})
        predicted, seen = training.check(step, batch_size, asked.device)
        ratio = seen / predicted
        words = f"1 within {MEMORY_RATIO:.0%}"
        text = f"{seen} bytes seen, {predicted} predicted"
        judged = within(ratio, 1 - MEMORY_RATIO, 1 + MEMORY_RATIO, words, text)
        return replace(judged, verdict=REPORTED) if judged.verdict == FAILED else judged

    return check


def _kind(asked: DeviceUnderTest) -> str:
    return "cuda" if asked.is_cuda else "cpu"


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


TERMS = 512
"""Of each sum, in the product and in the convolution: what FP32_ERROR is for."""


def flags_read_back(asked: DeviceUnderTest) -> CheckResult:
    """How many flags disagree with what a cell of each precision sets, and variables that overrule them."""
    from measure.device import apply_precision

    wrong = []
    for precision in PRECISIONS.values():
        if not asked.is_cuda and precision.tf32:
            continue  # a CPU has no such unit, and flags for it mean nothing there
        with apply_precision.session(precision, asked.device) as found:
            wrong += [f"{precision.name}: {each}" for each in apply_precision.check(found, precision, asked.device)]
    reason = "; ".join(dict.fromkeys(wrong))
    return CheckResult("", FAILED if wrong else OK, len(wrong), "0 flags other than they were set", reason)


def ieee(asked: DeviceUnderTest) -> CheckResult:
    """The larger error of an fp32 product and of a convolution against fp64, with the flags of an fp32 cell."""
    import torch

    from measure.device import apply_precision

    if asked.is_stand_in:
        raise Unavailable("a stand-in computes nothing: there is no rounding to look at; `flags` has been read")
    generator = torch.Generator(asked.device).manual_seed(0)
    a, b = (torch.randn(TERMS, TERMS, device=asked.device, generator=generator) for _ in range(2))
    images, kernels = a.reshape(2, TERMS, 16, 16), b.reshape(TERMS, TERMS, 1, 1)  # sums of as many terms
    convolve = torch.nn.functional.conv2d
    with apply_precision.session(PRECISIONS["fp32"], asked.device):
        pairs = (
            (a @ b, a.double() @ b.double()),
            (convolve(images, kernels), convolve(images.double(), kernels.double())),
        )
    error = max(float((found - exact).abs().max() / exact.abs().max()) for found, exact in pairs)
    return within(error, 0.0, FP32_ERROR, f"at most {FP32_ERROR:g}", "fp32 products or convolutions are not IEEE")
