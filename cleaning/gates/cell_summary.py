"""Gates of what a cell's row says of its own blocks, polls, profile and memory: the same arithmetic, done again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from analysis.devices import telemetry
from analysis.utilization import block_means_s, is_disturbed, whole_steps, works_of
from cleaning.facts import (
    BLOCK_S,
    HOST_BOUND_RATIO,
    QUICK,
    WARM_BLOCK_S,
    kind_of,
    steps_after,
    steps_for,
)
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import Finding
from results.records import LOOP, MEASURED, PHASES, Run, Sample, Telemetry
from results.store import key_of

SAME = 1e-6
"""Relative difference of two numbers that are one sum apart."""

ENDS = ("warmup", "measure")
"""What a cell's own blocks begin and end with."""

TIMED = (*ENDS, "disturbed")
"""Parts of blocks that follow each other, each with steps by the time of the one before."""

LEAD_IN_STEPS = 1
"""Untimed steps of a CUDA block, whose device work the host may still wait for while the block is timed."""

LATENCY_S = 0.005
"""What starting and ending a block may take beside its device work."""

FALLEN = 0.85
"""A clock in one half of a window below this share of the other half has fallen."""

FELT = 1 / 3
"""Least share of a fall of the clock that a step's time must show, where the device is what it waits for."""

FLOAT_BYTES = 4
"""Of one parameter: weights stay float32 under every precision."""


def blocks(evidence: Evidence) -> Iterator[Finding]:
    """Samples of each cell: numbered from 0, in the order of time, warm-up first, device time what the host saw."""
    for run in evidence.measured_cells:
        rows = evidence.samples.get(key_of(run), ())
        if rows:
            words = next(itertools.chain(_blocks(run, rows), _paired(evidence, run, rows)), "")
            yield Finding(run.cell_id, not words, words)


