"""Hands cells to slots and yields their rows; a slot is one device, of this machine or of a Ray cluster.

A cell is one combination of workload, batch size and precision. `Executor.rows` takes cells and a store. It yields the
`Run` row of each cell once the row is committed, in an order that depends on the slots. A cell goes to one slot at a
time. If its slot is lost before its rows are committed, the cell is measured again. Slots are a `LocalSlots`, or a
`RaySlots` of `ray_slots.py`; they report by `Event`s.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from results.records.cell import Cell, Run
from results.store.manifest import utc_now
from results.store.store import Store
from runners.cli.output import Progress, say
from runners.sweep.findings import CellResult, Order, SlotFacts, order_of, store_result
from runners.sweep.plan import SPARE_RATIO, planned_s, protocol_s
from runners.sweep.session import Session
from runners.workers.devices import ProbeResult, session_of
from runners.workers.pool import Stopwatch, uninterrupted

MOST_LOSSES = 2
"""Maximum number of slots that may be lost while they measure the same cell. After that the cell is taken for the
cause, and its row says so."""

POLL_S = 1.0
START_S = 600.0
"""How long to wait for the first slot, s: a cluster may have to start a machine, or have a long queue."""

HERE = ""
"""The name of the only slot of a `LocalSlots`."""


@dataclass(frozen=True)
class Event:
    """A slot's report: its facts, once it can measure; a result; or the reason why it is lost."""

    slot: str
    answer: SlotFacts | CellResult | str


class LocalSlots:
    """The device of a session in this process: a cell is measured while it is handed over."""

    def __init__(self, session: Session) -> None:
        self.session, self.expected = session, 1
        self._events: deque[Event] = deque()

    def next(self, timeout_s: float) -> Event | None:
        """Return a result; before the first cell, the facts of the device. Raises ValueError for a device that is not
        there."""
        return self._events.popleft() if self._events else Event(HERE, self.session.slot_facts())

    def measure(self, slot: str, order: Order, progress: Progress) -> None:
        self._events.append(Event(slot, self.session.measure(order, progress)))

    def dismiss(self, slot: str) -> None:
        self.expected = 0

    def close(self) -> None:
        self.session.close()


