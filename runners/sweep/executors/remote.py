"""The process that keeps a run whose cells are measured elsewhere: hands them to slots and commits what comes back.

A cell is handed to one slot at a time and taken off the list when its rows are committed, so that it is measured again
only if its slot was lost before they arrived. Rows arrive one by one; which order they have depends on the slots.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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


class Slots(Protocol):
    """The devices that measure. `expected`: how many there are or may still come."""

    @property
    def expected(self) -> int: ...
    def next(self, timeout_s: float) -> Event | None: ...
    def measure(self, slot: str, order: Order) -> None: ...
    def dismiss(self, slot: str) -> None: ...
    def close(self) -> None: ...


@dataclass
class Held:
    """A slot that is there. offset_s: its clock minus ours; sitting: its session, "" before it has one."""

    facts: SlotFacts
    offset_s: float
    sitting: str = ""


@dataclass
class Remote:
    """Slots, and the session that each of them is in the run. version: of this program, here and at each slot. utc_s:
    our clock, seconds since 1970."""

    slots: Slots
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
                self.add_slot(event)
            elif isinstance(event, Loss):
                self.note_loss(event)
        return next(iter(self.held.values())).facts.probed

    def begin_session(self, store: Store, _probed: ProbeResult) -> SlotFacts:
        """Begins the session of the first slot. Raises ValueError if it may not go on with the run."""
        slot, held = next(iter(self.held.items()))
        self.begin(store, slot)
        return held.facts

    def rows(
        self,
        store: Store,
        cells: Sequence[Cell],
        limits: Limits,
        progress: Progress,
        notes: tuple[str, ...] = (),
    ) -> Iterator[Run]:
        """The rows of these cells, each once it is committed. notes: warnings of each."""
        dispatch = Dispatch(store, self, limits, progress, notes)
        yield from dispatch.each(cells)
        self.unmeasured = dispatch.unmeasured

    def close(self) -> None:
        """Gives all slots back."""
        self.slots.close()

    def add_slot(self, event: Ready) -> None:
        """Remembers a new slot, and how far its clock is from ours."""
        self.held[event.slot] = Held(event.place, event.place.utc_s - self.utc_s())

    def note_loss(self, event: Loss) -> str:
        """The line that says which slot there is no more."""
        held = self.held.pop(event.slot, None)
        line = f"{event.slot}{f' on {held.facts.host}' if held is not None else ''}: {event.reason}"
        self.losses.append(line)
        return line

    def why(self) -> str:
        """The last loss, to follow what it led to; "" if there was none."""
        return f" ({self.losses[-1]})" if self.losses else ""

    def begin(self, store: Store, slot: str) -> None:
        """A slot's session in the run. Raises ValueError if its machine may not go on with it."""
        held, name = self.held[slot], f"s{len(store.sittings)}"
        facts = {
            "harness_version": self.version,
            "executor": "ray",
            "slot": slot,
            "clock_offset_s": round(held.offset_s, 1),
        }
        place = held.facts
        store.append_sitting(sitting_of(name, utc_now(), place.host, place.probed, place.preflight, facts))
        held.sitting = name


