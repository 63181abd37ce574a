"""What the device of a loop draws: its energy counter, read at the ends of windows.

A counter that goes backwards, or is no finite number, gives no power.

Not claimed: energy of other parts of the machine, or of other work on the device in the same time.
"""

import math
from typing import Any

from measure.device.telemetry import open_device
from results.errors import Unavailable
from results.records.cell import Telemetry


class LoopEnergy:
    """Mean power over a loop and over its windows, with the reason where there is none.

    After `close` the whole loop is what it was then.
    """

    def __init__(self, device: str) -> None:
        self._telemetry: Any = None
        self._reason = ""
        self._start: Telemetry | None = None
        self._window: Telemetry | None = None
        self._final: Telemetry | None = None
        try:
            self._telemetry = open_device(device)
        except Unavailable as reason:
            self._reason = f"no energy: {reason}"

    def start(self) -> None:
        """The first step that counts begins."""
        self._start = self._window = self._read()

    def since_start(self) -> tuple[float | None, str]:
        """Mean power in W, and why there is none."""
        return self._between(self._start, self._read())

    def since_window(self) -> tuple[float | None, str]:
        """Mean power since the last call in W, and why there is none."""
        before, self._window = self._window, self._read()
        return self._between(before, self._window)

    def close(self) -> None:
        """Read once more, and let go of the device."""
        if self._telemetry is not None:
            self._final = self._read()
            self._telemetry.close()
            self._telemetry = None

    def _between(self, before: Telemetry | None, now: Telemetry | None) -> tuple[float | None, str]:
        if now is None or before is None or not now.time_s > before.time_s:
            return None, self._reason or "no energy: no step was completed after the warm-up"
        if now.energy_j is None or before.energy_j is None:
            return None, "no energy: the device has no energy counter that goes on"
        power_w = (now.energy_j - before.energy_j) / (now.time_s - before.time_s)
        if not (math.isfinite(power_w) and power_w >= 0):  # `not` refuses nan
            return None, "no energy: the device has no energy counter that goes on"
        return power_w, ""

    def _read(self) -> Telemetry | None:
        if self._telemetry is None:
            return self._final
        try:
            reading: Telemetry = self._telemetry.poll()
            return reading
        except Unavailable as reason:
            self._reason = f"no energy: {reason}"
            return None
