"""Runs a session whose cells are trained by several ranks of torchrun (`RankSession`), from its first rank.

A session is one period of measuring on one machine; a cell is one combination of workload, batch size and precision.
`RankSession` takes an `Order` (which cell to measure), sends it to the ranks, and returns a `CellResult`. Only the
first rank counts, traces and stores. All ranks measure ceilings, the highest rates of a device, at the same time, since
processes that share a host slow each other down. The ranks of a cell's plan measure the cell. `join_ranks` combines
their answers into one `CellMeasurement`: the slowest rank's blocks, sums of FLOP, a row for each rank. Not claimed: why
a rank is late. The rows show only that the other ranks waited for it.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.ceilings import best
from analysis.parallel.rank_grid import RankGrid, parse_plan
from measure.timing.disturbance import SUSPENDED, WARNING
from measure.timing.rank_blocks import join_blocks
from measure.timing.stopping import Protocol, total_s
from results.errors import Inconsistent
from results.records.cell import Ceiling, Cell, RankCollective, RankRow, RankSample, RankTelemetry, Sample
from runners.sweep.findings import CellMeasurement, Order, Rows, SlotFacts, SlotSettings
from runners.sweep.rank_peers import (
    Exchange,
    LostExchange,
    RankAnswer,
    RankOrder,
    RankPeers,
    end_with_torchrun,
)
from runners.sweep.session import Session
from runners.workers.devices import RankProcess
from runners.workers.pool import WorkerFault

if TYPE_CHECKING:
    from analysis.rank_report import RanksReport
    from runners.sweep.rank_task import RankMeasurement

PATIENCE_S = 60.0
"""Time after an order's limit for which the first rank waits for the answers of others."""


class RankSession(Session):
    """A session of the first of torchrun's ranks, which this process is."""

    def __init__(self, settings: SlotSettings, process: RankProcess) -> None:
        super().__init__(settings)
        end_with_torchrun()
        self._exchange = Exchange(process)
        self.peers: Any = None  # the other ranks, from `slot_facts` on
        self._of_ranks: dict[tuple[str, str], Ceilings] = {}

    def slot_facts(self) -> SlotFacts:
        """Return the facts of this rank's device, once all ranks sent theirs. Raises ValueError where they differ."""
        facts = super().slot_facts()
        self._exchange.put("start", facts.probed.device)
        self.peers = RankPeers(self._exchange, facts.probed)
        self.peers.gather_facts()
        return facts

    def close(self) -> None:
        """Let the other ranks end, too."""
        super().close()
        with contextlib.suppress(LostExchange):
            if self.peers is not None:
                self.peers.order(None)

    def _train(self, cell: Cell, protocol: Protocol) -> CellMeasurement | WorkerFault:
        if not cell.parallel:
            return super()._train(cell, protocol)
        grid, limit_s = parse_plan(cell.parallel), self.settings.cell_timeout_s
        task = "runners.sweep.rank_task:measure_rank"
        answers = self._answers(RankOrder(task, (cell, protocol), grid.world, limit_s))
        ceilings = self._of_ranks.get((cell.precision, cell.malloc), {})
        return fault_of(answers, grid.world) or join_ranks(grid, answers, ceilings)

    def _answers(self, order: RankOrder) -> dict[int, RankAnswer]:
        """Return every rank's part of an order, the first one's first. Raises LostExchange."""
        number = self.peers.order(order)
        own = self.peers.do(number, order, self.measurer, self.watch)
        return {0: own, **self.peers.answers(number, range(1, order.ranks), order.timeout_s + PATIENCE_S)}

    def _measure_ceilings(self, order: Order, budget_s: float, timeout_s: float) -> list[Ceiling] | WorkerFault:
        cell, task = order.cell, "runners.sweep.rank_task:rank_ceilings"
        arguments = (order.session, cell.precision, budget_s, cell.malloc)
        answers = self._answers(RankOrder(task, arguments, self._exchange.process.world, timeout_s))
        self._of_ranks[cell.precision, cell.malloc] = {
            rank: _by_unit(answer.result) for rank, answer in answers.items() if isinstance(answer.result, list)
        }
        own: list[Ceiling] | WorkerFault = answers[0].result
        return own

    def _loss(self) -> str:
        if self._exchange.lost:
            return "torchrun is gone"
        lost = ", ".join(f"rank {rank}" for rank in sorted(self.peers.lost))
        return f"{lost} gave no answer" if lost else super()._loss()


def _by_unit(rows: Sequence[Ceiling]) -> dict[str, float]:
    """Return unit → FLOP/s of its fastest kernel."""
    units = dict.fromkeys(row.unit for row in rows if row.unit)
    fastest = {unit: best(rows, unit) for unit in units}
    return {unit: float(row.flop_per_s) for unit, row in fastest.items() if row is not None and row.flop_per_s}


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
    """Return why a cell failed, with the rank's name; None if no rank failed. A rank that failed only because another
    one did is named only if no rank failed by itself."""
    faults = [(answer.facts, answer.result) for answer in answers.values() if isinstance(answer.result, WorkerFault)]
    if not faults:
        return None
    own = [fault_on for fault_on in faults if not is_followed(fault_on[1])]
    facts, fault = (own or faults)[0]
    also = f" (and {len(own) - 1} more ranks)" if len(own) > 1 else ""
    text = f"rank {facts.rank} of {ranks} ({facts.host} {facts.device}): {fault.reason}{also}"
    return WorkerFault(fault.status, text, fault.detail)


