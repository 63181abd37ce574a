"""Checks the device: its other users, its clock, its energy, and the peaks that its cells are divided by.

These gates (checks before a run is published) find cells that a disturbed or wrongly described device measured. A cell
is one combination of workload, batch size and precision. Each gate takes the run's `Evidence` and yields `Finding`s by
cell; `GATES` lists the gates.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.devices import peaks, telemetry
from analysis.devices.precisions import UNITS
from analysis.utilization.utilization import limits_seen
from cleaning.gates.evidence import RUN, Evidence, Finding, Gate, faultless, finding
from results.records.cell import Run, Telemetry
from results.store.layout import key_of

SHARED = "shared_device"
"""Prefix of the warning in a cell whose GPU other processes used."""

BUSY_RATIO = 0.05
"""Share of all processors that other processes may take while blocks are timed."""

IDLE_RATIO = 0.3
"""Share of the device's highest clock; a mean clock below it is that of an idle device."""

FALLEN_RATIO = 0.9
"""Share of the device's highest clock; a mean clock below it needs a reason from the device."""

OVERCLOCKED = 1.01

ABOVE_LIMIT = 1.1
"""Largest plausible mean power ÷ the device's power limit; above it the energy counter or the window is wrong."""


def other_processes(evidence: Evidence) -> Iterator[Finding]:
    """Find other processes on the GPU, before a session's first cell and later, and on the host's processors."""
    used = {run.session for run in evidence.measured_cells}
    for session in (session for session in evidence.data.sessions if session.session in used):
        others = session.preflight.get("other_processes")
        if isinstance(others, int):
            text = f"{session.session}: {others} other process{'es' * (others != 1)} on the GPU"
            yield finding(RUN, others == 0, text)
    for run in evidence.measured_cells:
        yield from (Finding(run.cell_id, False, mark) for mark in run.warnings if mark.startswith(SHARED))
        share = run.others_cpu_ratio
        if share is None:
            yield Finding(run.cell_id, False, "it was not recorded whether others used the processors")
        else:
            yield finding(run.cell_id, share < BUSY_RATIO, f"others used {100 * share:.2g} % of the processors")


def clock(evidence: Evidence) -> Iterator[Finding]:
    """Check the mean SM clock of each cell's window: present, not idle, not above the highest. A low one has a reason,
    and each reason that lowered clocks is among the warnings of the cell's rows."""
    for run in evidence.measured_cells:
        window, highest = _window(run), _highest_hz(evidence, run)
        polls = evidence.data.by_cell(Telemetry).get(key_of(run), [])
        mean_hz = None if window is None else telemetry.mean_sm_clock_hz(polls, *window)
        if not run.device.startswith("cuda"):
            pass
        elif window is None or not polls:
            yield Finding(run.cell_id, False, "no telemetry in its window")
        elif mean_hz is None:
            yield Finding(run.cell_id, False, f"{len(polls)} polls do not cover its window")
        elif highest is not None:
            holds = mean_hz <= OVERCLOCKED * highest and (mean_hz >= IDLE_RATIO * highest or bool(run.host_bound))
            yield finding(run.cell_id, holds, f"mean clock {mean_hz / 1e6:.0f} MHz of at most {highest / 1e6:.0f}")
        else:
            yield Finding(run.cell_id, mean_hz > 0)
        shares = None if window is None else telemetry.event_shares(polls, *window)
        if shares is None:
            continue
        fractions, seen = evidence.fractions.get(key_of(run), ()), limits_seen(shares)
        marks = {mark for row in fractions if row.method != "one" for mark in row.warnings}
        faults = [f"not among its warnings: {mark}" for mark in seen if mark not in marks]
        if mean_hz and highest and mean_hz < FALLEN_RATIO * highest and not seen and not run.host_bound:
            faults.append(f"mean clock {mean_hz / 1e6:.0f} of {highest / 1e6:.0f} MHz, and no reason was given")
        yield faultless(run.cell_id, faults)


def energy(evidence: Evidence) -> Iterator[Finding]:
    """Check the counter's steps, polled power, and the power limit."""
    for run in evidence.measured_cells:
        window, polls = _window(run), evidence.data.by_cell(Telemetry).get(key_of(run), [])
        offered = any(poll.energy_j is not None or poll.power_w is not None for poll in polls)
        if window is None or not offered:
            continue
        counted = [(poll.time_s, poll.energy_j) for poll in polls if poll.energy_j is not None]
        faults = (telemetry.counter_fault(counted), *_energy_faults(evidence, run, polls, window))
        yield faultless(run.cell_id, tuple(filter(None, faults)))


