"""Predicts the time of a training step on one accelerator and on several, from FLOP, bytes and the accelerator's rates.

One accelerator (`Accelerator.step`; PPoPP 2019, section 5.2.2) takes max(FLOP ÷ (share · peak), bytes ÷ (share ·
bandwidth)). The shares are assumptions, the bytes unfused and uncached. On several (section 6.2), dense gradients are
summed in a ring, and those of an embedding are gathered (`communication_s`). Layers, one on each accelerator, form a
pipeline (`pipelined_s`). `all_reduce_s` is a lower bound, the fastest of three algorithms. These are a ring (Patarasuk
and Yuan, J. Parallel Distrib. Comput. 69, 2009), two trees (Sanders, Speck, Träff, Parallel Computing 35, 2009), and
reducing within nodes first. Not claimed: overlap of communication and arithmetic, contention, or that a larger batch
learns as well.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analysis.devices import memory as devices_memory
from analysis.devices import peaks
from analysis.devices.memory import Link
from analysis.formula.requests import rates

COMPUTE_RATIO, MEMORY_RATIO = 0.8, 0.7
"""Shares of peak and bandwidth that the paper assumes achievable."""


SATURATED = 0.95
"""A sub-batch is saturated if its intensity is at least this share of that of the largest one."""


ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Arithmetic unit → bytes of one number in memory."""


