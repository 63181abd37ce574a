"""Bytes of tensors at the highest of one step: predicted, and as the device's own allocator saw them. Imports torch."""

from __future__ import annotations

from functools import partial

from analysis.footprint.step.allocator_history import tensors_peak
from analysis.footprint.step.live_bytes import footprint
from runners.footprint.step import StepOptions, parts, trace_batch


def check(asked: StepOptions, batch_size: int, device: str) -> tuple[int, int]:
    """(predicted, seen). Raises what the step raises."""
    from measure.profiler.allocations import on_cpu, on_cuda

    step = trace_batch(asked, batch_size)
    predicted = footprint(step.operations, step.storages).at_least_bytes
    make = partial(parts, asked, batch_size, None, device)
    if device == "cpu":
        return predicted, on_cpu(make, {operation.name for operation in step.operations}).tensors_bytes
    return predicted, tensors_peak(*on_cuda(make, device))
