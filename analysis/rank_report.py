"""Builds the report on recordings of many ranks: a row per rank, the mean step, and the system's utilization.

    system utilization = FLOP of all ranks in a step ÷ (time of the slowest rank's step × the sum of their peaks)

`report_of` takes a `RankTimeline` and a `StepFlop` per rank and returns a `RanksReport`. `match_collectives` takes the
n-th collective of a group in a step as the same one on all members: a group calls collectives in one order. None is
matched where ranks disagree on their number, and no later one after a mismatch in kind or size; a line says why. Sends
and receives have no common order and only enter the totals. `waits_of` returns the waits for the last rank to enter.
Not claimed: why that rank was late; it may have waited, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.rank_timelines import Breakdown, RankTimeline, breakdown_of, length, spans

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Kinds that no member leaves before all have entered."""

SIZED_ALIKE = ("all_reduce", "all_gather", "reduce_scatter")
"""Kinds to which every member contributes the same number of bytes."""

KEY = ("group", "ranks", "step", "position")


@dataclass(frozen=True)
class CollectiveTotal:
    """Collectives of one rank and kind. calls, nbytes and time_s are per step.

    nbytes: bytes that the rank contributes; None: not recorded for all calls. time_s: seconds in which any of the
    collectives ran. group_size: number of members; None: unknown, or several groups.
    """

    rank: int
    kind: str
    group_size: int | None
    calls: float
    nbytes: float | None
    time_s: float


def match_collectives(timelines: Mapping[int, RankTimeline]) -> tuple[pd.DataFrame, list[str]]:
    """Return a row for each rank of each collective recorded on two ranks or more, and a line for each mismatch.

    Columns: rank, group, ranks, step, position (its number within the step), kind, nbytes, start_ns, end_ns.
    """
    parts = []
    for timeline in timelines.values():
        calls = timeline.collectives.sort_values("start_ns", kind="stable").assign(rank=timeline.rank)
        # what was recorded before the first step need not be on all ranks
        parts.append(calls[calls["step"] >= 0] if len(timeline.steps) else calls)
    rows = pd.concat(parts, ignore_index=True)
    rows = rows[~rows["kind"].isin(("send", "recv", "send_recv"))]
    rows = rows.assign(position=rows.groupby(["rank", "group", "ranks", "step"]).cumcount())
    problems: list[str] = []
    groups = rows.groupby(["group", "ranks", "step"], sort=True)
    return pd.concat(
        [rows.iloc[:0], *(_agreeing(key, same, problems) for key, same in groups)], ignore_index=True
    ), problems


def _agreeing(key: tuple[object, ...], same: pd.DataFrame, problems: list[str]) -> pd.DataFrame:
    """Return a group's collectives in a step, up to the first on which the ranks disagree; then add a line to
    `problems`. Return none where the ranks disagree on the number of collectives, or only one rank recorded them."""
    where = f"step {key[2]}" if isinstance(key[2], int) and key[2] >= 0 else "the recordings"
    group, counts = f"group {key[0] or 'of no name'}", same.groupby("rank").size()
    if len(counts) < 2:
        return same.iloc[:0]
    if counts.nunique() > 1:
        problems.append(f"{where}: {group} has {_different(counts)} collectives, so none is matched")
        return same.iloc[:0]
    for number, calls in same.set_index("rank").groupby("position"):
        kind, line = str(calls["kind"].iloc[0]), ""
        if calls["kind"].nunique() > 1:
            line = f"collective {number} of {group} is {_different(calls['kind'])}"
        elif kind in SIZED_ALIKE and calls["nbytes"].nunique() > 1:
            line = f"{kind} {number} of {group} is of {_different(calls['nbytes'])} bytes"
        if line:
            problems.append(f"{where}: {line}")
            return same[same["position"] < number]
    return same


def _different(values: pd.Series) -> str:
    """Write the values by rank that differ, each with the first rank that has it: "3 (rank 0) and 4 (rank 2)"."""
    return " and ".join(f"{value} (rank {rank})" for rank, value in values.sort_index().drop_duplicates().items())


