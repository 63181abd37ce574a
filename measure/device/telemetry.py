"""What a device says of itself: one protocol for every vendor, the registry of adapters, and the thread that polls.

`open_device("cuda:1")` opens the adapter of that device; an adapter is one file (`measure/device/nvml.py`,
`measure/device/cpu_energy.py`), loaded when it is asked for. Errors are mapped once, by the
adapter: `Unavailable` with its cause where there is no library, no permission or no device, `DeviceLost` where a device
that was open is gone. What a device does not offer is None, with the reason in `reasons`.

`Sampler` polls from a thread of the parent process, so that a worker's timing and interpreter lock are left alone;
readings carry the host's monotonic clock, which both processes share. Not claimed: what readings add up to is in
`analysis/devices/telemetry.py`. Nothing here changes a setting or imports torch.
"""

import collections
import importlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from analysis.devices.telemetry import Reading
from measure.device.torch_build import torch_build
from results.errors import DeviceLost, Unavailable

__all__ = [
    "ADAPTERS",
    "Adapter",
    "DeviceFacts",
    "DeviceTelemetry",
    "Reading",
    "Sampler",
    "appeared",
    "open_device",
    "state_before",
]

Processes = tuple[tuple[int, int | None], ...]
"""(pid, bytes of device memory or None) of each compute process on a device."""


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """What a GPU is and is set to, read once. What it does not say is None.

    uuid_hash: `hashed` of its own number. mig: whether it is a slice of a GPU (NVIDIA's MIG, AMD's partitions).
    """

    name: str | None = None
    uuid_hash: str | None = None
    vbios: str | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    mig: bool | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    sm_clock_max_hz: int | None = None
    memory_clock_max_hz: int | None = None
    driver: str | None = None


class DeviceTelemetry(Protocol):
    """One open device. Each method raises Unavailable when the device or its driver is gone, DeviceLost if for good.

    adapter: its name in `ADAPTERS`. polls: False where no field of a `Reading` is offered, so that polling is not worth
    it. reasons: field → why the device does not say it.
    """

    adapter: str
    polls: bool
    reasons: dict[str, str]

    def facts(self) -> DeviceFacts: ...
    def poll(self) -> Reading: ...
    def processes(self) -> Processes | None: ...
    def preflight(self, baseline: Processes | None = None) -> dict[str, Any]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *fault: object) -> None: ...


@dataclass(frozen=True)
class Adapter:
    """Who opens a device.

    kind: torch's name of such devices, before the colon ("cuda" on ROCm, too). opens: "module:function", which takes
    a number or a UUID. build: the field of `torch.version` that is set where torch was built for this vendor.
    """

    kind: str
    opens: str
    build: str = ""


ADAPTERS: Mapping[str, Adapter] = {
    "nvml": Adapter("cuda", "measure.device.nvml:open_nvml", "cuda"),
    "rapl": Adapter("cpu", "measure.device.cpu_energy:open_cpu"),
}
"""Name → adapter. Those of one kind are tried in this order."""


def open_device(device: str, build: Callable[[str], str | None] = torch_build) -> DeviceTelemetry:
    """The telemetry of a device as torch calls it: "cpu", "cuda", "cuda:1", or "cuda:UUID".

    Of several adapters for that kind those count whose vendor torch was built for: another vendor's GPU of the same
    number is another device. build: field of `torch.version` → its value. Raises Unavailable, with every reason.
    """
    kind, _, index = device.partition(":")
    mine = {name: adapter for name, adapter in ADAPTERS.items() if adapter.kind == kind}
    if not mine:
        known = ", ".join(sorted({adapter.kind for adapter in ADAPTERS.values()}))
        raise Unavailable(f"no telemetry of a device {device!r}: expected one of {known}")
    built = {name: adapter for name, adapter in mine.items() if not adapter.build or build(adapter.build)}
    reasons, cause = {}, None
    for name, adapter in (built or mine).items():
        try:
            return _load(adapter)(int(index) if index.isdecimal() else index or 0)
        except Unavailable as fault:
            reasons[name], cause = str(fault), fault
    if len(reasons) == 1:
        raise Unavailable(*reasons.values()) from cause
    raise Unavailable("; ".join(f"{name}: {reason}" for name, reason in reasons.items())) from cause


def _load(adapter: Adapter) -> Callable[[int | str], DeviceTelemetry]:
    module, _, function = adapter.opens.partition(":")
    opens: Callable[[int | str], DeviceTelemetry] = getattr(importlib.import_module(module), function)
    return opens


def state_before(device: DeviceTelemetry, baseline: Processes | None = None) -> dict[str, Any]:
    """A GPU's state before a run, JSON-able; None where the device does not say, with the reason under "absent".

    baseline: `processes()` of before any context of ours (None: now). "other_processes" counts it: all of them are
    somebody else's. "processes_since" counts what came after; one for each worker of ours is expected.
    """
    state = dict(vars(device.facts()))
    state |= {key: value for key, value in vars(device.poll()).items() if key != "time_s"}
    now = device.processes()
    baseline = now if baseline is None else baseline
    known = now is not None and baseline is not None
    state["other_processes"] = len(baseline) if baseline is not None else None
    state["processes_since"] = appeared(baseline or (), now or ()) if known else None
    state["event_reasons"] = None if state["event_reasons"] is None else list(state["event_reasons"])
    return state | {"absent": dict(device.reasons)}


def appeared(before: Processes, now: Processes) -> int:
    """How many are there that were not: by number of processes a pid, since a container may show one pid for all."""
    fresh = Counter(pid for pid, _ in now) - Counter(pid for pid, _ in before)
    return sum(fresh.values())


class Sampler:
    """Polls a device from a thread until stopped, and never raises into the sweep: `fault` says why it ended early.

    device: anything with `poll() -> Reading`. wait(seconds) → True when it should end; tests give their own. Readings
    are kept until `stop`; the last 200,000 (5 hours at 0.1 s). lost: the fault was that the device is gone for good.
    """

    def __init__(self, device: Any, interval_s: float = 0.1, wait: Callable[[float], bool] | None = None) -> None:
        if not interval_s > 0:
            raise ValueError(f"expected an interval above 0 s, got {interval_s}")
        self._device = device
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._wait = self._ended.wait if wait is None else wait
        self._readings: collections.deque[Reading] = collections.deque(maxlen=200_000)
        self._thread: threading.Thread | None = None
        self.fault = ""
        self.lost = False

    def start(self) -> None:
        """Begin polling. Raises ValueError if it has begun."""
        if self._thread is not None:
            raise ValueError("expected a sampler that was not started, got one that was")
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def stop(self) -> list[Reading]:
        """End polling, after one more reading, and hand over all of them in order of time. Safe to call twice."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        return list(self._readings)

    def between(self, start_s: float, end_s: float) -> list[Reading]:
        """Readings of a window, and the nearest one on either side, which energy and mean clock need."""
        readings = list(self._readings)
        first = max((i for i, r in enumerate(readings) if r.time_s <= start_s), default=0)
        last = min((i for i, r in enumerate(readings) if r.time_s >= end_s), default=len(readings) - 1)
        return readings[first : last + 1]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._readings.append(self._device.poll())
            while not self._wait(self._interval_s):
                self._readings.append(self._device.poll())
            self._readings.append(self._device.poll())
        except Exception as fault:  # noqa: BLE001 - the edge of a thread: telemetry never ends a sweep
            self.fault = f"{type(fault).__name__}: {fault}"
            self.lost = isinstance(fault, DeviceLost)
