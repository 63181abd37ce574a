"""What counters give for the cells of one session: each workload is counted at all batches that cells ask for, together
where they are known before the first is counted, and no batch twice.

Each counter runs in a process of its own. Batches that are too large to count are computed by the law of the batch.
"""

from __future__ import annotations

from measure.counters.harness.batch_law import extrapolate
from measure.counters.harness.isolation import batches_to_count, count_isolated
from results.records.cell import Cell
from results.records.counts import FlopCount
from results.records.vocabulary import digest
from runners.sweep.models import factory_of
from runners.workers.batches import hyper_of_cell

TIMEOUT_S = 300.0
"""Of one counter and workload, all its batches together."""


class Counts:
    """The counters' rows of a session, kept from one cell for the next of its workload."""

    def __init__(self) -> None:
        self._rows: dict[str, list[FlopCount]] = {}
        self._batches: dict[str, set[int]] = {}  # workload → those at which some cell wants it counted
        self._counted: dict[str, set[int]] = {}  # counter and workload → those it was counted at

    def ask(self, cell: Cell) -> None:
        """Says which batches a cell will want, best before the first is counted."""
        self._batches.setdefault(_workload(cell), set()).update(_batches(cell))

    def of(self, cell: Cell) -> list[FlopCount]:
        """The counters' rows at small batches and at the cell's own; no workload is counted twice."""
        rows: list[FlopCount] = []
        for counter in cell.counters:
            counted = self._by(counter, cell)
            rows += counted
            if all(row.batch_size != cell.batch_size for row in counted):
                rows += extrapolate(counted, cell.batch_size)
        return rows

    def _by(self, counter: str, cell: Cell) -> list[FlopCount]:
        """One counter's rows for a cell, counted together with what the other cells of its workload ask for."""
        workload = _workload(cell)
        key = digest([counter, workload])
        before = self._counted.setdefault(key, set())
        if batches := sorted(self._batches[workload] - before):
            self._rows.setdefault(key, []).extend(
                count_isolated(counter, cell.model, hyper_of_cell(cell), batches, TIMEOUT_S, factory=factory_of(cell))
            )
            before.update(batches)
        mine = _batches(cell)
        return [row for row in self._rows[key] if row.batch_size in mine]


def _workload(cell: Cell) -> str:
    return digest([cell.model, hyper_of_cell(cell)])


def _batches(cell: Cell) -> tuple[int, ...]:
    return (1, 2) if cell.quick else batches_to_count(cell.batch_size)
