"""Computes energy, mean clock and the reasons for reduced clocks in a window of time, from polls of the device.

The functions take rows of telemetry.csv, oldest first, and the window's start and end in seconds. Energy comes from the
device's own counter where it has one (millijoules since its driver was loaded, Volta and later). Otherwise it is the
integral of polled power; a power limit never replaces missing power. Not claimed: accuracy better than about 5 %. The
counter moves every 0.1 s or so, and power is an average of up to 1 s. A100 and H100 sample power during a quarter of
the time only (Yang et al., "Part-time Power Measurements", SC 2024, arXiv:2312.02741). On a MIG slice, counter and
power are those of the whole GPU.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from results.records.cell import Telemetry

SHORT_WINDOW_S = 5.0
"""In a shorter window, the counter's steps and the averaging of power are not negligible."""
LARGEST_GAP_S = 1.0
"""Polled power and clock may be missing for this long, or for a tenth of the window if that is more."""
EDGE_S = 0.5
"""A window may reach this far beyond the first or last reading. There, power is taken as constant, and the counter
continues at its mean rate."""
STALL_S = 1.0
"""An energy counter that shows the same value for this long while the device is on has stood still."""
DISAGREEMENT_RATIO = 0.2
"""If counter and integrated power differ by more, both are doubtful (each claims 5 %)."""

EVENT_REASONS = {
    "gpu_idle": "nothing to do",
    "applications_clocks_setting": "a clock that the user set",
    "sw_power_cap": "the power limit, held by the driver or the firmware",
    "hw_slowdown": "the hardware's own protection: heat, power or current",
    "sync_boost": "the clocks of several GPUs are held equal",
    "sw_thermal_slowdown": "heat, held by the driver",
    "hw_thermal_slowdown": "heat, held by the hardware",
    "hw_power_brake_slowdown": "a brake of the power supply",
    "display_clock_setting": "a clock that a display needs",
    "board_limit": "a limit of the board",
    "reliability": "the voltage at which the chip is reliable",
    "vr_thermal_slowdown": "heat of the voltage regulators",
    "memory_thermal_slowdown": "heat of the memory",
    "unspecified_slowdown": "the device says that clocks are held, not why",
}
"""Reason for a reduced clock → its meaning. The names are for all vendors, and NVML's where NVML has one. Adapters map
their reasons to these; an unknown reason keeps the vendor's name."""


class Energy(NamedTuple):
    """joules: None if unknown. method: counter, polled, or empty. reason: why it is unknown or doubtful."""

    joules: float | None
    method: str
    reason: str


Points = Sequence[tuple[float, float]]
"""(time_s, value) in order of time."""


def energy(readings: Sequence[Telemetry], start_s: float, end_s: float) -> Energy:
    """Return the energy between two host times, in J.

    It is the counter's difference, interpolated to the window. Where the counter is absent or faulty, it is the
    integral of polled power (trapezoids). The readings must enclose the window, except for 0.5 s at either end. Raises
    ValueError if the window is empty.
    """
    if not end_s > start_s:
        raise ValueError(f"expected a window that ends after it starts, got {start_s} to {end_s}")
    counter = [(r.time_s, r.energy_j) for r in readings if r.energy_j is not None]
    power = [(r.time_s, r.power_w) for r in readings if r.power_w is not None]
    joules, fault = _counter_energy(counter, start_s, end_s)
    missing = _uncovered(power, start_s, end_s, "power") if power else "no power reading"
    polled = None if missing else _integral(power, start_s, end_s)
    if joules is not None:
        return Energy(joules, "counter", _doubts(joules, polled, end_s - start_s))
    if polled is not None:
        return Energy(polled, "polled", _join(fault, _doubts(polled, None, end_s - start_s)))
    return Energy(None, "", _join(fault, missing))


def mean_sm_clock_hz(readings: Sequence[Telemetry], start_s: float, end_s: float) -> float | None:
    """Return the time-weighted mean SM clock over a window; None if readings do not enclose it or are missing for too
    long."""
    clock = [(r.time_s, float(r.sm_clock_hz)) for r in readings if r.sm_clock_hz is not None]
    if not end_s > start_s or _uncovered(clock, start_s, end_s, ""):
        return None
    return _integral(clock, start_s, end_s) / (end_s - start_s)