@dataclass
class Dispatch:
    """One session of a sweep whose cells are measured by slots. notes: warnings of each of its rows."""

    store: Store
    remote: Remote
    limits: Limits
    progress: Progress
    notes: tuple[str, ...] = ()
    watch_s: Stopwatch = field(default_factory=Stopwatch)
    longest_s: float = 0.0
    unmeasured: int = 0  # cells that no slot was left for

    def __post_init__(self) -> None:
        self._waiting: deque[Cell] = deque()
        self._orders: dict[str, Order] = {}  # slot → what it measures now
        self._idle: deque[str] = deque(slot for slot, held in self.remote.held.items() if held.sitting)
        self._losses: dict[str, int] = {}  # cell → slots lost under it
        self._traces: dict[str, bool] = {}

    def each(self, cells: Sequence[Cell]) -> Iterator[Run]:
        """Has these cells measured; gives each row once it is committed, and keeps none. Fewer than asked if the time
        budget ran out, or no slot is left."""
        self._waiting = deque(cells)
        for slot in [*self._idle]:
            self._announce(slot)
        for slot in [*self.remote.held]:
            if slot not in self._idle:
                self._begin_session(slot)
        while self._waiting or self._orders:
            self._hand_out()
            if not self._orders and (not self._waiting or not self.remote.slots.expected):
                break
            for run in self._take(self.remote.slots.next(POLL_S)):
                self.progress.done(run)
                yield run
        if self._waiting:
            self.unmeasured = len(self._waiting)
            rest = f"{self.unmeasured} cell{'s' * (self.unmeasured != 1)} not started"
            self.progress.say(f"no device is left{self.remote.why()}: {rest}; --resume goes on")

    def _hand_out(self) -> None:
        """A cell for every idle slot; none any more that would not finish in the time budget."""
        while self._idle and self._waiting:
            if not self._fits(self._waiting[0]):
                left = len(self._waiting)
                self.progress.say(f"time budget: {left} cell{'s' * (left != 1)} not started; --resume goes on")
                self._waiting.clear()
                return
            slot, cell = self._idle.popleft(), self._waiting.popleft()
            order = self._order(slot, cell)
            self._orders[slot] = order
            self.progress.stage(cell, f"on {self.remote.held[slot].facts.host}")
            self.remote.slots.measure(slot, order)

    def _order(self, slot: str, cell: Cell) -> Order:
        held, cell_id = self.remote.held[slot], cell.cell_id
        version = str(held.facts.probed.environment.torch.torch)
        traced = "exact" in cell.methods and not reason_against(cell) and self._has_trace(trace_id(cell, version))
        return Order(cell, self.store.next_attempt(cell_id), held.sitting, version, utc_now(), traced)

    def _has_trace(self, identity: str) -> bool:
        """Whether the run has this operation table; asked of the disk until it is there."""
        if not self._traces.get(identity):
            self._traces[identity] = self.store.has_operations(identity)
        return self._traces[identity]

    def _take(self, event: Event | None) -> list[Run]:
        """The rows that an event brings, and those that have come by now: they are committed together."""
        measured: list[tuple[Order, CellResult]] = []
        runs: list[Run] = []
        with uninterrupted():  # what came is kept
            while event is not None:
                if isinstance(event, Ready):
                    self.remote.add_slot(event)
                    self._begin_session(event.slot)
                elif isinstance(event, Loss):
                    # a slot less, which is said
                    self.progress.say(self.remote.note_loss(event))
                    if event.slot in self._idle:
                        self._idle.remove(event.slot)
                    runs += self._retry(self._orders.pop(event.slot, None), event)
                elif event.slot in self._orders:
                    # a slot's result with its order; the slot is idle again
                    order = self._orders.pop(event.slot)
                    self._idle.append(event.slot)
                    for line in event.result.lines:
                        self.progress.say(f"{self.remote.held[event.slot].facts.host}: {line}")
                    measured.append((order, event.result))
                event = self.remote.slots.next(0.0)
            runs += keep(self.store, measured, self.notes) if measured else []
        self._traces |= {identity: True for _, result in measured for identity in result.tables}
        self.longest_s = max([self.longest_s, *(run.duration_s or 0.0 for run in runs)])
        return runs

    def _begin_session(self, slot: str) -> None:
        """A new slot's session, if its device may go on with the run; a slot that may not is given back."""
        place = self.remote.held[slot].facts
        try:
            self.remote.begin(self.store, slot)
        except ValueError as fault:
            self.remote.slots.dismiss(slot)
            self.progress.say(self.remote.note_loss(Loss(slot, f"not used: {fault}")))
            return
        self._idle.append(slot)
        self._announce(slot)
        if place.reason:
            self.progress.say(f"{slot}: {place.reason}")

    def _announce(self, slot: str) -> None:
        """Which device a slot is, and how far its clock is off."""
        place, offset_s = self.remote.held[slot].facts, self.remote.held[slot].offset_s
        self.progress.say(f"{slot}: {place.probed.name or place.probed.device} on {place.host}")
        if abs(offset_s) > CLOCK_S:
            which = "ahead of" if offset_s > 0 else "behind"
            self.progress.say(f"{slot}: its clock is {abs(offset_s):.0f} s {which} ours, which all times of day are of")

    def _retry(self, order: Order | None, event: Loss) -> list[Run]:
        """A cell whose slot was lost goes back to the head of the list; the row that says why, after too many."""
        if order is None:
            return []
        cell = order.cell
        lost = self._losses[order.cell.cell_id] = self._losses.get(order.cell.cell_id, 0) + 1
        if lost <= MOST_LOSSES:
            self._waiting.appendleft(cell)
            return []
        run = failure(order, f"its slot was lost {lost} times, the last time: {event.reason}")
        self.store.commit(run, {})
        return [run]

    def _fits(self, cell: Cell) -> bool:
        budget_s = self.limits.time_budget_s
        if budget_s is None:
            return True
        return budget_s - self.watch_s.elapsed_s >= max(SPARE_RATIO * self.longest_s, least_s(cell))
