"""What the ranks of a cell found, made into one: the slowest rank's blocks, sums of FLOP, a row for each rank.

Recordings are read by `measure.trace.ranks` and compared by `analysis.ranks`, as `runners.trace DIR` does. Not claimed:
why a rank is late; only that the others waited for it.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.parallel.rank_grid import RankGrid
from measure.timing.disturbance import SUSPENDED, WARNING
from measure.timing.rank_blocks import agreed_blocks, slowest_blocks
from measure.timing.stopping import step_time_s
from results.errors import Inconsistent
from results.records.cell import Cell
from results.records.samples import RankCollective, RankRow, RankSample, RankTelemetry
from runners.sweep.findings import CellMeasurement, Rows
from runners.sweep.ranks.peers import RankAnswer
from runners.workers.worker import WorkerFault

if TYPE_CHECKING:
    from analysis.ranks.summary import RanksReport
    from runners.sweep.ranks.task import RankMeasurement

Ceilings = Mapping[int, Mapping[str, float]]
"""Rank → unit → FLOP/s."""

Answers = Mapping[int, RankAnswer]

FOLLOWED = (
    "connection closed by peer",
    "connection reset",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "timed out after",
    "socket timeout",
    "wait timeout",
    "application timeout caused pair closure",
    "watchdog",
    "remote process exited",
    "communicator was aborted",
    "ncclremoteerror",
)
"""What torch.distributed says on a rank when another one is gone or hangs."""


def fault_of(answers: Answers, ranks: int) -> WorkerFault | None:
    """Why a cell failed: the fault of the rank that failed by itself, named; None where none did. Of ranks that only
    lost another one nothing is said beside one that did not."""
    faults = [(answer.facts, answer.found) for answer in answers.values() if isinstance(answer.found, WorkerFault)]
    if not faults:
        return None
    own = [each for each in faults if not is_followed(each[1])]
    facts, fault = (own or faults)[0]
    also = f" (and {len(own) - 1} more ranks)" if len(own) > 1 else ""
    words = f"rank {facts.rank} of {ranks} ({facts.host} {facts.device}): {fault.reason}{also}"
    return WorkerFault(fault.status, words, fault.detail)


def is_followed(fault: WorkerFault) -> bool:
    """Whether a rank failed because another one did."""
    said = fault.reason.lower()
    return fault.status in ("crashed", "device_error") and any(words in said for words in FOLLOWED)


def join_ranks(cell: Cell, grid: RankGrid, answers: Answers, ceilings: Ceilings) -> CellMeasurement:
    """The cell as one measurement. Raises Inconsistent where ranks did not run the same blocks."""
    found: dict[int, Any] = _agreed({rank: answer.found for rank, answer in answers.items()})
    first: RankMeasurement = found[0]
    others = [each.measured.blocks for rank, each in found.items() if rank]
    report, problem = _report(found)
    rows: Rows = {
        "ranks.csv": [
            _row(rank, replace(answer, found=found[rank]), grid, ceilings.get(rank, {}), report)
            for rank, answer in answers.items()
        ],
        "rank_samples.csv": [
            RankSample(**{**vars(block), "index": index, "rank": rank})
            for rank, each in found.items()
            for index, block in enumerate(each.measured.blocks)
        ],
        "rank_telemetry.csv": [
            RankTelemetry(cell_id="", attempt=0, rank=rank, **vars(reading))
            for rank, answer in answers.items()
            for reading in answer.readings
        ],
        "collectives.csv": [] if report is None else _collectives(report),
    }
    last: RankMeasurement = found[grid.world - 1]  # the one that has the loss, with a pipeline
    losses = last.measured.run if grid.pp > 1 else first.measured.run
    memory = [each.measured.run.peak_memory_bytes for each in found.values()]
    lost = losses.last_loss is not None and not math.isfinite(losses.last_loss)
    run = replace(
        first.measured.run,
        executed=_sum_of(each.measured.run.executed for each in found.values()),
        peak_memory_bytes=None if None in memory else max(memory),
        first_loss=losses.first_loss,
        last_loss=None if lost else losses.last_loss,
    )
    stopped = any(block.part == SUSPENDED for block in first.measured.blocks)
    warnings = (
        *first.measured.run.warnings,
        *([WARNING] if stopped and WARNING not in first.measured.run.warnings else []),
        *([f"loss: the last loss was {losses.last_loss}"] if lost else []),
        *([f"recorded_steps: {problem}"] if problem else []),
    )
    blocks = tuple(slowest_blocks(first.measured.blocks, others))
    return replace(first.measured, run=replace(run, warnings=warnings), blocks=blocks, ranks=rows)


def _agreed(found: Mapping[int, RankMeasurement]) -> dict[int, RankMeasurement]:
    """Each rank's measurement, the first one's first, whose steps and times are of the same blocks on all of them."""
    ranks = sorted(found)
    blocks = agreed_blocks([found[rank].measured.blocks for rank in ranks])
    return {
        rank: replace(found[rank], measured=replace(found[rank].measured, blocks=tuple(each)))
        for rank, each in zip(ranks, blocks, strict=True)
    }


def _sum_of(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _report(found: Mapping[int, RankMeasurement]) -> tuple[RanksReport | None, str]:
    """What the recordings say together, or why nothing."""
    from analysis.ranks.summary import report_of
    from analysis.ranks.timelines import by_rank
    from measure.trace.ranks import read_rank

    if len(found) < 2:
        return None, ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            for rank, each in found.items():
                (Path(folder) / f"rank{rank}.json.gz").write_bytes(each.recording)
            return report_of(by_rank(read_rank(path) for path in sorted(Path(folder).iterdir())), {}), ""
    except (ValueError, Inconsistent, KeyError) as fault:
        return None, " ".join(str(fault).split())


def _row(
    rank: int, answer: RankAnswer, grid: RankGrid, ceiling: Mapping[str, float], report: RanksReport | None
) -> RankRow:
    found: RankMeasurement = answer.found
    run, place = found.measured.run, grid.coordinates(rank)
    timed = [block for block in found.measured.blocks if block.part == "measure"]
    steps = sum(block.steps for block in timed)
    return RankRow(
        cell_id="",
        attempt=0,
        rank=rank,
        place=",".join(f"{axis}={getattr(place, axis)}" for axis, size in grid.sizes.items() if size > 1) or "dp=0",
        host=answer.facts.host,
        device=answer.facts.device,
        device_name=answer.facts.device_name,
        steps=steps or None,
        time_s=sum(step_time_s(block) * block.steps for block in timed) / steps if steps else None,
        executed=run.executed,
        ceiling=ceiling,
        parameters=found.held_parameters,
        peak_memory_bytes=run.peak_memory_bytes,
        energy_j=answer.energy_j,
        **({} if report is None else _recorded_columns(rank, report, found.steps_before)),
    )


def _recorded_columns(rank: int, report: RanksReport, steps_before: int) -> dict[str, Any]:
    """A rank's columns of the recorded steps."""
    row = next(each for each in report.ranks if each.rank == rank)
    times = {f.name: getattr(row.time, f.name) for f in fields(row.time)}
    names = ("compute_s", "exposed_s", "overlapped_s", "memory_s", "idle_s")
    waiting_s = sum(wait.wait_s for wait in report.waits)
    for_rank_s = sum(wait.wait_s for wait in report.waits if wait.for_rank == rank)
    late = report.straggler
    since = late.since if late is not None and late.rank == rank else None
    return {
        "recorded_steps": row.steps,
        **{name: times[name] for name in names},
        "wait_s": sum(wait.wait_s for wait in report.waits if wait.rank == rank),
        "waited_for_ratio": for_rank_s / waiting_s if waiting_s else None,
        "late_since_step": None if since is None else steps_before + since,
    }


def _collectives(report: RanksReport) -> list[RankCollective]:
    return [
        RankCollective(
            cell_id="",
            attempt=0,
            rank=total.rank,
            kind=total.kind,
            group_size=total.group_size,
            calls=total.calls,
            given_bytes=total.nbytes,
            time_s=total.time_s,
        )
        for total in report.collectives
    ]
