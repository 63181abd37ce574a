"""Gates of what a cell's row says of its own polls, profile, table and memory: the same arithmetic, done again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from statistics import median

from analysis.devices import telemetry
from analysis.utilization import whole_steps, works_of
from cleaning.facts import (
    HOST_BOUND_RATIO,
    kind_of,
)
from cleaning.gates.blocks import SAME, TIMED, device_s
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import Finding
from cleaning.gates.model import FLOAT_BYTES
from results.records import LOOP, MEASURED, Run, Sample, Telemetry
from results.store import key_of

FALLEN = 0.85
"""A clock in one half of a window below this share of the other half has fallen."""

FELT = 1 / 3
"""Least share of a fall of the clock that a step's time must show, where the device is what it waits for."""


def summary(evidence: Evidence) -> Iterator[Finding]:
    """The window, the warm-up, the wait and the memory of each row, worked out again from its blocks and polls."""
    for run in evidence.measured_cells:
        words = "; ".join(_summary(evidence, run))
        yield Finding(run.cell_id, not words, words)


def _summary(evidence: Evidence, run: Run) -> Iterator[str]:
    rows = evidence.samples.get(key_of(run), ())
    whole = whole_steps(rows)
    if whole:
        end_s = whole[-1].start_s + whole[-1].wall_s
        waits = [row.sync_wait_s for row in whole if row.sync_wait_s is not None]
        step_s = sum(device_s(row) for row in whole) / sum(row.steps for row in whole)
        ratio = median(waits) / step_s if waits and step_s else None
        warm = [row for row in rows if row.part == "warmup" and not row.work]
        yield from _differ("window_start_s", run.window_start_s, whole[0].start_s)
        yield from _differ("window_end_s", run.window_end_s, end_s)
        yield from _differ("sync_wait_ratio", run.sync_wait_ratio, ratio)
        if warm or run.warmup_steps is not None:
            yield from _differ("warmup_steps", run.warmup_steps, sum(row.steps for row in warm))
            yield from _differ("warmup_s", run.warmup_s, sum(row.wall_s for row in warm))
        bound = None if ratio is None else ratio <= HOST_BOUND_RATIO
        if run.host_bound is not bound:
            yield f"host_bound is {run.host_bound}, by its blocks {bound}"
        spent_s = sum(row.wall_s for row in rows if row.part in TIMED and not row.phase)
        if run.duration_s is not None and run.duration_s < spent_s * (1 - SAME):
            yield f"it took {run.duration_s:.4g} s, its blocks {spent_s:.4g} s"
    yield from _memory(evidence, run)


def _differ(name: str, own: float | None, again: float | None) -> Iterator[str]:
    if (own is None) != (again is None):
        yield f"{name} is {own}, by its blocks {again}"
    elif own is not None and again is not None and not math.isclose(own, again, rel_tol=SAME, abs_tol=1e-9):
        yield f"{name} is {own:.9g}, by its blocks {again:.9g}"


def _memory(evidence: Evidence, run: Run) -> Iterator[str]:
    """Weights ≤ peak ≤ reserved ≤ used on the device, of its rows; of a CPU nothing is kept."""
    peak, reserved = run.peak_memory_bytes, run.reserved_memory_bytes
    if kind_of(run) == "cuda" and (peak is None or reserved is None):
        yield "no memory of a GPU"
        return
    if peak is None or reserved is None:
        if peak is not None or reserved is not None:
            yield "half of its memory"
        return
    used = [poll.memory_used_bytes for poll in evidence.telemetry.get(key_of(run), ()) if poll.memory_used_bytes]
    if peak > reserved:
        yield f"a peak of {peak} bytes in {reserved} reserved ones"
    if run.parameters is not None and peak < FLOAT_BYTES * run.parameters:
        yield f"a peak of {peak} bytes, its weights have {FLOAT_BYTES * run.parameters}"
    if used and reserved > max(used):
        yield f"{reserved} bytes reserved, {max(used)} were in use on the device"


def profile(evidence: Evidence) -> Iterator[Finding]:
    """A cell's profile: of the works that its row names, each asked for, whose calls lie in each other."""
    for run in evidence.measured_cells:
        asked = [work for work in works_of(run) if work != "epoch"]
        if not asked:
            if run.profiled or run.unprofiled:
                yield Finding(
                    run.cell_id, False, f"profiled {', '.join((*run.profiled, *run.unprofiled))}, not asked for"
                )
            continue
        facts = evidence.profiles.get(key_of(run))
        works = set(facts.works) if facts is not None else set()
        words = list(facts.contradictions[:3]) if facts is not None else []
        timed = {row.work or "batch" for row in evidence.samples.get(key_of(run), ()) if row.part == "profiled"}
        if timed - works:
            words.append(f"steps of {', '.join(sorted(timed - works))} were timed under a profiler, and not recorded")
        if works - timed:
            words.append(f"no profiled step of {', '.join(sorted(works - timed))}")
        if works != set(run.profiled):
            words.append(f"its row says {', '.join(run.profiled) or 'nothing'}, its profile {', '.join(sorted(works))}")
        table = evidence.facts.get(run.trace_id)
        computed = {name.partition("/")[2] for name in table.executed} if table is not None else set()
        if facts is not None and computed and (strange := sorted(facts.dtypes - computed)):
            words.append(f"products in {', '.join(strange)}, in its operation table {', '.join(sorted(computed))}")
        words += [
            f"{work} has neither a profile nor a reason"
            for work in asked
            if not (work in works or any(name.endswith(work) for name in run.unprofiled))
        ]
        yield Finding(run.cell_id, not words, "; ".join(words))


