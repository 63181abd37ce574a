"""Provides clocks: host time everywhere, device time on GPUs. No other module of the timing path reads a clock.

`clock_for` takes a device and returns its `Clock`, whose times are in seconds. Host time is `time.monotonic`, so that
samples and telemetry, which come from different processes, share one axis. On Linux CLOCK_MONOTONIC is system-wide, and
`perf_counter` is the same clock. Device time is the difference of two CUDA events, with a resolution of about 0.5 µs.
Not claimed: kernel time. A device time is the time between two points of one stream, gaps included.
"""

import time
from typing import Any


class Clock:
    """The operations that timing needs of a device. This class is for a CPU, which has only host time, and whose work
    is done when a call returns."""

    def wall_s(self) -> float:
        """Return monotonic host time in s."""
        return time.monotonic()

    def event(self) -> Any:
        """Return a point in the device's own order of work; on a CPU, a host time."""
        return time.monotonic()

    def has_passed(self, event: Any, wait: bool) -> bool:
        """Return whether the device has reached this point. wait: wait until it has."""
        return True

    def between_s(self, start: Any, end: Any) -> float | None:
        """Return device seconds between two events that have completed; None on a device without a clock."""
        return None

    def synchronize(self) -> None:
        """Wait until the device has finished all its work."""


class CudaClock(Clock):
    """Events on the current stream of one CUDA device."""

    def __init__(self, device: Any) -> None:
        import torch

        self._cuda = torch.cuda
        self.device = torch.device(device)
        if self.device.type != "cuda":
            raise ValueError(f"expected a CUDA device, got {device}")

    def event(self) -> Any:
        point: Any = self._cuda.Event(enable_timing=True)
        point.record(self._cuda.current_stream(self.device))
        return point

    def has_passed(self, event: Any, wait: bool) -> bool:
        if wait:
            event.synchronize()
        return bool(event.query())

    def between_s(self, start: Any, end: Any) -> float | None:
        return float(start.elapsed_time(end)) / 1000  # elapsed_time is in ms

    def synchronize(self) -> None:
        self._cuda.synchronize(self.device)


def clock_for(device: Any) -> Clock:
    """Return the clock of a torch device or its name."""
    return CudaClock(device) if str(device).startswith("cuda") else Clock()