class Executor:
    """Hands cells to slots and keeps the results. slots: a `LocalSlots` or a `RaySlots`; unmeasured: cells for which no
    slot was left."""

    def __init__(self, slots: Any) -> None:
        self.slots, self.unmeasured = slots, 0
        self._facts: dict[str, SlotFacts] = {}
        self._sessions: dict[str, str] = {}  # slot → its session in the run
        self._why = ""  # the last loss, appended to messages about what it led to
        self._waiting: deque[Cell] = deque()
        self._orders: dict[str, Order] = {}  # slot → what it measures now
        self._begun: dict[str, Stopwatch] = {}  # slot → since its last order
        self._losses: Counter[str] = Counter()  # cell → slots lost under it

    def probe(self) -> ProbeResult:
        """Return the device of the first slot, probed now. Raises ValueError if there is none within `START_S`."""
        self._facts.clear()
        stopwatch = Stopwatch()
        while not self._facts:
            if not self.slots.expected:
                raise ValueError(f"--executor ray: expected a device to measure on, got none{self._why}")
            if stopwatch.elapsed_s > START_S:
                raise ValueError(f"--executor ray: no device became free within {START_S:g} s")
            event = self.slots.next(POLL_S)
            if event is not None and isinstance(event.answer, SlotFacts):
                self._facts[event.slot] = event.answer
            elif event is not None:
                self._lose(event.slot, str(event.answer))
        return next(iter(self._facts.values())).probed

    def begin_session(self, store: Store, version: str) -> str:
        """Begin the session of the first slot; return why it has no telemetry, "" if it has. version: of this program.
        Raises ValueError if its machine may not continue the run."""
        for other in {str(session.environment.get("harness_version")) for session in store.sessions} - {version}:
            say(f"note: earlier sessions of this run were collected by version {other}, this is {version}")
        self._version = version
        slot, facts = next(iter(self._facts.items()))
        self._begin(store, slot)
        return facts.reason

    def _begin(self, store: Store, slot: str) -> None:
        """Begin a slot's session in the run. Raises ValueError if its machine may not continue it."""
        facts, name = self._facts[slot], f"s{len(store.sessions)}"
        known = {"harness_version": self._version, **({} if slot == HERE else {"executor": "ray", "slot": slot})}
        store.append_session(session_of(name, utc_now(), facts.host, facts.probed, facts.preflight, known))
        self._sessions[slot] = name

    def _lose(self, slot: str, reason: str) -> str:
        """Forget a slot; return the message about it."""
        facts = self._facts.pop(slot, None)
        self._sessions.pop(slot, None)
        line = f"{' on '.join(filter(None, (slot, facts.host if facts else '')))}: {reason}"
        self._why = f" ({line})"
        return line

    def rows(
        self, store: Store, cells: Sequence[Cell], budget_s: float | None, progress: Progress, notes: Sequence[str] = ()
    ) -> Iterator[Run]:
        """Yield the rows of these cells, each once it is committed: fewer than requested if the time budget ran out, or
        no slot is left. notes: warnings of each."""
        limit_s, stopwatch, longest_s = math.inf if budget_s is None else budget_s, Stopwatch(), 0.0
        self._waiting.extend(cells)
        self._total = len(cells)
        progress.expect(planned_s(cells) / max(1, len(self._facts)))
        try:
            for slot in [*self._facts]:
                self._announce(store, slot, progress)
            while self._waiting or self._orders:
                self._hand_out(store, limit_s - stopwatch.elapsed_s, longest_s, progress)
                if not self._orders and not (self._waiting and self.slots.expected):
                    break
                if (run := self._take(store, self.slots.next(POLL_S), progress, notes)) is not None:
                    longest_s = max(longest_s, run.duration_s or 0.0)
                    yield run
        except KeyboardInterrupt:
            for slot, order in self._orders.items():
                known = {"reason": "Ctrl-C or a signal", "duration_s": self._begun[slot].elapsed_s}
                progress.done(store_result(store, order, CellResult(order.row("interrupted", **known)), notes))
            raise
        finally:
            self.slots.close()
        if count := len(self._waiting):
            self.unmeasured = count
            rest = f"{count} cell{'s' * (count != 1)} not started"
            progress.say(f"no device is left{self._why}: {rest}; --resume goes on")

    def _announce(self, store: Store, slot: str, progress: Progress) -> None:
        """Print which device a slot is, and begin its session; give it back if it may not continue the run."""
        facts = self._facts[slot]
        if slot not in self._sessions:
            try:
                self._begin(store, slot)
            except ValueError as fault:
                self.slots.dismiss(slot)
                progress.say(self._lose(slot, f"not used: {fault}"))
                return
        if slot != HERE:
            reason = f" ({facts.reason})" if facts.reason else ""
            progress.say(f"{slot}: {facts.probed.name or facts.probed.device} on {facts.host}{reason}")

    def _hand_out(self, store: Store, left_s: float, longest_s: float, progress: Progress) -> None:
        """Hand a cell to every idle slot; stop when the next would not end within the time budget if it takes a fifth
        more than its least time or than the longest cell so far."""
        for slot in [slot for slot in self._sessions if slot not in self._orders][: len(self._waiting)]:
            cell, left = self._waiting[0], len(self._waiting)
            if left_s < SPARE_RATIO * max(protocol_s(cell), longest_s):
                progress.say(f"time budget: {left} of {self._total} cells not started; --resume goes on")
                self._waiting.clear()
                return
            torch_version = str(self._facts[slot].probed.environment.get("torch"))
            order = order_of(store, self._waiting.popleft(), self._sessions[slot], torch_version)
            self._orders[slot] = order = replace(order, left_s=left_s, sharing=left)
            self._begun[slot] = Stopwatch()
            progress.stage(cell, f"on {self._facts[slot].host}")
            self.slots.measure(slot, order, progress)

    def _take(self, store: Store, event: Event | None, progress: Progress, notes: Sequence[str]) -> Run | None:
        """Keep the row that an event brings. A cell whose slot was lost goes back to the head of the list; after too
        many losses its row has the reason."""
        if event is None:
            return None
        slot, answer = event.slot, event.answer
        if isinstance(answer, SlotFacts):
            self._facts[slot] = answer
            self._announce(store, slot, progress)
            return None
        with uninterrupted():  # what came is kept
            order = self._orders.pop(slot, None)
            if isinstance(answer, str):
                progress.say(self._lose(slot, answer))
                if order is None:
                    return None
                self._losses[order.cell.cell_id] += 1
                if (lost := self._losses[order.cell.cell_id]) <= MOST_LOSSES:
                    self._waiting.appendleft(order.cell)
                    return None
                reason = f"its slot was lost {lost} times, the last time: {answer}"
                answer = CellResult(order.row("crashed", reason=reason))
            assert order is not None  # which had this result
            for line in answer.lines:
                progress.say(f"{self._facts[slot].host}: {line}")
            run = store_result(store, order, answer, notes)
            progress.done(run)
            if answer.lost:
                self.slots.dismiss(slot)
                progress.say(self._lose(slot, answer.lost))
            return run

    def close(self) -> None:
        """Give all slots back."""
        self.slots.close()
