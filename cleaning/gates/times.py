"""Gates of times: blocks that really ended, steps that the device can do, intervals, repeats, batches, a record.

What is asked here needs no second measurement: a time that was taken without waiting for the device shows in its own
blocks, or is shorter than the device can calculate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from analysis.devices import FAST_ALGORITHM, TENSOR_UNITS, peaks
from analysis.stats import LAG1, LAG1_RAISED, MARGIN_RATIO, conditions
from analysis.utilization import APART_RATIO, block_summary, median_round_trip_s, whole_steps
from cleaning.facts import kind_of, known_parameters, narrowness
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import Finding
from cleaning.gates.integrity import units_of
from results.records import LOOP, Run, Sample, Utilization
from results.store import key_of

CLOCKS_APART = 0.02
"""Device events and the host's clock may differ by this much over one block."""

ABOVE_CEILING = 1.25
"""A ceiling is the best of a few shapes: a whole step may beat it by this much, not by more."""

SLOWER = 0.8
"""Least share of a smaller batch's items a second that a larger one trains."""

RAISED_SINCE = 5
"""The schema version whose cells stop measuring by `lag1_raised`; those of earlier ones stopped by `lag1`."""

RECORDS = {
    "h200": 7952.0,
    "h100 80gb hbm3": 7141.0,
    "h100 pcie": 4704.0,
    "a100-sxm4-80gb": 3578.0,
    "l40s": 2182.0,
}
"""Device → images/s of one GPU in the best MLPerf training result for ResNet-50 (v4.0; PCIe and A100: v3.0), fused
kernels and all: 19.5, 17.5, 15.1, 27.9 and 14.7 % of the dense peak."""


def synchronised(evidence: Evidence) -> Iterator[Finding]:
    """Blocks in the order of time, each at least as long as its device work, inside of the cell's window."""
    for run in evidence.measured_cells:
        blocks = whole_steps(evidence.samples.get(key_of(run), ()))
        if blocks:
            words = _unsynchronised(run, blocks)
            yield Finding(run.cell_id, not words, words)


def _unsynchronised(run: Run, blocks: Sequence[Sample]) -> str:
    for before, after in itertools.pairwise(blocks):
        ended_s = before.start_s + before.wall_s * (1 - CLOCKS_APART)
        if after.start_s < ended_s:
            return f"block {after.index} begins {ended_s - after.start_s:.3g} s before block {before.index} ended"
    for block in blocks:
        if block.device_s is not None and block.device_s > block.wall_s * (1 + CLOCKS_APART):
            return f"block {block.index} took {block.wall_s:.4g} s on the host and {block.device_s:.4g} s on the device"
    start_s, end_s = run.window_start_s, run.window_end_s
    total_s = sum(block.wall_s for block in blocks)
    if start_s is not None and end_s is not None and total_s > (end_s - start_s) * (1 + CLOCKS_APART):
        return f"{total_s:.4g} s of blocks in a window of {end_s - start_s:.4g} s"
    return ""


def possible_time(evidence: Evidence) -> Iterator[Finding]:
    """The achieved rate of the exact count against the highest clock's peak, and against the ceiling of the session."""
    for run in evidence.measured_cells:
        rows = [row for row in evidence.fractions(run) if row.method == "exact" and row.achieved_flop_per_s]
        if not rows:
            continue
        rate = rows[0].achieved_flop_per_s or 0.0
        limits = [("the ceiling measured here", ABOVE_CEILING * peak) for peak in _ceilings(rows)]
        highest = _highest(evidence, run)
        if highest is not None:
            limits.append(("its units at the highest clock", highest))
        for name, limit in limits:
            words = f"{rate:.4g} FLOP/s, at most {limit:.4g} by {name}"
            yield Finding(run.cell_id, rate <= limit, "" if rate <= limit else f"{words}: not synchronised?")


def _ceilings(rows: Sequence[Utilization]) -> list[float]:
    return [row.peak_flop_per_s for row in rows if row.denominator == "ceiling" and row.peak_flop_per_s is not None]


def _highest(evidence: Evidence, run: Run) -> float | None:
    """FLOP/s of the cell's fastest unit at the device's highest clock; None for a device without datasheet peak."""
    sitting = evidence.sitting(run)
    known = peaks.lookup(sitting.device_name) if sitting is not None else None
    if known is None or sitting is None:
        return None
    clock_hz = sitting.preflight.get("sm_clock_max_hz") or known.boost_hz or 0.0
    found = []
    for unit in units_of(run):
        value = known.at_clock(unit, float(clock_hz))
        if value is not None:
            found.append(value * (1.0 if unit in TENSOR_UNITS else FAST_ALGORITHM))
    return max(found, default=None)


def at_most_one(evidence: Evidence) -> Iterator[Finding]:
    """Each fraction of a peak that is no ceiling: tensor units never pass it, others not without a mark."""
    for run in evidence.measured_cells:
        tensor = any(unit in TENSOR_UNITS for unit in units_of(run))
        for row in evidence.fractions(run):
            if row.utilization_ratio is None or row.denominator in ("ceiling", "paired_ceiling"):
                continue
            marked = any(mark.startswith("above_one") for mark in row.warnings)
            holds = row.utilization_ratio <= 1 or (marked and not tensor)
            words = f"{row.method} by {row.numerator_source} is {row.utilization_ratio:.3g} of {row.denominator}"
            yield Finding(run.cell_id, holds, "" if holds else words)


