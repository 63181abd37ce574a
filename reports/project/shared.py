"""What the answers of `runners.project` share: a device with the utilization of it, numbers with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.stats.intervals import Uncertain
from reports.shared.numbers import digits

CONVENTION = (
    "model FLOP: a multiply-add is 2; convolutions and matrix products of forward and backward, nothing recomputed"
)


@dataclass(frozen=True)
class ReachedUtilization:
    """A device and what of its peak a training reaches."""

    device: str
    precision: str
    unit: str
    peak_flop_per_s: float
    peak_source: str
    utilization: Uncertain


def quantity(value: float, unit: str = "") -> str:
    """Three significant digits: "6.78e19 FLOP", "1,234 kWh", "0.201"."""
    small = f"{value:.2e}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{small} {unit}".rstrip()
    whole, dot, rest = digits(value).partition(".")
    return f"{int(whole):,}{dot}{rest} {unit}".rstrip()


def ends(low: float, high: float) -> str:
    """An interval."""
    return "exact" if low == high else f"{quantity(low)} to {quantity(high)}"


def reached_document(reached: ReachedUtilization, confidence: float) -> dict[str, Any]:
    """Device, peak and utilization as JSON has them."""
    low, high = reached.utilization.interval(confidence)
    ratio = {"ratio": reached.utilization.median, "low_ratio": low, "high_ratio": high}
    return {
        "device": reached.device,
        "precision": reached.precision,
        "unit": reached.unit,
        "peak_flop_per_s": reached.peak_flop_per_s,
        "peak_source": reached.peak_source,
        "utilization": {**ratio, "scale": reached.utilization.scale},
        "flop_convention": CONVENTION,
    }
