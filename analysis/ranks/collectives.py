"""Which calls on different ranks are one collective, and what collectives move.

The n-th collective of a group in a step is one on all members: ranks of a group call its collectives in one order, or
hang. Kinds and sizes are compared, and a step in which they or their numbers differ is left out with the reason.
Calls between two ranks (send, receive) are in no order that all share, and are in the totals alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
