"""Telemetry of the processor: energy of its packages by RAPL, their temperature, and clocks before a run.

The adapter of CPUs (`measure/device/telemetry.py`), over Linux's files alone: `sys/class/powercap/intel-rapl:N` (AMD's
processors are listed there, too; docs.kernel.org, "Power Capping Framework"), `sys/class/hwmon`, `cpufreq`, and
`proc/cpuinfo`. Since Linux 5.10 only root may read the energy; without it there is nothing to poll.

Not claimed: the energy is that of whole packages, whoever used them; memory, board and fans are not in it, nor is the
platform's own domain (psys), which holds the packages a second time. Clocks are no part of a `Reading`, whose clock
is that of a GPU's multiprocessors, and reading them ten times a second would wake the cores that are measured.
"""

import functools
import math
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from analysis.devices.telemetry import Reading
from measure.device import environment
from measure.device.telemetry import DeviceFacts, Processes
from results.errors import Unavailable

POWERCAP = "sys/class/powercap"
SENSORS = ("coretemp", "k10temp", "zenpower")
"""Names of the drivers whose first sensor is that of a package: Intel's, AMD's, and AMD's out of the tree."""
ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal")
"""Types of thermal zones that are a processor's, where there is no such driver: Intel's, and those of Arm's boards."""


NO_SENSOR = f"no sensor among {', '.join(SENSORS)}, and no zone among {', '.join(ZONES)}"


MOST_W = 1000.0
"""No package draws more; what a counter gathers at this power in less than one round is known from two readings."""


@dataclass
class Domain:
    """The energy counter of one package. range_uj: the value after which it begins again; None if it does not say.

    lost: why the energy since the first reading is not known any more.
    """

    folder: Path
    name: str
    range_uj: int | None
    last: tuple[float, int] | None = None
    wrapped_uj: int = 0
    lost: str = ""

    def energy_uj(self, time_s: float) -> int:
        """Energy since the counter's own beginning, with the rounds that it went since the first reading.

        Raises Unavailable where it cannot be read, or may have gone round unseen: from then on always.
        """
        now = _number(self.folder / "energy_uj")
        before_s, before = self.last or (time_s, now)
        self.last = time_s, now
        round_s = (self.range_uj or math.inf) / 1e6 / MOST_W
        if time_s - before_s > round_s:
            gap_s = time_s - before_s
            self.lost = f"RAPL {self.name}: not read for {gap_s:.0f} s, and it may go round in {round_s:.0f} s"
        elif now < before and self.range_uj is None:
            self.lost = f"RAPL {self.name}: went round, and does not say at which value"
        elif now < before:
            self.wrapped_uj += self.range_uj or 0
        if self.lost:
            raise Unavailable(self.lost)
        return now + self.wrapped_uj


class Cpu:
    """The processor's packages. root: where /sys and /proc are. clock: host time that readings carry."""

    adapter = "rapl"

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._sensor = _sensor(root)
        self.reasons: dict[str, str] = {}
        self._domains: tuple[Domain, ...] = ()
        try:
            self._domains = _domains(root)
        except Unavailable as fault:
            self.reasons["energy_j"] = str(fault)
        if self._sensor is None:
            self.reasons["temperature_c"] = NO_SENSOR
        self.polls = bool(self._domains)

    def facts(self) -> DeviceFacts:
        """The model's name; the other facts are a GPU's."""
        return DeviceFacts(name=environment.cpu_name())

    def poll(self) -> Reading:
        """Energy of all packages together, J, and the warmest of them; each None if one of its files fell silent."""
        time_s = self._clock()
        return Reading(time_s=time_s, energy_j=self._energy_j(time_s), temperature_c=self._temperature_c())

    def processes(self) -> Processes | None:
        """None: whose work the processor did is `measure/device/cpu_identity.py`."""
        return None

    def preflight(self, baseline: Processes | None = None) -> dict[str, Any]:
        """Load, governor and cores to use, the clock now and at most, the source of energy, and what is absent."""
        return {
            **environment.host_state(),
            "clock_hz": clock_hz(self._root),
            "clock_max_hz": clock_max_hz(self._root),
            "energy_source": " + ".join(f"RAPL {domain.name}" for domain in self._domains) or None,
            "absent": dict(self.reasons),
        }

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def _energy_j(self, time_s: float) -> float | None:
        if not self._domains:
            return None
        try:
            energy_uj = sum(domain.energy_uj(time_s) for domain in self._domains)
        except Unavailable as fault:
            self.reasons["energy_j"] = str(fault)
            return None
        self.reasons.pop("energy_j", None)
        return energy_uj / 1e6

    def _temperature_c(self) -> float | None:
        if self._sensor is None:
            return None
        try:
            return _number(self._sensor) / 1000 or None
        except Unavailable as fault:
            self.reasons["temperature_c"] = str(fault)
            return None


