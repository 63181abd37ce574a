"""Reads what a device reports about itself: the protocol of an open device, a table of adapters, and a polling thread.

`open_device("cuda:1")` returns the adapter of that device (`DeviceTelemetry`); each vendor has a file
(`measure/device/nvml.py`). An adapter turns errors of its library into `Unavailable` with the cause, or `DeviceLost`
where an open device is gone. A value that the device does not offer is None, with the reason in `reasons`. `Sampler`
polls from a thread of the parent process, which does not disturb a worker's timing. `Sampler` returns
`Telemetry` rows on the host's monotonic clock, which both processes share. `analysis/devices/telemetry.py` computes
energy and clocks from the rows. Nothing here changes a setting or imports torch.
"""

import collections
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Protocol, Self

from results.errors import DeviceLost, Unavailable
from results.process import load
from results.records.cell import Telemetry

Processes = tuple[tuple[int, int | None], ...]
"""(pid, bytes of device memory or None) of each compute process on a device."""

POLLED = tuple(field.name for field in fields(Telemetry) if field.name not in ("cell_id", "attempt", "time_s"))
"""Fields that a poll may have."""


class DeviceTelemetry(Protocol):
    """One open device. Each method raises Unavailable when the device or its driver is gone, DeviceLost if for good.

    adapter: the adapter's name. reasons: field → why the device does not report it. `facts` returns properties and
    settings by name; those that are not reported are None. "uuid_hash" is `hashed` of the device's UUID, and "mig"
    whether the device is a slice of a GPU. The others are name, limits, clocks and driver. `poll` returns a row of
    telemetry.csv without the columns of its cell.
    """

    adapter: str
    reasons: dict[str, str]

    def facts(self) -> Mapping[str, Any]: ...
    def poll(self) -> Telemetry: ...
    def processes(self) -> Processes | None: ...
    def preflight(self, baseline: Processes | None = None) -> dict[str, Any]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *fault: object) -> None: ...


ADAPTERS: Mapping[str, str] = {"cuda": "measure.device.nvml:open_nvml"}
"""Torch's name of a kind of device → "module:function" that opens one, by its number or UUID."""


def open_device(device: str) -> DeviceTelemetry:
    """Return the telemetry of a device, by torch's name: "cuda", "cuda:1", or "cuda:UUID". Raises Unavailable."""
    kind, _, index = device.partition(":")
    if kind not in ADAPTERS:
        raise Unavailable(f"no telemetry for the device {device!r}: expected {' or '.join(sorted(ADAPTERS))}")
    opens: Callable[[int | str], DeviceTelemetry] = load(ADAPTERS[kind])
    return opens(int(index) if index.isdecimal() else index or 0)


def state_before(device: DeviceTelemetry, baseline: Processes | None = None) -> dict[str, Any]:
    """Return a GPU's state before a run, as values of JSON; None where not reported, with the reason under "absent".

    baseline: `processes()` before this run opened the device (None: now). "other_processes" is their number: all of
    them belong to others. "processes_since" is the number of later processes; one for each worker is expected.
    """
    reading = vars(device.poll())
    state = {**device.facts(), **{name: reading[name] for name in POLLED}}
    now = device.processes()
    baseline = now if baseline is None else baseline
    known = now is not None and baseline is not None
    state["other_processes"] = len(baseline) if baseline is not None else None
    state["processes_since"] = new_processes(baseline or (), now or ()) if known else None
    state["event_reasons"] = None if state["event_reasons"] is None else list(state["event_reasons"])
    return state | {"absent": dict(device.reasons)}


def new_processes(before: Processes, now: Processes) -> int:
    """Return how many processes are there now that were not before. Processes are counted by pid, since a container may
    show the same pid for all."""
    fresh = Counter(pid for pid, _ in now) - Counter(pid for pid, _ in before)
    return sum(fresh.values())


class Sampler:
    """Polls a device from a thread until stopped, and never raises into the sweep: `fault` says why it ended early.

    device: anything with `poll() -> Telemetry`. wait(seconds): returns True when polling should end. The last 200,000
    readings are kept (5 hours at 0.1 s). lost: whether the fault is that the device is gone for good.
    """

    def __init__(self, device: Any, interval_s: float = 0.1, wait: Callable[[float], bool] | None = None) -> None:
        self._device = device
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._wait = self._ended.wait if wait is None else wait
        self._readings: collections.deque[Telemetry] = collections.deque(maxlen=200_000)
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self.fault = ""
        self.lost = False

    def start(self) -> None:
        """Begin polling, once."""
        self._thread.start()

    def stop(self) -> list[Telemetry]:
        """End polling, after one more reading, and return all readings in order of time. A second call is safe."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        return list(self._readings)

    def between(self, start_s: float, end_s: float) -> list[Telemetry]:
        """Return the readings of a window and the nearest one on either side, which energy and mean clock need."""
        readings = list(self._readings)
        first = max((i for i, r in enumerate(readings) if r.time_s <= start_s), default=0)
        last = min((i for i, r in enumerate(readings) if r.time_s >= end_s), default=len(readings) - 1)
        return readings[first : last + 1]

    def _run(self) -> None:
        try:
            self._readings.append(self._device.poll())
            while not self._wait(self._interval_s):
                self._readings.append(self._device.poll())
            self._readings.append(self._device.poll())
        except Exception as fault:  # noqa: BLE001 - the edge of a thread: telemetry never ends a sweep
            self.fault = f"{type(fault).__name__}: {fault}"
            self.lost = isinstance(fault, DeviceLost)
