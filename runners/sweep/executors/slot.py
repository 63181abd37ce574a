"""A slot: one device of one machine, held by this sweep alone, where cells are measured one after the other.

Runs where the device is, in a process that Ray has started; knows nothing of it. The measuring is that of a
sweep on one machine (`runners.sweep.session`). What a slot cannot be used for is a ValueError in one line.
"""

import io
import os
import socket
import tempfile
import time
from pathlib import Path

from results.store.manifest import harness_version
from runners.cli.progress import Progress
from runners.sweep.findings import CellResult, Order, ResultStore, SlotFacts, SlotSettings
from runners.sweep.session import Limits, Session
from runners.workers.devices import ProbeResult
from runners.workers.pool import ask_once, prepare
from runners.workers.telemetry import TelemetryWatch


class Lines(Progress):
    """Keeps what is said until it is sent, and shows nothing."""

    def __init__(self) -> None:
        super().__init__(0, io.StringIO())
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def take(self) -> list[str]:
        """The lines since it was asked before."""
        lines, self.lines = self.lines, []
        return lines


class Slot:
    """The device of this process. `place` first, once; then `measure` for each cell."""

    def __init__(self, settings: SlotSettings) -> None:
        self.settings = settings
        self.lines = Lines()
        self._session: Session | None = None
        self._store: ResultStore | None = None
        self._watch: TelemetryWatch | None = None
        self._held: int | None = None

    def place(self) -> SlotFacts:
        """What is here. Raises ValueError where nothing may be measured: another version of this program, a device that
        is not there or not this slot's alone."""
        own = harness_version()
        if own != self.settings.version:
            raise ValueError(f"expected version {self.settings.version}, as where the run is kept, got {own}")
        if self.settings.threads:
            os.environ["OMP_NUM_THREADS"] = self.settings.threads
        else:
            os.environ.pop("OMP_NUM_THREADS", None)
        prepare()
        probed = self.probe()
        if probed.device.startswith("cuda"):
            check_single_device(os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._held = hold(probed.properties.uuid_hash or probed.device.partition(":")[0], Path(tempfile.gettempdir()))
        self._watch = TelemetryWatch(probed.device)
        preflight = self._watch.preflight()
        if others := preflight.get("other_processes"):
            raise ValueError(f"expected a device that nobody else uses, got one with {others} other processes")
        self._watch.start()
        return SlotFacts(socket.gethostname(), probed, preflight, self.utc_s(), self._watch.reason)

    def probe(self) -> ProbeResult:
        """The device, asked in a process that ends again. Raises ValueError."""
        probed: ProbeResult = ask_once("runners.workers.devices:probe", self.settings.device)
        return probed

    def utc_s(self) -> float:
        """This machine's clock, in seconds since 1970."""
        return time.time()

    def measure(self, order: Order) -> CellResult:
        """One attempt at a cell. Raises OSError where this machine has no room for a process."""
        store = self._store = self._store or ResultStore(order)
        store.order = order
        self.session(order, store).measure_cell(order.cell)
        return store.take(self.lines.take())

    def session(self, order: Order, store: ResultStore) -> Session:
        """The session of this slot, which is begun with its first cell: workers, ceilings and counts stay."""
        if self._session is None:
            assert self._watch is not None  # `place` came before
            self._session = Session(
                store,
                order.sitting,
                order.torch_version,
                self._watch,
                Limits(None, self.settings.cell_timeout_s),
                self.lines,
            )
        return self._session

    def close(self) -> None:
        """Ends workers and telemetry, and lets go of the device."""
        if self._session is not None:
            self._session.close()
        if self._watch is not None:
            self._watch.close()
        if self._held is not None:
            held, self._held = self._held, None
            os.close(held)


def check_single_device(visible: str | None) -> None:
    """Raises ValueError unless CUDA_VISIBLE_DEVICES names one device: a slot that sees more would share them."""
    devices = [name for name in (visible or "").split(",") if name]
    if len(devices) != 1:
        raise ValueError(f"expected one device in CUDA_VISIBLE_DEVICES, this slot's own, got {visible!r}")


def hold(name: str, folder: Path) -> int:
    """The descriptor of a device's lock on this machine, which ends with the process. Raises ValueError naming who has
    it. Sweeps in other containers, with another folder, are not seen."""
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