def event_shares(readings: Iterable[Telemetry], start_s: float, end_s: float) -> dict[str, float] | None:
    """Return event reason → share of the polls inside the window that show it; None if no poll there has reasons."""
    seen = [r.event_reasons for r in readings if start_s <= r.time_s <= end_s and r.event_reasons is not None]
    if not seen:
        return None
    names = sorted({name for reasons in seen for name in reasons})
    return {name: sum(name in reasons for reasons in seen) / len(seen) for name in names}


def _counter_energy(counter: Points, start_s: float, end_s: float) -> tuple[float | None, str]:
    if not counter:
        return None, "no energy counter"
    if fault := _not_enclosed(counter, start_s, end_s, "the energy counter"):
        return None, fault
    inside = _window(counter, start_s, end_s)
    stall_s = STALL_S if inside[0][1] != inside[-1][1] else 0.0
    if fault := counter_fault(inside, stall_s):
        return None, fault
    rate_w = (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
    line = _padded(inside, start_s, end_s, rate_w)
    return _interpolated(line, end_s) - _interpolated(line, start_s), ""


def _doubts(joules: float, polled: float | None, window_s: float) -> str:
    if window_s < SHORT_WINDOW_S:
        return f"window of {window_s:.2f} s is shorter than {SHORT_WINDOW_S:g} s"
    if polled is not None and abs(joules - polled) > DISAGREEMENT_RATIO * max(joules, polled):
        return f"counter says {joules:.4g} J, polled power {polled:.4g} J"
    return ""


def counter_fault(counter: Points, stall_s: float = STALL_S) -> str:
    """Return why an energy counter is wrong: it went backwards, or showed one value for too long; "" if it is not."""
    since_s, longest_s = (counter[0][0] if counter else 0.0), 0.0
    for (_, before), (time_s, after) in itertools.pairwise(counter):
        if after < before:
            return "the energy counter went backwards"
        since_s = time_s if after != before else since_s
        longest_s = max(longest_s, time_s - since_s)
    return f"the energy counter stood still for {longest_s:.1f} s" if longest_s and longest_s >= stall_s else ""


def _uncovered(points: Points, start_s: float, end_s: float, what: str) -> str:
    if fault := _not_enclosed(points, start_s, end_s, what):
        return fault
    times = [t for t, _ in _padded(_window(points, start_s, end_s), start_s, end_s)]
    gap_s = max(after - before for before, after in itertools.pairwise(times))
    allowed_s = max(LARGEST_GAP_S, (end_s - start_s) / 10)
    return f"{what} is missing for {gap_s:.1f} s" if gap_s > allowed_s else ""


def _not_enclosed(points: Points, start_s: float, end_s: float, what: str) -> str:
    if len(points) < 2 or points[0][0] > start_s + EDGE_S or points[-1][0] < end_s - EDGE_S:
        return f"readings of {what} do not enclose the window"
    return ""


def _window(points: Points, start_s: float, end_s: float) -> Points:
    """Return the points inside the window and the nearest one on either side; at least two."""
    first = max((i for i, (t, _) in enumerate(points) if t <= start_s), default=0)
    last = min((i for i, (t, _) in enumerate(points) if t >= end_s), default=len(points) - 1)
    return points[min(first, len(points) - 2) : max(last, first + 1) + 1]


def _padded(points: Points, start_s: float, end_s: float, rate: float = 0.0) -> Points:
    """Return the points continued to both ends of the window, at a constant rate."""
    (t0, v0), (t1, v1) = points[0], points[-1]
    before = [(start_s, v0 - rate * (t0 - start_s))] if t0 > start_s else []
    after = [(end_s, v1 + rate * (end_s - t1))] if t1 < end_s else []
    return [*before, *points, *after]


def _interpolated(points: Points, time_s: float) -> float:
    """Return the linear interpolation at `time_s`, which lies within."""
    for (t0, v0), (t1, v1) in itertools.pairwise(points):
        if t0 <= time_s <= t1:
            return v0 if t1 == t0 else v0 + (v1 - v0) * (time_s - t0) / (t1 - t0)
    return points[-1][1]


def _integral(points: Points, start_s: float, end_s: float) -> float:
    """Return the trapezoid of the straight lines between points, from start to end."""
    known = _padded(points, start_s, end_s)
    inside = [(t, v) for t, v in known if start_s < t < end_s]
    line = [(start_s, _interpolated(known, start_s)), *inside, (end_s, _interpolated(known, end_s))]
    return sum((t1 - t0) * (v0 + v1) / 2 for (t0, v0), (t1, v1) in itertools.pairwise(line))


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
