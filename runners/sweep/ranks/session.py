"""A session whose cells are trained by several ranks: what a session of one device does, and the ranks' part of it.

Counting, tracing and keeping are the first rank's alone. Ceilings are found by all ranks at once, because a host gives
several less than one; cells by those that their plan names.

Every rank but the first one follows (`follow`): it looks at its device, does its part of what is ordered, and answers.
It reads no options, prints nothing and keeps no file. It ends with 0 when the first rank says so, and with 130 or 143
when torchrun ends it.
"""

import contextlib
import signal
import sys
from collections.abc import Sequence
from typing import Any

from analysis.devices.ceilings import best
from analysis.parallel.rank_grid import parse_plan
from results.records.cell import Cell, Run
from results.records.samples import Ceiling
from runners.cli.exits import FAILED, INTERRUPTED, TERMINATED
from runners.sweep.findings import CellMeasurement
from runners.sweep.ranks.joining import Ceilings, fault_of, join_ranks
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
from runners.workers.devices import Place, ProbeResult
from runners.workers.pool import Worker, prepare
from runners.workers.telemetry import TelemetryWatch, WindowEnergy
from runners.workers.worker import WorkerFault

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
