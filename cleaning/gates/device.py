"""Gates of the device and of what is kept of it: committed rows, one machine, no stand-in, dense peaks, its self-test,
the precision it computed in, its other users, clock and energy.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.devices import peaks, telemetry
from analysis.devices.peaks import is_stand_in
from analysis.devices.precisions import PRECISIONS, UNITS, disagreements, unit_of
from analysis.utilization.utilization import limits_seen
from cleaning.gates.evidence import RUN, SELF_TEST_FILE, Evidence, Finding, faultless, finding, self_test_faults
from results.records.cell import Run, Telemetry
from results.store.layout import key_of
from results.store.manifest import DIRTY, differing

SHARED = "shared_device"
"""How a cell's warning begins that others came to its GPU."""

BUSY_RATIO = 0.05
"""Share of all processors that others may take while blocks are timed."""

IDLE_RATIO = 0.3
"""A mean clock below this share of the device's highest is that of an idle device."""

FALLEN_RATIO = 0.9
"""A mean clock below this share of the highest needs a reason that the device gave."""

OVERCLOCKED = 1.01

ABOVE_LIMIT = 1.1
"""Mean power of a window ÷ the device's limit: beyond this the counter or the window is wrong."""

_DTYPES = {"fp32": "float32", "tf32": "float32", "amp-bf16": "bfloat16", "amp-fp16": "float16"}


def hardware(evidence: Evidence) -> Iterator[Finding]:
    """Each session's device: none that stands in for another, by its name, its own word or its ceilings' name."""
    for session in evidence.data.sessions:
        names = {session.device_name, str(session.environment.get("name") or "")}
        names |= {row.device_name for row in evidence.data.ceilings if row.session == session.session}
        marked = sorted(filter(is_stand_in, names)) or (["stand_in"] if session.environment.get("stand_in") else [])
        words = f"{session.session}: measured on a stand-in, which is no hardware ({', '.join(marked)})"
        yield finding(RUN, not marked, words)


def self_test(evidence: Evidence) -> Iterator[Finding]:
    """The run's self-test: passed, with every check that a GPU can answer, on the device and by the software of it."""
    used = {run.session for run in evidence.data.runs}
    sessions = (session for session in evidence.data.sessions if session.session in used)
    homes = [session for session in sessions if session.device.startswith("cuda")]
    test = evidence.self_test
    if not homes or test is None:
        return
    if isinstance(test, str):
        words = [test]
    else:
        own = {"device": test.device, "driver": test.driver, "torch": test.torch_version}
        own["harness_version"] = test.harness_version
        runs = [
            (session.device_name, session.driver, session.torch_version, session.environment.get("harness_version"))
            for session in homes
        ]
        pairs = zip(own.items(), zip(*runs, strict=True), strict=True)
        elsewhere = [f"of {name} {text!r}, the run of {of[0]!r}" for (name, text), of in pairs if text not in of]
        words = [*self_test_faults(test), *elsewhere]
    yield finding(RUN, not words, f"{SELF_TEST_FILE}: {'; '.join(words)}")


def precision(evidence: Evidence) -> Iterator[Finding]:
    """Flags and units of each cell, and the dtypes of its real step, against its precision's policy."""
    yield from _flags(evidence)
    yield from _dtypes(evidence)


def _flags(evidence: Evidence) -> Iterator[Finding]:
    """Flags before and after each cell against its precision's policy, and the units that the row names."""
    for run in evidence.measured_cells:
        policy = PRECISIONS.get(run.precision)
        if policy is None or not (run.flags_before or run.flags_after):
            continue
        wrong = [
            f"{when} it {disagreement}"
            for when, flags in (("before", run.flags_before), ("after", run.flags_after))
            for disagreement in disagreements(flags, policy, run.device, run.cudnn_benchmark, run.deterministic)
        ]
        named = unit_of(policy.autocast or "float32", policy, run.device)
        wrong += [
            f"{what} unit {unit}, of {run.precision} it is {named}"
            for what, unit in (("convolution", run.convolution_unit), ("matmul", run.matmul_unit))
            if unit != named
        ]
        if not (run.flags_before and run.flags_after):
            wrong.append("flags were read once")
        elif run.flags_before != run.flags_after:
            flags = {**run.flags_before, **run.flags_after}
            pairs = [(name, run.flags_before.get(name), run.flags_after.get(name)) for name in flags]
            wrong += [f"{name} was {a} before and {b} after" for name, a, b in pairs if a != b]
        yield faultless(run.cell_id, wrong)


def _dtypes(evidence: Evidence) -> Iterator[Finding]:
    """Model FLOP of the real step by dtype: of float32 policies all, of autocast most of it."""
    for run in evidence.measured_cells:
        wanted, total = _DTYPES.get(run.precision), sum(run.executed.values())
        if wanted is None or not total:
            continue
        share = sum(flop for name, flop in run.executed.items() if name.partition("/")[2] == wanted) / total
        least = 1.0 if wanted == "float32" else 0.5
        yield finding(run.cell_id, share >= least, f"{100 * share:.3g} % of model FLOP in {wanted}")


