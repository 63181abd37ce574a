"""Offers the devices of a Ray cluster as slots of a sweep: an actor on each GPU, or each node's processor.

An actor is a process that Ray starts on a node. `RaySlots` runs next to the store, hands out cells and returns
`Event`s. `Slot` runs on the device, checks this program's version and that nobody else uses the device, and returns a
`CellResult` per attempt. Ray itself finds the cluster (by `RAY_ADDRESS`, else on this machine) or starts a new one
here. Ray never restarts an actor; a lost actor may be replaced by a new one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.process import load
from results.store.manifest import harness_version
from runners.cli.output import Progress
from runners.sweep.executors import Event
from runners.sweep.findings import CellResult, Order, SlotFacts, SlotSettings
from runners.sweep.session import Session
from runners.workers.pool import prepare

LOOK_S = 5.0
"""Seconds between looks for new nodes of the cluster."""

MOST_ACTORS = 3
"""Maximum number of actors for one device. An actor can die while its node lives, so that another one is tried."""

KIND = "accelerator_type:"
"""How Ray names the resource of a node's device model."""

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default; Ray warns where it is unset
    "RAY_DEDUP_LOGS": "0",
}

LOSSES = {
    "ActorDiedError": "its process or its node died",
    "ActorUnavailableError": "its node does not answer any more",
}
"""Ray's exception for a lost actor → our reason."""


class RaySlots:
    """All devices of a kind that the cluster has. settings.device: auto, cpu or cuda. accelerator: the model, as Ray
    names it; "": the only one there is. slot: "module:class" of the actors.

    Raises ValueError where the cluster has no such device, or several models and none was chosen.
    """

    def __init__(
        self, settings: SlotSettings, accelerator: str = "", slot: str = "runners.sweep.ray_slots:Slot"
    ) -> None:
        ray: Any = importlib.import_module("ray")
        self._ray = ray
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
        self._maker: Any = ray.remote(load(slot))
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
        """Return the number of slots, those included that Ray has not started yet."""
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
        """Give a slot back to Ray; forget one that is gone. refused: it is not requested again."""
        self._started[slot] = MOST_ACTORS if refused else self._started[slot]
        self._waiting = {ask: name for ask, name in self._waiting.items() if name != slot}
        if (actor := self._actors.pop(slot, None)) is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)

    def close(self) -> None:
        """Give all slots back and leave the cluster; one that was started here ends."""
        for slot in list(self._actors):
            self.dismiss(slot)
        self._ray.shutdown()

    def _alive(self) -> list[Mapping[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _look(self) -> None:
        """Request an actor on every device that has none, on new nodes or where one was lost; Ray starts it when nobody
        else uses the device. Raises ValueError."""
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
        """Raise ValueError for a model that the cluster does not have, and for several if none was chosen."""
        there = ", ".join(filter(None, models)) or "none that Ray knows by name"
        if not self._actors and self._accelerator and self._accelerator not in models:
            raise ValueError(f"--accelerator: expected a model of the cluster ({there}), got {self._accelerator}")
        if not self._actors and len(models) > 1 and not self._accelerator:
            raise ValueError(f"--accelerator: expected one of the cluster's models ({there}), as a run has one")


def _devices(node: Mapping[str, Any], kind: str) -> int:
    """Return how many devices of a kind a node has; all its processors are one."""
    resources = node["Resources"]
    return int(resources.get("GPU", 0)) if kind == "cuda" else int(resources.get("CPU", 0) >= 1)


def _model(node: Mapping[str, Any]) -> str:
    """Return the model of a node's devices, as Ray names it; "" where it names none."""
    return next((name.removeprefix(KIND) for name in sorted(node["Resources"]) if name.startswith(KIND)), "")


class Slot(Session):
    """The device of this process. Call `slot_facts` first, once; then `attempt` for each cell."""

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
    """Raise ValueError unless CUDA_VISIBLE_DEVICES names one device: a slot that sees more would share them."""
    devices = [name for name in (visible or "").split(",") if name]
    if len(devices) != 1:
        raise ValueError(f"expected one device in CUDA_VISIBLE_DEVICES, this slot's own, got {visible!r}")


def hold(name: str, folder: Path) -> int:
    """Return the descriptor of a device's lock on this machine, which ends with the process. Raises ValueError if
    another process has the lock. Sweeps in other containers, with another folder, are not seen."""
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
