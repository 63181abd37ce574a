"""Where cells are measured: here, one after the other (`Local`), or on the slots of a cluster (`Remote`).

A cell is handed to one slot at a time and taken off the list when its rows are committed, so that it is measured again
only if its slot was lost before they arrived. Rows arrive one by one; which order they have depends on the slots.
"""

from __future__ import annotations

import socket
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from results.records.cell import Cell, Run
from results.records.rows import MEASURED
from results.store.manifest import harness_version, utc_now
from results.store.store import Store
from runners.cli.output import say
from runners.cli.progress import Progress
from runners.sweep.findings import CellResult, Order, SlotFacts, keep, order_of
from runners.sweep.plan import Budget, least_s, planned_s
from runners.sweep.session import Session
from runners.workers.devices import ProbeResult, TelemetryWatch, sitting_of
from runners.workers.pool import Stopwatch, ask_once, uninterrupted

MOST_LOSSES = 2
"""How many slots may be lost under a cell, before it is taken to be why: its row says so then."""

POLL_S = 1.0
START_S = 600.0
"""How long the first slot is waited for: a cluster may start a machine for it, a queue may be long."""


class Local:
    """The executor whose cells are measured on this machine."""

    unmeasured = 0

    def __init__(self, cell_timeout_s: float) -> None:
        self._cell_timeout_s, self._torch = cell_timeout_s, ""
        self._watch: TelemetryWatch | None = None

    def probe(self, device: str) -> ProbeResult:
        """What the device is. Raises ValueError for one that is not there."""
        probed: ProbeResult = ask_once("runners.workers.devices:probe", device)
        return probed

    def begin_session(self, store: Store, probed: ProbeResult) -> str:
        """Begins a session; why it has no telemetry, "" if it has. Raises ValueError if this machine may not go on with
        the run."""
        self._torch, version = str(probed.environment.get("torch")), harness_version()
        watch = self._watch = TelemetryWatch(probed.device)
        for other in {str(sitting.environment.get("harness_version")) for sitting in store.sittings} - {version}:
            say(f"note: earlier sessions of this run were collected by version {other}, this is {version}")
        name, facts = f"s{len(store.sittings)}", {"harness_version": version}
        store.append_sitting(sitting_of(name, utc_now(), socket.gethostname(), probed, watch.preflight(), facts))
        return watch.reason

    def rows(
        self, store: Store, cells: Sequence[Cell], budget_s: float | None, progress: Progress, notes: Sequence[str] = ()
    ) -> Iterator[Run]:
        """The rows of these cells, each once it is committed, in the session begun last. Fewer than asked if the time
        budget ran out, or the device was lost. notes: warnings of each."""
        assert self._watch is not None  # `begin_session` came before
        self._watch.start()
        session = self._session(self._watch, self._cell_timeout_s, progress)
        progress.expect(planned_s(cells))
        budget, sitting = Budget(budget_s), store.sittings[-1].sitting
        try:
            for waiting, cell in zip(range(len(cells), 0, -1), cells, strict=True):
                if not budget.fits(session.protocol_s(cell)):
                    progress.say(f"time budget: {waiting} of {len(cells)} cells not started; --resume goes on")
                    break
                order, stopwatch = order_of(store, cell, sitting, self._torch), Stopwatch()
                try:
                    result = session.measure(order, partial(budget.share_s, waiting))
                except KeyboardInterrupt:
                    reason = "Ctrl-C or a signal"
                    result = CellResult(order.row("interrupted", reason=reason, duration_s=stopwatch.elapsed_s))
                    progress.done(keep(store, order, result, notes))
                    raise
                run = keep(store, order, result, notes)
                progress.done(run)
                budget.learn(run.duration_s)
                yield run
                if waiting > 1 and (loss := self._loss(run)):
                    progress.say(f"{loss}: {waiting - 1} cell{'s' * (waiting > 2)} not started; --resume goes on")
                    break
        finally:
            session.close()
            self._watch.close()

    def _session(self, *parts: Any) -> Session:
        return Session(*parts)

    def _loss(self, run: Run) -> str:
        """Why no other cell can be measured; "" if one can. Telemetry is asked once more after a cell that failed."""
        assert self._watch is not None  # as in `rows`
        lost = self._watch.loss(ask=run.status not in MEASURED)
        return f"the device is lost ({lost})" if lost else ""

    def close(self) -> None:
        """Nothing is held beyond a session."""


@dataclass(frozen=True)
class Event:
    """What there is of a slot: its facts, once it can measure; a result; or the reason why it is there no more."""

    slot: str
    facts: SlotFacts | None = None
    result: CellResult | None = None
    reason: str = ""


