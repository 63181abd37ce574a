"""Which blocks of a cell were timed while its processors were near to each other, and in which they were far apart.

A virtual machine's processors are threads of its host, which puts them on cores that share a cache or on cores that do
not, and moves them after seconds or minutes. What several threads do together then takes longer: a step of ResNet-18 on
two of them 50 and 62 ms (docs/benchmarks.md). Each block has the time of a cache line between two processors right
after it; where these times fall into two groups, so do the blocks. Pure.

Not claimed: more than two placements of a cell. A move and the way back within one block are not seen.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

from analysis.utilization.step_times import is_disturbed
from results.records.samples import Sample

APART_RATIO = 2.0
"""Two neighbouring times of a cache line that differ by less are of one placement. Measured here: 84 to 117 ns between
cores of one cache, on a busy machine, and 322 to 444 ns between others (docs/benchmarks.md). Now and then it was 49 ns:
that of two hardware threads of one core, which may become a placement of its own."""


def far_from_s(trips_s: Iterable[float]) -> float:
    """The least time of a cache line of the far placement: above the widest gap. Infinite where there is one alone."""
    gaps = [(after / before, after) for before, after in itertools.pairwise(sorted(trips_s))]
    ratio, far_s = max(gaps, default=(1.0, math.inf))
    return far_s if ratio >= APART_RATIO else math.inf


def same_placement(one_s: float | None, other_s: float | None) -> bool:
    """Whether two times of a cache line are of one placement of the processors. True where both are None (not timed),
    False where one is."""
    if one_s is None or other_s is None:
        return one_s == other_s
    return max(one_s, other_s) < APART_RATIO * min(one_s, other_s)


def placements(blocks: Sequence[Sample]) -> list[int | None]:
    """Of each block, in their order of time: 0 near, 1 far; None: moved within it, or unknown. All 0 where there is one
    placement."""
    trips_s = [block.core_round_trip_s for block in blocks]
    far_s = far_from_s(trip_s for trip_s in trips_s if trip_s)
    if far_s == math.inf:
        return [0] * len(blocks)
    after_block = [int(trip_s >= far_s) if trip_s else None for trip_s in trips_s]
    return [now if now == before else None for before, now in itertools.pairwise([after_block[0], *after_block])]


def in_one_placement(blocks: Sequence[Sample]) -> list[Sample]:
    """The undisturbed blocks of the placement that has most of them; of two that have as many, of the near one."""
    calm = [(block, place) for block, place in zip(blocks, placements(blocks), strict=True) if not is_disturbed(block)]
    found = [place for _, place in calm]
    most = max((0, 1), key=found.count)
    return [block for block, place in calm if place == most]
