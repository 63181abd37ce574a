"""What recordings of many ranks say together: a row a rank, a step on average, and the system's utilization.

system utilization = FLOP of all ranks in a step ÷ (time of the slowest rank's step × the sum of their peaks)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.ranks.collectives import (
    KEY,
    TOGETHER,
    CollectiveTotal,
    Straggler,
    Wait,
    match_collectives,
    straggler_of,
    totals_of,
    waits_of,
)
from analysis.ranks.timelines import Breakdown, Timeline, breakdown_of, spans

OF_ALL = "members of collectives are not recorded: waits and clocks hold only where each collective is of all ranks"
BY_DEVICE = "the recordings do not say ranks: processes are numbered in the order of their devices"


@dataclass(frozen=True)
class StepFlop:
    """Model FLOP of a rank's step; None with the reason. peak_flop_per_s: of its device, None if unknown."""

    flop: float | None
    reason: str = ""
    peak_flop_per_s: float | None = None


@dataclass(frozen=True)
class RankRow:
    """One rank. steps: marked in its recording, 0: none, and times are of all of it. time: of a step on average."""

    rank: int
    path: str
    host: str
    device_name: str
    device: bool
    steps: int
    time: Breakdown
    flop: StepFlop

    @property
    def flop_per_s(self) -> float | None:
        return None if self.flop.flop is None else self.flop.flop / self.time.window_s

    @property
    def utilization_ratio(self) -> float | None:
        rate, peak = self.flop_per_s, self.flop.peak_flop_per_s
        return None if rate is None or not peak else rate / peak


@dataclass(frozen=True)
class RanksReport:
    """Everything that is shown. world_size: ranks that there were; None: not recorded. steps: those of all ranks."""

    ranks: Sequence[RankRow]
    world_size: int | None
    steps: Sequence[int]
    shifts: Sequence[Shift]
    waits: Sequence[Wait]
    straggler: Straggler | None
    collectives: Sequence[CollectiveTotal]
    problems: Sequence[str]

    @property
    def step_time_s(self) -> float:
        """Of the slowest rank."""
        return max(row.time.window_s for row in self.ranks)

    @property
    def imbalance_ratio(self) -> float | None:
        """The longest computing of a rank ÷ their mean - 1; None where nothing was computed."""
        times = [row.time.compute_s for row in self.ranks]
        return max(times) / (sum(times) / len(times)) - 1 if sum(times) else None

    @property
    def flop_per_s(self) -> float | None:
        """Of all ranks together; None where one of them is not known."""
        flop = [row.flop.flop for row in self.ranks]
        known = [each for each in flop if each is not None]
        return sum(known) / self.step_time_s if len(known) == len(flop) else None

    @property
    def utilization_ratio(self) -> float | None:
        """Of the system; None where a rank's FLOP or peak is not known."""
        peaks = [row.flop.peak_flop_per_s for row in self.ranks]
        known = [peak for peak in peaks if peak]
        rate = self.flop_per_s
        return rate / sum(known) if rate is not None and len(known) == len(peaks) else None


def report_of(timelines: Mapping[int, Timeline], flop: Mapping[int, StepFlop]) -> RanksReport:
    """The report of one recording a rank. Raises ValueError for one in which nothing ran."""
    matched, problems = match_collectives(timelines)
    moved, shifts = shifted(timelines, matched)
    matched, _ = match_collectives(moved)
    numbers = [set(timeline.steps["number"].tolist()) for timeline in moved.values()]
    common = sorted(set.intersection(*numbers))
    sizes = sorted({timeline.world_size for timeline in timelines.values() if timeline.world_size is not None})
    if len(sizes) > 1:
        problems.append(f"the recordings are of {' and '.join(map(str, sizes))} ranks")
    if common != sorted(set.union(*numbers)):
        problems.append(f"not all ranks recorded the same steps; {len(common)} are common to all")
    if any(timeline.own_clock and (timeline.collectives["ranks"] == "").any() for timeline in timelines.values()):
        problems.append(OF_ALL)
    problems += [
        f"rank {rank}: {timeline.untimed} of its kernels and copies have no usable duration; their steps are left out"
        for rank, timeline in timelines.items()
        if timeline.untimed
    ]
    if any(timeline.process >= 0 for timeline in timelines.values()):
        problems.append(BY_DEVICE)
    return RanksReport(
        ranks=[_row(timeline, flop.get(rank, StepFlop(None, "not counted"))) for rank, timeline in moved.items()],
        world_size=sizes[0] if len(sizes) == 1 else None,
        steps=common,
        shifts=shifts,
        waits=waits_of(matched, max(1, *(len(timeline.steps) for timeline in timelines.values()))),
        straggler=straggler_of(matched),
        collectives=totals_of(moved.values()),
        problems=problems,
    )


def _row(timeline: Timeline, flop: StepFlop) -> RankRow:
    windows = [(int(start), int(end)) for start, end in spans(timeline.steps)] or [timeline.window]
    if sum(end - start for start, end in windows) <= 0:
        raise ValueError(f"{timeline.path}: expected steps that take time, got none that does")
    parts = [vars(breakdown_of(timeline, start, end)) for start, end in windows]
    mean = Breakdown(**{name: sum(part[name] for part in parts) / len(parts) for name in parts[0]})
    device, steps = timeline.device, len(timeline.steps)
    return RankRow(timeline.rank, timeline.path, timeline.host, timeline.device_name, device, steps, mean, flop)


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
    """All timelines on the clock of the first rank, and what was added to each.

    Ranks leave an all_reduce (all_gather, reduce_scatter, all_to_all, barrier) within a short time of each other,
    whenever they entered it. The shift of a rank's clock against another's is the median of the differences of these
    ends. Ranks on one host have one clock, unless their recorder counts from a moment of its own: they are not shifted,
    but where a collective would have ended on one before it began on the other. Not claimed: clocks that drift apart
    within a recording of some seconds. `spread_s` has what the ends still differ by.
    """
    together = matched[matched["kind"].isin(TOGETHER)]
    starts, ends = (
        together.pivot_table(index=list(KEY), columns="rank", values=name, aggfunc="first")
        for name in ("start_ns", "end_ns")
    )
    first = next(iter(timelines))
    shifts = {first: Shift(first, 0.0, None, 0, None)}
    waiting = [int(rank) for rank in ends.columns if int(rank) != first]
    reached = [first] if first in ends.columns else []
    for by in reached:
        for rank in list(waiting):
            differences = (ends[rank] - ends[by]).dropna().to_numpy(np.float64)
            if not len(differences):
                continue
            waiting.remove(rank)
            reached.append(rank)
            own = -float(np.median(differences))
            a, b = timelines[rank], timelines[by]
            of_file = a.process >= 0 and a.path == b.path
            of_host = bool(a.host) and a.host == b.host and not (a.own_clock or b.own_clock)
            if (of_file or of_host) and not ((ends[rank] < starts[by]) | (ends[by] < starts[rank])).any():
                own = 0.0
            spread = float(np.median(np.abs(differences + own)))
            shifts[rank] = Shift(rank, shifts[by].shift_s + own / 1e9, by, len(differences), spread / 1e9)
    for rank in timelines:
        shifts.setdefault(rank, Shift(rank, 0.0, None, 0, None))
    moved = {rank: timeline.later(round(shifts[rank].shift_s * 1e9)) for rank, timeline in timelines.items()}
    return moved, [shifts[rank] for rank in timelines]