def totals_of(timelines: Iterable[RankTimeline]) -> list[CollectiveTotal]:
    """Sum each rank's collectives of each kind over a step, including those between two ranks."""
    totals = []
    for timeline in timelines:
        calls, steps = timeline.collectives, max(len(timeline.steps), 1)
        for kind, rows in (calls[calls["step"] >= 0] if len(timeline.steps) else calls).groupby("kind", sort=True):
            sizes = rows["group_size"].unique()
            totals.append(
                CollectiveTotal(
                    rank=timeline.rank,
                    kind=str(kind),
                    group_size=int(sizes[0]) if len(sizes) == 1 and sizes[0] > 0 else None,
                    calls=len(rows) / steps,
                    nbytes=float(rows["nbytes"].sum()) / steps if (rows["nbytes"] >= 0).all() else None,
                    time_s=length(spans(rows)) / 1e9 / steps,
                )
            )
    return totals


@dataclass(frozen=True)
class Wait:
    """Seconds per step that a rank waited for another one in collectives, and the number of these collectives per
    step."""

    rank: int
    for_rank: int
    wait_s: float
    collectives: float


@dataclass(frozen=True)
class Straggler:
    """The rank that the others waited for most. share: its part of all waiting. steps: number of steps in which it was
    waited for most. of_steps: number of steps with a wait. since: number of the first step from which it was waited for
    most in every step; None if it was not in the last one."""

    rank: int
    share: float
    steps: int
    of_steps: int
    since: int | None


