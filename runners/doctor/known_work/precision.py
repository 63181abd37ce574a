"""Flags that are read back as they were set, and fp32 that really is IEEE, by what a product and a convolution give."""

from __future__ import annotations

from analysis.devices.precisions import PRECISIONS
from cleaning.facts.self_test import FP32_ERROR
from results.errors import Unavailable
from runners.doctor.known_work.answers import FAILED, OK, CheckResult, DeviceUnderTest, within

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
