"""Steps of several ranks, a row a cell: shares of a recorded step, the late rank, and scaling against fewer ranks.

The interval of a scaling ratio comes from those of the two step times, taken as independent, on a logarithmic scale.
Not claimed: why a rank is late, or that the plan with the fewest ranks is the best of its size.
"""

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
from results.records.cell import Cell, RankCollective, RankRow, Run, Sample, identity
from results.records.rows import MEASURED
from results.store.layout import Key, key_of

LATE_RATIO = 0.05
"""A rank is named where each other one waits for it for so much of a step."""

TIMED = ("measure", *ASIDE)
"""Parts of samples whose blocks date a wait: those that are not used, too."""

SHARES = ("compute_s", "exposed_s", "overlapped_s", "idle_s")


@dataclass(frozen=True)
class _Step:
    """A measured cell. rate: items a second and rank; log_half: half of its interval on a logarithmic scale."""

    run: Run
    grid: RankGrid
    rate: float
    log_half: float | None


def parallel_steps(
    runs: Sequence[Run],
    times: Sequence[StepTime],
    ranks: Mapping[Key, Sequence[RankRow]],
    collectives: Mapping[Key, Sequence[RankCollective]],
    samples: Mapping[Key, Sequence[Sample]],
) -> tuple[ParallelStep, ...]:
    """A row for each cell of several ranks. Raises ValueError for a plan that is none."""
    whole = {key_of(time): time for time in times if not time.phase}
    plans = {key_of(run): parse_plan(run.parallel) for run in runs if run.parallel}
    steps = [
        step
        for run in runs
        if key_of(run) in plans and (step := _step(run, plans[key_of(run)], whole.get(key_of(run)))) is not None
    ]
    return tuple(
        _row(run, plans[key], whole, ranks.get(key, ()), collectives.get(key, ()), steps, samples.get(key, ()))
        for run in runs
        if (key := key_of(run)) in plans
    )


def _step(run: Run, grid: RankGrid, time: StepTime | None) -> _Step | None:
    if time is None or run.status not in MEASURED or not run.items_per_step:
        return None
    known = time.low_s and time.high_s
    log_half = math.log(time.high_s / time.low_s) / 2 if known and time.high_s and time.low_s else None
    return _Step(run, grid, run.items_per_step / time.mean_s / grid.world, log_half)


def _row(
    run: Run,
    grid: RankGrid,
    whole: Mapping[Key, StepTime],
    ranks: Sequence[RankRow],
    collectives: Sequence[RankCollective],
    steps: Sequence[_Step],
    samples: Sequence[Sample],
) -> ParallelStep:
    time, own = whole.get(key_of(run)), next((step for step in steps if step.run is run), None)
    return ParallelStep(
        **identity(run, ParallelStep),
        parallel=run.parallel,
        ranks=grid.world,
        time_s=time.mean_s if time is not None and own is not None else None,
        collective_bytes=_bytes(collectives),
        reason=run.reason,
        variant=variant(run),
        bubble_ratio=float(grid.bubble) if grid.pp > 1 else None,
        **_shares(ranks),
        **_late(ranks, samples),
        **({} if own is None else {**_scaling("strong", own, steps), **_scaling("weak", own, steps)}),
    )


def _bytes(collectives: Sequence[RankCollective]) -> dict[str, float]:
    """Kind → bytes that the rank gives that gives most."""
    found: dict[str, float] = {}
    for row in collectives:
        if row.given_bytes is not None:
            found[row.kind] = max(found.get(row.kind, 0.0), row.given_bytes)
    return found


def _recorded_s(row: RankRow) -> float:
    """A recorded step."""
    return sum(getattr(row, name) or 0.0 for name in ("compute_s", "exposed_s", "memory_s", "idle_s"))


def _shares(ranks: Sequence[RankRow]) -> dict[str, Any]:
    seen = [row for row in ranks if row.compute_s is not None and _recorded_s(row)]
    if not seen:
        return {}
    found: dict[str, Any] = {
        f"{name.removesuffix('_s')}_ratio": fmean((getattr(row, name) or 0.0) / _recorded_s(row) for row in seen)
        for name in SHARES
    }
    computing = [row.compute_s or 0.0 for row in seen]
    found["imbalance_ratio"] = max(computing) / fmean(computing) - 1 if fmean(computing) else None
    return found


def _late(ranks: Sequence[RankRow], samples: Sequence[Sample]) -> dict[str, Any]:
    """The rank for which the others wait longest, if that is long, and since when."""
    seen = [row for row in ranks if row.waited_for_ratio is not None]
    if len(seen) < 2:
        return {}
    waiting_s = sum(row.wait_s or 0.0 for row in seen)
    late = max(seen, key=lambda row: row.waited_for_ratio or 0.0)
    recorded_s = max(map(_recorded_s, seen))
    wait_s = waiting_s * (late.waited_for_ratio or 0.0) / (len(seen) - 1)
    ratio = wait_s / recorded_s
    if ratio < LATE_RATIO:
        return {}
    return {
        "late_rank": late.rank,
        "late_name": f"{late.host} {late.device}",
        "late_ratio": ratio,
        "late_since_step": late.late_since_step,
        "late_since_block": None if late.late_since_step is None else _since_block(samples, wait_s, recorded_s),
    }


def _since_block(samples: Sequence[Sample], wait_s: float, recorded_s: float) -> int | None:
    """The index of the first timed block that holds the recorded wait; None: none is known to."""
    timed = [sample for sample in samples if sample.part in TIMED and not sample.phase and not sample.work]
    place = late_from([sample.wall_s / sample.steps for sample in timed], wait_s, recorded_s)
    return None if place is None else timed[place].index


def _scaling(kind: str, own: _Step, steps: Sequence[_Step]) -> dict[str, Any]:
    """The rate of each rank against the one of the fewest ranks; nothing where that is this one, or there is none."""
    alike = [step for step in steps if _condition(kind, step) == _condition(kind, own)]
    least = min(alike, key=lambda step: (step.grid.world, step.grid.replicas != own.grid.replicas))
    if least.grid.world == own.grid.world:
        return {}
    ratio = own.rate / least.rate
    found: dict[str, Any] = {f"{kind}_ratio": ratio}
    if own.log_half is not None and least.log_half is not None:
        spread = math.exp(math.hypot(own.log_half, least.log_half))
        found |= {f"{kind}_low_ratio": ratio / spread, f"{kind}_high_ratio": ratio * spread}
    return found


def _condition(kind: str, step: _Step) -> tuple[Cell, int]:
    """What steps must share to be compared: all but the plan and, of weak scaling, the batch of all together."""
    cell = step.run.cell
    batch = cell.batch_size if kind == "strong" else cell.batch_size // step.grid.dp
    return replace(cell, parallel="", batch_size=1), batch