def _waits(matched: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each rank of each collective that all enter before any leaves, except for the last to enter:
    step, rank, for_rank, wait_ns."""
    rows = matched[matched["kind"].isin(TOGETHER)]
    latest = rows.loc[rows.groupby(list(KEY))["start_ns"].idxmax(), [*KEY, "rank", "start_ns"]]
    both = rows.merge(latest.rename(columns={"rank": "for_rank", "start_ns": "entered_ns"}), on=list(KEY))
    waited = np.minimum(both["entered_ns"], both["end_ns"]) - both["start_ns"]
    return both.assign(wait_ns=waited)[both["rank"] != both["for_rank"]]


def waits_of(matched: pd.DataFrame, steps: int) -> list[Wait]:
    """Return the waits of each pair of ranks per step, the longest first. steps: number of recorded steps."""
    sums = _waits(matched).groupby(["rank", "for_rank"])["wait_ns"].agg(["sum", "size"])
    sums = sums.sort_values("sum", ascending=False, kind="stable").reset_index()
    return [
        Wait(int(rank), int(for_rank), float(ns) / 1e9 / steps, int(calls) / steps)
        for rank, for_rank, ns, calls in sums.itertuples(index=False)
    ]


def straggler_of(matched: pd.DataFrame) -> Straggler | None:
    """Return the rank that was waited for most; None where nobody waited."""
    sums = _waits(matched).groupby(["step", "for_rank"], as_index=False)["wait_ns"].sum()
    total = sums.groupby("for_rank")["wait_ns"].sum()
    if not total.sum():
        return None
    rank = int(total.idxmax())
    worst = sums.loc[sums.groupby("step")["wait_ns"].idxmax()]
    is_rank = worst["for_rank"] == rank
    last_steps = worst["step"][is_rank[::-1].cummin()[::-1]].tolist()
    share = float(total[rank] / total.sum())
    return Straggler(rank, share, int(is_rank.sum()), len(worst), last_steps[0] if last_steps else None)


def late_from(times_s: Sequence[float], wait_s: float, late_s: float) -> int | None:
    """Return the index of the first of these block-mean step times that includes a wait which was observed later.

    wait_s: the wait; late_s: the step time observed with it. Candidates are splits where the second part's median
    exceeds the first's by at least half of the wait, and the first's is below late_s less half of the wait; the split
    with the least sum of distances to both medians wins. Without one, all are late if their median is at least late_s
    less half of the wait; otherwise None. Not claimed: a wait that came and went again.
    """
    times = np.array(times_s, dtype=float)
    if not len(times):
        return None
    least_s = late_s - wait_s / 2

    def rises(split: int) -> bool:
        before = np.median(times[:split])
        return bool(before < least_s and np.median(times[split:]) - before >= wait_s / 2)

    def distance(values: Any) -> float:
        return float(np.abs(values - np.median(values)).sum())

    ways = [split for split in range(1, len(times)) if rises(split)]
    if ways:
        return min(ways, key=lambda split: distance(times[:split]) + distance(times[split:]))
    return 0 if np.median(times) >= least_s else None


OF_ALL = "members of collectives are not recorded: waits and clocks hold only if all ranks take part in each collective"
BY_DEVICE = "the recordings have no numbers of ranks: processes are numbered in the order of their devices"


@dataclass(frozen=True)
class StepFlop:
    """Model FLOP of a rank's step; None with the reason. peak_flop_per_s: of its device, None if unknown."""

    flop: float | None
    reason: str = ""
    peak_flop_per_s: float | None = None


@dataclass(frozen=True)
class RankSummary:
    """One rank. time: mean over the steps; without marked steps, of the whole recording."""

    timeline: RankTimeline
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
    """The whole report. world_size: number of ranks in the job; None: not recorded. steps: those that all ranks
    have."""

    ranks: Sequence[RankSummary]
    world_size: int | None
    steps: Sequence[int]
    shifts: Sequence[Shift]
    waits: Sequence[Wait]
    straggler: Straggler | None
    collectives: Sequence[CollectiveTotal]
    problems: Sequence[str]

    @property
    def step_time_s(self) -> float:
        """The time of a step on the slowest rank."""
        return max(row.time.window_s for row in self.ranks)

    @property
    def imbalance_ratio(self) -> float | None:
        """Longest computing time of a rank ÷ their mean - 1; None where nothing was computed."""
        times = [row.time.compute_s for row in self.ranks]
        return max(times) / (sum(times) / len(times)) - 1 if sum(times) else None

    @property
    def flop_per_s(self) -> float | None:
        """Rate of all ranks together; None where one is unknown."""
        flop = [row.flop.flop for row in self.ranks]
        known = [rank_flop for rank_flop in flop if rank_flop is not None]
        return sum(known) / self.step_time_s if len(known) == len(flop) else None

    @property
    def utilization_ratio(self) -> float | None:
        """The system's utilization; None where a rank's FLOP or peak is unknown."""
        peaks = [row.flop.peak_flop_per_s for row in self.ranks]
        known = [peak for peak in peaks if peak]
        rate = self.flop_per_s
        return rate / sum(known) if rate is not None and len(known) == len(peaks) else None


def report_of(timelines: Mapping[int, RankTimeline], flop: Mapping[int, StepFlop]) -> RanksReport:
    """Build the report from one recording per rank. Raises ValueError for a recording in which nothing ran."""
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


def _row(timeline: RankTimeline, flop: StepFlop) -> RankSummary:
    windows = [(int(start), int(end)) for start, end in spans(timeline.steps)] or [timeline.window]
    if sum(end - start for start, end in windows) <= 0:
        raise ValueError(f"{timeline.path}: expected steps that take time, got none that does")
    parts = [vars(breakdown_of(timeline, start, end)) for start, end in windows]
    mean = Breakdown(**{name: sum(part[name] for part in parts) / len(parts) for name in parts[0]})
    return RankSummary(timeline, mean, flop)


@dataclass(frozen=True)
class Shift:
    """Seconds added to a rank's clock. by: the rank that it was compared with; None for the first rank, and for a rank
    that shares no collective with others. collectives: number of collectives compared. spread_s: median distance
    between the two ranks' ends of a collective after the shift."""

    rank: int
    shift_s: float
    by: int | None
    collectives: int
    spread_s: float | None


def shifted(
    timelines: Mapping[int, RankTimeline], matched: pd.DataFrame
) -> tuple[dict[int, RankTimeline], list[Shift]]:
    """Return all timelines on the first rank's clock, and what was added to each.

    Ranks leave a collective of `TOGETHER` at nearly the same time, whenever they entered. A clock's shift is the median
    difference of these ends. Ranks on one host share a clock and are not shifted against each other. The exceptions are
    recorders that each count from another zero, and clocks by which a collective ended on one rank before it began on
    the other. Not claimed: clocks that drift apart within a recording. `spread_s` tells by how much the ends differ.
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
