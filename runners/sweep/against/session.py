"""Two sessions that share one machine: each cell is counted and traced on both sides, timed interleaved, kept twice.

The old side's row is committed first. A comparison that was stopped between the two is measured again on both sides:
blocks of different attempts do not alternate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure.timing import Protocol
from results.records import Cell, Run
from runners.sweep.against.pairs import (
    Rules,
    SideFault,
    SideRun,
    inside,
    least_interleaved_s,
    measurement_of,
    time_interleaved,
)
from runners.sweep.findings import CellMeasurement
from runners.sweep.session import Session, least_s
from runners.workers import Stopwatch, TelemetryWatch, WindowEnergy, Worker, WorkerFault

Answer = CellMeasurement | WorkerFault
NO_ENERGY = "energy: the window holds the other side's blocks, too"


@dataclass
class SideSession(Session):
    """A session whose cells are timed by `timing`, which knows the other side.

    timed_before_s: what the timing of the cell under way took before its own row was begun.
    """

    timing: Callable[[Cell, Protocol], Answer | None] = field(default=lambda cell, protocol: None)
    timed_before_s: float = 0.0

    def expect(self, cells: Sequence[Cell]) -> None:
        """Says which cells there will be."""
        self._ask(cells)

    def measure(self, cell: Cell) -> Run:
        """One cell; its row, which is committed."""
        return self._one(cell)

    def _learn(self, **fields: Any) -> None:
        if "duration_s" in fields:
            fields["duration_s"] += self.timed_before_s
        super()._learn(**fields)

    def _train(self, cell: Cell) -> Answer:
        answer = self.timing(cell, self.protocol(cell))
        return super()._train(cell) if answer is None else answer


class SharedWatch:
    """The telemetry of one device for both sides; the energy of a window is nobody's."""

    def __init__(self, watch: TelemetryWatch) -> None:
        self._watch = watch
        self.window, self.loss = watch.window, watch.loss

    def energy(self, start_s: float, end_s: float) -> WindowEnergy:
        return WindowEnergy(warnings=(NO_ENERGY,))


@dataclass
class Comparison:
    """Both sides of a comparison. roots: where the files of A and of B are."""

    a: SideSession
    b: SideSession
    roots: tuple[Path, Path]
    rules: Rules
    debug: bool = False
    _answers: dict[str, Answer | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.a.timing = self._time_both
        self.b.timing = lambda cell, protocol: self._answers.pop("B", None)

    def collect(self, pairs: Sequence[tuple[Cell, Cell]]) -> list[Run]:
        """Measures these pairs in their order; the rows that were committed."""
        runs: list[Run] = []
        self.a.expect([a for a, _ in pairs])
        self.b.expect([b for _, b in pairs])
        try:
            for number, cells in enumerate(pairs):
                if not self._fits():
                    left = f"{len(pairs) - number} of {len(pairs)} pairs of cells not started"
                    self.a.progress.say(f"time budget: {left}; --resume goes on")
                    break
                self._cells = cells
                self._answers.clear()
                self.b.timed_before_s = 0.0
                planned_s = self._planned_s(pairs[number:])
                for at, (session, cell, root) in enumerate(zip((self.a, self.b), cells, self.roots, strict=True)):
                    self.a.progress.expect(planned_s[at:])
                    with inside(root):
                        runs.append(session.measure(cell))
        finally:
            self.a.close()
            self.b.close()
        return runs

    def _planned_s(self, pairs: Sequence[tuple[Cell, Cell]]) -> list[float]:
        """The least that each cell takes, A before B: A's holds the timing of both, B's row takes what is there."""
        found: list[float] = []
        for (a, _), planned_s in zip(pairs, self.a.planned_s([a for a, _ in pairs]), strict=True):
            ceiling_s = planned_s - least_s(a, ceiling_known=True)
            interleaved_s = ceiling_s + least_interleaved_s(self.a.protocol(a).for_pass(), self.rules)
            found += [interleaved_s if planned_s else 0.0, 0.0]
        return found

    def _fits(self) -> bool:
        """Whether a pair as long as the longest so far still fits into the time budget."""
        budget_s = self.a.limits.time_budget_s
        return budget_s is None or budget_s - self.a.watch_s.elapsed_s >= self.a.longest_s + self.b.longest_s

    def _time_both(self, cell: Cell, protocol: Protocol) -> Answer | None:
        """A's answer; B's is kept for its own row. None: A is to be measured by itself."""
        sides = [self._side(name, each, root) for name, each, root in zip("AB", self._cells, self.roots, strict=True)]
        self.a.measurer.stop()
        self.b.measurer.stop()
        stopwatch = Stopwatch()
        try:
            outcome = time_interleaved(
                sides[0], sides[1], protocol.for_pass(), self.rules, self._say, self.a.progress.revise
            )
        except SideFault as fault:
            return self._one_sided(fault)
        self.a.progress.say(f"{cell.model} b{cell.batch_size} {cell.precision}: {outcome}")
        answers = [measurement_of(side, protocol) for side in sides]
        self._answers["B"], self.b.timed_before_s = answers[1], stopwatch.elapsed_s
        return answers[0]

    def _one_sided(self, fault: SideFault) -> Answer | None:
        """The failed side has its fault; the other is measured by itself."""
        self.a.progress.say(f"{fault.side} failed, the other side is measured by itself: {fault.fault.reason}")
        if fault.side == "A":
            return fault.fault
        self._answers["B"] = fault.fault
        return None

    def _side(self, name: str, cell: Cell, root: Path) -> SideRun:
        quiet = not self.debug
        return SideRun(name, cell, root, lambda: Worker(f"measure {name}", quiet=quiet))

    def _say(self, text: str) -> None:
        self.a.progress.stage(self._cells[0], f"interleaved, {text}")