def interval_rule(evidence: Evidence) -> Iterator[Finding]:
    """The rule by which a row's intervals are made, beside the one by which rows of its schema version were measured.
    The other rule gives another interval of the same blocks, which alone do not tell by which one measuring stopped."""
    for run in evidence.measured_cells:
        stopped = evidence.data.manifest.schema_version >= RAISED_SINCE and run.data != LOOP
        rule = LAG1_RAISED if stopped else LAG1
        words = f"intervals by {run.interval_rule}, measured by {rule}"
        yield Finding(run.cell_id, run.interval_rule == rule, "" if run.interval_rule == rule else words)


def converged(evidence: Evidence) -> Iterator[Finding]:
    """The interval of the raw blocks, worked out again."""
    for run in evidence.measured_cells:
        samples = evidence.samples.get(key_of(run), ())
        if not (blocks := whole_steps(samples)):
            continue
        narrow, words = narrowness(run, blocks, samples)
        yield Finding(run.cell_id, narrow, "" if narrow else words)


def repeats(evidence: Evidence) -> Iterator[Finding]:
    """Mean step times of the repeats of a cell, two by two, beside both intervals and what processes differ by. Those
    whose processors were placed otherwise are not compared: a step takes longer where they are far apart."""
    groups: dict[tuple[str, ...], list[tuple[Run, float, float]]] = {}
    for run in evidence.measured_cells:
        if (time := _mean(evidence, run)) is not None:
            groups.setdefault(conditions(run), []).append((run, *time))
    for group in groups.values():
        for (first, a_s, a_half), (run, b_s, b_half) in itertools.combinations(group, 2):
            if _placed_otherwise(evidence, first, run):
                continue
            apart = abs(math.log(a_s / b_s))
            allowed = MARGIN_RATIO[kind_of(run)] + math.hypot(a_half, b_half)
            words = f"{100 * apart:.2g} % from repeat {first.repeat}, at most {100 * allowed:.2g} % by noise"
            yield Finding(run.cell_id, apart <= allowed, "" if apart <= allowed else words)


def _placed_otherwise(evidence: Evidence, first: Run, second: Run) -> bool:
    trips_s = [median_round_trip_s(whole_steps(evidence.samples.get(key_of(run), ()))) for run in (first, second)]
    near_s, far_s = min(trip_s or math.inf for trip_s in trips_s), max(trip_s or 0.0 for trip_s in trips_s)
    return far_s >= APART_RATIO * near_s


def by_batch(evidence: Evidence) -> Iterator[Finding]:
    """Items a second against those of the next smaller batch of the same cell."""
    groups: dict[tuple[str, ...], list[tuple[int, float, Run]]] = {}
    for run in evidence.measured_cells:
        if (time := _mean(evidence, run)) is not None and run.items_per_step:
            group = groups.setdefault(conditions(run, "batch_size"), [])
            group.append((run.batch_size, run.items_per_step / time[0], run))
    for group in groups.values():
        group.sort(key=lambda each: each[0])
        for (small, slow, _), (large, fast, run) in itertools.pairwise(group):
            if small == large:
                continue
            words = f"{fast:.4g} items/s at batch {large}, {slow:.4g} at {small}: is a batch mislabelled?"
            yield Finding(run.cell_id, fast >= SLOWER * slow, "" if fast >= SLOWER * slow else words)


def record(evidence: Evidence) -> Iterator[Finding]:
    """Images a second of resnet50 at 224 pixels beside the best that anybody published for one GPU."""
    for run in evidence.measured_cells:
        best = RECORDS.get(peaks.normalise(evidence.device_name(run)))
        time = _mean(evidence, run)
        if run.model != "resnet50" or best is None or time is None or not run.items_per_step:
            continue
        if run.image_size not in (None, 224):
            continue
        rate = run.items_per_step / time[0]
        yield Finding(run.cell_id, rate < best, f"{rate:.4g} images/s, the record is {best:.4g}")


def losses(evidence: Evidence) -> Iterator[Finding]:
    """The last loss; where it is unknown, whether a warning says that it was not finite. Of a classifier, whose loss is
    cross-entropy, none is below 0."""
    for run in evidence.measured_cells:
        if run.first_loss is None and run.data != LOOP:
            yield Finding(run.cell_id, False, "the first loss is unknown")
        below = [each for each in (run.first_loss, run.last_loss) if each is not None and each < 0]
        if below and run.data != LOOP and known_parameters(run) is not None:
            yield Finding(run.cell_id, False, f"a loss of {below[0]:g}, and cross-entropy is never below 0")
        if run.last_loss is not None:
            yield Finding(run.cell_id, math.isfinite(run.last_loss))
            continue
        marks = [mark for mark in run.warnings if mark.startswith("loss")]
        if marks:
            yield Finding(run.cell_id, False, marks[0])


def _mean(evidence: Evidence, run: Run) -> tuple[float, float] | None:
    """Mean step time, s, and half of its interval ÷ it (infinite for a single block)."""
    blocks = whole_steps(evidence.samples.get(key_of(run), ()))
    if not blocks:
        return None
    summary = block_summary(blocks, run.interval_rule)
    return summary.mean, math.inf if summary.half_width_ratio is None else summary.half_width_ratio
