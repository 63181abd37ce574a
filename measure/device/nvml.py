"""Reads one GPU's clocks, power, energy, temperature and state by NVML, in SI units.

`open_nvml` takes the number or UUID by which CUDA knows a GPU and returns an `Nvml`. `Nvml` is the adapter of NVIDIA's
GPUs for `measure/device/telemetry.py`. Nothing here changes a setting. A fatal error of the library becomes
`Unavailable` with its cause (`DeviceLost` if the GPU is gone). A value that is not offered is None, with the reason in
`Nvml.reasons`. Limits: without instantaneous power, NVML's power is an average (1 s on most boards since Ampere). A 0
for power, clock, temperature or energy is taken as "not offered", since virtual GPUs fill with zeros. On a MIG slice
all values but memory are those of the whole GPU. A container sees the host's process numbers, so other users are found
by comparison with a baseline.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from measure.device.telemetry import Processes, state_before
from results.errors import DeviceLost, Unavailable
from results.records.cell import Telemetry
from results.text_files import hashed

PERMANENT = frozenset((2, 3, 4, 13, 25, 26))
"""nvmlReturn_t after which a field is not requested again: invalid argument, not supported, no permission, function not
found, argument version mismatch, deprecated."""

FATAL = frozenset((1, 9, 12, 15, 16, 18))
"""nvmlReturn_t after which no request can succeed: uninitialized, driver not loaded, library not found, GPU lost, reset
required, library and driver of different versions."""

LOST = frozenset((15, 16))
"""Members of FATAL that end a session: GPU lost, reset required. The others may concern only NVML."""

EVENT_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (NVML reference, nvmlClocksEventReasons; the last two from the older
list of throttle reasons) → the vocabulary of `analysis.devices.telemetry.EVENT_REASONS`, which has NVML's names."""

Ask = tuple[tuple[str, ...], tuple[str, ...], Callable[[Any], Any]]
"""Functions to try in order, further arguments (names of constants of pynvml), and the conversion of the value."""


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _hz(mhz: int) -> int | None:
    return mhz * 1_000_000 or None


def _thousandth(milli: int) -> float | None:
    return milli / 1000 or None


def decode_event_reasons(mask: int) -> tuple[str, ...]:
    """Return names of the bits set, lowest first; a bit that NVML does not document reads "0x…"."""
    bits = (1 << i for i in range(mask.bit_length()))
    return tuple(EVENT_REASONS.get(bit, hex(bit)) for bit in bits if mask & bit)


POLLED: Mapping[str, Ask] = {
    "sm_clock_hz": (("nvmlDeviceGetClockInfo",), ("NVML_CLOCK_SM",), _hz),
    "memory_clock_hz": (("nvmlDeviceGetClockInfo",), ("NVML_CLOCK_MEM",), _hz),
    "power_w": (("nvmlDeviceGetPowerUsage",), (), _thousandth),
    "energy_j": (("nvmlDeviceGetTotalEnergyConsumption",), (), _thousandth),
    "temperature_c": (
        ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"),
        ("NVML_TEMPERATURE_GPU",),
        lambda celsius: float(celsius) or None,
    ),
    "event_reasons": (
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        (),
        decode_event_reasons,
    ),
    "memory_used_bytes": (("nvmlDeviceGetMemoryInfo",), (), lambda memory: int(memory.used)),
}
"""Field of `Telemetry` → how to read it. The "…ThrottleReasons" and the plain temperature call end with CUDA 14."""

STATE: Mapping[str, Ask] = {
    "name": (("nvmlDeviceGetName",), (), _text),
    "uuid_hash": (("nvmlDeviceGetUUID",), (), lambda uuid: hashed(_text(uuid))),
    "vbios": (("nvmlDeviceGetVbiosVersion",), (), _text),
    "pcie_generation": (("nvmlDeviceGetCurrPcieLinkGeneration",), (), int),
    "pcie_generation_max": (("nvmlDeviceGetMaxPcieLinkGeneration",), (), int),
    "pcie_width": (("nvmlDeviceGetCurrPcieLinkWidth",), (), int),
    "pcie_width_max": (("nvmlDeviceGetMaxPcieLinkWidth",), (), int),
    "mig": (("nvmlDeviceGetMigMode",), (), lambda modes: bool(modes[0])),
    "ecc": (("nvmlDeviceGetEccMode",), (), lambda modes: bool(modes[0])),
    "persistence": (("nvmlDeviceGetPersistenceMode",), (), bool),
    "power_limit_w": (("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"), (), _thousandth),
    "power_limit_default_w": (("nvmlDeviceGetPowerManagementDefaultLimit",), (), _thousandth),
    "sm_clock_max_hz": (("nvmlDeviceGetMaxClockInfo",), ("NVML_CLOCK_SM",), _hz),
    "memory_clock_max_hz": (("nvmlDeviceGetMaxClockInfo",), ("NVML_CLOCK_MEM",), _hz),
}
"""Fact → how to read it from a device. The driver's version needs no device (`Nvml.facts`)."""

