"""AMD SMI, thinly: one AMD GPU's clocks, power, energy, temperature and state, in SI units.

The adapter of AMD's GPUs (`measure/device/telemetry.py`), over the Python package `amdsmi` that comes with ROCm ("AMD
SMI Python API reference", ROCm 6.3 to 7.x). Written against that interface and tried on a fake alone: **no AMD GPU has
run it**.

* Units: clocks MHz, power W (`current_socket_power` since MI300, `average_socket_power` before), limits µW, energy
  accumulator × resolution µJ, memory MiB. Temperature is the hotspot of the metrics, documented in °C (of
  `amdsmi_get_temp_metric` the documents say m°C while torch and AMD's own command print its value as °C).
* `amdsmi_get_violation_status` waits 0.1 s between two samples, which would halve the polls. So the residencies that
  it subtracts are read from the metrics, and a reason held clocks if its residency rose between two polls (MI300 and
  later); before MI300 `throttle_status` says that clocks are held, not why.
* A number of HIP is matched by `hip_id` (ROCm 6.4); where that is missing, several cards need a UUID.

A partition of a GPU counts as a slice; its power is the whole package's.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from analysis.devices.telemetry import Reading
from measure.device.telemetry import DeviceFacts, Processes, state_before
from results.digests import hashed
from results.errors import DeviceLost, Unavailable

PERMANENT = frozenset((1, 2, 3, 5, 10, 49))
"""amdsmi_status_t after which a field is not asked for again: invalid parameters, not supported, not yet implemented,
no such symbol, no permission, no such message."""

FATAL = frozenset((4, 18, 32, 34, 54))
"""amdsmi_status_t after which nothing can be asked: library or initialization failed, not initialized, driver not
loaded, restart of the driver failed. "Not found" (31) is none: a process that ended gives it, too."""

LOST = frozenset((34, 54))
"""Those of them that end a session."""

RESIDENCIES = {
    "prochot_residency_acc": "hw_thermal_slowdown",
    "ppt_residency_acc": "sw_power_cap",
    "socket_thm_residency_acc": "hw_thermal_slowdown",
    "vr_thm_residency_acc": "vr_thermal_slowdown",
    "hbm_thm_residency_acc": "memory_thermal_slowdown",
}
"""Residency of the metrics → `analysis.devices.telemetry.EVENT_REASONS`. PPT: package power tracking; PROCHOT: too
hot."""

UNSUPPORTED = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""Largest values of C's types, with which the library fills what is not supported; its Python part misses some."""

VISIBLE = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables that renumber HIP's devices, the first that is set."""

Read = Callable[[Any, Any], Any]
"""(the library, handle of the device) → value, or None. Raises the library's error, or KeyError."""


def _value_or_none(value: Any) -> Any:
    """The value; None for what the library writes where a field is not supported, 0 among it."""
    return None if value in ("N/A", "", None, 0, *UNSUPPORTED) else value


def _scaled(value: Any, unit: float) -> float | None:
    return None if _value_or_none(value) is None else float(value) * unit


def _hz(mhz: Any) -> int | None:
    return None if _value_or_none(mhz) is None else int(mhz) * 1_000_000


def _clock(kind: str, key: str) -> Read:
    def read(smi: Any, handle: Any) -> int | None:
        return _hz(smi.amdsmi_get_clock_info(handle, getattr(smi.AmdSmiClkType, kind))[key])

    return read


def _power_w(smi: Any, handle: Any) -> float | None:
    power = smi.amdsmi_get_power_info(handle)
    values = (_scaled(power.get(key), 1.0) for key in ("current_socket_power", "average_socket_power"))
    return next((value for value in values if value is not None), None)


def _energy_j(smi: Any, handle: Any) -> float | None:
    counter = smi.amdsmi_get_energy_count(handle)
    return _scaled(counter["energy_accumulator"], float(counter["counter_resolution"]) * 1e-6)


def _memory_used(smi: Any, handle: Any) -> int | None:
    used_mib = smi.amdsmi_get_gpu_vram_usage(handle)["vram_used"]
    return 0 if used_mib == 0 else None if _value_or_none(used_mib) is None else int(used_mib) * 2**20


def _limit_w(key: str) -> Read:
    return lambda smi, handle: _scaled(smi.amdsmi_get_power_cap_info(handle)[key], 1e-6)


def _pcie(part: str, key: str) -> Read:
    return lambda smi, handle: _value_or_none(smi.amdsmi_get_pcie_info(handle)[part][key])


def _partition(smi: Any, handle: Any) -> bool | None:
    mode = _value_or_none(smi.amdsmi_get_gpu_compute_partition(handle))
    return None if mode is None else mode != "SPX"


POLLED: Mapping[str, Read] = {
    "sm_clock_hz": _clock("GFX", "clk"),
    "memory_clock_hz": _clock("MEM", "clk"),
    "power_w": _power_w,
    "energy_j": _energy_j,
    "memory_used_bytes": _memory_used,
}
"""Field of `Reading` → how to read it; temperature and event reasons come from the metrics."""

