"""The process that keeps a run whose cells are measured elsewhere: hands them to slots and commits what comes back.

A cell is handed to one slot at a time and taken off the list when its rows are committed, so that it is measured again
only if its slot was lost before they arrived. Rows arrive one by one; which order they have depends on the slots.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from results.records.cell import Cell, Run
from results.store.manifest import utc_now
from results.store.store import Store
from runners.cli.progress import Progress
from runners.sweep.findings import CellResult, Order, SlotFacts, failure, keep
from runners.sweep.plan import SPARE_RATIO, least_s, reason_against
from runners.sweep.session import Limits, trace_id
from runners.workers.devices import ProbeResult, sitting_of
from runners.workers.pool import Stopwatch, uninterrupted

MOST_LOSSES = 2
"""How many slots may be lost under a cell, before it is taken to be why: its row says so then."""

POLL_S = 1.0
START_S = 600.0
"""How long the first slot is waited for: a cluster may start a machine for it, a queue may be long."""

CLOCK_S = 2.0
"""How far apart two clocks are not mentioned."""


@dataclass(frozen=True)
class Ready:
    """A slot that can measure."""

    slot: str
    place: SlotFacts


@dataclass(frozen=True)
class Answer:
    """What a slot measured."""

    slot: str
    result: CellResult


@dataclass(frozen=True)
class Loss:
    """A slot that there is no more, or never was. refused: it said so itself, as one that may not be used."""

    slot: str
    reason: str
    refused: bool = False


Event = Ready | Answer | Loss


@dataclass
class Held:
    """A slot that is there. offset_s: its clock minus ours; sitting: its session, "" before it has one."""

    facts: SlotFacts
    offset_s: float
    sitting: str = ""


@dataclass
class Remote:
    """Slots, and the session that each of them is in the run. slots: a `RaySlots`; version: of this program, here and
    at each slot; utc_s: our clock, seconds since 1970; unmeasured: cells that no slot was left for."""

    slots: Any
    version: str
    utc_s: Callable[[], float] = time.time
    held: dict[str, Held] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    unmeasured: int = 0

    def probe(self, _device: str) -> ProbeResult:
        """The device of the first slot there is. Raises ValueError where there is none within `START_S`."""
        stopwatch = Stopwatch()
        while not self.held:
            if not self.slots.expected:
                raise ValueError(f"--executor ray: expected a device to measure on, got none{self.why()}")
            if stopwatch.elapsed_s > START_S:
                raise ValueError(f"--executor ray: no device became free within {START_S:g} s")
            event = self.slots.next(POLL_S)
            if isinstance(event, Ready):
                self._add_slot(event)
            elif isinstance(event, Loss):
                self._note_loss(event)
        return next(iter(self.held.values())).facts.probed

    def begin_session(self, store: Store, _probed: ProbeResult) -> SlotFacts:
        """Begins the session of the first slot. Raises ValueError if it may not go on with the run."""
        slot, held = next(iter(self.held.items()))
        self._store = store
        self._begin(slot)
        return held.facts

    def close(self) -> None:
        """Gives all slots back."""
        self.slots.close()

    def _add_slot(self, event: Ready) -> None:
        """Remembers a new slot, and how far its clock is from ours."""
        self.held[event.slot] = Held(event.place, event.place.utc_s - self.utc_s())

    def _note_loss(self, event: Loss) -> str:
        """The line that says which slot there is no more."""
        held = self.held.pop(event.slot, None)
        line = f"{event.slot}{f' on {held.facts.host}' if held is not None else ''}: {event.reason}"
        self.losses.append(line)
        return line

    def why(self) -> str:
        """The last loss, to follow what it led to; "" if there was none."""
        return f" ({self.losses[-1]})" if self.losses else ""

    def _begin(self, slot: str) -> None:
        """A slot's session in the run. Raises ValueError if its machine may not go on with it."""
        held, name = self.held[slot], f"s{len(self._store.sittings)}"
        facts = {
            "harness_version": self.version,
            "executor": "ray",
            "slot": slot,
            "clock_offset_s": round(held.offset_s, 1),
        }
        place = held.facts
        self._store.append_sitting(sitting_of(name, utc_now(), place.host, place.probed, place.preflight, facts))
        held.sitting = name

    def rows(
        self, store: Store, cells: Sequence[Cell], limits: Limits, progress: Progress, notes: tuple[str, ...] = ()
    ) -> Iterator[Run]:
        """The rows of these cells, each once it is committed, in the session begun last. Fewer than asked if the time
        budget ran out, or no slot is left. notes: warnings of each."""
        self._store, self._limits, self._progress, self._notes = store, limits, progress, notes
        self._watch_s, self._longest_s = Stopwatch(), 0.0
        self._waiting = deque(cells)
        self._orders: dict[str, Order] = {}  # slot → what it measures now
        self._idle: deque[str] = deque(slot for slot, held in self.held.items() if held.sitting)
        self._lost: dict[str, int] = {}  # cell → slots lost under it
        self._traces: dict[str, bool] = {}
        for slot in [*self._idle]:
            self._announce(slot)
        for slot in [*self.held]:
            if slot not in self._idle:
                self._begin_session(slot)
        while self._waiting or self._orders:
            self._hand_out()
            if not self._orders and (not self._waiting or not self.slots.expected):
                break
            for run in self._take(self.slots.next(POLL_S)):
                self._progress.done(run)
                yield run
        if self._waiting:
            self.unmeasured = len(self._waiting)
            rest = f"{self.unmeasured} cell{'s' * (self.unmeasured != 1)} not started"
            self._progress.say(f"no device is left{self.why()}: {rest}; --resume goes on")

    def _hand_out(self) -> None:
        """A cell for every idle slot; none any more that would not finish in the time budget."""
        while self._idle and self._waiting:
            if not self._fits(self._waiting[0]):
                left = len(self._waiting)
                self._progress.say(f"time budget: {left} cell{'s' * (left != 1)} not started; --resume goes on")
                self._waiting.clear()
                return
            slot, cell = self._idle.popleft(), self._waiting.popleft()
            order = self._order(slot, cell)
            self._orders[slot] = order
            self._progress.stage(cell, f"on {self.held[slot].facts.host}")
            self.slots.measure(slot, order)

    def _order(self, slot: str, cell: Cell) -> Order:
        held, cell_id = self.held[slot], cell.cell_id
        version = str(held.facts.probed.environment.get("torch"))
        traced = "exact" in cell.methods and not reason_against(cell) and self._has_trace(trace_id(cell, version))
        return Order(cell, self._store.next_attempt(cell_id), held.sitting, version, utc_now(), traced)

    def _has_trace(self, identity: str) -> bool:
        """Whether the run has this operation table; asked of the disk until it is there."""
        if not self._traces.get(identity):
            self._traces[identity] = self._store.has_operations(identity)
        return self._traces[identity]

    def _take(self, event: Event | None) -> list[Run]:
        """The rows that an event brings, and those that have come by now: they are committed together."""
        measured: list[tuple[Order, CellResult]] = []
        runs: list[Run] = []
        with uninterrupted():  # what came is kept
            while event is not None:
                if isinstance(event, Ready):
                    self._add_slot(event)
                    self._begin_session(event.slot)
                elif isinstance(event, Loss):
                    # a slot less, which is said
                    self._progress.say(self._note_loss(event))
                    if event.slot in self._idle:
                        self._idle.remove(event.slot)
                    runs += self._retry(self._orders.pop(event.slot, None), event)
                elif event.slot in self._orders:
                    # a slot's result with its order; the slot is idle again
                    order = self._orders.pop(event.slot)
                    self._idle.append(event.slot)
                    for line in event.result.lines:
                        self._progress.say(f"{self.held[event.slot].facts.host}: {line}")
                    measured.append((order, event.result))
                event = self.slots.next(0.0)
            runs += keep(self._store, measured, self._notes) if measured else []
        self._traces |= {identity: True for _, result in measured for identity in result.tables}
        self._longest_s = max([self._longest_s, *(run.duration_s or 0.0 for run in runs)])
        return runs

    def _begin_session(self, slot: str) -> None:
        """A new slot's session, if its device may go on with the run; a slot that may not is given back."""
        place = self.held[slot].facts
        try:
            self._begin(slot)
        except ValueError as fault:
            self.slots.dismiss(slot)
            self._progress.say(self._note_loss(Loss(slot, f"not used: {fault}")))
            return
        self._idle.append(slot)
        self._announce(slot)
        if place.reason:
            self._progress.say(f"{slot}: {place.reason}")

    def _announce(self, slot: str) -> None:
        """Which device a slot is, and how far its clock is off."""
        place, offset_s = self.held[slot].facts, self.held[slot].offset_s
        self._progress.say(f"{slot}: {place.probed.name or place.probed.device} on {place.host}")
        if abs(offset_s) > CLOCK_S:
            which = "ahead of" if offset_s > 0 else "behind"
            self._progress.say(
                f"{slot}: its clock is {abs(offset_s):.0f} s {which} ours, which all times of day are of"
            )

    def _retry(self, order: Order | None, event: Loss) -> list[Run]:
        """A cell whose slot was lost goes back to the head of the list; the row that says why, after too many."""
        if order is None:
            return []
        cell = order.cell
        lost = self._lost[cell.cell_id] = self._lost.get(cell.cell_id, 0) + 1
        if lost <= MOST_LOSSES:
            self._waiting.appendleft(cell)
            return []
        run = failure(order, f"its slot was lost {lost} times, the last time: {event.reason}")
        self._store.commit(run, {})
        return [run]

    def _fits(self, cell: Cell) -> bool:
        budget_s = self._limits.time_budget_s
        if budget_s is None:
            return True
        return budget_s - self._watch_s.elapsed_s >= max(SPARE_RATIO * self._longest_s, least_s(cell))
