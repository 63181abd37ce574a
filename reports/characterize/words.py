"""How the numbers of a characterization look in its text."""

from __future__ import annotations

from reports.shared.numbers import DASH, digits, percent, si, si_time


def whole(ratio: float) -> str:
    """Per cent as the paper has them, without a sign: 0.4 is "<1"."""
    return "" if ratio == 0 else "<1" if ratio < 0.01 else f"{100 * ratio:.0f}"


def ratio(value: float | None) -> str:
    return DASH if value is None else percent(value)


def in_range(low: float | None, high: float | None, signed: bool = False) -> str:
    if low is None or high is None:
        return DASH
    if signed:
        return f"{100 * low:+.0f} to {100 * high:+.0f} %"
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def times(ratio: float | None) -> str:
    return DASH if ratio is None else digits(ratio, 2)


def at_least_time(time_s: float | None, at_least_s: float | None) -> str:
    """A time; where only a part of it is known, that it is at least so much."""
    if time_s is not None:
        return si_time(time_s)
    return f"≥ {si_time(at_least_s)}" if at_least_s else DASH


def joules(energy_j: float | None) -> str:
    return DASH if energy_j is None else si(energy_j, "J")