def table(evidence: Evidence) -> Iterator[Finding]:
    """An operation table's rows, links and storages against each other."""
    for run in evidence.data.runs:
        facts = evidence.facts.get(run.trace_id)
        if facts is None and "exact" in run.methods and run.status in MEASURED and run.data != LOOP:
            yield Finding(run.cell_id, False, f"no operation table {run.trace_id}".rstrip())
        elif facts is not None and not facts.fault:
            words = "; ".join(facts.contradictions[:3])
            yield Finding(run.cell_id, not words, words)


def polls(evidence: Evidence) -> Iterator[Finding]:
    """Polls in the order of time, at one memory clock, and a clock whose fall the steps felt."""
    for run in evidence.measured_cells:
        rows = evidence.telemetry.get(key_of(run), ())
        if rows:
            words = "; ".join(_polls(evidence, run, rows))
            yield Finding(run.cell_id, not words, words)


def _polls(evidence: Evidence, run: Run, rows: Sequence[Telemetry]) -> Iterator[str]:
    times = [row.time_s for row in rows]
    if any(after <= before for before, after in itertools.pairwise(times)):
        yield "its polls are not in the order of time"
        return
    gaps = [after - before for before, after in itertools.pairwise(times)]
    if gaps and max(gaps) > LARGEST_GAP * median(gaps):
        yield f"no poll for {max(gaps):.3g} s, the median gap is {median(gaps):.3g} s"
    yield from _columns(evidence, run, rows)
    for name in ("sm_clock_hz", "power_w", "energy_j", "memory_clock_hz", "temperature_c", "memory_used_bytes"):
        lacking = sum(getattr(row, name) is None for row in rows)
        if 0 < lacking < len(rows):
            yield f"{lacking} of {len(rows)} polls have no {name}"
    for name, factor in JUMPS.items():
        values = [value for row in rows if (value := getattr(row, name)) is not None]
        if values and max(values) > factor * max(min(values), 1e-9):
            yield f"{name} from {min(values)} to {max(values)}"
    yield from _halves(run, rows, whole_steps(evidence.samples.get(key_of(run), ())))


def _columns(evidence: Evidence, run: Run, rows: Sequence[Telemetry]) -> Iterator[str]:
    """What a GPU offers is there; no clock beyond the highest, no temperature that no chip has, no idle device."""
    sitting = evidence.sitting(run)
    preflight = sitting.preflight if sitting is not None else {}
    for name in OFFERED:
        if all(getattr(row, name) is None for row in rows) and name not in (preflight.get("absent") or {}):
            yield f"no {name} in any poll, and nothing says why"
    highest_hz = preflight.get("sm_clock_max_hz")
    clocks = [row.sm_clock_hz for row in rows if row.sm_clock_hz is not None]
    if isinstance(highest_hz, (int, float)) and clocks and max(clocks) > 1.01 * highest_hz:
        yield f"a poll at {max(clocks) / 1e6:.0f} MHz of at most {highest_hz / 1e6:.0f}"
    warm = [row.temperature_c for row in rows if row.temperature_c is not None]
    if warm and not (TEMPERATURES_C[0] <= min(warm) and max(warm) <= TEMPERATURES_C[1]):
        yield f"{min(warm):g} to {max(warm):g} °C"
    idle = sum("gpu_idle" in (row.event_reasons or ()) for row in rows)
    if idle > len(rows) / 2 and not run.host_bound:
        yield f"the device was idle in {idle} of {len(rows)} polls"


OFFERED = (
    "sm_clock_hz",
    "memory_clock_hz",
    "power_w",
    "energy_j",
    "temperature_c",
    "event_reasons",
    "memory_used_bytes",
)
"""Columns of telemetry.csv that a GPU fills, or `preflight` says why not."""

TEMPERATURES_C = (5.0, 110.0)
"""Between a cold room and where every GPU has switched off."""

LARGEST_GAP = 10.0
"""Longest time without a poll, in median gaps."""

JUMPS = {"memory_clock_hz": 1.5, "temperature_c": 1.9, "memory_used_bytes": 1.9}
"""Column → largest ÷ smallest value within one window, of a device that works all the time."""


def _halves(run: Run, rows: Sequence[Telemetry], timed: Sequence[Sample]) -> Iterator[str]:
    """A clock that falls in one half of the window makes its steps slower, unless they wait for the host."""
    start_s, end_s = run.window_start_s, run.window_end_s
    if run.host_bound or start_s is None or end_s is None or not end_s > start_s:
        return
    for share in (1 / 4, 1 / 2, 3 / 4):
        middle_s = start_s + share * (end_s - start_s)
        clocks = [_clock(rows, *part) for part in ((start_s, middle_s), (middle_s, end_s))]
        means = [_mean_s(timed, *part) for part in ((start_s, middle_s), (middle_s, end_s))]
        (first, second), (before_s, after_s) = clocks, means
        if first is None or second is None or before_s is None or after_s is None:
            continue
        fall = math.log(max(first, second) / min(first, second))
        felt = math.log(after_s / before_s) * (1 if first > second else -1)
        if fall > -math.log(FALLEN) and felt < FELT * fall:
            yield (
                f"a clock of {first / 1e6:.0f} MHz, then {second / 1e6:.0f}, and {1e3 * before_s:.4g} ms a step, then "
                f"{1e3 * after_s:.4g}"
            )
            return


def _clock(rows: Sequence[Telemetry], start_s: float, end_s: float) -> float | None:
    mean_hz = telemetry.mean_sm_clock_hz(rows, start_s, end_s)
    return mean_hz if mean_hz and mean_hz > 0 else None


def _mean_s(timed: Sequence[Sample], start_s: float, end_s: float) -> float | None:
    inside = [row for row in timed if start_s <= row.start_s + row.wall_s / 2 <= end_s]
    return sum(map(device_s, inside)) / sum(row.steps for row in inside) if inside else None
