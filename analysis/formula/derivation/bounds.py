"""The least time of a formula's work on a device, as a formula, and the device's ridge point.

time = max(FLOP ÷ (peak × share reached), bytes ÷ (bandwidth × share reached)): arithmetic and memory overlap perfectly.
Not claimed: that a device reaches it; launches, communication and waiting are left out. Rates are taken for exactly
what the floats hold, so that a request about time is solved as exactly as any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import sympy

from analysis.devices import peaks
from analysis.formula.algebra.expressions import Expr, rational, unknown_name


@dataclass(frozen=True)
class Rates:
    """FLOP/s and bytes/s of a device, with where they come from."""

    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    source: str

    @property
    def ridge(self) -> Fraction:
        """FLOP per byte at which arithmetic and memory take as long."""
        return Fraction(self.peak_flop_per_s) / Fraction(self.bandwidth_bytes_per_s)


def time_bound(
    flop: Expr,
    nbytes: Expr,
    peak_flop_per_s: float,
    bandwidth_bytes_per_s: float,
    reached_flop: float = 1.0,
    reached_bytes: float = 1.0,
) -> Expr:
    """The least time in seconds, as a maximum of two formulas.

    reached_flop, reached_bytes: the share of peak and of bandwidth that is reached, above 0 up to 1. Raises ValueError
    for rates that are not positive and for shares that are not.
    """
    for name, rate in (("peak", peak_flop_per_s), ("bandwidth", bandwidth_bytes_per_s)):
        if not 0 < rate < float("inf"):
            raise ValueError(f"expected a {name} above 0 per second, got {rate}")
    for name, share in (("peak", reached_flop), ("bandwidth", reached_bytes)):
        if not 0 < share <= 1:
            raise ValueError(f"expected a share of the {name} above 0 and up to 1, got {share}")
    arithmetic = sympy.sympify(flop) / rational(Fraction(peak_flop_per_s) * Fraction(reached_flop))
    memory = sympy.sympify(nbytes) / rational(Fraction(bandwidth_bytes_per_s) * Fraction(reached_bytes))
    return sympy.Max(arithmetic, memory, evaluate=False)  # comparing the formulas of a model takes minutes


def rates(device_name: str, unit: str) -> Rates:
    """Datasheet rates of a device by the name its driver prints. unit: "fp32", "bf16", … (analysis.devices.precisions).

    Raises ValueError for a device or a unit without figures, naming the nearest.
    """
    device = peaks.device_called(device_name)
    if unit not in device.peaks:
        raise ValueError(f"{device.name}: {unknown_name('unit', unit, device.peaks)}")
    if device.bandwidth_bytes_per_s is None:
        raise ValueError(f"{device.name}: its sheet prints no bandwidth")
    return Rates(device.peaks[unit], device.bandwidth_bytes_per_s, device.source)