OF_THE_SLICE = ("memory_used_bytes",)
"""Fields that are read from a MIG slice; the others are read from its GPU."""


class Nvml:
    """One device. nvml: the pynvml module (or one like it). handle: of the device or of a MIG slice. whole: handle of
    the slice's GPU; None: the device is a whole GPU. clock: returns the host time of a reading, in s.
    """

    adapter = "nvml"

    def __init__(self, nvml: Any, handle: Any, whole: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._handle = handle
        self._whole = handle if whole is None else whole
        self._clock = clock
        self.reasons: dict[str, str] = {}
        self._never: set[str] = set()
        if whole is not None:
            self.reasons["mig_slice"] = "clocks, power, energy and temperature are those of the whole GPU"

    def poll(self) -> Telemetry:
        """Take one reading now. Raises Unavailable when the device or its driver is gone."""
        time_s, instant_w = self._clock(), self._instant_power_w()
        known: dict[str, Any] = {"power_w": instant_w} if instant_w else {}
        fields = {field: self._ask(field, *how) for field, how in POLLED.items() if field not in known}
        return Telemetry(cell_id="", attempt=0, time_s=time_s, **known, **fields)

    def facts(self) -> Mapping[str, Any]:
        """Return the device's properties and settings. Raises Unavailable when the device or its driver is gone."""
        driver = _text(_mapped(self._nvml, self._nvml.nvmlSystemGetDriverVersion))
        return {**{key: self._ask(key, *how) for key, how in STATE.items()}, "driver": driver}

    def preflight(self, baseline: Processes | None = None) -> dict[str, Any]:
        """Return the state before a run: `measure.device.telemetry.state_before`."""
        return state_before(self, baseline)

    def processes(self) -> Processes | None:
        """Return the compute processes that NVML shows on this device, with its own process numbers; None if it shows
        none."""
        listed = self._ask("processes", ("nvmlDeviceGetComputeRunningProcesses",), (), tuple)
        if listed is None:
            return None
        return tuple(sorted(((int(p.pid), p.usedGpuMemory) for p in listed), key=lambda known: known[0]))

    def close(self) -> None:
        """Shut NVML down. Reading after that raises Unavailable."""
        _mapped(self._nvml, self._nvml.nvmlShutdown)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def _instant_power_w(self) -> float | None:
        """Return the instantaneous power in W; None where this NVML or device has no such field."""
        try:
            (field,) = self._nvml.nvmlDeviceGetFieldValues(self._whole, [self._nvml.NVML_FI_DEV_POWER_INSTANT])
        except (AttributeError, self._nvml.NVMLError):
            return None
        return _thousandth(field.value.uiVal) if field.nvmlReturn == 0 else None

    def _ask(self, field: str, functions: Sequence[str], arguments: Sequence[Any], convert: Callable[..., Any]) -> Any:
        """Return the field's value, or None with the reason in `reasons`. Raises Unavailable for an error of FATAL."""
        if field in self._never:
            return None
        handle = self._handle if field in OF_THE_SLICE else self._whole
        constants = [getattr(self._nvml, a) for a in arguments]
        codes, reason = set(), ""
        for name in functions:
            function = getattr(self._nvml, name, None)
            if function is None:
                reason = reason or f"this pynvml has no {name}"
                continue
            try:
                value = convert(function(handle, *constants))
            except self._nvml.NVMLError as fault:
                if fault.value in FATAL:
                    raise (DeviceLost if fault.value in LOST else Unavailable)(f"NVML: {fault}") from fault
                codes.add(int(fault.value))
                reason = f"{name}: {fault}"
                continue
            if value is not None:
                self.reasons.pop(field, None)
                return value
            codes, reason = {0}, f"{name} reads 0"
            break
        self.reasons.setdefault(field, reason)
        if codes <= PERMANENT:
            self._never.add(field)
        return None


def open_nvml(
    index_or_uuid: int | str = 0,
    nvml: Any = None,
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
) -> Nvml:
    """Return the device to which CUDA gives this number ("cuda:1" is 1), or the one of a UUID (with or without "GPU-").

    CUDA_VISIBLE_DEVICES is honoured. Raises Unavailable, with its cause, where NVML or the device is not available, and
    where the number does not determine the card.
    """
    nvml = _module() if nvml is None else nvml
    _mapped(nvml, nvml.nvmlInit)
    try:
        handle, whole = _find(nvml, index_or_uuid, environ)
    except Unavailable:
        _mapped(nvml, nvml.nvmlShutdown)
        raise
    return Nvml(nvml, handle, whole, clock)


def driver_version(nvml: Any = None) -> str:
    """Return the driver's version as NVML reports it. Raises Unavailable where there is none."""
    nvml = _module() if nvml is None else nvml
    _mapped(nvml, nvml.nvmlInit)
    try:
        return _text(_mapped(nvml, nvml.nvmlSystemGetDriverVersion))
    finally:
        _mapped(nvml, nvml.nvmlShutdown)


def _module() -> Any:
    try:
        import pynvml
    except ImportError as fault:
        raise Unavailable("telemetry needs pynvml: install nvidia-ml-py") from fault
    return pynvml


def _find(nvml: Any, index_or_uuid: int | str, environ: Mapping[str, str]) -> tuple[Any, Any]:
    """Return (handle, handle of the whole GPU); the second is None unless the first is a MIG slice."""
    if isinstance(index_or_uuid, str):
        return _by_uuid(nvml, index_or_uuid)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    count = _mapped(nvml, nvml.nvmlDeviceGetCount)
    entries = [str(i) for i in range(count)] if visible is None else _visible(visible, count)
    if not 0 <= index_or_uuid < len(entries):
        raise Unavailable(
            f"expected one of {len(entries)} CUDA devices, got number {index_or_uuid}"
            + ("" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})")
        )
    entry = entries[index_or_uuid]
    if not entry.isdecimal():
        return _by_uuid(nvml, entry)
    _same_order(nvml, count, environ)
    return _mapped(nvml, nvml.nvmlDeviceGetHandleByIndex, int(entry)), None