def _paired(evidence: Evidence, run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    """Kernels between the cell's blocks: of the session's ceilings, with their FLOP; none where none was asked for."""
    known = {
        (row.unit, f"{row.operation} {row.shape} {row.layout}".strip()): row.flop
        for row in evidence.data.ceilings
        if (row.sitting, row.device, row.precision) == (run.sitting, run.device, run.precision)
    }
    for row in (row for row in rows if row.part == "ceiling"):
        if not run.paired_ceiling:
            yield f"block {row.index} is of a kernel, and no paired ceiling was asked for"
        flop = known.get((row.unit, row.kernel))
        if flop is None or row.flop != flop * row.steps:
            yield f"block {row.index}: {row.flop} FLOP in {row.steps} calls of {row.kernel}, of which one has {flop}"


def _blocks(run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    if [row.index for row in rows] != list(range(len(rows))):
        yield "its blocks are not numbered from 0 without a gap"
    on_cuda = kind_of(run) == "cuda"
    for row in rows:
        words = _block(row, on_cuda, first=row is rows[0], waited=run.data != LOOP)
        yield from (f"block {row.index}: {each}" for each in words)
    if any(after.start_s < before.start_s for before, after in itertools.pairwise(rows)):
        yield "its blocks are not in the order of time"
    span_s = rows[-1].start_s - rows[0].start_s
    if run.duration_s is not None and span_s > run.duration_s * (1 + SAME):
        yield f"its blocks begin over {span_s:.4g} s, the cell took {run.duration_s:.4g} s"
    yield from _order(run, rows)
    yield from _phases(run, rows)


def _block(row: Sample, on_cuda: bool, first: bool, waited: bool) -> Iterator[str]:
    """One block by itself. first: of the warm-up, which may compile and search algorithms. waited: for the device."""
    if row.part == "suspended":
        return  # its times are of a process that did not run
    if row.part == "disturbed" and not is_disturbed(row):
        where = "on a GPU" if on_cuda else f"with a wait of {row.run_wait_s} s of {row.wall_s:.4g} s for a processor"
        yield f"marked as disturbed {where}"
    if (row.part == "ceiling") != bool(row.unit and row.kernel and row.flop):
        yield f"part {row.part} of the kernel {row.kernel!r}, {row.flop} FLOP on {row.unit!r}"
    if (row.part == "phase") != bool(row.phase):
        yield f"part {row.part} of phase {row.phase!r}"
    if (row.device_s is not None) != on_cuda:
        yield f"device time {row.device_s} on a {'GPU' if on_cuda else 'CPU'}"
    if row.part == "profiled" and row.steps != 1:
        yield f"{row.steps} steps under a profiler, which takes one at a time"
    if row.part == "phase" or row.work == "epoch" or row.device_s is None:
        return
    if row.sync_wait_s is None:
        yield from ["no wait for the device"] if waited else []
    elif row.sync_wait_s > row.wall_s * (1 + SAME):
        yield f"waited {row.sync_wait_s:.4g} s of {row.wall_s:.4g} s"
    lead_in_s = row.device_s / row.steps * LEAD_IN_STEPS if row.part == "measure" else 0.0
    late = row.wall_s > 1.02 * row.device_s + lead_in_s + LATENCY_S and not first and row.part != "profiled"
    if late or row.device_s > 1.02 * row.wall_s:
        yield f"{row.wall_s:.4g} s on the host, {row.device_s:.4g} s on the device"


def _order(run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    """Warm-up before measured blocks, none overlapping, for the cell's own steps and those of each other work."""
    for work in dict.fromkeys(row.work for row in rows):
        mine = [_as_measured(row) for row in rows if row.work == work and row.part in TIMED and work != "epoch"]
        parts = [row.part for row in mine]
        if parts != sorted(parts, reverse=True) and not (_in_turn(run) and (parts[0], parts[-1]) == ENDS):
            yield f"{work or 'steps'}: a warm-up after measured blocks"
        if not any(part == "warmup" for part in parts) and mine:
            yield f"{work or 'steps'}: no warm-up"
        if "warmup" in parts and "measure" not in parts:
            yield f"{work or 'steps'}: a warm-up, and nothing measured after it"
        for before, after in itertools.pairwise(mine):
            if after.start_s < before.start_s + before.wall_s * 0.98:
                yield f"block {after.index} begins before block {before.index} ended"
        if run.data == LOOP:  # a user's loop has blocks as long as it lasted
            continue
        if kind_of(run) != "cuda":  # a shared processor is slower now and then; on a GPU this would be too fine
            yield from (f"{work or 'steps'}: {words}" for words in _steps(run, mine))
            continue
        means = block_means_s([row for row in mine if row.part == "measure"])
        middle = median(means) if means else 0.0
        far = [mean for mean in means if mean > OUTLIER * middle or mean < middle / OUTLIER]
        if len(means) >= ENOUGH and far:
            yield f"{work or 'steps'}: a block of {far[0]:.4g} s a step, the median is {middle:.4g} s"


def _as_measured(row: Sample) -> Sample:
    """A disturbed block as the measured one that it was in the order of blocks."""
    return replace(row, part="measure") if row.part == "disturbed" else row


def _in_turn(run: Run) -> bool:
    """Whether several processes timed the cell, interleaved with another side (`sweep --against`): each warms up."""
    return any(warning.startswith("in_turn: ") for warning in run.warnings)


def _steps(run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    """How many steps a block has follows from the time of a step in the block before it. Blocks interleaved with
    another side's all have one number of steps, which follows from the warm-ups of both processes (`_common`)."""
    share, in_turn = QUICK if run.quick else 1, _in_turn(run)
    for before, after in itertools.pairwise(rows):
        step_s = _device_s(before) / before.steps
        if in_turn and before.part == "measure":
            steps = 1 if after.part == "warmup" else before.steps
        elif after.part == "warmup":
            steps = steps_for(WARM_BLOCK_S / share, step_s)
        elif before.part == "warmup":
            steps = steps_for(BLOCK_S / share, step_s)
        else:
            steps = steps_after(BLOCK_S / share, before.steps, step_s)
        in_common = in_turn and (before.part, after.part) == ("warmup", "measure")
        if after.steps != steps and not (in_common and _common(after.steps, steps)):
            yield f"block {after.index} has {after.steps} steps, {steps} by the block before it"
    if rows and rows[0].part == "warmup" and rows[0].steps != 1:
        yield f"its warm-up begins with {rows[0].steps} steps"


LONGEST_FACTOR = 20
"""How many times as long as asked an interleaved block may last, as in `runners/sweep/against/pairs.py`."""


def _common(steps: int, own: int) -> bool:
    """Whether two sides may have this number of steps in common where the warm-up of this one asks for `own`: the
    larger of both, up to LONGEST_FACTOR times the smaller one."""
    return own < steps <= LONGEST_FACTOR * own or (steps < own and steps % LONGEST_FACTOR == 0)


OUTLIER, ENOUGH = 1.9, 5
"""A block on a GPU that is this many times slower or faster than the median of at least so many is none of them."""


def _phases(run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    """The phases of a step, in a pass of their own, add up to about a step."""
    split = [row for row in rows if row.part == "phase" and not row.work]
    whole = whole_steps(rows)
    if not split or not whole:
        return
    step_s, (low, high) = median(block_means_s(whole)), PHASES_SUM[kind_of(run)]
    passes: dict[float, list[Sample]] = {}
    totals: list[float] = []
    for row in split:
        passes.setdefault(row.start_s, []).append(row)
    order = [row.phase for row in next(iter(passes.values()))]
    later = order[1:] + order[:1] if order[0] == "optimizer" else order  # zeroing gradients is of the optimizer
    if not {"forward", "backward"} <= set(order) or later != sorted(order, key=PHASES.index):
        yield f"phases in the order {', '.join(order)}"
    for each in passes.values():
        if [row.phase for row in each] != order or len({row.steps for row in each}) > 1:
            yield f"block {each[0].index}: phases {', '.join(row.phase for row in each)}"
        total_s = sum(map(_device_s, each)) / each[0].steps
        totals.append(total_s)
        if kind_of(run) == "cuda" and not low * step_s <= total_s <= high * step_s:
            yield f"its phases take {total_s:.4g} s together, a step {step_s:.4g} s"
    if not low * step_s <= median(totals) <= high * step_s:
        yield f"its phases take {median(totals):.4g} s together, a step {step_s:.4g} s"
    if len(passes) > 1 and len(split) != len(passes) * len(order):
        yield "its phases are not as many in each block"


PHASES_SUM = {"cuda": (0.8, 1.25), "cpu": (0.6, 1.7)}
"""What the phases of a step may take together, in steps: their marks cost a little, a shared CPU varies by more."""


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
        step_s = sum(_device_s(row) for row in whole) / sum(row.steps for row in whole)
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


def _device_s(row: Sample) -> float:
    return row.wall_s if row.device_s is None else row.device_s


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


def parameters(evidence: Evidence) -> Iterator[Finding]:
    """A cell's parameters against the weights of its operation table, and against what counters saw."""
    for run in evidence.data.runs:
        facts = evidence.facts.get(run.trace_id)
        said = {("its table", facts.weight_bytes // FLOAT_BYTES)} if facts is not None and facts.weight_bytes else set()
        counted = evidence.counts.get(key_of(run), ())
        said |= {(row.counter, row.parameters) for row in counted if row.parameters is not None}
        if run.status not in ("ok", "not_converged") or not said:
            continue
        words = ", ".join(f"{value} by {name}" for name, value in sorted(said) if value != run.parameters)
        yield Finding(run.cell_id, not words, f"{run.parameters} parameters, {words}" if words else "")


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
    return sum(map(_device_s, inside)) / sum(row.steps for row in inside) if inside else None