def _energy_faults(
    evidence: Evidence, run: Run, polls: Sequence[Telemetry], window: tuple[float, float]
) -> Iterator[str]:
    again = telemetry.energy(polls, *window)
    if run.energy_j is None and again.joules is not None:
        yield f"no energy in its row, {again.joules:.4g} J by its polls"
    if "counter says" in again.reason:
        yield again.reason
    session = evidence.session(run)
    limit_w = session.preflight.get("power_limit_w") if session else None
    mean_w = run.energy_j / (window[1] - window[0]) if run.energy_j is not None else None
    if isinstance(limit_w, (int, float)) and mean_w is not None and mean_w > ABOVE_LIMIT * limit_w:
        yield f"a mean of {mean_w:.4g} W, the limit is {limit_w:.4g} W"


def _window(run: Run) -> tuple[float, float] | None:
    start_s, end_s = run.window_start_s, run.window_end_s
    return (start_s, end_s) if start_s is not None and end_s is not None and end_s > start_s else None


def _highest_hz(evidence: Evidence, run: Run) -> float | None:
    """Return the device's highest SM clock, as NVML reported it before the first cell, else as torch does."""
    session = evidence.session(run)
    if session is None:
        return None
    value = session.preflight.get("sm_clock_max_hz") or session.environment.get("clock_hz")
    return float(value) if isinstance(value, (int, float)) else None


PEAK_SLACK = 1.02
"""A datasheet's rounded figure ÷ (multiprocessors × rate × highest clock), at most."""

SAME = 1e-9
"""Relative difference up to which two derived numbers are the same."""


def peak(evidence: Evidence) -> Iterator[Finding]:
    """Compare each datasheet's or user's peak of a cell's rows with what the multiprocessors could do, and a
    datasheet's with today's table."""
    for run in evidence.measured_cells:
        for row in evidence.fractions.get(key_of(run), ()):
            if row.denominator in ("datasheet", "user") and row.peak_flop_per_s is not None:
                yield from _of_row(evidence, run, row.denominator, row.peak_flop_per_s)


def _of_row(evidence: Evidence, run: Run, denominator: str, value: float) -> Iterator[Finding]:
    session = evidence.session(run)
    environment, name = (session.environment, session.device_name) if session else ({}, "")
    count = environment.get("multiprocessors")
    if denominator == "datasheet":
        known = peaks.lookup(name, count if isinstance(count, int) else None)
        dense = {unit: known.peaks[unit] for unit in UNITS if unit in known.peaks} if known else {}
        limit = max([dense[unit] for unit in units_of(run) if unit in dense] or dense.values(), default=0.0)
        text = f"datasheet peak {value:.4g}, the table's dense one {limit:.4g} FLOP/s"
        yield Finding(run.cell_id, value <= limit * (1 + SAME), text)
    runs = [run] if denominator == "datasheet" else evidence.measured_cells  # the user's is one for all units
    bound = max(filter(None, (_bound(environment, name, cell) for cell in runs)), default=None)
    if bound is not None:
        text = f"{denominator} peak {value:.4g}, but {bound:.4g} FLOP/s at the highest clock: a sparse figure?"
        yield Finding(run.cell_id, value <= bound * PEAK_SLACK, text)


def units_of(run: Run) -> tuple[str, ...]:
    """Return the arithmetic units that a cell says its products ran on."""
    return tuple(dict.fromkeys(filter(None, (run.convolution_unit, run.matmul_unit))))


def _bound(environment: Mapping[str, Any], name: str, run: Run) -> float | None:
    """Return multiprocessors × rate × 2 × highest clock of the cell's fastest unit; None where the device lacks a
    figure."""
    capability, count, clock_hz = map(environment.get, ("compute_capability", "multiprocessors", "clock_hz"))
    if not (isinstance(capability, str) and isinstance(count, int) and isinstance(clock_hz, (int, float))):
        return None
    rates = peaks.derived_upper_bound(capability, count, float(clock_hz), "geforce" in name.casefold())
    known = [rates[unit] for unit in units_of(run) if unit in rates]
    return max(known, default=None)


GATES: tuple[Gate, ...] = (
    Gate(
        "alone",
        "no other process was on the GPU; others took less than 5 % of the processors",
        other_processes,
        "a count of other processes, or of their share of the processors",
    ),
    Gate(
        "clock",
        "SM clocks were polled throughout the window, are possible and not idle; what lowered them is in the warnings",
        clock,
        "telemetry of a GPU",
        ("committed",),
        on=("cuda",),
    ),
    Gate(
        "energy",
        "the energy counter moved, agrees with polled power, and stays within the power limit",
        energy,
        "an energy counter or polled power",
        ("committed",),
        on=("cuda",),
    ),
    Gate(
        "peak",
        "peaks are the table's dense ones, and no higher than multiprocessors × rate × highest clock",
        peak,
        "a datasheet's peak or the user's",
        ("one_machine",),
        on=("cuda",),
    ),
)