@dataclass(frozen=True)
class Accelerator:
    """Rates and sizes of an accelerator; None where unknown. source: where they were published."""

    name: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    memory_bytes: float | None = None
    link_bytes_per_s: float | None = None
    cache_bytes: float | None = None
    compute_ratio: float = COMPUTE_RATIO
    memory_ratio: float = MEMORY_RATIO
    element_bytes: int = 4
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("peak_flop_per_s", "bandwidth_bytes_per_s"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name}: expected a number above 0, got {getattr(self, name):g}")
        for name in ("compute_ratio", "memory_ratio"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected a share above 0 and at most 1, got {getattr(self, name):g}")

    @property
    def flop_per_s(self) -> float:
        """Achievable FLOP/s."""
        return self.compute_ratio * self.peak_flop_per_s

    @property
    def bytes_per_s(self) -> float:
        """Achievable bytes/s."""
        return self.memory_ratio * self.bandwidth_bytes_per_s

    @property
    def ridge(self) -> float:
        """FLOP per byte at which achievable arithmetic and bandwidth take equally long."""
        return self.flop_per_s / self.bytes_per_s

    def step(self, flop: float, moved_bytes: float) -> AcceleratorStep:
        """Return the roofline of a step or of an operation."""
        arithmetic, memory = flop / self.flop_per_s, moved_bytes / self.bytes_per_s
        time = max(arithmetic, memory)
        utilization = flop / time / self.peak_flop_per_s if time else 0.0
        return AcceleratorStep(time, "arithmetic" if arithmetic >= memory else "memory", utilization)


@dataclass(frozen=True)
class AcceleratorStep:
    """Least time of a step. bound: "arithmetic" or "memory"; utilization_ratio: of the nominal peak."""

    time_s: float
    bound: str
    utilization_ratio: float


@dataclass(frozen=True)
class SubBatches:
    """Sub-batches of interest (section 5.2.1 of the paper); None where there is none.

    Each is the smallest sub-batch with a property. ridge: the whole step's intensity is at least the ridge. fastest:
    the time per sample is within 1 % of that of the largest sub-batch. saturated: the intensity is at least `SATURATED`
    of that of the largest sub-batch.
    """

    ridge: int | None
    fastest: int | None
    saturated: int | None


def of_device(device: str, unit: str, like: Accelerator) -> Accelerator:
    """Return a row of the table of peaks as an accelerator; the achievable shares are those of `like`.

    Its memory is that of the table of memories, or None; its link and cache are unknown. Raises ValueError as
    `device_called`, for a unit without a peak, and for a row without bandwidth.
    """
    row, known = peaks.device_called(device), rates(device, unit)
    memory = next(filter(None, map(devices_memory.lookup, (device, *row.names))), None)
    return replace(
        like,
        name=f"{row.name}, {unit}",
        peak_flop_per_s=known.peak_flop_per_s,
        bandwidth_bytes_per_s=known.bandwidth_bytes_per_s,
        memory_bytes=float(memory.memory_bytes) if memory else None,
        link_bytes_per_s=None,
        cache_bytes=None,
        element_bytes=ELEMENT_BYTES[unit],
        source=row.source,
    )


def sub_batches(cost: Callable[[int], tuple[float, float]], target: Accelerator, most: int) -> SubBatches:
    """Return the sub-batches of interest of a model, up to `most`. cost: batch → FLOP and bytes of a step.

    The intensity must not decrease with the batch, which holds where weights are read once a step.
    """

    def intensity(batch: int) -> float:
        flop, moved_bytes = cost(batch)
        return flop / moved_bytes

    def sample_s(batch: int) -> float:
        return target.step(*cost(batch)).time_s / batch

    def first(holds: Callable[[int], bool]) -> int | None:
        """Return the smallest batch from which on this holds; None if it does not hold for `most`."""
        return 1 + bisect_left(range(1, most), True, key=holds) if holds(most) else None

    limit, least_s = SATURATED * intensity(most), 1.01 * sample_s(most)
    return SubBatches(
        ridge=first(lambda batch: intensity(batch) >= target.ridge),
        fastest=first(lambda batch: sample_s(batch) <= least_s),
        saturated=first(lambda batch: intensity(batch) >= limit),
    )


def ring_all_reduce_s(nbytes: float, workers: int, link_bytes_per_s: float) -> float:
    """Return the seconds of an all-reduce in a ring, without latency. nbytes: of each worker."""
    return 2 * (workers - 1) / workers * nbytes / link_bytes_per_s


def communication_s(
    dense_bytes: float, sparse_bytes: float, workers: int, link_bytes_per_s: float, link_ratio: float = 1.0
) -> float:
    """Return the seconds of both kinds of gradients, one after the other. Dense gradients are summed in a ring. Each
    worker receives the sparse gradients of all workers, itself included."""
    achieved = link_bytes_per_s * link_ratio
    gathered_s = workers * sparse_bytes / achieved if workers > 1 else 0.0
    return ring_all_reduce_s(dense_bytes, workers, achieved) + gathered_s


def pipelined_s(stages_s: Sequence[float], length: int, after_s: float = 0.0) -> float:
    """Return the seconds of a pipeline of layers over a sequence of `length`; stages_s: one step of each layer. The
    pipeline fills (the sum of all but the slowest), then the slowest sets the pace; `after_s` (the output layer) waits
    for all steps."""
    slowest = max(stages_s)
    return sum(stages_s) - slowest + length * slowest + after_s


def epoch_s(samples: float, batch: int, workers: int, step_s: float) -> float:
    """Return the seconds of an epoch, the last batch not rounded up."""
    return samples / (batch * workers) * step_s


def evened(pieces: Sequence[float], divisible: int) -> tuple[float, ...]:
    """Return the bytes on each accelerator after splitting the piece at index `divisible` so that the largest sum is as
    small as possible. The other pieces stay where they are."""
    whole = [nbytes for index, nbytes in enumerate(pieces) if index != divisible]
    spread, room = pieces[divisible], sorted([0.0, *whole])
    level = room[0]
    for count in range(1, len(room) + 1):
        level = (sum(room[:count]) + spread) / count
        if count == len(room) or level <= room[count]:
            break
    return tuple(max(level, 0.0 if index == divisible else nbytes) for index, nbytes in enumerate(pieces))


@dataclass(frozen=True)
class DeviceGroup:
    """Communicating devices. size: their number, a multiple of per_node. achieved: share of the links' nominal rates
    that is reached."""

    size: int
    per_node: int
    within: Link
    between: Link
    achieved: float = 1.0

    @property
    def nodes(self) -> int:
        """Number of nodes that the group spans."""
        return self.size // self.per_node

    def slowest(self) -> Link:
        """Return the link that limits a ring through the whole group."""
        return self.within if self.nodes == 1 else self.between


def all_reduce_s(total_bytes: float, group: DeviceGroup) -> float:
    """Return the seconds of an all-reduce: the fastest of a ring, two trees, and reducing within nodes first."""
    if group.size == 1:
        return 0.0
    link = group.slowest()
    steps = 2 * math.ceil(math.log2(group.size))
    trees = steps * link.latency_s + 2 * total_bytes / (link.bytes_per_s * group.achieved)
    return min(2 * half_s(total_bytes, group), trees)


def half_s(total_bytes: float, group: DeviceGroup) -> float:
    """Return the seconds of a reduce-scatter, or of an all-gather, of this many bytes in total."""
    flat = _ring_s(total_bytes, group.size, group.slowest(), group.achieved)
    inner = _ring_s(total_bytes, group.per_node, group.within, group.achieved)
    outer = _ring_s(total_bytes / group.per_node, group.nodes, group.between, group.achieved)
    return min(flat, inner + outer)


def _ring_s(total_bytes: float, devices: int, link: Link, achieved: float) -> float:
    """Return the seconds of half a ring: each device sends (n − 1)/n of the bytes in n − 1 steps."""
    return (devices - 1) * link.latency_s + total_bytes * (devices - 1) / devices / (link.bytes_per_s * achieved)
