"""Collectives of a step beside the same collectives timed alone: how much of a link's measured rate they reach.

For a step's collectives of one kind, each rank handing over so many bytes in so many calls:

    buffer = bytes of a call, of an all_gather times the ranks;  link rate = buffer × calls ÷ time × `sent_share`

and the measured rate is that of the buffer nearest in size, on a logarithmic scale, between as many ranks. Where the
recording does not say how many (gloo's does not), a plan with one axis has one group, all its ranks. Not claimed:
that a link could be faster. The time of a step's collectives holds waiting for other ranks, and they share processors
with computing.

Collectives timed alone, over sizes: how fast, and how much of a link each rank needs for it at least.

For n ranks and a buffer of S bytes (of all_reduce what each rank gives and gets; of all_gather what each gets, of
reduce_scatter what each gives, of all_to_all both):

    algorithm rate = S ÷ time;  link rate = algorithm rate × the share of S that each rank has to send at least

The share is (n − 1) ÷ n, because a rank has its own part already; of all_reduce twice that, because each part has to be
summed from all and to reach all. The link rate can be compared with a link's own; nccl-tests calls it bus bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from analysis.parallel.rank_grid import parse_plan
from results.records.cell import Run
from results.records.fields import FromOne
from results.records.rows import Record
from results.records.samples import RankCollective


@dataclass(frozen=True, kw_only=True)
class LinkUse(Record):
    """Collectives of one kind of one rank in a recorded step, beside the rate of a link. reason: why there is none."""

    cell_id: str
    attempt: int
    model: str
    batch_size: FromOne
    parallel: str
    rank: int
    kind: str
    ranks: FromOne | None = None  # of the group
    calls: float = 0.0
    given_bytes: float | None = None
    time_s: float = 0.0
    buffer_bytes: float | None = None  # of a call
    link_bytes_per_s: float | None = None
    measured_buffer_bytes: int | None = None
    measured_link_bytes_per_s: float | None = None
    link_ratio: float | None = None
    reason: str = ""


def link_uses(runs: Sequence[Run], given: Iterable[RankCollective], rates: Sequence[CollectiveRate]) -> list[LinkUse]:
    """A row for each of the step's, in their order; those of cells that are in no run are left out."""
    cells = {(run.cell_id, run.attempt): run for run in runs}
    return [_use(cells[row.cell_id, row.attempt], row, rates) for row in given if (row.cell_id, row.attempt) in cells]


def _ranks(run: Run, row: RankCollective) -> int | None:
    """Ranks of the group of a collective; None where the plan has groups of several sizes."""
    if row.group_size is not None:
        return row.group_size
    grid = parse_plan(run.parallel)
    return grid.world if max(grid.sizes.values()) == grid.world else None


def _use(run: Run, row: RankCollective, rates: Sequence[CollectiveRate]) -> LinkUse:
    ranks = _ranks(run, row)
    known: dict[str, Any] = {
        "cell_id": row.cell_id,
        "attempt": row.attempt,
        "model": run.model,
        "batch_size": run.batch_size,
        "parallel": run.parallel,
        "rank": row.rank,
        "kind": row.kind,
        "ranks": ranks,
        "calls": row.calls,
        "given_bytes": row.given_bytes,
        "time_s": row.time_s,
    }
    if row.kind not in COLLECTIVES:
        return LinkUse(**known, reason=f"{row.kind} is not timed alone")
    if not (ranks and row.given_bytes and row.calls and row.time_s):
        return LinkUse(**known, reason="the recording has no size, group or time of it")
    buffer = row.given_bytes / row.calls * (ranks if row.kind == "all_gather" else 1)
    rate = buffer * row.calls / row.time_s * float(sent_share(row.kind, ranks))
    known |= {"buffer_bytes": buffer, "link_bytes_per_s": rate}
    device = run.device.partition(":")[0]
    alike = [
        each
        for each in rates
        if (each.operation, each.ranks, each.device.partition(":")[0]) == (row.kind, ranks, device)
        and each.link_bytes_per_s
        and each.status == "ok"
    ]
    if not alike:
        return LinkUse(**known, reason=f"no measured rate of {row.kind} between {ranks} ranks on {device}")
    nearest = min(alike, key=lambda each: abs(math.log(each.nbytes / buffer)))
    measured = float(nearest.link_bytes_per_s or 0.0)
    return LinkUse(
        **known,
        measured_buffer_bytes=nearest.nbytes,
        measured_link_bytes_per_s=measured,
        link_ratio=rate / measured,
    )


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True, kw_only=True)
class CollectiveRate(Record):
    """One collective of one size. Times are of one call, on the slowest rank; nbytes: S."""

    operation: str
    ranks: FromOne
    backend: str  # gloo, nccl
    device: str
    nbytes: int
    calls: int | None = None
    median_s: float | None = None  # of blocks of calls
    best_s: float | None = None
    algorithm_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    status: str = "ok"
    reason: str = ""


def sent_share(operation: str, ranks: int) -> Fraction:
    """The part of a buffer that each rank sends at least. Raises KeyError for no collective of COLLECTIVES."""
    once = Fraction(ranks - 1, ranks)
    return {"all_reduce": 2 * once, "all_gather": once, "reduce_scatter": once, "all_to_all": once}[operation]
