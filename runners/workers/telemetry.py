"""Telemetry beside a sweep: one sampler in the parent process, and what it saw while a cell was timed.

Where the device offers none (most CPUs, no library, no permission) every answer is empty and `reason` says why.
"""

from dataclasses import dataclass
from typing import Any

from analysis.devices.telemetry import Reading, energy
from measure.device.telemetry import DeviceTelemetry, Processes, Sampler, appeared, open_device
from measure.timing.disturbance import absent
from results.errors import DeviceLost, Unavailable

WORKERS = 1
"""Processes of ours on the GPU when a cell was timed: the one that measured it. Where it has ended by then (a cell that
was recorded with Nsight Systems), one process of others is not seen."""

OF_A_SLICE = "energy: of the whole GPU, a slice (MIG) of which was measured"


@dataclass(frozen=True)
class WindowEnergy:
    """Energy over a window, J, and how it was found; fields of a Run. warnings: why there is none, or what is odd."""

    energy_j: float | None = None
    energy_method: str = ""
    warnings: tuple[str, ...] = ()


class TelemetryWatch:
    """Polls one device from `open` to `close`. device: as torch calls it ("cpu", "cuda", "cuda:1").

    reason: why there is no telemetry; empty if there is, and of a device that offers nothing to poll.
    """

    def __init__(self, device: str) -> None:
        self.reason = ""
        self._device = device
        self._telemetry: DeviceTelemetry | None = None
        self._sampler: Sampler | None = None
        self._before: Processes | None = None
        self._slice = False
        try:
            self._telemetry = open_device(device)
        except Unavailable as fault:
            self.reason = f"telemetry: {fault}"

    def preflight(self) -> dict[str, Any]:
        """The device's state; call it while no process of ours uses the device. Empty where it says nothing.

        absent: column of telemetry.csv or samples.csv → why it stays empty.
        """
        state = self._state()
        return {**state, "absent": {**absent(self._device == "cpu"), **state.get("absent", {})}}

    def _state(self) -> dict[str, Any]:
        if self._telemetry is None:
            return {"absent": {"telemetry": self.reason}}
        try:
            self._before = self._telemetry.processes()
            state = self._telemetry.preflight(self._before)
            self._slice = bool(state.get("mig"))
            return state
        except Unavailable as fault:
            return {"absent": {"preflight": str(fault)}}

    def start(self) -> None:
        """Begin to poll, if that gives anything."""
        if self._telemetry is not None and self._telemetry.polls:
            self._sampler = Sampler(self._telemetry)
            self._sampler.start()

    def window(self, start_s: float, end_s: float) -> list[Reading]:
        """The readings of a window of host time, and their neighbours."""
        return [] if self._sampler is None else self._sampler.between(start_s, end_s)

    def energy(self, start_s: float, end_s: float) -> WindowEnergy:
        """The energy of a window."""
        if self._sampler is None:
            return WindowEnergy(warnings=(self.reason,) if self.reason else ())
        warnings = [f"telemetry: {self._sampler.fault}"] if self._sampler.fault else []
        readings = self.window(start_s, end_s)
        if not readings:
            return WindowEnergy(warnings=(*warnings, "telemetry: no reading within the window"))
        used = energy(readings, start_s, end_s)
        if used.reason:
            warnings.append(f"energy: {used.reason}")
        if self._slice and used.joules is not None:
            warnings.append(OF_A_SLICE)
        warnings += self._others()
        return WindowEnergy(used.joules, used.method, tuple(warnings))

    def _others(self) -> list[str]:
        """A warning about processes on the device that were not there before the session, the worker's own left out."""
        if self._telemetry is None or self._before is None:
            return []
        try:
            now = self._telemetry.processes()
        except Unavailable:
            return []
        more = appeared(self._before, now or ()) - WORKERS
        if more <= 0:
            return []
        return [f"shared_device: {more} process{'es' * (more > 1)} of others came since the session began"]

    def loss(self, ask: bool = False) -> str:
        """Why the device is gone for good, as its telemetry says; empty while it is there, or nobody can tell.

        ask: also poll now, since a cell may fail sooner than the sampler's next poll.
        """
        if self._sampler is not None and self._sampler.lost:
            return f"telemetry: {self._sampler.fault}"
        if ask and self._sampler is not None and self._telemetry is not None:
            try:
                self._telemetry.poll()
            except DeviceLost as fault:
                return f"telemetry: {type(fault).__name__}: {fault}"
            except Unavailable:
                return ""
        return ""

    def close(self) -> None:
        """End polling and let go of the device."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()
        opened, self._telemetry = self._telemetry, None
        if opened is not None:
            opened.close()