STATE: Mapping[str, Read] = {
    "name": lambda smi, handle: _value_or_none(smi.amdsmi_get_gpu_asic_info(handle)["market_name"]),
    "uuid_hash": lambda smi, handle: hashed(str(smi.amdsmi_get_gpu_device_uuid(handle))),
    "vbios": lambda smi, handle: _value_or_none(smi.amdsmi_get_gpu_vbios_info(handle)["version"]),
    "pcie_generation_max": _pcie("pcie_static", "pcie_interface_version"),
    "pcie_width": _pcie("pcie_metric", "pcie_width"),
    "pcie_width_max": _pcie("pcie_static", "max_pcie_width"),
    "mig": _partition,
    "ecc": lambda smi, handle: bool(smi.amdsmi_get_gpu_ecc_enabled(handle)),
    "power_limit_w": _limit_w("power_cap"),
    "power_limit_default_w": _limit_w("default_power_cap"),
    "sm_clock_max_hz": _clock("GFX", "max_clk"),
    "memory_clock_max_hz": _clock("MEM", "max_clk"),
    "driver": lambda smi, handle: _value_or_none(smi.amdsmi_get_gpu_driver_info(handle)["driver_version"]),
}
"""Field of `DeviceFacts` → how to read it."""


class AmdSmi:
    """One AMD GPU. smi: the amdsmi module (or one like it); handle: its processor handle."""

    adapter = "amdsmi"
    polls = True

    def __init__(self, smi: Any, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._smi, self._handle, self._clock = smi, handle, clock
        self.reasons: dict[str, str] = {
            "pcie_generation": "AMD SMI gives the speed of the link, not its generation",
            "persistence": "AMD's driver has no such mode",
        }
        self._never: set[str] = set()
        self._residencies: dict[str, int] = {}

    def facts(self) -> DeviceFacts:
        """What the device is and is set to. Raises Unavailable when the device or its driver is gone."""
        return DeviceFacts(**{field: self._ask(field, read) for field, read in STATE.items()})

    def poll(self) -> Reading:
        """One reading now. Raises Unavailable when the driver is gone, DeviceLost when the device is."""
        time_s = self._clock()
        fields = {field: self._ask(field, read) for field, read in POLLED.items()}
        metrics = self._ask("metrics", lambda smi, handle: smi.amdsmi_get_gpu_metrics_info(handle)) or {}
        fields["temperature_c"] = self._temperature_c(metrics)
        fields["event_reasons"] = self._event_reasons(metrics)
        return Reading(time_s=time_s, **fields)

    def processes(self) -> Processes | None:
        """Processes that the driver shows on this device; None if it does not say."""
        listed: Processes | None = self._ask(
            "processes",
            lambda smi, handle: tuple(
                sorted(
                    (int(each["pid"]), _value_or_none(each["mem"])) for each in smi.amdsmi_get_gpu_process_list(handle)
                )
            ),
        )
        return listed

    def preflight(self, baseline: Processes | None = None) -> dict[str, Any]:
        """State before a run: `measure.device.telemetry.state_before`."""
        return state_before(self, baseline)

    def close(self) -> None:
        """Give the library back. Reading after that raises Unavailable."""
        _mapped(self._smi, self._smi.amdsmi_shut_down)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def _ask(self, field: str, read: Read) -> Any:
        """The field's value, or None with a reason. Raises Unavailable for an error that ends everything."""
        if field in self._never:
            return None
        try:
            value = read(self._smi, self._handle)
        except self._smi.AmdSmiException as fault:
            return self._refused(field, fault)
        except (AttributeError, KeyError) as fault:
            self._never.add(field)
            self.reasons[field] = f"this amdsmi has no {' '.join(str(fault).split())}"
            return None
        if value is None:
            self.reasons.setdefault(field, "reads N/A")
        else:
            self.reasons.pop(field, None)
        return value

    def _refused(self, field: str, fault: Any) -> None:
        code, words = getattr(fault, "err_code", None), _words(fault)
        if code in FATAL:
            raise (DeviceLost if code in LOST else Unavailable)(f"AMD SMI: {words}") from fault
        self.reasons[field] = words
        if code in PERMANENT:
            self._never.add(field)

    def _temperature_c(self, metrics: Mapping[str, Any]) -> float | None:
        found = (_scaled(metrics.get(key), 1.0) for key in ("temperature_hotspot", "temperature_edge"))
        value = next((each for each in found if each is not None), None)
        self._explain("temperature_c", value is None)
        return value

    def _event_reasons(self, metrics: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Reasons whose residency rose since the poll before; None at the first poll, which has none before it."""
        now = {key: metrics[key] for key in RESIDENCIES if isinstance(metrics.get(key), int)}
        before, self._residencies = self._residencies, now
        reasons: tuple[str, ...] | None = None
        if now:
            risen = (RESIDENCIES[key] for key in now if key in before and now[key] > before[key])
            reasons = tuple(dict.fromkeys(risen)) if before else None
        elif isinstance(held := metrics.get("throttle_status"), int):
            reasons = ("unspecified_slowdown",) if held else ()
        self._explain("event_reasons", not now and reasons is None)
        return reasons

    def _explain(self, field: str, absent: bool) -> None:
        """A field of the metrics: why it is absent."""
        if absent:
            self.reasons[field] = self.reasons.get("metrics", "not among the metrics of this GPU")
        else:
            self.reasons.pop(field, None)


def open_amdsmi(
    index_or_uuid: int | str = 0,
    smi: Any = None,
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
) -> AmdSmi:
    """The device that HIP calls by this number, or the one of a UUID (with or without "GPU-").

    HIP_VISIBLE_DEVICES is honoured. Raises Unavailable, with its cause, where AMD SMI or the device is not to be had,
    and where the number alone cannot tell which card is meant.
    """
    smi = _module() if smi is None else smi
    _mapped(smi, smi.amdsmi_init)
    try:
        return AmdSmi(smi, _find(smi, index_or_uuid, environ), clock)
    except Unavailable:
        _mapped(smi, smi.amdsmi_shut_down)
        raise


def _module() -> Any:
    try:
        return importlib.import_module("amdsmi")
    except ImportError as fault:
        raise Unavailable("telemetry needs amdsmi, which comes with ROCm (share/amd_smi)") from fault
    except Exception as fault:  # the package loads its library when it is imported, and raises whatever that meets
        raise Unavailable(f"amdsmi cannot be loaded: {_words(fault)}") from fault


def _find(smi: Any, index_or_uuid: int | str, environ: Mapping[str, str]) -> Any:
    """The handle of the device."""
    handles = list(_mapped(smi, smi.amdsmi_get_processor_handles))
    if isinstance(index_or_uuid, str):
        return _by_uuid(smi, handles, index_or_uuid)
    if environ.get("ROCR_VISIBLE_DEVICES") is not None and len(handles) > 1:
        raise Unavailable("ROCR_VISIBLE_DEVICES renumbers the devices: name the device by its UUID, or unset it")
    visible = next((environ[name] for name in VISIBLE if name in environ), None)
    numbers = ",".join(str(i) for i in range(len(handles)))
    entries = [each.strip() for each in (numbers if visible is None else visible).split(",")]
    if not 0 <= index_or_uuid < len(entries):
        raise Unavailable(f"expected one of {len(entries)} HIP devices, got number {index_or_uuid}")
    entry = entries[index_or_uuid]
    return _by_number(smi, handles, int(entry)) if entry.isdecimal() else _by_uuid(smi, handles, entry)


def _by_number(smi: Any, handles: list[Any], number: int) -> Any:
    """The handle whose `hip_id` this is: AMD SMI lists devices by bus, HIP in an order of its own."""
    numbers = [_enumeration(smi, handle).get("hip_id") for handle in handles]
    if number in numbers:
        return handles[numbers.index(number)]
    if len(handles) == 1 and number == 0:
        return handles[0]
    raise Unavailable(f"AMD SMI does not say which of {len(handles)} devices HIP calls {number}: name it by its UUID")


def _by_uuid(smi: Any, handles: list[Any], uuid: str) -> Any:
    wanted = _bare(uuid)
    found = [handle for handle in handles if wanted and any(own.startswith(wanted) for own in _uuids(smi, handle))]
    if len(found) != 1:
        raise Unavailable(f"expected one device of UUID {uuid}, found {len(found)} among {len(handles)}")
    return found[0]


def _uuids(smi: Any, handle: Any) -> set[str]:
    """What this device may be called: AMD SMI's UUID, HIP's, and the serial number that HIP's is made of."""
    serial = _mapped(smi, smi.amdsmi_get_gpu_asic_info, handle).get("asic_serial")
    own = _mapped(smi, smi.amdsmi_get_gpu_device_uuid, handle)
    names = (own, _enumeration(smi, handle).get("hip_uuid"), str(serial or "").removeprefix("0x"))
    return {_bare(str(name)) for name in names if name and name != "N/A"}


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").casefold()


def _enumeration(smi: Any, handle: Any) -> Mapping[str, Any]:
    """HIP's number and UUID of a device; empty before ROCm 6.4, which has no such question."""
    try:
        found: Mapping[str, Any] = smi.amdsmi_get_gpu_enumeration_info(handle)
    except (AttributeError, smi.AmdSmiException):
        return {}
    return found


def _mapped(smi: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the library returns; its errors become Unavailable, with their cause."""
    try:
        return function(*arguments)
    except smi.AmdSmiException as fault:
        raise Unavailable(f"AMD SMI: {getattr(function, '__name__', 'call')}: {_words(fault)}") from fault


def _words(fault: BaseException) -> str:
    return " ".join(str(fault).split())