def other_processes(evidence: Evidence) -> Iterator[Finding]:
    """Other processes on the GPU before the first cell of a session and since, and on the host's processors."""
    used = {run.session for run in evidence.measured_cells}
    for session in (session for session in evidence.data.sessions if session.session in used):
        others = session.preflight.get("other_processes")
        if isinstance(others, int):
            words = f"{session.session}: {others} other process{'es' * (others != 1)} on the GPU"
            yield finding(RUN, others == 0, words)
    for run in evidence.measured_cells:
        yield from (Finding(run.cell_id, False, mark) for mark in run.warnings if mark.startswith(SHARED))
        share = run.others_cpu_ratio
        if share is None:
            yield Finding(run.cell_id, False, "it was not recorded whether others used the processors")
        else:
            yield finding(run.cell_id, share < BUSY_RATIO, f"others used {100 * share:.2g} % of the processors")


def clock(evidence: Evidence) -> Iterator[Finding]:
    """The mean SM clock of each cell's window: there, not an idle one, not above the highest. A low one has a reason,
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
        words = [f"not among its warnings: {mark}" for mark in seen if mark not in marks]
        if mean_hz and highest and mean_hz < FALLEN_RATIO * highest and not seen and not run.host_bound:
            words.append(f"mean clock {mean_hz / 1e6:.0f} of {highest / 1e6:.0f} MHz, and no reason was given")
        yield faultless(run.cell_id, words)


def energy(evidence: Evidence) -> Iterator[Finding]:
    """The counter's steps, polled power, and the power limit."""
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
    """The device's highest SM clock, as NVML reported it before the first cell, else as torch does."""
    session = evidence.session(run)
    if session is None:
        return None
    value = session.preflight.get("sm_clock_max_hz") or session.environment.get("clock_hz")
    return float(value) if isinstance(value, (int, float)) else None


PEAK_SLACK = 1.02
"""A datasheet rounds: its figure may lie this much above multiprocessors × rate × highest clock."""

SAME = 1e-9
"""Relative difference of two derived numbers that are the same."""


def committed(evidence: Evidence) -> Iterator[Finding]:
    """What the reader left out, could not match with a checksum, or could not read as values of their columns."""
    data = evidence.data
    ids = {run.cell_id for run in data.all_runs}
    for problem in data.problems:
        named = next((cell_id for cell_id in sorted(ids) if cell_id in problem), RUN)
        yield Finding(named, False, problem)
    for run in evidence.measured_cells:
        yield Finding(run.cell_id, True)
    for trace_id, facts in evidence.facts.items():
        for run in (run for run in data.runs if run.trace_id == trace_id and facts.fault):
            yield Finding(run.cell_id, False, facts.fault)


def one_machine(evidence: Evidence) -> Iterator[Finding]:
    """Sessions that could not have been collected into one run, and code that nobody can look up."""
    used = {run.session for run in evidence.data.runs}
    sessions = [session for session in evidence.data.sessions if session.session in used]
    for first, second in itertools.pairwise(sessions):
        words = ", ".join(f"{name} ({a!r}, {b!r})" for name, a, b in differing(first, second))
        yield finding(RUN, not words, f"{first.session} and {second.session} differ in {words}")
    for session in sessions:
        version = str(session.environment.get("harness_version") or evidence.data.manifest.harness_version or "")
        known = "+g" in version or not session.device.startswith("cuda")
        words = f"{session.session} was measured by {version or 'unknown code'}"
        yield Finding(RUN, known and not version.endswith(DIRTY), words if known else f"{words}, of no known commit")


def peak(evidence: Evidence) -> Iterator[Finding]:
    """Each peak that was divided by, against the table of today and against what the multiprocessors could do."""
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
        words = f"datasheet peak {value:.4g}, the table's dense one {limit:.4g} FLOP/s"
        yield Finding(run.cell_id, value <= limit * (1 + SAME), words)
    runs = [run] if denominator == "datasheet" else evidence.measured_cells  # the user's is one for all units
    bound = max(filter(None, (_bound(environment, name, cell) for cell in runs)), default=None)
    if bound is not None:
        words = f"{denominator} peak {value:.4g}, but {bound:.4g} FLOP/s at the highest clock: a sparse figure?"
        yield Finding(run.cell_id, value <= bound * PEAK_SLACK, words)


def units_of(run: Run) -> tuple[str, ...]:
    """The arithmetic units that a cell says its products ran on."""
    return tuple(dict.fromkeys(filter(None, (run.convolution_unit, run.matmul_unit))))


def _bound(environment: Mapping[str, Any], name: str, run: Run) -> float | None:
    """Multiprocessors × rate × 2 × highest clock of the fastest unit of the cell; None where the device says too
    little."""
    capability, count, clock_hz = map(environment.get, ("compute_capability", "multiprocessors", "clock_hz"))
    if not (isinstance(capability, str) and isinstance(count, int) and isinstance(clock_hz, (int, float))):
        return None
    rates = peaks.derived_upper_bound(capability, count, float(clock_hz), "geforce" in name.casefold())
    known = [rates[unit] for unit in units_of(run) if unit in rates]
    return max(known, default=None)
