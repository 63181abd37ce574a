"""The kernels of a convolution that is above its unit's sheet, by their names as torch.profiler records them.

A rate above the sheet's of a vector unit is either such an algorithm (Winograd, FFT: fewer multiplications than the
direct count) or wrong. Asked after everything was timed, and only of kernels that are above the sheet. Not claimed:
that a kernel of an unknown name is none.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from analysis.devices import peaks
from analysis.devices.precisions import TENSOR_UNITS
from results.records.cell import Ceiling


def above_sheet(row: Ceiling, device_name: str) -> bool:
    """Whether a convolution on units that are no tensor units is faster than the dense peak of its device."""
    known = peaks.lookup(device_name)
    sheet = known.peaks.get(row.unit) if known is not None else None
    mine = row.operation == "convolution" and row.unit not in TENSOR_UNITS
    return mine and sheet is not None and (row.flop_per_s or 0.0) > sheet


def kernel_names(call: Callable[[], Any]) -> list[str]:
    """Names of the kernels that a call launches; none where the device's profiler does not run."""
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            call()
            torch.cuda.synchronize()
    except RuntimeError as fault:
        if isinstance(fault, torch.AcceleratorError):  # the context is broken: the worker must be replaced
            raise
        return []
    return [event.name for event in recorded.events() or () if event.device_type == torch._C._autograd.DeviceType.CUDA]
