"""Telemetry beside a sweep: one sampler in the parent process, and what it saw while a cell was timed.

Where the device offers none (a CPU, no NVML, no permission) every answer is empty and `reason` says why.
"""

from __future__ import annotations

from typing import Any

from analysis.telemetry import Reading, energy
from measure import environment
from measure.telemetry import Nvml, Sampler, open_nvml
from results.errors import Unavailable


class Watch:
    """Polls one device from `open` to `close`. device: "cpu", "cuda" or "cuda:1"."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.reason = ""
        self._nvml: Nvml | None = None
        self._sampler: Sampler | None = None
        if not device.startswith("cuda"):
            return
        try:
            self._nvml = open_nvml(int(device.partition(":")[2] or 0))
        except Unavailable as fault:
            self.reason = f"telemetry: {fault}"

    def preflight(self) -> dict[str, Any]:
        """The device's state; call it while no process of ours uses the device. Empty where it says nothing."""
        if self._device.startswith("cpu"):
            return environment.preflight(self._device)
        if self._nvml is None:
            return {"absent": {"telemetry": self.reason}}
        try:
            return self._nvml.preflight(self._nvml.processes())
        except Unavailable as fault:
            return {"absent": {"preflight": str(fault)}}

    def start(self) -> None:
        """Begin to poll."""
        if self._nvml is not None:
            self._sampler = Sampler(self._nvml)
            self._sampler.start()

    def window(self, start_s: float, end_s: float) -> list[Reading]:
        """The readings of a window of host time, and their neighbours."""
        return [] if self._sampler is None else self._sampler.between(start_s, end_s)

    def findings(self, start_s: float, end_s: float) -> tuple[dict[str, Any], list[str]]:
        """(energy fields of a Run, warnings) for a window."""
        if self._sampler is None:
            return {}, [self.reason] if self.reason else []
        warnings = [f"telemetry: {self._sampler.fault}"] if self._sampler.fault else []
        readings = self.window(start_s, end_s)
        if not readings:
            return {}, [*warnings, "telemetry: no reading within the window"]
        used = energy(readings, start_s, end_s)
        if used.reason:
            warnings.append(f"energy: {used.reason}")
        return {"energy_j": used.joules, "energy_method": used.method}, warnings

    def close(self) -> None:
        """End polling and let go of the device."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            nvml.close()