class Remote:
    """The executor whose cells are measured by slots, each a session of its own. slots: a `RaySlots`; version: of this
    program, here and at each slot; unmeasured: cells that no slot was left for."""

    def __init__(self, slots: Any, version: str) -> None:
        self.slots, self.version, self.unmeasured = slots, version, 0
        self._facts: dict[str, SlotFacts] = {}
        self._sittings: dict[str, str] = {}  # slot → its session in the run
        self._why = ""  # the last loss, to follow what it led to
        self._waiting: deque[Cell] = deque()
        self._orders: dict[str, Order] = {}  # slot → what it measures now
        self._losses: Counter[str] = Counter()  # cell → slots lost under it

    def probe(self, _device: str) -> ProbeResult:
        """The device of the first slot there is. Raises ValueError where there is none within `START_S`."""
        stopwatch = Stopwatch()
        while not self._facts:
            if not self.slots.expected:
                raise ValueError(f"--executor ray: expected a device to measure on, got none{self._why}")
            if stopwatch.elapsed_s > START_S:
                raise ValueError(f"--executor ray: no device became free within {START_S:g} s")
            if (event := self.slots.next(POLL_S)) is None:
                continue
            if event.facts is not None:
                self._facts[event.slot] = event.facts
            else:
                self._lose(event.slot, event.reason)
        return next(iter(self._facts.values())).probed

    def begin_session(self, store: Store, _probed: ProbeResult) -> str:
        """Begins the session of the first slot, as `Local` does its own."""
        slot, facts = next(iter(self._facts.items()))
        self._begin(store, slot)
        return facts.reason

    def close(self) -> None:
        """Gives all slots back."""
        self.slots.close()

    def _begin(self, store: Store, slot: str) -> None:
        """A slot's session in the run. Raises ValueError if its machine may not go on with it."""
        facts, name = self._facts[slot], f"s{len(store.sittings)}"
        known = {"harness_version": self.version, "executor": "ray", "slot": slot}
        store.append_sitting(sitting_of(name, utc_now(), facts.host, facts.probed, facts.preflight, known))
        self._sittings[slot] = name

    def _lose(self, slot: str, reason: str) -> str:
        """Forgets a slot; the line that says so."""
        facts = self._facts.pop(slot, None)
        self._sittings.pop(slot, None)
        line = f"{slot}{f' on {facts.host}' if facts is not None else ''}: {reason}"
        self._why = f" ({line})"
        return line

    def rows(
        self, store: Store, cells: Sequence[Cell], budget_s: float | None, progress: Progress, notes: Sequence[str] = ()
    ) -> Iterator[Run]:
        """Gives rows as `Local` does; fewer than asked also if no slot is left."""
        budget = Budget(budget_s)
        self._waiting.extend(cells)
        for slot in [*self._facts]:
            self._announce(store, slot, progress)
        while self._waiting or self._orders:
            self._hand_out(store, budget, progress)
            if not self._orders and not (self._waiting and self.slots.expected):
                break
            if (run := self._take(store, self.slots.next(POLL_S), progress, notes)) is not None:
                budget.learn(run.duration_s)
                progress.done(run)
                yield run
        if self._waiting:
            self.unmeasured = count = len(self._waiting)
            rest = f"{count} cell{'s' * (count != 1)} not started"
            progress.say(f"no device is left{self._why}: {rest}; --resume goes on")

    def _announce(self, store: Store, slot: str, progress: Progress) -> None:
        """Says which device a slot is, and begins its session; one that may not go on with the run is given back."""
        facts = self._facts[slot]
        if slot not in self._sittings:
            try:
                self._begin(store, slot)
            except ValueError as fault:
                self.slots.dismiss(slot)
                progress.say(self._lose(slot, f"not used: {fault}"))
                return
        reason = f" ({facts.reason})" if facts.reason else ""
        progress.say(f"{slot}: {facts.probed.name or facts.probed.device} on {facts.host}{reason}")

    def _hand_out(self, store: Store, budget: Budget, progress: Progress) -> None:
        """A cell for every idle slot; none any more that would not finish in the time budget."""
        for slot in [slot for slot in self._sittings if slot not in self._orders][: len(self._waiting)]:
            cell, facts = self._waiting[0], self._facts[slot]
            if not budget.fits(least_s(cell)):
                left = len(self._waiting)
                progress.say(f"time budget: {left} cell{'s' * (left != 1)} not started; --resume goes on")
                self._waiting.clear()
                return
            torch_version = str(facts.probed.environment.get("torch"))
            self._orders[slot] = order_of(store, self._waiting.popleft(), self._sittings[slot], torch_version)
            progress.stage(cell, f"on {facts.host}")
            self.slots.measure(slot, self._orders[slot])

    def _take(self, store: Store, event: Event | None, progress: Progress, notes: Sequence[str]) -> Run | None:
        """Keeps the row that an event brings. A cell whose slot was lost goes back to the head of the list; after too
        many losses its row says why."""
        if event is None:
            return None
        if event.facts is not None:
            self._facts[event.slot] = event.facts
            self._announce(store, event.slot, progress)
            return None
        with uninterrupted():  # what came is kept
            order, result = self._orders.pop(event.slot, None), event.result
            if result is None:
                progress.say(self._lose(event.slot, event.reason))
            if order is None:
                return None
            if result is None:
                self._losses[order.cell.cell_id] += 1
                if (lost := self._losses[order.cell.cell_id]) <= MOST_LOSSES:
                    self._waiting.appendleft(order.cell)
                    return None
                reason = f"its slot was lost {lost} times, the last time: {event.reason}"
                result = CellResult(order.row("crashed", reason=reason))
            for line in result.lines:
                progress.say(f"{self._facts[event.slot].host}: {line}")
            return keep(store, order, result, notes)
