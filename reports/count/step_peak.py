"""What the products of a step are divided by on a device: the peak of their formats together, and that of one format.

Σ FLOP ÷ Σ (FLOP ÷ peak of the format) is what they reach where each runs at its own peak; a table with one format for a
device divides by the peak of the format with most FLOP instead. Not claimed: which unit of the device runs a product of
float32 (here: float32, not TF32).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.devices.device_peak import MixedPeak, mixed_peak, peak_refusal
from reports.shared.numbers import digits, si


@dataclass(frozen=True)
class StepPeak:
    """device: its name, as it was asked for. flop_by_dtype: of the forward and backward pass's products. peak: None
    where a format has none on the device, or there is no product; reason: why."""

    device: str
    flop_by_dtype: Mapping[str, int]
    peak: MixedPeak | None = None
    reason: str = ""


def peak_of_step(device: str, flop_by_dtype: Mapping[str, int], is_whole: bool = True) -> StepPeak:
    """flop_by_dtype: torch's name → FLOP. is_whole: whether each call has a count."""
    work = {dtype: flop for dtype, flop in sorted(flop_by_dtype.items(), key=lambda item: -item[1]) if flop}
    if not work or not is_whole:
        return StepPeak(device, work, reason="a call has no count" if not is_whole else "the step has no product")
    whys = [why for dtype in work if (why := _refusal(device, dtype))]
    return StepPeak(device, work, None if whys else mixed_peak(device, work), whys[0] if whys else "")


def _refusal(device: str, dtype: str) -> str | None:
    try:
        return peak_refusal(device, dtype)
    except ValueError as fault:
        return str(fault)


def to_line(found: StepPeak) -> str:
    """Both peaks in one line."""
    if found.peak is None:
        return f"peak: none of {found.device} for this step: {found.reason}"
    whole, units = sum(found.flop_by_dtype.values()), found.peak.by_unit
    single = found.peak.single
    of_one = f"{si(single.flop_per_s, 'FLOP/s')} of {single.unit}"
    if len(units) == 1:
        return f"peak: {of_one} on {found.peak.device_name}"
    shares = ", ".join(f"{digits(100 * flop / whole)} % {dtype}" for dtype, flop in found.flop_by_dtype.items())
    together = f"{si(found.peak.flop_per_s, 'FLOP/s')} of its formats together ({shares})"
    return f"peak: {together}, {of_one} alone, on {found.peak.device_name}"


def document(found: StepPeak) -> dict[str, Any]:
    """As JSON: both peaks by name, null where there is none."""
    peak = found.peak
    units = {} if peak is None else peak.by_unit
    return {
        "device": found.device,
        "flop_by_dtype": dict(found.flop_by_dtype),
        "operation_weighted_flop_per_s": None if peak is None else peak.flop_per_s,
        "single_format": None if peak is None else peak.single.unit,
        "single_format_flop_per_s": None if peak is None else peak.single.flop_per_s,
        "by_format": {
            unit: {"flop_per_s": each.flop_per_s, "source": each.source, "verification": each.verification}
            for unit, each in units.items()
        },
        "reason": found.reason or None,
    }
