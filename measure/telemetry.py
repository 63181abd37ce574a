"""Telemetry while a sweep runs: a thread of the parent process that polls one device.

It sits in the parent, so that a worker's timing and interpreter lock are left alone; readings carry the host's
monotonic clock, which both processes share. Here too are the names under which the rest of the house opens a device.
Not claimed: what readings add up to is in `analysis/telemetry.py`, what a device offers in `measure/nvml.py`.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any, Self

from analysis.telemetry import Reading
from measure.nvml import Nvml, open_nvml

__all__ = ["Nvml", "Reading", "Sampler", "open_nvml"]


class Sampler:
    """Polls a device from a thread until stopped, and never raises into the sweep: `fault` says why it ended early.

    device: an `Nvml`, or anything with `poll() -> Reading`. wait(seconds) → True when it should end; tests give their
    own. Readings are kept until `stop`; the last 200,000 (5 hours at 0.1 s).
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
