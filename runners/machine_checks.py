"""Checks whether a machine is fit to measure on: `all_checks` returns a `Check` per fact, with the cost of its absence.

`all_checks` takes the folder into which sweeps write. No check prints anything or changes a setting. The state `ok`
means that nothing is lost, `missing` that something is absent. `warn` means that results are possible, but less
complete or more scattered. Only a check that is `needed` can make a machine unfit; no optional counter or tool does.
Not claimed: that the machine stays as it is.
"""

import importlib
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.counters import COUNTERS, CounterEntry, install_line
from analysis.devices import peaks
from analysis.devices.precisions import OVERRIDES
from analysis.devices.telemetry import EVENT_REASONS
from analysis.utilization.numerators import OWN
from analysis.utilization.utilization import HARMLESS_REASONS
from measure.device import environment
from measure.device.telemetry import DeviceTelemetry, open_device
from results.errors import Unavailable, one_line
from runners.workers.devices import BUSY_LOAD_RATIO

TORCH_VERSIONS = ((2, 11), (2, 16))
"""Versions of torch that are supported: from the first to before the second. requirements.txt refuses 2.13."""

LOW_SPACE_BYTES = 2 * 10**9
HOT_CELSIUS = 80.0


TELEMETRY = {
    "sm_clock_hz": "utilization at the observed clock",
    "power_w": "power, and energy where there is no counter",
    "energy_j": "energy by the device's own counter",
    "temperature_c": "temperature",
    "event_reasons": "why clocks fell",
}
"""Field of a poll of a GPU → the information that is lost without it."""

NO_TELEMETRY = "no clock, power, energy, throttle reasons or other users"


@dataclass(frozen=True)
class Check:
    """One fact of a machine. cost: what is lost while the state is not ok; empty if nothing is."""

    topic: str
    state: str
    fact: str
    cost: str = ""
    needed: bool = False


def _line(topic: str, fact: str, cost: str = "", needed: bool = False) -> Check:
    """Return a line that is ok where nothing is lost, else a warning."""
    return Check(topic, "warn" if cost else "ok", fact, cost, needed)


def all_checks(runs: Path) -> list[Check]:
    """Return every line for this machine. runs: the folder into which sweeps write. Imports torch and torchvision."""
    host, torch = environment.host_facts(), environment.torch_facts()
    gpus = [f"cuda:{index}" for index in range(torch["cuda_devices"] or 0)]
    states = [line for device in gpus or ["cuda"] for line in telemetry_checks(device)]  # before our context
    tested = (3, 11) <= sys.version_info[:2] <= (3, 13)
    overridden = "fp32 and tf32 cells are refused: no flag shows what really runs"
    return [
        _line("python", platform.python_version(), "" if tested else "tested with 3.11 to 3.13 only"),
        *torch_checks(torch),
        torchvision_check(),
        *(line for device in gpus or ["cpu"] for line in device_checks(environment.device_facts(device))),
        *driver_checks(host["driver"], bool(torch["cuda_available"])),
        *states,
        *host_checks(host),
        *(_line("override", f"{name}={value}", overridden) for name in OVERRIDES if (value := os.environ.get(name))),
        *counter_checks(),
        *tool_checks(),
        permission_check(),
        *folder_checks(runs),
    ]


def is_fit(lines: list[Check]) -> bool:
    """Return whether everything that a sweep needs is there."""
    return not any(line.needed and line.state == "missing" for line in lines)


def torch_checks(facts: Mapping[str, Any]) -> Iterator[Check]:
    """Check torch: whether it can be imported, its version is supported, and it was built for a GPU."""
    if facts["torch_error"]:
        cost = "nothing can be measured: python -m pip install -r requirements.txt"
        yield Check("torch", "missing", facts["torch_error"], cost, needed=True)
        return
    version = tuple(int(part) for part in re.findall(r"\d+", facts["torch"])[:2])
    low, high = TORCH_VERSIONS
    supported = low <= version < high and version != (2, 13)
    cost = "" if supported else "not tested: expected 2.11 to 2.15 without 2.13; flags and counts may differ"
    yield _line("torch", facts["torch"], cost, needed=True)
    if facts["cuda"] or facts["hip"]:
        yield _line("torch build", f"CUDA {facts['cuda']}" if facts["cuda"] else f"ROCm {facts['hip']}")
    else:
        yield _line("torch build", "CPU only", "no GPU is used, even if there is one")