def open_cpu(index_or_uuid: int | str = 0, root: Path = Path("/")) -> Cpu:
    """The processor; there is one, whatever its number. Its packages are read together, as torch uses them."""
    return Cpu(root)


def package_temperature_c(root: Path = Path("/")) -> float:
    """Of the processor's package now. Raises Unavailable without a sensor, or where it says nothing."""
    sensor = _sensor(root)
    if sensor is None:
        raise Unavailable(NO_SENSOR)
    found = _number(sensor)
    if not found:
        raise Unavailable(f"{sensor}: 0, which no processor has")
    return found / 1000


def clock_hz(root: Path = Path("/")) -> int | None:
    """Mean clock of the cores now; None where the system does not say."""
    khz = _numbers(root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")
    if khz:
        return round(1000 * statistics.fmean(khz))
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    mhz = [float(found) for found in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, re.MULTILINE)]
    return round(1e6 * statistics.fmean(mhz)) if mhz else None


def clock_max_hz(root: Path = Path("/")) -> int | None:
    """The highest clock of any core; None where the system does not say, as in most virtual machines."""
    khz = _numbers(root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq")
    return 1000 * max(khz) if khz else None


def _domains(root: Path) -> tuple[Domain, ...]:
    """Every package. Zones of other names are parts of one (core, uncore), beside them (dram), or hold them all (psys).

    Raises Unavailable if there is none, or if one of them cannot be read: the sum of the others would be too low.
    """
    found = []
    zones = sorted((root / POWERCAP).glob("intel-rapl:*"))
    if zones and not any(folder.exists() for folder in zones):
        raise Unavailable(f"RAPL: the zones under /{POWERCAP} lead nowhere: a container hides what they are links to")
    for folder in zones:
        name = _text(folder / "name")
        if name.startswith("package"):
            found.append(Domain(folder, name, _optional(folder / "max_energy_range_uj")))
    if not found:
        raise Unavailable(f"RAPL: no package under /{POWERCAP} (a virtual machine, or no driver for this processor)")
    for domain in found:
        _number(domain.folder / "energy_uj")
    return tuple(found)


@functools.cache
def _sensor(root: Path) -> Path | None:
    """The temperature of a package, where a driver shows it, else a thermal zone of the processor. Looked for once: a
    block's reading is to take microseconds."""
    for pattern, kind, names, value in (
        ("sys/class/hwmon/hwmon*", "name", SENSORS, "temp1_input"),
        ("sys/class/thermal/thermal_zone*", "type", ZONES, "temp"),
    ):
        for folder in sorted(root.glob(pattern)):
            if _optional_text(folder / kind) in names and _optional(folder / value) is not None:
                return folder / value
    return None


def _numbers(root: Path, pattern: str) -> list[int]:
    values = (_optional(path) for path in root.glob(pattern))
    return [value for value in values if value]


def _number(path: Path) -> int:
    text = _text(path)
    try:
        return int(text)
    except ValueError as fault:
        raise Unavailable(f"{path}: expected a number, got {text[:40]!r}") from fault


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except PermissionError as fault:
        raise Unavailable(f"{path}: permission denied; since Linux 5.10 only root may read it") from fault
    except OSError as fault:
        raise Unavailable(f"{path}: {fault.strerror}") from fault


def _optional(path: Path) -> int | None:
    try:
        return _number(path)
    except Unavailable:
        return None


def _optional_text(path: Path) -> str:
    try:
        return _text(path)
    except Unavailable:
        return ""
