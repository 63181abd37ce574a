"""Hands cells to slots, each of them one device, of this machine or of a Ray cluster, and yields their rows.

A cell goes to one slot at a time and leaves the list when its rows are committed, so that it is measured again only if
its slot was lost before they arrived. Rows arrive one by one, in an order that depends on the slots.

Ray places an actor on each GPU, or each node's processor. Its address is Ray's own to find (`RAY_ADDRESS`, a cluster on
this machine, else a new one here). `Slot` checks what it was given. An actor is never restarted.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import os
import signal
import socket
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from results.records.cell import Cell, Run
from results.store.manifest import harness_version, utc_now
from results.store.store import Store
from runners.cli.output import Progress, say
from runners.sweep.findings import CellResult, Order, SlotFacts, SlotSettings, order_of, store_result
from runners.sweep.plan import SPARE_RATIO, planned_s, protocol_s
from runners.sweep.session import Session
from runners.workers.devices import ProbeResult, session_of
from runners.workers.pool import Stopwatch, prepare, uninterrupted

MOST_LOSSES = 2
"""How many slots may be lost under a cell, before it is taken to be why: its row says so then."""

POLL_S = 1.0
START_S = 600.0
"""How long the first slot is waited for: a cluster may start a machine for it, a queue may be long."""

HERE = ""
"""The name of the only slot of a `LocalSlots`."""


@dataclass(frozen=True)
class Event:
    """What there is of a slot: its facts, once it can measure; a result; or the reason why it is there no more."""

    slot: str
    answer: SlotFacts | CellResult | str


class LocalSlots:
    """The device of a session in this process: a cell is measured while it is handed over."""

    def __init__(self, session: Session) -> None:
        self.session, self.expected = session, 1
        self._events: deque[Event] = deque()

    def next(self, timeout_s: float) -> Event | None:
        """Return a result; before the first cell what the device is. Raises ValueError for one that is not there."""
        return self._events.popleft() if self._events else Event(HERE, self.session.slot_facts())

    def measure(self, slot: str, order: Order, progress: Progress) -> None:
        self._events.append(Event(slot, self.session.measure(order, progress)))

    def dismiss(self, slot: str) -> None:
        self.expected = 0

    def close(self) -> None:
        self.session.close()


class Executor:
    """Hands cells to slots and keeps what comes back. slots: a `LocalSlots` or a `RaySlots`; unmeasured: cells that no
    slot was left for."""

    def __init__(self, slots: Any) -> None:
        self.slots, self.unmeasured = slots, 0
        self._facts: dict[str, SlotFacts] = {}
        self._sessions: dict[str, str] = {}  # slot → its session in the run
        self._why = ""  # the last loss, to follow what it led to
        self._waiting: deque[Cell] = deque()
        self._orders: dict[str, Order] = {}  # slot → what it measures now
        self._begun: dict[str, Stopwatch] = {}  # slot → since its last order
        self._losses: Counter[str] = Counter()  # cell → slots lost under it

    def probe(self) -> ProbeResult:
        """Return the device of the first slot there is, looked at now. Raises ValueError where there is none within
        `START_S`."""
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
        """Begins the session of the first slot; why it has no telemetry, "" if it has. version: of this program. Raises
        ValueError if its machine may not go on with the run."""
        for other in {str(session.environment.get("harness_version")) for session in store.sessions} - {version}:
            say(f"note: earlier sessions of this run were collected by version {other}, this is {version}")
        self._version = version
        slot, facts = next(iter(self._facts.items()))
        self._begin(store, slot)
        return facts.reason

    def _begin(self, store: Store, slot: str) -> None:
        """Begin a slot's session in the run. Raises ValueError if its machine may not go on with it."""
        facts, name = self._facts[slot], f"s{len(store.sessions)}"
        known = {"harness_version": self._version, **({} if slot == HERE else {"executor": "ray", "slot": slot})}
        store.append_session(session_of(name, utc_now(), facts.host, facts.probed, facts.preflight, known))
        self._sessions[slot] = name

    def _lose(self, slot: str, reason: str) -> str:
        """Forget a slot; return the line that says so."""
        facts = self._facts.pop(slot, None)
        self._sessions.pop(slot, None)
        line = f"{' on '.join(filter(None, (slot, facts.host if facts else '')))}: {reason}"
        self._why = f" ({line})"
        return line

    def rows(
        self, store: Store, cells: Sequence[Cell], budget_s: float | None, progress: Progress, notes: Sequence[str] = ()
    ) -> Iterator[Run]:
        """Yield the rows of these cells, each once it is committed. Fewer than asked if the time budget ran out, or no
        slot is left. notes: warnings of each."""
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
        """Says which device a slot is, and begins its session; one that may not go on with the run is given back."""
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
        """Hand a cell to every idle slot; none any more that would not end in the time budget, if it takes its least or
        as long as the longest so far, and a fifth more."""
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
        """Keeps the row that an event brings. A cell whose slot was lost goes back to the head of the list; after too
        many losses its row says why."""
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
        """Gives all slots back."""
        self.slots.close()