def _visible(listed: str, count: int) -> list[str]:
    """Return the entries of CUDA_VISIBLE_DEVICES before the first that names no device, where CUDA stops reading."""
    entries = []
    for entry in (part.strip() for part in listed.split(",")):
        if not entry.startswith(("GPU-", "MIG-")) and not (entry.isdecimal() and int(entry) < count):
            break
        entries.append(entry)
    return entries


def _same_order(nvml: Any, count: int, environ: Mapping[str, str]) -> None:
    """Raise Unavailable where CUDA may number cards differently from NVML: it puts unequal cards in the order of speed
    unless CUDA_DEVICE_ORDER says otherwise."""
    if environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return
    handles = [_mapped(nvml, nvml.nvmlDeviceGetHandleByIndex, i) for i in range(count)]
    names = {_text(_mapped(nvml, nvml.nvmlDeviceGetName, handle)) for handle in handles}
    if len(names) > 1:
        raise Unavailable(
            f"CUDA and NVML may number these devices differently ({', '.join(sorted(names))}): "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the device by its UUID"
        )


def _by_uuid(nvml: Any, uuid: str) -> tuple[Any, Any]:
    if uuid.startswith("MIG-"):
        part = _mapped(nvml, nvml.nvmlDeviceGetHandleByUUID, uuid)
        return part, _mapped(nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, part)
    wanted = uuid.removeprefix("GPU-").casefold()
    handles = [_mapped(nvml, nvml.nvmlDeviceGetHandleByIndex, i) for i in range(_mapped(nvml, nvml.nvmlDeviceGetCount))]
    uuids = [_text(_mapped(nvml, nvml.nvmlDeviceGetUUID, h)).removeprefix("GPU-").casefold() for h in handles]
    matching = [h for h, have in zip(handles, uuids, strict=True) if wanted and have.startswith(wanted)]
    if len(matching) != 1:
        raise Unavailable(f"expected one device of UUID {uuid}, found {len(matching)} among {len(handles)}")
    return matching[0], None


def _mapped(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call an NVML function; turn its errors into Unavailable, with their cause."""
    try:
        return function(*arguments)
    except nvml.NVMLError as fault:
        raise Unavailable(f"NVML: {getattr(function, '__name__', 'call')}: {fault}") from fault
