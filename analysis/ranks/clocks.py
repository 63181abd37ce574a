"""Clocks of different machines, set to one by the ends of their collectives.

Ranks leave an all_reduce (all_gather, reduce_scatter, all_to_all, barrier) within a short time of each other, whenever
they entered it. The shift of a rank's clock against another's is the median of the differences of these ends. Ranks on
one host have one clock, unless their recorder counts from a moment of its own: they are not shifted, but where a
collective would have ended on one before it began on the other.

Not claimed: clocks that drift apart within a recording of some seconds. `spread_s` has what the ends still differ by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.ranks.collectives import KEY, TOGETHER
from analysis.ranks.timelines import Timeline


@dataclass(frozen=True)
class Shift:
    """What was added to a rank's clock, s. by: the rank that it was compared with; None: the first, or one that shares
    no collective with others. spread_s: half of the differences of ends are within this of their median."""

    rank: int
    shift_s: float
    by: int | None
    collectives: int
    spread_s: float | None


def shifted(timelines: Mapping[int, Timeline], matched: pd.DataFrame) -> tuple[dict[int, Timeline], list[Shift]]:
    """All timelines on the clock of the first rank, and what was added to each."""
    together = matched[matched["kind"].isin(TOGETHER)]
    ends = together.pivot_table(index=list(KEY), columns="rank", values="end_ns", aggfunc="first")
    starts = together.pivot_table(index=list(KEY), columns="rank", values="start_ns", aggfunc="first")
    first = next(iter(timelines))
    shifts = {first: Shift(first, 0.0, None, 0, None)}
    for rank, by, differences in _chain(first, ends):
        own = -float(np.median(differences))
        spread = float(np.median(np.abs(differences + own)))
        a, b = timelines[rank], timelines[by]
        of_file = a.process >= 0 and a.path == b.path
        of_host = bool(a.host) and a.host == b.host and not (a.own_clock or b.own_clock)
        if (of_file or of_host) and bool(((ends[rank] < starts[by]) | (ends[by] < starts[rank])).sum() == 0):
            own, spread = 0.0, float(np.median(np.abs(differences)))
        shift_s = shifts[by].shift_s + own / 1e9
        shifts[rank] = Shift(rank, shift_s, by, len(differences), spread / 1e9)
    for rank in timelines:
        shifts.setdefault(rank, Shift(rank, 0.0, None, 0, None))
    moved = {rank: each.later(round(shifts[rank].shift_s * 1e9)) for rank, each in timelines.items()}
    return moved, [shifts[rank] for rank in timelines]


def _chain(first: int, ends: pd.DataFrame) -> Iterator[tuple[int, int, np.ndarray[tuple[int], np.dtype[np.float64]]]]:
    """Each rank that shares collectives with one that was reached before: (it, that one, its ends less that one's)."""
    reached, waiting = [first], [int(rank) for rank in ends.columns if int(rank) != first]
    for by in reached:
        for rank in list(waiting):
            if by not in ends.columns:
                break
            differences = (ends[rank] - ends[by]).dropna().to_numpy(np.float64)
            if len(differences):
                waiting.remove(rank)
                reached.append(rank)
                yield rank, by, differences