def is_followed(fault: WorkerFault) -> bool:
    """Return whether a rank failed because another one did."""
    reason = fault.reason.lower()
    return fault.status in ("crashed", "device_error") and any(phrase in reason for phrase in FOLLOWED)


def join_ranks(grid: RankGrid, answers: Answers, ceilings: Ceilings) -> CellMeasurement:
    """Return the cell as one measurement. Raises Inconsistent where ranks did not run the same blocks."""
    ranks = sorted(answers)
    measurements: dict[int, RankMeasurement] = {rank: answers[rank].result for rank in ranks}
    runs = {rank: measurements[rank].measured.run for rank in ranks}
    agreed, slowest = join_blocks([measurements[rank].measured.blocks for rank in ranks])
    blocks = dict(zip(ranks, agreed, strict=True))
    report, problem = _report({rank: measurements[rank].recording for rank in ranks})
    rows: Rows = {
        "ranks.csv": [
            RankRow(
                **_own_columns(answers[rank], blocks[rank], grid),
                ceiling=ceilings.get(rank, {}),
                **({} if report is None else _recorded_columns(rank, report, measurements[rank].steps_before)),
            )
            for rank in ranks
        ],
        "rank_samples.csv": [
            RankSample(**{**vars(block), "index": index, "rank": rank})
            for rank in ranks
            for index, block in enumerate(blocks[rank])
        ],
        "rank_telemetry.csv": [
            RankTelemetry(**vars(reading), rank=rank) for rank in ranks for reading in answers[rank].readings
        ],
        "collectives.csv": [
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
            for total in (() if report is None else report.collectives)
        ],
    }
    losses = runs[grid.world - 1 if grid.pp > 1 else 0]  # with a pipeline the last rank has the loss
    memory = [run.peak_memory_bytes for run in runs.values() if run.peak_memory_bytes is not None]
    lost = losses.last_loss is not None and not math.isfinite(losses.last_loss)
    executed: Counter[str] = Counter()
    for run in runs.values():
        executed.update(run.executed)
    energies = [answer.energy_j for answer in answers.values() if answer.energy_j is not None]
    energy_j = sum(energies) if len(energies) == len(ranks) else None  # of all ranks, or not known
    stopped = any(block.part == SUSPENDED for block in agreed[0])
    warnings = (
        *runs[0].warnings,
        *([WARNING] if stopped and WARNING not in runs[0].warnings else []),
        *([f"loss: the last loss was {losses.last_loss}"] if lost else []),
        *([f"recorded_steps: {problem}"] if problem else []),
    )
    run = replace(
        runs[0],
        executed=dict(sorted(executed.items())),
        peak_memory_bytes=max(memory) if len(memory) == len(runs) else None,
        energy_j=energy_j,
        energy_method="" if energy_j is None else "counter",
        first_loss=losses.first_loss,
        last_loss=None if lost else losses.last_loss,
        warnings=warnings,
    )
    return replace(measurements[0].measured, run=run, blocks=tuple(slowest), ranks=rows)


def _report(recordings: Mapping[int, bytes]) -> tuple[RanksReport | None, str]:
    """Return the report on all recordings together; None for a single one, or with the reason why there is none."""
    from analysis.rank_report import report_of
    from analysis.rank_timelines import by_rank
    from measure.trace.read import read_rank

    if len(recordings) < 2:
        return None, ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            for rank, recording in recordings.items():
                (Path(folder) / f"rank{rank}.json.gz").write_bytes(recording)
            return report_of(by_rank(read_rank(path) for path in sorted(Path(folder).iterdir())), {}), ""
    except (ValueError, Inconsistent, KeyError) as fault:
        return None, " ".join(str(fault).split())


def _own_columns(answer: RankAnswer, blocks: Sequence[Sample], grid: RankGrid) -> dict[str, Any]:
    """Return a rank's columns but those of its ceiling and of the recorded steps."""
    measurement: RankMeasurement = answer.result
    facts, run, coordinates = answer.facts, measurement.measured.run, grid.coordinates(answer.facts.rank)
    timed = [block for block in blocks if block.part == "measure"]
    steps = sum(block.steps for block in timed)
    return {
        "cell_id": "",
        "attempt": 0,
        **vars(facts),
        "place": ",".join(f"{axis}={getattr(coordinates, axis)}" for axis, size in grid.sizes.items() if size > 1)
        or "dp=0",
        "steps": steps or None,
        "time_s": total_s(timed) / steps if steps else None,
        "executed": run.executed,
        "parameters": measurement.held_parameters,
        "peak_memory_bytes": run.peak_memory_bytes,
        "energy_j": answer.energy_j,
    }


def _recorded_columns(rank: int, report: RanksReport, steps_before: int) -> dict[str, Any]:
    """Return a rank's columns of the recorded steps."""
    row = next(rank_row for rank_row in report.ranks if rank_row.timeline.rank == rank)
    times = {f.name: getattr(row.time, f.name) for f in fields(row.time)}
    names = ("compute_s", "exposed_s", "overlapped_s", "memory_s", "idle_s")
    waiting_s = sum(wait.wait_s for wait in report.waits)
    for_rank_s = sum(wait.wait_s for wait in report.waits if wait.for_rank == rank)
    late = report.straggler
    since = late.since if late is not None and late.rank == rank else None
    return {
        "recorded_steps": len(row.timeline.steps),
        **{name: times[name] for name in names},
        "wait_s": sum(wait.wait_s for wait in report.waits if wait.rank == rank),
        "waited_for_ratio": for_rank_s / waiting_s if waiting_s else None,
        "late_since_step": None if since is None else steps_before + since,
    }
