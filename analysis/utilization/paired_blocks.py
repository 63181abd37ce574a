"""Two sides whose blocks were interleaved: the logarithm of their ratio, one value for each pair of processes.

A pair of processes warms up, then its blocks alternate in rounds of four, A B B A or B A A B: both sides are as far
from the middle of a round, so that a drift that is linear over it cancels. That they do alternate is read from their
times, not believed. Blocks of both sides need about as many steps: a burst of a busy machine that fills a short block
is a small part of a long one, and their ratio would be that of the bursts. Of the rounds the median is taken, so
that a neighbour's burst, which meets one round, is not a pair's value. Pure.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from analysis.utilization.step_times import block_means_s
from results.records import Sample

ROUNDS = ("ABBA", "BAAB")
STEPS_FACTOR = 2
"""How many times as many steps as a block of the other side a block may have."""
OVERLAP_S = 1e-3
"""By how much one block may seem to begin before the other side's has ended: clocks of two processes are read a little
after what they time."""


def log_ratios(a: Sequence[Sample], b: Sequence[Sample]) -> list[float]:
    """Median of ln(time of B ÷ time of A) over the rounds of each pair of processes, in order of time.

    a, b: all samples of one attempt each; warm-ups divide the processes. A pair that did not end a round gives none.
    Raises ValueError where blocks do not alternate, or have far more steps on one side.
    """
    pairs = zip(_processes(a), _processes(b), strict=False)
    found = [_of_pair(first, second) for first, second in pairs]
    return [value for value in found if value is not None]


def _processes(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The measured blocks of each process, of which every one warmed up first."""
    found: list[list[Sample]] = [[]]
    warming = False
    for sample in sorted(samples, key=lambda each: each.index):
        if sample.part == "warmup" and not warming:
            found.append([])
        warming = sample.part == "warmup"
        if sample.part == "measure" and not sample.phase and not sample.work and sample.steps > 0:
            found[-1].append(sample)
    return [blocks for blocks in found if blocks]


def _of_pair(a: Sequence[Sample], b: Sequence[Sample]) -> float | None:
    numbers = [block.steps for block in (*a, *b)]
    if max(numbers) > STEPS_FACTOR * min(numbers):
        raise ValueError(f"expected one number of steps a pair, got blocks of {min(numbers)} and of {max(numbers)}")
    on_device = all(block.device_s is not None for block in (*a, *b))
    timed = sorted(
        ((block, side, mean_s) for side, blocks in (("A", a), ("B", b)) for block, mean_s in _means(blocks, on_device)),
        key=lambda each: each[0].start_s,
    )
    for (before, side, _), (after, other, _) in itertools.pairwise(timed):
        if side != other and before.start_s + before.wall_s > after.start_s + OVERLAP_S:
            raise ValueError(f"expected interleaved blocks, got two of one side at {after.start_s:.3f} s")
    rounds = [timed[first : first + 4] for first in range(0, len(timed) - 3, 4)]
    values = []
    for each in rounds:
        order = "".join(side for _, side, _ in each)
        if order not in ROUNDS:
            raise ValueError(f"expected rounds of {' or '.join(ROUNDS)}, got {order} at {each[0][0].start_s:.3f} s")
        times_s = {name: sum(mean_s for _, side, mean_s in each if side == name) for name in "AB"}
        if not all(0 < time_s < math.inf for time_s in times_s.values()):
            raise ValueError(f"expected times above 0, got a round of {times_s['A']:g} and {times_s['B']:g} s")
        values.append(math.log(times_s["B"] / times_s["A"]))
    return statistics.median(values) if values else None


def _means(blocks: Sequence[Sample], on_device: bool) -> list[tuple[Sample, float]]:
    means_s = block_means_s(blocks) if on_device else [block.wall_s / block.steps for block in blocks]
    return list(zip(blocks, means_s, strict=True))
