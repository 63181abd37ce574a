"""Telemetry of the processor: energy of its packages by RAPL, their temperature, and clocks before a run.

The adapter of CPUs (`measure/device/telemetry.py`), over Linux's files alone: `sys/class/powercap/intel-rapl:N` (AMD's
processors are listed there, too; docs.kernel.org, "Power Capping Framework"), `sys/class/hwmon`, `cpufreq`, and
`proc/cpuinfo`. Since Linux 5.10 only root may read the energy; without it there is nothing to poll.

Not claimed: the energy is that of whole packages, whoever used them; memory, board and fans are not in it, nor is the
platform's own domain (psys), which holds the packages a second time. Clocks are not polled: `sm_clock_hz` is that of a
GPU's multiprocessors, and reading them ten times a second would wake the cores that are measured.
"""

import functools
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from measure.device import environment
from measure.device.telemetry import Processes
from results.errors import Unavailable
from results.records.cell import Telemetry

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
        gap_s, round_s = time_s - before_s, (self.range_uj or math.inf) / 1e6 / MOST_W
        if gap_s > round_s:
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
        self.reasons: dict[str, str] = {}
        self._domains: tuple[Domain, ...] = ()
        try:
            self._domains = _domains(root)
        except Unavailable as fault:
            self.reasons["energy_j"] = str(fault)
        if _sensor(root) is None:
            self.reasons["temperature_c"] = NO_SENSOR
        self.polls = bool(self._domains)

    def facts(self) -> Mapping[str, Any]:
        """The model's name; the other facts are a GPU's."""
        return {"name": environment.cpu_name()}

    def poll(self) -> Telemetry:
        """Energy of all packages together, J, and the warmest of them; each None if one of its files fell silent."""
        time_s = self._clock()
        energy_j = celsius = None
        if self._domains:
            energy_j = self._known("energy_j", lambda: sum(d.energy_uj(time_s) for d in self._domains) / 1e6)
        if _sensor(self._root) is not None:
            celsius = self._known("temperature_c", lambda: package_temperature_c(self._root))
        return Telemetry(cell_id="", attempt=0, time_s=time_s, energy_j=energy_j, temperature_c=celsius)

    def _known(self, field: str, read: Callable[[], float]) -> float | None:
        try:
            value = read()
        except Unavailable as fault:
            self.reasons[field] = str(fault)
            return None
        self.reasons.pop(field, None)
        return value

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


def open_cpu(index_or_uuid: int | str = 0, root: Path = Path("/")) -> Cpu:
    """The processor; there is one, whatever its number. Its packages are read together, as torch uses them."""
    return Cpu(root)


def package_temperature_c(root: Path = Path("/")) -> float:
    """Temperature of the processor's package now. Raises Unavailable without a sensor, or where it says nothing."""
    sensor = _sensor(root)
    if sensor is None:
        raise Unavailable(NO_SENSOR)
    thousandths = _number(sensor)
    if not thousandths:
        raise Unavailable(f"{sensor}: 0, which no processor has")
    return thousandths / 1000


def clock_hz(root: Path = Path("/")) -> int | None:
    """Mean clock of the cores now; None where the system does not say."""
    if khz := _clocks_khz(root, "scaling_cur_freq"):
        return round(1000 * fmean(khz))
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    mhz = [float(value) for value in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, re.MULTILINE)]
    return round(1e6 * fmean(mhz)) if mhz else None


def clock_max_hz(root: Path = Path("/")) -> int | None:
    """The highest clock of any core; None where the system does not say, as in most virtual machines."""
    khz = _clocks_khz(root, "cpuinfo_max_freq")
    return 1000 * max(khz) if khz else None


def _clocks_khz(root: Path, name: str) -> list[int]:
    clocks = (_optional(path) for path in root.glob(f"sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}"))
    return [khz for khz in clocks if khz]


def _domains(root: Path) -> tuple[Domain, ...]:
    """Every package. Zones of other names are parts of one (core, uncore), beside them (dram), or hold them all (psys).

    Raises Unavailable if there is none, or if one of them cannot be read: the sum of the others would be too low.
    """
    domains = []
    for zone in sorted((root / POWERCAP).glob("intel-rapl:*")):
        name = _text(zone / "name")
        if name.startswith("package"):
            domains.append(Domain(zone, name, _optional(zone / "max_energy_range_uj")))
            _number(zone / "energy_uj")
    if not domains:
        raise Unavailable(f"RAPL: no package under /{POWERCAP} (a virtual machine, or no driver for this processor)")
    return tuple(domains)


@functools.cache
def _sensor(root: Path) -> Path | None:
    """The temperature of a package, where a driver shows it, else a thermal zone of the processor. Looked for once: a
    block's reading is to take microseconds."""
    for pattern, kind, names, value in (
        ("sys/class/hwmon/hwmon*", "name", SENSORS, "temp1_input"),
        ("sys/class/thermal/thermal_zone*", "type", ZONES, "temp"),
    ):
        for folder in sorted(root.glob(pattern)):
            if (folder / kind).is_file() and _text(folder / kind) in names and _optional(folder / value) is not None:
                return folder / value
    return None


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
