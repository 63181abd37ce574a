"""The chain of work and collectives that a step's end waited for, across ranks.

From the end of the rank that finishes last it is followed back: a rank's own time, until a collective ended at a moment
at which the rank computed nothing, so that it may have waited for it; then the collective, back to the moment at which
the last rank entered it; from there that rank's own time. Own time is split into compute, memory and idle.

Not claimed: dependencies that no collective shows, such as a data loader's; a collective that ends by chance in a gap
counts as waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.ranks.breakdown import breakdown_of
from analysis.ranks.timelines import Spans, Timeline, union
from analysis.ranks.waits import last_to_enter


@dataclass(frozen=True)
class Segment:
    """A part of the path. what: compute, memory, idle, or the kind of a collective."""

    rank: int
    what: str
    time_s: float


def critical_path(timelines: Mapping[int, Timeline], matched: pd.DataFrame, step: int) -> list[Segment]:
    """Of one step, by rank and what, in the order of first coming. timelines: on one clock.

    It begins where the step begins on the rank that the path has come to. Empty: no rank has this step.
    """
    windows = {rank: each.steps[each.steps["number"] == step] for rank, each in timelines.items()}
    windows = {rank: rows for rank, rows in windows.items() if len(rows)}
    if not windows:
        return []
    begins = {rank: int(rows["start_ns"].min()) for rank, rows in windows.items()}
    ends = {rank: int(rows["end_ns"].max()) for rank, rows in windows.items()}
    last = max(ends, key=lambda rank: ends[rank])
    parts: dict[tuple[int, str], float] = {}
    entered = last_to_enter(matched[matched["step"] == step])
    for segment in reversed(list(_followed(timelines, entered, last, ends[last], begins))):
        key = (segment.rank, segment.what)
        parts[key] = parts.get(key, 0.0) + segment.time_s
    return [Segment(rank, what, time_s) for (rank, what), time_s in parts.items() if time_s]


def _followed(
    timelines: Mapping[int, Timeline], collectives: pd.DataFrame, rank: int, now_ns: int, begins: Mapping[int, int]
) -> Iterator[Segment]:
    """Backwards from `now_ns` on a rank to the begin of the step on the rank that is then reached."""
    busy = {each: union(timeline.compute) for each, timeline in timelines.items()}
    of_rank = {each: rows.sort_values("end_ns") for each, rows in collectives.groupby("rank")}
    while now_ns > (begin_ns := begins.get(rank, now_ns)):
        waited = _last_waited(of_rank.get(rank), busy[rank], now_ns, begin_ns)
        from_ns = begin_ns if waited is None else int(waited["end_ns"])
        yield from _own_time(timelines[rank], from_ns, now_ns)
        if waited is None:
            return
        entered_ns = max(min(int(waited["entered_ns"]), from_ns), begin_ns)
        yield Segment(rank, str(waited["kind"]), (from_ns - entered_ns) / 1e9)
        rank, now_ns = int(waited["for_rank"]), entered_ns


def _last_waited(rows: pd.DataFrame | None, busy: Spans, now_ns: int, begin_ns: int) -> pd.Series | None:
    """The latest collective that ended by now while the rank computed nothing."""
    if rows is None:
        return None
    earlier = rows[(rows["end_ns"] <= now_ns) & (rows["start_ns"] < now_ns) & (rows["end_ns"] > begin_ns)]
    for _, row in earlier.iloc[::-1].iterrows():
        # strictly before now: each turn of the walk goes back in time
        if min(int(row["entered_ns"]), int(row["end_ns"])) < now_ns and not _computes(busy, int(row["end_ns"])):
            return row
    return None


def _computes(busy: Spans, at_ns: int) -> bool:
    """Whether an interval holds this moment, its ends left out."""
    place = int(np.searchsorted(busy[:, 0], at_ns, "left")) - 1
    return place >= 0 and bool(busy[place, 1] > at_ns)


def _own_time(timeline: Timeline, start_ns: int, end_ns: int) -> Iterator[Segment]:
    found = breakdown_of(timeline, start_ns, end_ns)
    yield Segment(timeline.rank, "idle", found.window_s - found.compute_s - found.memory_s)
    yield Segment(timeline.rank, "memory", found.memory_s)
    yield Segment(timeline.rank, "compute", found.compute_s)
