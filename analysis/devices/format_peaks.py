"""Looks up a device's datasheet peak in a number format, the reason for a missing peak, and the peak of mixed formats.

`peak` returns a `Peak`, `peak_refusal` the reason why there is none, and `mixed_peak` a `MixedPeak`. All take a device
as its driver prints it or as a user types it. A format is given by its own name ("bf16") or as torch's dtype. The peaks
are those of `peaks.py`; nothing is guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.devices.peaks import OTHER_MAKERS, SMALL_UNITS, Device, device_called, lookup, name_refusal
from analysis.devices.precisions import UNITS

FORMATS = (*UNITS, *SMALL_UNITS)
"""Formats whose peak `peak` can return."""

_UNIT_OF = {
    "float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "half": "fp16", "tfloat32": "tf32",
    "float4_e2m1fn_x2": "fp4", "nvfp4": "fp4", "mxfp4": "fp4", "mxfp6": "fp6",
}  # fmt: skip


@dataclass(frozen=True)
class Peak:
    """A datasheet peak. flop_per_s: FLOP/s (int8: operations/s), on tensor units with fp32 accumulation.

    verification: "retrieved" (read in the source), "derived" (units × rate × clock) or "memory" (recalled, not looked
    up).
    """

    device_name: str
    unit: str
    flop_per_s: float
    sparsity: bool
    source: str
    verification: str


@dataclass(frozen=True)
class MixedPeak:
    """The peak of a step whose products run in several formats: flop_per_s = Σ FLOP ÷ Σ (FLOP ÷ peak of the format).

    single: the peak of the format with most FLOP, by which a table with one format divides. by_unit: unit → peak of
    each format. Utilization 1 means that each part ran at its own peak.
    """

    device_name: str
    flop_per_s: float
    single: Peak
    by_unit: Mapping[str, Peak]


def peak(device_name: str, dtype: str = "fp32", sparsity: bool = False) -> Peak | None:
    """Return the dense peak of a device by the name that its driver prints; None where no maker's figure is known.

    dtype: a format (fp64, fp32, tf32, fp16, bf16, fp8, int8, mxfp8, fp6, fp4, nvfp4, mxfp4), or torch's name or dtype
    ("torch.bfloat16"). sparsity: the figure with 2:4 structured sparsity, where the maker states one; training does not
    use it. `peak_refusal` gives the reason for None. Raises ValueError for a dtype without a format and for a device
    that is not in the table, with the nearest names.

    >>> import flopledger
    >>> flopledger.peak("NVIDIA A100-SXM4-80GB", "bf16").flop_per_s / 1e12
    312.0
    """
    unit = _unit(dtype)
    device = _named(device_name)
    if device is None or _reason(device, unit, str(dtype), sparsity):
        return None
    figure = device.sparse[unit] if sparsity else device.peaks[unit]
    return Peak(device.name, unit, figure, sparsity, device.source, device.verified.get(unit, device.verification))


def peak_refusal(device_name: str, dtype: str = "fp32", sparsity: bool = False) -> str | None:
    """Return why `peak` of the same arguments is None, in one sentence; None where it has a figure. Raises as `peak`
    does.

    >>> import flopledger
    >>> flopledger.peak_refusal("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16")
    'a laptop GPU: its maker leaves clock and power to the laptop, so that one name has many peaks'
    """
    unit = _unit(dtype)
    device = _named(device_name)
    return name_refusal(device_name) if device is None else _reason(device, unit, str(dtype), sparsity)


def mixed_peak(device_name: str, flop_by_dtype: Mapping[str, float]) -> MixedPeak | None:
    """Return the peak of a step with products in several formats; None where one of the formats has no peak.

    flop_by_dtype: dtype as `peak` takes it → FLOP of the step's products in it. A format with 0 FLOP is left out.
    Raises as `peak` does, and ValueError for FLOP that are negative or infinite, or all 0.

    >>> import flopledger
    >>> mixed = flopledger.mixed_peak("NVIDIA H100 80GB HBM3", {"fp8": 3e15, "bf16": 1e15})
    >>> round(mixed.flop_per_s / 1e12), round(mixed.single.flop_per_s / 1e12)
    (1583, 1979)
    """
    flop_of = {dtype: float(flop) for dtype, flop in flop_by_dtype.items() if flop}
    if not flop_of or not all(0 < flop < float("inf") for flop in flop_of.values()):
        raise ValueError(f"expected FLOP above 0 by dtype, got {dict(flop_by_dtype)!r}")
    figures = {dtype: peak(device_name, dtype) for dtype in flop_of}
    known = {dtype: figure for dtype, figure in figures.items() if figure is not None}
    if len(known) < len(figures):
        return None
    seconds = sum(flop / known[dtype].flop_per_s for dtype, flop in flop_of.items())
    most = known[max(flop_of, key=lambda dtype: flop_of[dtype])]
    by_unit = {figure.unit: figure for figure in known.values()}
    return MixedPeak(most.device_name, sum(flop_of.values()) / seconds, most, by_unit)


def _unit(dtype: str) -> str:
    name = str(dtype).removeprefix("torch.")
    unit = _UNIT_OF.get(name, "fp8" if name.startswith("float8") else name)
    if unit not in FORMATS:
        raise ValueError(f"expected one of {', '.join(FORMATS)} or torch's name of one as dtype, got {dtype!r}")
    return unit


def _named(name: str) -> Device | None:
    """Return the row of a name; None for a name that is known to have no peak. Raises ValueError for unknown names."""
    return lookup(name) if name_refusal(name) is not None else device_called(name)


def _reason(device: Device, unit: str, dtype: str, sparsity: bool) -> str | None:
    if dtype == "nvfp4" and device.name.startswith(OTHER_MAKERS):
        return "nvfp4 is a format of NVIDIA's"
    if unit not in (device.sparse if sparsity else device.peaks) and unit not in device.peaks:
        return device.refused.get(unit) or f"the source states no {unit} figure: {device.source}"
    if sparsity and unit not in device.sparse:
        return f"the source states no {unit} figure with sparsity: {device.source}"
    return None
