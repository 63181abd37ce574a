"""Steps that a sweep trained on several ranks, beside what the rules of this package make of its counts and of rates.

* Kernels of a rank: the FLOP that it ran ÷ what its own kernels reached while all ranks looked for their ceiling at
  once; without a ceiling, ÷ the reachable part of the datasheet's peak.
* Collectives: a call takes as long as the same collective took alone, between as many ranks, linear between the sizes
  that were timed; without such rates, what rings and trees over the datasheet's links take (`collectives.py`). A
  message between stages takes as long as an all_gather between two ranks in which each sends as much.
* What hides them, as in `step.py`: gradients of replicas are reduced behind the backward pass, two thirds of the
  kernels; weights that replicas share are gathered and scattered behind all kernels; of a pipeline, behind those of
  the last micro-batch. Nothing hides what other axes send.
* A pipeline of p stages waits for (p − 1) ÷ m of its kernels and of what nothing hides.

The step is that of the rank for which this is longest. A floor: no launch, no operation but products, no optimizer, no
waiting, no collective that is not timed alone. Not claimed: which of two axes a collective is of, where both have such
ones; a step of that kind has a reason and no number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from analysis.devices import ACHIEVED, PRECISIONS, Device, between, lookup, unit_of, within
from analysis.parallel import COLLECTIVES, CollectiveRate, RankGrid, parse_plan
from analysis.project.parallelism.collectives import Group, all_reduce_s, half_s, send_s
from results.records import ParallelStep, RankCollective, RankRow, Record, Run

HIDDEN: Mapping[str, tuple[tuple[str, ...], float]] = {
    "ddp": (("all_reduce",), 2 / 3),
    "fsdp": (("all_gather", "reduce_scatter", "all_reduce"), 1.0),
}
"""Replicas → their collectives, and the share of the kernels that hides them. Over gloo, `fully_shard` scatters sums by
an all_reduce."""

SHOWN: Mapping[str, tuple[str, ...]] = {
    "tp": ("all_reduce", "all_gather", "reduce_scatter"),
    "cp": ("all_gather", "all_to_all"),
    "ep": ("all_to_all",),
}
"""Other axes → their collectives, which nothing hides."""

SEND, RECEIVE = "send", "receive"

REACHABLE = 0.8
"""Of a datasheet's peak, where no ceiling was measured; as `Cluster.reachable`."""

CallTime = Callable[[str, float, int], float | None]
"""Kind, bytes of the buffer, ranks → seconds of a call; None: not known."""


class NoPrediction(ValueError):
    """Why a step has no prediction."""


@dataclass(frozen=True, kw_only=True)
class PredictedStep(Record):
    """A step of several ranks, predicted and measured. Measured parts are shares of recorded steps × the measured step.

    rank: whose step is the longest one predicted; links: what the times of collectives are from; left_out: kinds of
    collectives that have none; reason: why nothing is predicted.
    """

    cell_id: str
    attempt: int
    model: str
    batch_size: int
    parallel: str
    ranks: int
    rank: int | None = None
    step_s: float | None = None
    measured_step_s: float | None = None
    step_ratio: float | None = None  # predicted ÷ measured
    compute_s: float | None = None  # kernels
    measured_compute_s: float | None = None
    collective_s: float | None = None  # hidden or not
    measured_collective_s: float | None = None
    exposed_s: float | None = None  # of the collectives, what nothing hides
    measured_exposed_s: float | None = None
    bubble_s: float | None = None
    links: str = ""
    left_out: str = ""
    reason: str = ""


@dataclass(frozen=True)
class _RankStep:
    """What one rank needs."""

    rank: int
    kernels_s: float
    collective_s: float
    exposed_s: float
    bubble_s: float

    @property
    def step_s(self) -> float:
        return self.kernels_s + self.exposed_s + self.bubble_s


def predicted_steps(
    runs: Sequence[Run],
    steps: Iterable[ParallelStep],
    ranks: Sequence[RankRow],
    collectives: Sequence[RankCollective],
    rates: Sequence[CollectiveRate] = (),
) -> list[PredictedStep]:
    """A row for each of the measured steps, in their order. rates: of collectives timed alone; none: datasheets'."""
    cells = {(run.cell_id, run.attempt): run for run in runs}
    return [
        _row(
            cells[key],
            step,
            [row for row in ranks if (row.cell_id, row.attempt) == key],
            [row for row in collectives if (row.cell_id, row.attempt) == key],
            rates,
        )
        for step in steps
        if step.time_s is not None and (key := (step.cell_id, step.attempt)) in cells
    ]


def _row(
    run: Run,
    step: ParallelStep,
    ranks: Sequence[RankRow],
    collectives: Sequence[RankCollective],
    rates: Sequence[CollectiveRate],
) -> PredictedStep:
    computes, exposed, hidden = (
        None if share is None or step.time_s is None else share * step.time_s
        for share in (step.compute_ratio, step.exposed_ratio, step.overlapped_ratio)
    )
    known: dict[str, Any] = {
        name: getattr(step, name) for name in ("cell_id", "attempt", "model", "batch_size", "parallel", "ranks")
    }
    known |= {
        "measured_step_s": step.time_s,
        "measured_compute_s": computes,
        "measured_exposed_s": exposed,
        "measured_collective_s": None if exposed is None or hidden is None else exposed + hidden,
    }
    try:
        grid, (call_s, links) = parse_plan(run.parallel), _call_time(run, ranks, rates)
        if not ranks:
            raise NoPrediction("no rank of it has rows")
        found = [_rank_step(run, grid, row, [c for c in collectives if c.rank == row.rank], call_s) for row in ranks]
    except ValueError as fault:
        return PredictedStep(**known, reason=str(fault))
    longest = max(found, key=lambda each: each.step_s)
    kinds = {row.kind for row in collectives} - {*COLLECTIVES, SEND, RECEIVE}
    return PredictedStep(
        **known,
        rank=longest.rank,
        step_s=longest.step_s,
        step_ratio=longest.step_s / step.time_s if step.time_s else None,
        compute_s=longest.kernels_s,
        collective_s=longest.collective_s,
        exposed_s=longest.exposed_s,
        bubble_s=longest.bubble_s,
        links=links if collectives else "",
        left_out=", ".join(sorted(kinds)),
    )


