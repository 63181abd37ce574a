"""How long the next cell of a session will take, by what the cells before it took.

A cell takes what its protocol needs at least, and more: counting, the first step, in which algorithms are searched, and
in a fresh process the context of the device and its libraries. How much more is learnt from the session itself, apart
for cells in a fresh process and in one that has measured before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from analysis.utilization.work_times import works_of
from measure.timing.protocols import Protocol
from results.records.cell import Cell

CEILING_BUDGET_S = {"cpu": 8.0, "cuda": 6.0}
QUICK_CEILING_S = 2.5

SPARE_RATIO = 1.2
"""How much longer than that the next cell is taken to need."""

REMEMBERED = 10
"""Cells of each kind: a slow one is forgotten after so many."""


@dataclass
class Planning:
    """What cells of one session took beyond their least, by whether their process was fresh."""

    _beyond_s: dict[bool, deque[float]] = field(default_factory=dict)

    def learn(self, fresh: bool, least_s: float, took_s: float) -> None:
        """One more cell has ended."""
        self._beyond_s.setdefault(fresh, deque(maxlen=REMEMBERED)).append(max(0.0, took_s - least_s))

    def needs_s(self, fresh: bool, least_s: float) -> float:
        """What a cell is taken to need: its least, the most that one like it took beyond, and a fifth to spare."""
        seen = self._beyond_s.get(fresh) or self._beyond_s.get(not fresh) or (0.0,)
        return SPARE_RATIO * (least_s + max(seen))


def protocol_s(cell: Cell, ceiling_known: bool = False) -> float:
    """Seconds that a cell's protocol takes at least: timing it, and the ceiling before the first of a precision."""
    timing_s = Protocol.for_device(cell.device, cell.quick, cell.target_ci_ratio, works=works_of(cell)).least_s
    return timing_s if ceiling_known else timing_s + ceiling_budget_s(cell)


def least_s(cell: Cell, ceiling_known: bool = False) -> float:
    """Seconds that a cell takes if everything goes well."""
    return SPARE_RATIO * protocol_s(cell, ceiling_known)


def ceiling_budget_s(cell: Cell) -> float:
    """Seconds for finding the device's ceiling before the first cell of a precision."""
    return QUICK_CEILING_S if cell.quick else CEILING_BUDGET_S[cell.device.partition(":")[0]]
