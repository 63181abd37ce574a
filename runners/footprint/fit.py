"""The largest batch of a step that fits into a memory: traces at the batches that
`analysis.footprint.largest_batch` asks for.

Of the batch that fits, that is what the allocator reserves, of the one that is given as "at most" the highest moment's
live bytes; with either cuBLAS's workspaces. What the margin is for is not counted: the device's context and cuDNN's
workspaces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from analysis.footprint.caching_allocator import allowance, replay, tensors_peak
from analysis.footprint.largest_batch import SMALL, BatchFit, Lines, largest_batch, reserved_fits
from analysis.footprint.live_bytes import BEFORE, footprint
from runners.cli.exits import Mistake
from runners.footprint.step import StepOptions, parts, trace_batch
from runners.workers.batches import FEW_BATCHES, MORE_BATCHES, SMALL_BATCH_BYTES

if TYPE_CHECKING:
    from runners.footprint.step import StepTrace


LEAST = (1, 2, 4, 8, 16, 32, 64)
"""The smallest batches that are tried: batch normalisation of single values needs two, a graph may have one alone."""


@dataclass(frozen=True)
class Fitting:
    """What is found of one model and precision. largest: that fits, at_most: by live bytes, 0 where none does; least:
    the smallest that the model takes; lines: (bytes without a sample, bytes a sample), of which the highest is what a
    batch needs."""

    largest: int
    least: int
    lines: tuple[tuple[int, int], ...]
    at_most: int


def fit(
    step_at: Callable[[int], StepTrace],
    memory_bytes: int,
    margin_ratio: float,
    device: str,
    name: str = "",
    beside: Callable[[StepTrace], int] = lambda _step: 0,
    least: int | None = None,
) -> BatchFit:
    """The largest batch whose step leaves `margin_ratio` of a memory free. Raises what `step_at` does.

    name: of the device, which decides the workspaces. beside: bytes that lie there throughout.
    least: the smallest batch that is looked at; None: the smallest that the step takes.
    """
    known, least = capability(name), _least(step_at) if least is None else least

    def reserved(batch_size: int) -> int:
        step = step_at(batch_size)
        live = moments(step, device, known, beside)
        if device != "cuda":
            return max(live)
        found = footprint(step.operations, step.storages)
        segments = replay(found.ledger, len(step.operations)).reserved_bytes
        return segments + live[0] - found.total_bytes[0]

    at_most = largest_batch(
        lambda batch_size: moments(step_at(batch_size), device, known, beside),
        int(memory_bytes * (1 - margin_ratio)),
        least,
    )
    return reserved_fits(at_most, reserved, least)


def moments(
    step: StepTrace,
    device: str,
    known: str | None,
    beside: Callable[[StepTrace], int] = lambda _step: 0,
) -> list[int]:
    """Bytes at each moment of a step, with all that is beside its tensors. known: the device's compute capability."""
    more = beside(step) + sum(each.nbytes for each in allowance(step.operations, device, known))
    return [here + more for here in footprint(step.operations, step.storages).total_bytes]


def fitting(asked: StepOptions, memory_bytes: int, margin_ratio: float, name: str) -> Fitting:
    """What a sweep needs to know of a model in a precision: its largest batch and smallest, and the lines between.

    A worker's task. A sweep's cell has more batches than one lying on the device: two, or four small ones.
    """
    from runners.footprint.step import trace_batch

    steps: dict[int, StepTrace] = {}

    def step_at(batch_size: int) -> StepTrace:
        if batch_size not in steps:
            try:
                steps[batch_size] = trace_batch(asked, batch_size)
            except ValueError as fault:
                raise Mistake(str(fault)) from fault
        return steps[batch_size]

    found = fit(step_at, memory_bytes, margin_ratio, asked.device, name, _lying)
    alive = {batch: moments(step_at(batch), asked.device, capability(name), _lying) for batch in SMALL}
    low, high = SMALL
    if len(alive[low]) != len(alive[high]):
        alive = {batch: [max(bytes_)] for batch, bytes_ in alive.items()}
    lines = envelope(Lines((low, alive[low]), (high, alive[high])))
    return Fitting(found.fits, min(found.needed), lines, found.largest_batch)


def _lying(step: StepTrace) -> int:
    """Bytes of the batches that lie on the device beside the one in work."""
    batch_bytes = sum(each.nbytes or 0 for each in step.storages if each.role == "input" and each.born_index == BEFORE)
    return batch_bytes * (FEW_BATCHES - 1) + min(batch_bytes, SMALL_BATCH_BYTES) * (MORE_BATCHES - FEW_BATCHES)


def capability(name: str) -> str | None:
    """The compute capability of a device of the table of peaks; None for any other."""
    from analysis.devices.peaks import lookup

    known = lookup(name) if name else None
    return known.compute_capability if known else None


def _least(step_at: Callable[[int], StepTrace]) -> int:
    """The smallest of LEAST that the step takes. Raises what it says of 2 where it takes none."""
    faults: list[Mistake] = []
    for batch_size in LEAST:
        try:
            step_at(batch_size)
        except Mistake as fault:
            faults.append(fault)
            continue
        return batch_size
    raise faults[1]


def envelope(lines: Lines) -> tuple[tuple[int, int], ...]:
    """(bytes without a sample, bytes a sample), rounded up, of the moments that may be the highest at some batch."""
    (one, low), (other, high) = lines.first, lines.second
    starts: dict[int, int] = {}
    for a, b in zip(low, high, strict=True):
        slope = -((a - b) // (other - one))
        starts[slope] = max(starts.get(slope, a - slope * one), a - slope * one)
    kept: list[tuple[int, int]] = []
    for slope in sorted(starts, reverse=True):
        if not kept or starts[slope] > kept[-1][0]:
            kept.append((starts[slope], slope))
    return tuple(kept)


def check(asked: StepOptions, batch_size: int, device: str) -> tuple[int, int]:
    """(predicted, seen). Raises what the step raises."""
    from measure.profiler.allocations import on_cpu, on_cuda

    step = trace_batch(asked, batch_size)
    predicted = footprint(step.operations, step.storages).at_least_bytes
    make = partial(parts, asked, batch_size, None, device)
    if device == "cpu":
        return predicted, on_cpu(make, {operation.name for operation in step.operations}).tensors_bytes
    return predicted, tensors_peak(*on_cuda(make, device))
