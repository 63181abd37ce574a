"""A session whose cells are trained by several ranks: what a session of one device does, and the ranks' part of it.

Counting, tracing and keeping are the first rank's alone. Ceilings are found by all ranks at once, because a host gives
several less than one; cells by those that their plan names.

Every rank but the first one follows (`follow`): it looks at its device, does its part of what is ordered, and answers.
It reads no options, prints nothing and keeps no file. It ends with 0 when the first rank says so, and with 130 or 143
when torchrun ends it.

`join_ranks` makes one measurement of what the ranks found: the slowest rank's blocks, sums of FLOP, a row for each
rank. Not claimed: why a rank is late; only that the others waited for it.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.ceilings import best
from analysis.parallel.rank_grid import RankGrid, parse_plan
from measure.timing.disturbance import SUSPENDED, WARNING
from measure.timing.rank_blocks import agreed_blocks, slowest_blocks
from measure.timing.stopping import step_time_s
from results.errors import Inconsistent
from results.records.cell import Ceiling, Cell, RankCollective, RankRow, RankSample, RankTelemetry, Run
from runners.cli.exits import FAILED, INTERRUPTED, TERMINATED
from runners.sweep.findings import CellMeasurement, Rows
from runners.sweep.ranks.peers import (
    KILLED,
    CeilingOrder,
    CellOrder,
    Exchange,
    LostExchange,
    RankAnswer,
    RankPeers,
    end_with_torchrun,
)
from runners.sweep.session import Session
from runners.workers.devices import Place, ProbeResult, TelemetryWatch, WindowEnergy
from runners.workers.pool import Worker, WorkerFault, prepare

if TYPE_CHECKING:
    from analysis.ranks.summary import RanksReport
    from runners.sweep.ranks.task import RankMeasurement


PATIENCE_S = 60.0
"""For the answers of other ranks once this one is done."""


class RankSession(Session):
    """A session of the first rank. peers: the others."""

    def __init__(self, peers: RankPeers, *parts: Any) -> None:
        super().__init__(*parts)
        self.peers = peers
        self._of_ranks: dict[tuple[str, str], Ceilings] = {}
        self._energy_j: float | None = None
        self._is_alone = False  # torchrun is gone, and with it the store where ranks meet

    def _train(self, cell: Cell) -> CellMeasurement | WorkerFault:
        if not cell.parallel:
            return super()._train(cell)
        grid = parse_plan(cell.parallel)
        order = CellOrder(cell, self.protocol(cell), grid.world, self._timeout_s())
        self.measurer.stop()  # a group is joined by a process that has joined no other
        try:
            answers = self._answers(order)
        except LostExchange as lost:
            return self._end_alone(lost)
        energies = [answer.energy_j for answer in answers.values() if answer.energy_j is not None]
        self._energy_j = sum(energies) if len(energies) == len(answers) else None  # of all ranks, or not known
        if fault := fault_of(answers, grid.world):
            return fault
        return join_ranks(cell, grid, answers, self._of_ranks.get((cell.precision, cell.malloc), {}))

    def _answers(self, order: CellOrder | CeilingOrder) -> dict[int, RankAnswer]:
        """Every rank's part of an order, the first one's first."""
        number = self.peers.order(order)
        mine = self.peers.do(number, order, self.measurer, self.watch)
        return {0: mine, **self.peers.answers(number, range(1, order.ranks), PATIENCE_S)}

    def _measure_ceilings(self, cell: Cell, budget_s: float, timeout_s: float) -> list[Ceiling] | WorkerFault:
        precision, world = cell.precision, self.peers.exchange.place.world
        try:
            answers = self._answers(CeilingOrder(self.name, precision, budget_s, timeout_s, world, cell.malloc))
        except LostExchange as lost:
            return self._end_alone(lost)
        self._of_ranks[precision, cell.malloc] = {
            rank: _by_unit(answer.found) for rank, answer in answers.items() if isinstance(answer.found, list)
        }
        found: list[Ceiling] | WorkerFault = answers[0].found
        return found

    def _end_alone(self, lost: LostExchange) -> WorkerFault:
        """No rank can be told anything any more."""
        self._is_alone = True
        return WorkerFault("crashed", f"torchrun is gone, and the other ranks with it: {lost}")

    def _energy(self, cell: Cell, start_s: float, end_s: float) -> WindowEnergy:
        """Of all ranks' GPUs; processors are shared by ranks, and each would tell the energy of all."""
        if not cell.parallel:
            return super()._energy(cell, start_s, end_s)
        return WindowEnergy() if self._energy_j is None else WindowEnergy(self._energy_j, "counter")

    def _interruption(self) -> tuple[str, str]:
        """torchrun ends all ranks when one is gone: then that is why. The kernel ends them where torchrun is."""
        if self.peers.exchange.is_orphaned:
            return "crashed", f"{KILLED}, and its ranks ended"
        try:
            gone = self.peers.missing()
        except LostExchange:  # torchrun itself is gone
            gone = []
        if not gone:
            return super()._interruption()
        facts = [self.peers.others[rank] for rank in gone]
        names = ", ".join(f"rank {each.rank} ({each.host} {each.device})" for each in facts)
        return "crashed", f"{names}: its process is gone, and torchrun ended the others"

    def _is_lost(self, run: Run, waiting: int) -> bool:
        if self._is_alone:
            self.progress.say(f"torchrun is gone: {waiting} cells not started; --resume goes on under another")
            return True
        if not self.peers.lost:
            return super()._is_lost(run, waiting)
        names = ", ".join(f"rank {rank}" for rank in sorted(self.peers.lost))
        self.progress.say(f"{names} gave no answer: {waiting} cells not started; --resume goes on")
        return True