def _rank_step(
    run: Run, grid: RankGrid, row: RankRow, collectives: Sequence[RankCollective], call_s: CallTime
) -> _RankStep:
    """What a rank needs. Raises NoPrediction, or ValueError for a dtype without a unit."""
    if not row.executed:
        raise NoPrediction(f"what rank {row.rank} ran is not known")
    kernels = sum(flop / _flop_per_s(run, row, key.partition("/")[2]) for key, flop in row.executed.items())
    hidable, shown = 0.0, 0.0
    for each in collectives:
        if each.kind == SEND:
            shown += _calls_s(each, 2, call_s)
        elif each.kind in COLLECTIVES:
            size, is_hidden = _group_of(each.kind, grid)
            seconds = _calls_s(each, size, call_s)
            hidable, shown = (hidable + seconds, shown) if is_hidden else (hidable, shown + seconds)
    exposed = shown + max(0.0, hidable - HIDDEN[grid.replicas][1] * kernels / grid.microbatches)
    bubble = (grid.pp - 1) / grid.microbatches * (kernels + shown)
    return _RankStep(row.rank, kernels, hidable + shown, exposed, bubble)


def _flop_per_s(run: Run, row: RankRow, dtype: str) -> float:
    """What a rank's products of this dtype can be had at. Raises NoPrediction."""
    unit = unit_of(dtype, PRECISIONS[run.precision], run.device)
    if row.ceiling.get(unit):
        return float(row.ceiling[unit])
    device = lookup(row.device_name) if row.device_name else None
    peak = None if device is None else device.peaks.get(unit)
    if not peak:
        raise NoPrediction(
            f"rank {row.rank} has no measured ceiling of {unit}, and {row.device_name or 'its device'} no peak"
        )
    return REACHABLE * peak


def _group_of(kind: str, grid: RankGrid) -> tuple[int, bool]:
    """Ranks of such a collective, and whether kernels can hide it. Raises NoPrediction where two axes have it."""
    found = {axis: (getattr(grid, axis), False) for axis, kinds in SHOWN.items() if kind in kinds}
    if kind in HIDDEN[grid.replicas][0]:
        found[grid.replicas] = (grid.copies, True)
    found = {axis: (size, hidden) for axis, (size, hidden) in found.items() if size > 1}
    if not found:
        raise NoPrediction(f"{kind} is of no axis of {grid.name}")
    if len(found) > 1:
        raise NoPrediction(f"{kind} is of {' or '.join(found)}, and the recording does not say which")
    return next(iter(found.values()))


def _calls_s(row: RankCollective, ranks: int, call_s: CallTime) -> float:
    """Seconds of all calls of a row. Raises NoPrediction where a call's size or time is not known."""
    if not row.given_bytes or not row.calls:
        raise NoPrediction(f"the recording has no size of {row.kind}")
    buffer = row.given_bytes / row.calls * (ranks if row.kind == "all_gather" else 1)
    seconds = call_s(row.kind, buffer, ranks)
    if seconds is None:
        raise NoPrediction(f"no measured time of {row.kind} between {ranks} ranks")
    return seconds * row.calls


def _call_time(run: Run, ranks: Sequence[RankRow], rates: Sequence[CollectiveRate]) -> tuple[CallTime, str]:
    """How long a call takes, and by what that is known."""
    if rates:
        return measured_call_time(rates, run.device.partition(":")[0]), "measured"
    device = lookup(ranks[0].device_name) if ranks and ranks[0].device_name else None
    if device is None:
        return lambda *_: None, ""
    hosts = Counter(row.host for row in ranks)
    near, far = within(device), between(device)
    return sheet_call_time(device, min(hosts.values())), near.name if len(hosts) == 1 else f"{near.name}, {far.name}"


def measured_call_time(rates: Sequence[CollectiveRate], device: str) -> CallTime:
    """By collectives timed alone on this kind of device: below the smallest size as long as that, above the largest one
    at its rate."""

    def call_s(kind: str, nbytes: float, ranks: int) -> float | None:
        if kind == SEND:
            return call_s("all_gather", 2 * nbytes, 2)
        alike = sorted(
            (each.nbytes, each.median_s)
            for each in rates
            if (each.operation, each.ranks, each.device.partition(":")[0]) == (kind, ranks, device)
            and each.status == "ok"
            and each.median_s
        )
        if not alike:
            return None
        if nbytes >= alike[-1][0]:
            return alike[-1][1] * nbytes / alike[-1][0]
        for (small, low_s), (large, high_s) in pairwise(alike):
            if small <= nbytes <= large:
                return low_s + (high_s - low_s) * (nbytes - small) / (large - small)
        return alike[0][1]

    return call_s


def sheet_call_time(device: Device, node: int) -> CallTime:
    """By rings and trees over the datasheet's links. node: ranks that share a host."""

    def call_s(kind: str, nbytes: float, ranks: int) -> float | None:
        group = Group(ranks, math.gcd(ranks, node), within(device), between(device), ACHIEVED)
        if kind == SEND:
            return send_s(nbytes, group.slowest(), ACHIEVED)
        return all_reduce_s(nbytes, group) if kind == "all_reduce" else half_s(nbytes, group)

    return call_s