def torchvision_check(load: Callable[[str], Any] = importlib.import_module) -> Check:
    """Check torchvision with this torch: a build for another torch fails at import."""
    try:
        version = load("torchvision").__version__
    except Exception as fault:  # noqa: BLE001 - a build for another torch raises anything; it becomes a line
        cost = "no image model can be built; a version for another torch fails like this"
        return Check("torchvision", "missing", one_line(f"{type(fault).__name__}: {fault}", 160), cost, needed=True)
    return _line("torchvision", version, needed=True)


def device_checks(facts: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the device that a sweep would use, and whether the table knows its peaks."""
    name = facts["name"]
    if name is None:
        yield Check("device", "missing", facts["error"] or "no name", "the manifest cannot say what was measured")
        return
    if facts["device"] == "cpu":
        isa = " ".join(flag for flag, there in (facts["isa"] or {}).items() if there)
        yield _line("device", f"cpu: {name}, {facts['physical_cores'] or '?'} cores, {isa or 'ISA unknown'}")
        yield _line("peaks", "no datasheet gives a CPU's peak", "its ceiling is measured")
        return
    size = f"{facts['multiprocessors']} multiprocessors, {facts['memory_bytes'] / 1e9:.0f} GB"
    stand_in = "no hardware: what is measured on it is evidence of nothing but this program"
    fact = f"{facts['device']}: {name}, {facts['compute_capability']}, {size}"
    yield _line("device", fact, stand_in if peaks.is_stand_in(name) else "")
    row = peaks.lookup(name, facts["multiprocessors"])
    if row is None:
        cost = "no datasheet denominator: the measured peak, or --peak-tflops"
        yield Check("peaks", "missing", f"no row for {name!r} with {facts['multiprocessors']} multiprocessors", cost)
        return
    unread = "the figures were never read in a document" if row.verification == "memory" else ""
    yield _line("peaks", f"{row.source} ({row.verification})", unread)


def driver_checks(version: str | None, usable: bool) -> Iterator[Check]:
    """Check NVIDIA's kernel driver; a driver without a GPU that torch can use gets a line."""
    if version is None and not usable:
        yield Check("driver", "missing", "no NVIDIA driver in /proc, none in NVML", "no NVIDIA GPU can be measured")
    elif version is None:
        yield _line("driver", "version unknown, but torch uses a GPU", "the manifest cannot say which driver")
    else:
        cost = "" if usable else "cells run on the CPU"
        yield _line("driver", f"{version}, but torch sees no GPU" if cost else version, cost)


def host_checks(host: Mapping[str, Any]) -> Iterator[Check]:
    """Check load, governor and quota, which make times on this host scatter."""
    usable, load, governor, quota = host["cpu_usable"] or 1, host["load_1min"], host["governor"], host["cpu_quota"]
    if load is None:
        yield _line("load", "unknown", "other work cannot be seen")
    else:
        busy = load > BUSY_LOAD_RATIO * usable
        yield _line("load", f"{load:.1f} on {usable} cores", "other work shares the cores: intervals widen" * busy)
    drifts = governor not in (None, "performance")
    cost = "the clock follows the load: CPU times drift while it rises" if drifts else ""
    yield _line("governor", governor or "not shown (virtual machine)", cost)
    if quota is not None and quota < usable:
        yield _line("quota", f"{quota:g} of {usable} cores", "the container is stopped when it has used them up")


def counter_checks(counters: Mapping[str, CounterEntry] = COUNTERS) -> Iterator[Check]:
    """Yield each counter of the registry (by name), and what to install where it is absent."""
    for counter, entry in counters.items():
        names = [re.split(r"[^\w.-]", package, maxsplit=1)[0] for package in entry.requires.split()]  # without versions
        versions = [environment.package_version(name) for name in names]
        if all(version or _is_installed(package) for package, version in zip(names, versions, strict=True)):
            known = versions[0] if versions else "part of the project" if counter == OWN else "part of torch"
            yield _line("counter", f"{counter} {known or ''}".strip())
        else:
            yield Check("counter", "missing", counter, f"no second opinion from it: {install_line(entry.requires)}")


def tool_checks() -> Iterator[Check]:
    """Check NVTX, and NVIDIA's profiler, which the sweep can start."""
    if _is_installed("nvtx"):
        yield _line("nvtx", f"nvtx {environment.package_version('nvtx') or ''}".strip())
    else:
        yield Check("nvtx", "missing", "package nvtx", "a timeline shows no phases: python -m pip install nvtx")
    cost = "no --profile nsys, and no timeline beside that of torch's own profiler"
    path = shutil.which("nsys")
    yield _line("nsys", path) if path else Check("nsys", "missing", "Nsight Systems is not on PATH", cost)


def permission_check(parameters: Path = Path("/proc/driver/nvidia/params")) -> Check:
    """Check whether this user may read the GPU's performance counters."""
    try:
        text = parameters.read_text(encoding="utf-8")
    except OSError:
        return Check("permission", "missing", f"unknown: no {parameters}", "no hardware counts, as far as is known")
    if os.geteuid() == 0 or "RmProfilingAdminOnly: 0" in text:
        return _line("permission", "performance counters may be read")
    return _line("permission", "performance counters are for root only", "Nsight Compute gives no hardware counts")


def folder_checks(runs: Path) -> Iterator[Check]:
    """Check whether a sweep can write its rows, and has space for them."""
    folder = next(path for path in (runs, *runs.absolute().parents) if path.is_dir())
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as fault:
        yield Check("results", "missing", f"{runs}: {fault.strerror}", "no run can be kept there: --out", needed=True)
        return
    yield _line("results", f"{runs} can be written", needed=True)
    free = shutil.disk_usage(folder).free
    cost = "a full disk stops a sweep with exit code 3; --resume goes on" if free < LOW_SPACE_BYTES else ""
    yield _line("disk", f"{free / 1e9:.1f} GB free", cost)


def telemetry_checks(device: str = "cuda:0", opens: Callable[[str], DeviceTelemetry] = open_device) -> Iterator[Check]:
    """Yield the adapter of a GPU's telemetry with its fields, and the GPU's state."""
    try:
        with opens(device) as opened:
            adapter, state, reasons = opened.adapter, opened.preflight(), opened.reasons
    except Unavailable as fault:
        yield Check("telemetry", "missing", f"{device}: {' '.join(str(fault).split())}", NO_TELEMETRY)
        return
    absent = [field for field in TELEMETRY if state[field] is None]
    offered = ", ".join(field for field in TELEMETRY if field not in absent) or "nothing"
    cost = f"stays empty: {', '.join(TELEMETRY[field] for field in absent)}" if absent else ""
    why = "; ".join(reasons[field] for field in absent if field in reasons)
    fact = f"{device} by {adapter}: {offered}" + (f" ({why})" if why else "")
    yield _line("telemetry", fact, cost)
    yield from state_checks(state)


def state_checks(state: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the GPU's state before a run, by the keys of `measure.device.telemetry.state_before`; unknown ones have no
    line."""
    others = state["other_processes"]
    if others is None:
        yield _line("other users", "unknown", "work of others on this GPU cannot be seen")
    else:
        cost = "they share the device: times and power are not ours alone" if others else ""
        yield _line("other users", f"{others} compute process{'' if others == 1 else 'es'} on the GPU", cost)
    if state["mig"]:
        yield _line("mig", "on", "a slice has no datasheet peak, and power is the whole GPU's")
    if state["event_reasons"] is not None:
        limits = [reason for reason in state["event_reasons"] if reason not in HARMLESS_REASONS]
        meaning = "; ".join(EVENT_REASONS.get(reason, reason) for reason in limits)
        cost = f"clocks are held before anything runs: {meaning}" if limits else ""
        yield _line("throttling", ", ".join(limits) or "nothing holds the clock down", cost)
    limit, default = state["power_limit_w"], state["power_limit_default_w"]
    if limit is not None:
        fact = f"{limit:.0f} W, default {'unknown' if default is None else f'{default:.0f} W'}"
        yield _line("power limit", fact, "clocks fall sooner than on a card as sold" * (limit < (default or 0.0)))
    celsius = state["temperature_c"]
    if celsius is not None:
        yield _line("temperature", f"{celsius:.0f} °C", "it may throttle from the start" * (celsius >= HOT_CELSIUS))
    if state["persistence"] is False:
        yield _line("persistence", "off", "each start of a process waits for the driver")
    if state["ecc"] is not None:
        yield _line("ecc", "on" if state["ecc"] else "off")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package.replace("-", "_")) is not None
    except (ImportError, ValueError):
        return False
