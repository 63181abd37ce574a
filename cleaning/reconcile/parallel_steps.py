"""Derives parallel.csv: for each cell of several ranks, the shares of a recorded step, the late rank, and scaling.

`parallel_steps` takes runs, step times and the rows of ranks, and returns `ParallelStep`s. Scaling compares each rank's
rate with that of the cell with the fewest ranks. The interval of scaling combines the intervals of both step times on a
logarithmic scale, and takes the times as independent. This file does not say why a rank is late, or whether the plan
with the fewest ranks is the best of its size.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from analysis.parallel.rank_grid import RankGrid, parse_plan
from analysis.rank_report import late_from
from analysis.utilization.step_times import ASIDE
from analysis.utilization.work_times import variant
from results.records.answers import ParallelStep, StepTime
from results.records.cell import MEASURED, Cell, RankCollective, RankRow, Run, Sample, identity
from results.store.layout import Key, key_of

LATE_RATIO = 0.05
"""Smallest share of a step that the other ranks must wait for a rank, on average, before that rank is named late."""

TIMED = ("measure", *ASIDE)
"""Parts of samples.csv whose blocks show when a wait began, including blocks set aside."""


@dataclass(frozen=True)
class _RankedStep:
    """A cell of several ranks, its grid of ranks, and the time of its whole step; None: not measured."""

    run: Run
    grid: RankGrid
    time: StepTime | None

    @property
    def rate(self) -> float | None:
        """Items per second and rank."""
        if self.time is None or self.run.status not in MEASURED or not self.run.items_per_step:
            return None
        return self.run.items_per_step / self.time.mean_s / self.grid.world

    @property
    def log_half(self) -> float | None:
        """Half of the width of the step time's interval, on a logarithmic scale."""
        time = self.time
        return math.log(time.high_s / time.low_s) / 2 if time and time.high_s and time.low_s else None


def parallel_steps(
    runs: Sequence[Run],
    times: Sequence[StepTime],
    ranks: Mapping[Key, Sequence[RankRow]],
    collectives: Mapping[Key, Sequence[RankCollective]],
    samples: Mapping[Key, Sequence[Sample]],
) -> tuple[ParallelStep, ...]:
    """Return a row for each cell of several ranks whose plan is valid today; for others utilization.csv has the
    reason."""
    whole = {key_of(time): time for time in times if not time.phase}
    steps = []
    for run in runs:
        with contextlib.suppress(ValueError):  # for example an axis that only older versions had
            steps += [_RankedStep(run, parse_plan(run.parallel), whole.get(key_of(run)))] if run.parallel else []
    rows = []
    for step in steps:
        run, grid, key = step.run, step.grid, key_of(step.run)
        largest_bytes: dict[str, float] = {}  # kind → bytes of the rank that hands over the most
        for row in collectives.get(key, ()):
            if row.given_bytes is not None:
                largest_bytes[row.kind] = max(largest_bytes.get(row.kind, 0.0), row.given_bytes)
        rows.append(
            ParallelStep(
                **identity(run, ParallelStep),
                parallel=run.parallel,
                ranks=grid.world,
                time_s=None if step.time is None or step.rate is None else step.time.mean_s,
                collective_bytes=largest_bytes,
                reason=run.reason,
                variant=variant(run),
                bubble_ratio=float(grid.bubble) if grid.pp > 1 else None,
                **_shares(ranks.get(key, ())),
                **_late(ranks.get(key, ()), samples.get(key, ())),
                **_scaling("strong", step, steps),
                **_scaling("weak", step, steps),
            )
        )
    return tuple(rows)


def _recorded_s(row: RankRow) -> float:
    """Return the time of a recorded step."""
    return sum(getattr(row, name) or 0.0 for name in ("compute_s", "exposed_s", "memory_s", "idle_s"))


def _shares(ranks: Sequence[RankRow]) -> dict[str, Any]:
    """Return the parts of a recorded step, and how much longer the slowest rank computes than the mean."""
    seen = [row for row in ranks if row.compute_s is not None and _recorded_s(row)]
    if not seen:
        return {}
    mean_s = fmean(row.compute_s or 0.0 for row in seen)
    imbalance = max(row.compute_s or 0.0 for row in seen) / mean_s - 1 if mean_s else None
    shares = {
        f"{name}_ratio": fmean((getattr(row, f"{name}_s") or 0.0) / _recorded_s(row) for row in seen)
        for name in ("compute", "exposed", "overlapped", "idle")
    }
    return {**shares, "imbalance_ratio": imbalance}


def _late(ranks: Sequence[RankRow], samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the rank for which the others wait longest, if that is long, and since when."""
    seen = [row for row in ranks if row.waited_for_ratio is not None]
    if len(seen) < 2:
        return {}
    late = max(seen, key=lambda row: row.waited_for_ratio or 0.0)
    recorded_s = max(map(_recorded_s, seen))
    wait_s = sum(row.wait_s or 0.0 for row in seen) * (late.waited_for_ratio or 0.0) / (len(seen) - 1)
    if wait_s / recorded_s < LATE_RATIO:
        return {}
    block = None  # the index of the first timed block that holds the recorded wait
    if late.late_since_step is not None:
        timed = [sample for sample in samples if sample.part in TIMED and not sample.phase and not sample.work]
        index = late_from([sample.wall_s / sample.steps for sample in timed], wait_s, recorded_s)
        block = None if index is None else timed[index].index
    return {
        "late_rank": late.rank,
        "late_name": f"{late.host} {late.device}",
        "late_ratio": wait_s / recorded_s,
        "late_since_step": late.late_since_step,
        "late_since_block": block,
    }


def _scaling(kind: str, own: _RankedStep, steps: Sequence[_RankedStep]) -> dict[str, Any]:
    """Compare each rank's rate with that of the plan with the fewest ranks; empty where that is this one, or there is
    none."""
    alike = [step for step in steps if step.rate is not None and _condition(kind, step) == _condition(kind, own)]
    least = min(alike, key=lambda step: (step.grid.world, step.grid.replicas != own.grid.replicas), default=own)
    if own.rate is None or least.rate is None or least.grid.world == own.grid.world:
        return {}
    ratio = own.rate / least.rate
    scaling = {f"{kind}_ratio": ratio}
    if own.log_half is not None and least.log_half is not None:
        spread = math.exp(math.hypot(own.log_half, least.log_half))
        scaling |= {f"{kind}_low_ratio": ratio / spread, f"{kind}_high_ratio": ratio * spread}
    return scaling


def _condition(kind: str, step: _RankedStep) -> tuple[Cell, int]:
    """Return what steps must share to be compared: all but the plan and, for weak scaling, the total batch."""
    cell = step.run.cell
    batch = cell.batch_size if kind == "strong" else cell.batch_size // step.grid.dp
    return replace(cell, parallel="", batch_size=1), batch
