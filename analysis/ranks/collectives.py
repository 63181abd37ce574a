"""Which calls on different ranks are one collective, and what collectives move.

The n-th collective of a group in a step is one on all members: ranks of a group call its collectives in one order, or
hang. Kinds and sizes are compared, and a step in which they or their numbers differ is left out with the reason.
Calls between two ranks (send, receive) are in no order that all share, and are in the totals alone.

Within a collective that all enter before one leaves, each rank waits for the last to enter (`waits_of`). Not claimed:
why the last one came late; it may have waited for another itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.ranks.timelines import Timeline, length, spans

POINT_TO_POINT = ("send", "recv", "send_recv")

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Kinds that no member leaves before all have entered."""

SIZED_ALIKE = ("all_reduce", "all_gather", "reduce_scatter")
"""Kinds to which every member gives as many bytes."""

KEY = ("group", "ranks", "step", "place")


@dataclass(frozen=True)
class CollectiveTotal:
    """Of one rank and kind: calls a step, bytes a step that the rank gives (None: not recorded of all), the time in
    which one of them ran, s a step. group_size: members; None: unknown or several."""

    rank: int
    kind: str
    group_size: int | None
    calls: float
    nbytes: float | None
    time_s: float


def match_collectives(timelines: Mapping[int, Timeline]) -> tuple[pd.DataFrame, list[str]]:
    """A row for each rank of each collective that two ranks or more have, and a line for each that does not match.

    Columns: rank, group, ranks, step, place (its number within the step), kind, nbytes, start_ns, end_ns.
    """
    rows = pd.concat([_placed(each) for each in timelines.values()], ignore_index=True)
    problems: list[str] = []
    kept = [_agreeing(key, same, problems) for key, same in rows.groupby(["group", "ranks", "step"], sort=True)]
    kept = [each for each in kept if len(each)]
    return (pd.concat(kept, ignore_index=True) if kept else rows.iloc[:0]), problems


def _placed(timeline: Timeline) -> pd.DataFrame:
    rows = timeline.collectives
    rows = rows[~rows["kind"].isin(POINT_TO_POINT)].sort_values("start_ns", kind="stable")
    if len(timeline.steps):
        rows = rows[rows["step"] >= 0]  # what was recorded before the first step need not be on all ranks
    place = rows.groupby(["group", "ranks", "step"]).cumcount()
    return rows.assign(place=place, rank=timeline.rank)


def _agreeing(key: tuple[object, ...], same: pd.DataFrame, problems: list[str]) -> pd.DataFrame:
    """The collectives of a group in a step; none, and a line, where the ranks do not agree."""
    where = f"step {key[2]}" if isinstance(key[2], int) and key[2] >= 0 else "the recordings"
    counts = same.groupby("rank").size()
    if len(counts) < 2:
        return same.iloc[:0]
    if counts.nunique() > 1:
        problems.append(f"{where}: {_named(key)} has {_different(counts)} collectives, so none is matched")
        return same.iloc[:0]
    for place, calls in same.groupby("place"):
        if calls["kind"].nunique() > 1:
            problems.append(
                f"{where}: collective {place} of {_named(key)} is {_different(calls.set_index('rank')['kind'])}"
            )
            return same[same["place"] < place]
        kind = str(calls["kind"].iloc[0])
        if kind in SIZED_ALIKE and calls["nbytes"].nunique() > 1:
            sizes = _different(calls.set_index("rank")["nbytes"])
            problems.append(f"{where}: {kind} {place} of {_named(key)} is of {sizes} bytes")
            return same[same["place"] < place]
    return same


def _named(key: tuple[object, ...]) -> str:
    return f"group {key[0] or 'of no name'}"


def _different(values: pd.Series) -> str:
    """Values that differ, each with the first rank that has it: "3 (rank 0) and 4 (rank 2)"."""
    first = {value: rank for rank, value in reversed(list(values.items()))}
    return " and ".join(
        f"{value} (rank {rank})" for value, rank in sorted(first.items(), key=lambda item: int(item[1]))
    )


def totals_of(timelines: Iterable[Timeline]) -> list[CollectiveTotal]:
    """What each rank's collectives of each kind come to in a step, those between two ranks among them."""
    found = []
    for each in timelines:
        inside = each.collectives[each.collectives["step"] >= 0] if len(each.steps) else each.collectives
        steps = max(len(each.steps), 1)
        for kind, rows in inside.groupby("kind", sort=True):
            sizes = rows["group_size"].unique()
            known = (rows["nbytes"] >= 0).all()
            found.append(
                CollectiveTotal(
                    rank=each.rank,
                    kind=str(kind),
                    group_size=int(sizes[0]) if len(sizes) == 1 and sizes[0] > 0 else None,
                    calls=len(rows) / steps,
                    nbytes=float(rows["nbytes"].sum()) / steps if known else None,
                    time_s=length(spans(rows)) / 1e9 / steps,
                )
            )
    return found


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
