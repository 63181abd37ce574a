"""A session whose cells are trained by several ranks: what a session of one device does, and the ranks' part of it.

Counting, tracing and keeping are the first rank's alone. Ceilings are found by all ranks at once, because a host gives
several less than one; cells by those that their plan names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.devices.ceilings import best
from analysis.parallel.rank_grid import parse_plan
from results.records.cell import Cell, Run
from results.records.samples import Ceiling
from runners.sweep.findings import CellMeasurement, CellOutcome
from runners.sweep.ranks.exchange import KILLED, LostExchange
from runners.sweep.ranks.joining import Ceilings, fault_of, join_ranks
from runners.sweep.ranks.peers import CeilingOrder, CellOrder, RankAnswer, RankPeers
from runners.sweep.session import Session
from runners.workers.telemetry import WindowEnergy
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
        self._energy_j = _sum([answer.energy_j for answer in answers.values()])
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

    def _interruption(self) -> CellOutcome:
        """torchrun ends all ranks when one is gone: then that is why. The kernel ends them where torchrun is."""
        if self.peers.exchange.is_orphaned:
            return CellOutcome("crashed", f"{KILLED}, and its ranks ended")
        try:
            gone = self.peers.missing()
        except LostExchange:  # torchrun itself is gone
            gone = []
        if not gone:
            return super()._interruption()
        facts = [self.peers.others[rank] for rank in gone]
        names = ", ".join(f"rank {each.rank} ({each.host} {each.device})" for each in facts)
        return CellOutcome("crashed", f"{names}: its process is gone, and torchrun ended the others")

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


def _sum(values: Sequence[Any]) -> float | None:
    """None where one is not known."""
    return None if None in values or not values else float(sum(values))