SLOT = "runners.sweep.executors:Slot"
LOOK_S = 5.0
"""How often the cluster is asked for nodes that are new."""

MOST_ACTORS = 3
"""For one device: where the process of one died, its node may still be there."""

KIND = "accelerator_type:"
"""How Ray names the resource of a node's device model."""

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's own behaviour to come, or it warns
    "RAY_DEDUP_LOGS": "0",
}

LOSSES = {
    "ActorDiedError": "its process or its node died",
    "ActorUnavailableError": "its node does not answer any more",
}
"""Ray's word for a loss → ours."""


class RaySlots:
    """All devices of a kind that the cluster has. settings.device: auto, cpu or cuda. accelerator: the model, as Ray
    names it; "": the only one there is. slot: "module:class" of the actors.

    Raises ValueError where the cluster has no such device, or several models and none was chosen.
    """

    def __init__(self, settings: SlotSettings, accelerator: str = "", slot: str = SLOT) -> None:
        ray: Any = importlib.import_module("ray")
        self._ray = ray
        module, _, name = slot.partition(":")
        self._accelerator = accelerator
        for variable, value in ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
        ray._private.worker._worker_logs_enabled = False  # what nodes say of themselves, it prints to stdout
        before = signal.getsignal(signal.SIGTERM)  # Ray puts a handler of its own in its place
        try:
            ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError) as fault:
            raise ValueError(f"--executor ray: no cluster could be joined: {' '.join(str(fault).split())}") from fault
        finally:
            signal.signal(signal.SIGTERM, before)
        self._maker: Any = ray.remote(getattr(importlib.import_module(module), name))
        self._actors: dict[str, Any] = {}
        self._waiting: dict[Any, str] = {}  # what an actor was asked → its slot
        self._started: Counter[str] = Counter()  # slot → actors so far
        try:
            if settings.device == "auto":
                kind = "cuda" if any(node["Resources"].get("GPU") for node in self._alive()) else "cpu"
                settings = replace(settings, device=kind)
            self._settings = settings
            self._look()
        except BaseException:
            self.close()
            raise

    @property
    def expected(self) -> int:
        """Slots that are there, and those that Ray has not started yet."""
        return len(self._actors)

    def next(self, timeout_s: float) -> Event | None:
        """Return the next event; None if none came in time."""
        if time.monotonic() - self._looked_s > LOOK_S:
            self._look()
        if not self._waiting:
            time.sleep(timeout_s)
            return None
        done, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=timeout_s)
        if not done:
            return None
        slot = self._waiting.pop(done[0])
        try:
            answer = self._ray.get(done[0])
        except self._ray.exceptions.RayError as fault:
            cause = getattr(fault, "cause", None)
            refused = type(fault).__name__.startswith("RayTaskError") or isinstance(cause, (ValueError, OSError))
            self.dismiss(slot, refused)
            if refused:  # an exception of the slot's own
                return Event(slot, f"not used: {' '.join(str(cause or fault).split())}")
            return Event(slot, LOSSES.get(type(fault).__name__, type(fault).__name__))
        return Event(slot, answer)

    def measure(self, slot: str, order: Order, progress: Progress) -> None:
        """Hand a cell to a slot."""
        self._waiting[self._actors[slot].attempt.remote(order)] = slot

    def dismiss(self, slot: str, refused: bool = True) -> None:
        """Gives a slot back to Ray; one that is gone is forgotten. refused: nor is it asked for again."""
        self._started[slot] = MOST_ACTORS if refused else self._started[slot]
        self._waiting = {ask: name for ask, name in self._waiting.items() if name != slot}
        if (actor := self._actors.pop(slot, None)) is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)

    def close(self) -> None:
        """Gives all slots back and leaves the cluster; one that was started here ends."""
        for slot in list(self._actors):
            self.dismiss(slot)
        self._ray.shutdown()

    def _alive(self) -> list[Mapping[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _look(self) -> None:
        """Asks for an actor on every device that has none: of nodes that are new, or where one was lost; Ray starts it
        when nobody else uses the device. Raises ValueError."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._looked_s = time.monotonic()
        nodes = [node for node in self._alive() if _devices(node, self._settings.device)]
        self._check_models(sorted({_model(node) for node in nodes}))
        for node in (node for node in nodes if self._accelerator in ("", _model(node))):
            for number in range(_devices(node, self._settings.device)):
                slot = f"{node['NodeID'][:8]}-{number}"
                if slot in self._actors or self._started[slot] >= MOST_ACTORS:
                    continue
                needs = {"num_gpus": 1, "num_cpus": 0}
                if self._settings.device != "cuda":  # two cells that share a processor would each take too long
                    needs = {"num_cpus": node["Resources"]["CPU"]}
                where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                maker = self._maker.options(**needs, max_restarts=0, scheduling_strategy=where)
                self._actors[slot] = maker.remote(self._settings)
                self._started[slot] += 1
                self._waiting[self._actors[slot].slot_facts.remote()] = slot

    def _check_models(self, models: Sequence[str]) -> None:
        """Raises ValueError for a model that the cluster does not have, or several of which none was chosen."""
        there = ", ".join(filter(None, models)) or "none that Ray knows by name"
        if not self._actors and self._accelerator and self._accelerator not in models:
            raise ValueError(f"--accelerator: expected a model of the cluster ({there}), got {self._accelerator}")
        if not self._actors and len(models) > 1 and not self._accelerator:
            raise ValueError(f"--accelerator: expected one of the cluster's models ({there}): they are not one run's")


def _devices(node: Mapping[str, Any], kind: str) -> int:
    """Return how many devices of a kind a node has; all its processors are one."""
    resources = node["Resources"]
    return int(resources.get("GPU", 0)) if kind == "cuda" else int(resources.get("CPU", 0) >= 1)


def _model(node: Mapping[str, Any]) -> str:
    """Return the model of a node's devices, as Ray names it; "" where it names none."""
    return next((name.removeprefix(KIND) for name in sorted(node["Resources"]) if name.startswith(KIND)), "")


class Slot(Session):
    """The device of this process. `slot_facts` first, once; then `attempt` for each cell."""

    def slot_facts(self) -> SlotFacts:
        """Return the facts of this slot. Raises ValueError where nothing may be measured: another version of this
        program, a device that is not there or not this slot's alone."""
        own = harness_version()
        if own != self.settings.version:
            raise ValueError(f"expected version {self.settings.version}, as where the run is kept, got {own}")
        if self.settings.threads:
            os.environ["OMP_NUM_THREADS"] = self.settings.threads
        else:
            os.environ.pop("OMP_NUM_THREADS", None)
        prepare()
        facts = super().slot_facts()
        device = facts.probed.device
        if device.startswith("cuda"):
            check_single_device(os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._held = hold(
            facts.probed.properties.get("uuid_hash") or device.partition(":")[0], Path(tempfile.gettempdir())
        )
        if others := facts.preflight.get("other_processes"):
            raise ValueError(f"expected a device that nobody else uses, got one with {others} other processes")
        return facts

    def attempt(self, order: Order) -> CellResult:
        """Make one attempt at a cell. Raises OSError where this machine has no room for a process."""
        lines = io.StringIO()
        result = self.measure(order, Progress(0, lines))
        result.lines = lines.getvalue().splitlines()
        return result


def check_single_device(visible: str | None) -> None:
    """Raises ValueError unless CUDA_VISIBLE_DEVICES names one device: a slot that sees more would share them."""
    devices = [name for name in (visible or "").split(",") if name]
    if len(devices) != 1:
        raise ValueError(f"expected one device in CUDA_VISIBLE_DEVICES, this slot's own, got {visible!r}")


def hold(name: str, folder: Path) -> int:
    """Return the descriptor of a device's lock on this machine, which ends with the process. Raises ValueError naming
    who has it. Sweeps in other containers, with another folder, are not seen."""
    import fcntl

    path = folder / f"flopledger-{name}.lock"
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as fault:
        os.close(descriptor)
        host = socket.gethostname()
        raise ValueError(
            f"expected the {name} device of {host} for this slot alone, got {path} held by another"
        ) from fault
    return descriptor
