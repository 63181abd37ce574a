"""Who waits for whom: within a collective that all enter before one leaves, each rank waits for the last to enter.

Not claimed: why the last one came late. It may have waited for another itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.ranks.collectives import KEY, TOGETHER


@dataclass(frozen=True)
class Wait:
    """Seconds a step that a rank waited for another in collectives, and in how many of them a step."""

    rank: int
    for_rank: int
    wait_s: float
    collectives: float


@dataclass(frozen=True)
class Straggler:
    """The rank that the others waited for most. share: of all waiting; steps: in how many of the steps it was the one
    that was waited for most; since: the first step from which on it was in each; None: not in the last."""

    rank: int
    share: float
    steps: int
    of_steps: int
    since: int | None


def last_to_enter(matched: pd.DataFrame) -> pd.DataFrame:
    """The rows of collectives that all enter before one leaves, each with the last rank to enter and when: for_rank,
    entered_ns."""
    rows = matched[matched["kind"].isin(TOGETHER)]
    if not len(rows):
        return rows.assign(for_rank=0, entered_ns=0)
    latest = rows.loc[rows.groupby(list(KEY))["start_ns"].idxmax(), [*KEY, "rank", "start_ns"]]
    return rows.merge(latest.rename(columns={"rank": "for_rank", "start_ns": "entered_ns"}), on=list(KEY))


def waits_in(matched: pd.DataFrame) -> pd.DataFrame:
    """A row for each rank of each collective, but for the last to enter: step, rank, for_rank, wait_ns, entered_ns."""
    both = last_to_enter(matched)
    waited = np.minimum(both["entered_ns"], both["end_ns"]) - both["start_ns"]
    return both.assign(wait_ns=waited)[both["rank"] != both["for_rank"]]


def waits_of(matched: pd.DataFrame, steps: int) -> list[Wait]:
    """Of each pair of ranks, the longest first. steps: how many there are, to divide by."""
    rows = waits_in(matched)
    sums = rows.groupby(["rank", "for_rank"], as_index=False).agg(total=("wait_ns", "sum"), calls=("wait_ns", "size"))
    columns = (sums[name].tolist() for name in ("rank", "for_rank", "total", "calls"))
    found = [
        Wait(rank, for_rank, total / 1e9 / max(steps, 1), calls / max(steps, 1))
        for rank, for_rank, total, calls in zip(*columns, strict=True)
    ]
    return sorted(found, key=lambda wait: -wait.wait_s)


def straggler_of(matched: pd.DataFrame) -> Straggler | None:
    """None where nobody waited."""
    rows = waits_in(matched)
    sums = rows.groupby(["step", "for_rank"], as_index=False)["wait_ns"].sum()
    total = dict.fromkeys(sums["for_rank"].tolist(), 0)
    for rank, wait in zip(sums["for_rank"].tolist(), sums["wait_ns"].tolist(), strict=True):
        total[rank] += wait
    if not sum(total.values()):
        return None
    rank = max(total, key=lambda each: total[each])
    longest = sums.loc[sums.groupby("step")["wait_ns"].idxmax()]
    worst: Sequence[tuple[int, int]] = list(zip(longest["step"].tolist(), longest["for_rank"].tolist(), strict=True))
    since = None
    for step, other in reversed(worst):
        if other != rank:
            break
        since = step
    share = total[rank] / sum(total.values())
    return Straggler(rank, share, sum(other == rank for _, other in worst), len(worst), since)


def late_from(times_s: Sequence[float], wait_s: float, late_s: float) -> int | None:
    """The place of the first of these times, a step's in each timed block, that holds a wait which was seen afterwards.

    wait_s: the wait; late_s: a step with it, as it was seen. Of all ways to part the times so that the median of the
    second part is longer by half of the wait or more, and that of the first is below late_s less half of the wait, the
    one is taken in which distances to both medians add up to least. Without such a way all are late if their median is
    at least late_s less half of the wait; None: none is known to be.
    Not claimed: a wait that came and went again.
    """
    times = np.array(times_s, dtype=float)
    if not len(times):
        return None
    least_s = late_s - wait_s / 2

    def rises(place: int) -> bool:
        before = np.median(times[:place])
        return bool(before < least_s and np.median(times[place:]) - before >= wait_s / 2)

    def distance(values: Any) -> float:
        return float(np.abs(values - np.median(values)).sum())

    ways = [place for place in range(1, len(times)) if rises(place)]
    if ways:
        return min(ways, key=lambda place: distance(times[:place]) + distance(times[place:]))
    return 0 if np.median(times) >= least_s else None
