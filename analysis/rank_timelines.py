"""Holds one rank's recording as intervals of time, and divides a window by what the rank did.

    window = compute + exposed + copying only + idle;  communication = exposed + overlapped

`breakdown_of` takes a `RankTimeline` and a window, and returns these terms in seconds. Overlapped communication runs
while the rank computes, exposed communication while it does not. Intervals are arrays of two columns, start and end, in
integer nanoseconds of the recording's clock. Every total is the length of a union: time on two streams at once counts
once. Not claimed: that overlapped communication is free; it takes bandwidth and multiprocessors from concurrent
kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Spans = NDArray[np.int64]

COLLECTIVE_COLUMNS = ("start_ns", "end_ns", "kind", "group", "group_size", "ranks", "nbytes", "step")
"""kind: all_reduce, all_gather, …. group: the recorder's name of the process group. group_size: -1 if unknown. ranks:
the members' numbers as text, empty if not recorded. nbytes: bytes that this rank contributes, -1 if unknown. step:
number of the step, -1 outside steps."""

STEP_COLUMNS = ("number", "start_ns", "end_ns")


@dataclass(frozen=True)
class RankTimeline:
    """One rank's recording. device: True if the intervals are a device's activity, False if they are the host's
    operator calls. own_clock: the clock differs from that of other recordings of its host, so that their times are not
    comparable. process: the number of this rank's process in a file of several ranks; -1: the file has one rank.
    untimed: number of kernels and copies without a usable duration, whose steps are left out."""

    rank: int
    path: str
    host: str
    world_size: int | None
    device_name: str
    device: bool
    compute: Spans
    memory: Spans
    collectives: pd.DataFrame
    steps: pd.DataFrame
    own_clock: bool = False
    process: int = -1
    untimed: int = 0

    def later(self, ns: int) -> RankTimeline:
        """Return the timeline with `ns` added to each time."""
        moved = {
            name: getattr(self, name).assign(
                start_ns=lambda rows: rows["start_ns"] + ns, end_ns=lambda rows: rows["end_ns"] + ns
            )
            for name in ("collectives", "steps")
        }
        return replace(self, compute=self.compute + ns, memory=self.memory + ns, **moved)

    @property
    def window(self) -> tuple[int, int]:
        """Start and end, ns: of the first and last step, or of everything that ran where no steps are marked. Raises
        ValueError for a recording in which nothing ran."""
        if len(self.steps):
            return int(self.steps["start_ns"].min()), int(self.steps["end_ns"].max())
        intervals = np.concatenate([self.compute, self.memory, spans(self.collectives)])
        if not len(intervals):
            raise ValueError(f"{self.path}: expected kernels or calls, got none")
        return int(intervals[:, 0].min()), int(intervals[:, 1].max())


def spans(rows: pd.DataFrame) -> Spans:
    """Return the intervals of rows with start_ns and end_ns."""
    return rows[["start_ns", "end_ns"]].to_numpy(np.int64)


def union(*parts: Spans) -> Spans:
    """Return the union of intervals as sorted intervals that do not touch."""
    intervals = np.concatenate(parts) if parts else np.zeros((0, 2), np.int64)
    intervals = intervals[intervals[:, 1] > intervals[:, 0]]
    if not len(intervals):
        return intervals
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(intervals[:, 1])
    first = np.concatenate([[True], intervals[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([intervals[first, 0], reach[last]], axis=1)


def length(*parts: Spans) -> int:
    """Return the length of the union, ns."""
    merged = union(*parts)
    return int((merged[:, 1] - merged[:, 0]).sum())


def clipped(part: Spans, start_ns: int, end_ns: int) -> Spans:
    """Clip these intervals to a window."""
    inside = part[(part[:, 1] > start_ns) & (part[:, 0] < end_ns)]
    return np.clip(inside, start_ns, end_ns)


def by_rank(timelines: Iterable[RankTimeline]) -> dict[int, RankTimeline]:
    """Return rank → timeline, in the order of ranks. Raises ValueError for two timelines of one rank."""
    ranks: dict[int, RankTimeline] = {}
    for timeline in sorted(timelines, key=lambda timeline: timeline.rank):
        if timeline.rank in ranks:
            raise ValueError(
                f"expected one recording of each rank, got two of rank {timeline.rank}: {ranks[timeline.rank].path} "
                f"and {timeline.path}"
            )
        ranks[timeline.rank] = timeline
    return ranks


@dataclass(frozen=True)
class Breakdown:
    """The terms of a window, in seconds. memory_s: copies and fills while nothing else ran."""

    window_s: float
    compute_s: float
    communication_s: float
    exposed_s: float
    overlapped_s: float
    memory_s: float
    idle_s: float


def breakdown_of(timeline: RankTimeline, start_ns: int, end_ns: int) -> Breakdown:
    """Divide a window by what the rank did. start_ns, end_ns: the window on the rank's clock."""
    parts = (timeline.compute, spans(timeline.collectives), timeline.memory)
    compute, communication, memory = (clipped(part, start_ns, end_ns) for part in parts)
    computed, communicated = length(compute), length(communication)
    either = length(compute, communication)
    busy = length(compute, communication, memory)
    return Breakdown(
        window_s=(end_ns - start_ns) / 1e9,
        compute_s=computed / 1e9,
        communication_s=communicated / 1e9,
        exposed_s=(either - computed) / 1e9,
        overlapped_s=(computed + communicated - either) / 1e9,
        memory_s=(busy - either) / 1e9,
        idle_s=(end_ns - start_ns - busy) / 1e9,
    )