def _by_unit(rows: Sequence[Ceiling]) -> dict[str, float]:
    """Unit → FLOP/s of its fastest kernel."""
    units = dict.fromkeys(row.unit for row in rows if row.unit)
    found = {unit: best(rows, unit) for unit in units}
    return {unit: float(row.flop_per_s) for unit, row in found.items() if row is not None and row.flop_per_s}


PROBE_S = 180.0


class Termination(KeyboardInterrupt):
    """SIGTERM came."""


def follow(place: Place) -> int:
    """Do what the first rank orders, until it orders nothing more; the exit code."""
    end_with_torchrun(Termination)
    prepare()
    exchange = Exchange(place)
    try:
        return _follow(exchange)
    except Termination:
        _say_end(exchange)
        return TERMINATED
    except KeyboardInterrupt:
        _say_end(exchange)
        return INTERRUPTED
    except LostExchange as fault:
        print(f"error: rank {place.rank}: torchrun's store is gone: {fault}", file=sys.stderr)
        return FAILED
    finally:
        exchange.close()


def _say_end(exchange: Exchange) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(LostExchange, OSError):
        exchange.put(f"ended/{exchange.place.rank}", True)


def _follow(exchange: Exchange) -> int:
    device = exchange.place.device(exchange.take("start"))
    worker = Worker("measure")
    probed: ProbeResult | WorkerFault = worker.call("runners.workers.devices:probe", device, timeout_s=PROBE_S)
    hello = f"hello/{exchange.place.rank}"
    if isinstance(probed, WorkerFault):
        exchange.put(hello, probed.reason)
        return FAILED
    peers, watch = RankPeers(exchange, probed), TelemetryWatch(device)
    exchange.put(hello, peers.facts)
    watch.start()
    try:
        _do_orders(peers, worker, watch)
    finally:
        watch.close()
        worker.stop()
    return 0


def _do_orders(peers: RankPeers, worker: Worker, watch: TelemetryWatch) -> None:
    """Each order that concerns this rank, until the last."""
    while True:
        peers.orders += 1
        (order,) = peers.exchange.take(f"order/{peers.orders}")
        if order is None:
            return
        if peers.rank < order.ranks:
            if isinstance(order, CellOrder):
                worker.stop()  # a group is joined by a process that has joined no other
            peers.answer(peers.orders, peers.do(peers.orders, order, worker, watch))


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
            RankTelemetry(**vars(reading), rank=rank) for rank, answer in answers.items() for reading in answer.readings
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
