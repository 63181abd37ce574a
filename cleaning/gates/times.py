"""Checks times and ceilings: blocks that waited for the device, steps and kernels within the device's limits, losses.

These gates (checks before a run is published) find wrong times; a ceiling is the highest rate measured on the device. A
block is a number of consecutive steps that are timed together. Each gate takes the run's `Evidence` and yields
`Finding`s by cell; `GATES` lists the gates. No gate needs a second measurement. If the timing of a block ended before
the device had finished, its host and device times disagree, or its rate exceeds the device's peak.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

from analysis.devices import peaks
from analysis.devices.ceilings import FAST_ALGORITHM, FAST_ALGORITHMS, best, has_fast_algorithm, limit_of
from analysis.devices.precisions import TENSOR_UNITS
from analysis.utilization.denominators import loaded
from analysis.utilization.step_times import whole_steps
from cleaning.gates.counts import COUNTED
from cleaning.gates.device import units_of
from cleaning.gates.evidence import RUN, Evidence, Finding, Gate, finding
from results.records.cell import LOOP, Ceiling, Run, Sample
from results.store.layout import key_of

CLOCKS_APART = 0.02
"""Relative difference allowed between device events and the host's clock over one block."""

CLOCK_S = 1e-6
"""Largest rounding difference between two times of one clock, s."""

APART = ("phase", "profiled")
"""Parts of samples.csv in which several rows belong to one block."""

CEILINGS = ("ceiling", "paired_ceiling")

ABOVE_CEILING = 1.25
"""Largest plausible rate of a step ÷ ceiling. It is above 1, since a ceiling is the best of a few shapes, which a whole
step may beat."""


def synchronised(evidence: Evidence) -> Iterator[Finding]:
    """Check that blocks are in order, each at least as long as its device work, all together no longer than the cell's
    window, and that no block of steps overlaps one of a paired ceiling."""
    for run in evidence.measured_cells:
        samples = evidence.data.by_cell(Sample).get(key_of(run), ())
        blocks = whole_steps(samples)
        if blocks:
            text = _unsynchronised(run, blocks) or _overlapping(samples)
            yield Finding(run.cell_id, not text, text)


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


def _overlapping(samples: Sequence[Sample]) -> str:
    """Describe blocks of a cell with a paired ceiling that overlap: one clock times them one after the other."""
    blocks = [sample for sample in samples if sample.part not in APART and not sample.work]
    if not any(block.part == "ceiling" for block in blocks):
        return ""
    for before, after in itertools.pairwise(sorted(blocks, key=lambda block: block.start_s)):
        overlap_s = before.start_s + before.wall_s - after.start_s
        if overlap_s > CLOCK_S:
            names = [f"{block.part} block {block.index}" for block in (before, after)]
            return f"{names[1]} begins {overlap_s:.3g} s before {names[0]} ended"
    return ""


def possible_time(evidence: Evidence) -> Iterator[Finding]:
    """Check two rates against what the device can do. The exact count's rate is compared with the peak at the highest
    clock and with the session's ceiling. A paired ceiling is compared with the session's."""
    for run in evidence.measured_cells:
        fractions = evidence.fractions.get(key_of(run), ())
        rows = [row for row in fractions if row.method == "exact" and row.achieved_flop_per_s]
        if not rows:
            continue
        rate = rows[0].achieved_flop_per_s or 0.0
        peaks_of = {name: [row.peak_flop_per_s for row in rows if row.denominator == name] for name in CEILINGS}
        ceilings = [ABOVE_CEILING * peak for peak in peaks_of["ceiling"] if peak is not None]
        for limit, peak in itertools.product(ceilings, filter(None, peaks_of["paired_ceiling"])):
            text = f"the paired ceiling is {peak:.4g} FLOP/s, at most {limit:.4g} by the ceiling measured here"
            yield finding(run.cell_id, peak <= limit, text)
        limits = [("the ceiling measured here", limit) for limit in ceilings]
        highest = _highest(evidence, run)
        limits += [("its units at the highest clock", highest)] if highest is not None else []
        for name, limit in limits:
            text = f"{rate:.4g} FLOP/s, at most {limit:.4g} by {name}: not synchronised?"
            yield finding(run.cell_id, rate <= limit, text)


def _highest(evidence: Evidence, run: Run) -> float | None:
    """Return FLOP/s of the cell's fastest unit at the device's highest clock; None for a device without datasheet
    peak."""
    session = evidence.session(run)
    known = peaks.lookup(session.device_name) if session is not None else None
    if known is None or session is None:
        return None
    clock_hz = float(session.preflight.get("sm_clock_max_hz") or known.boost_hz or 0.0)
    rates = [(unit, known.at_clock(unit, clock_hz)) for unit in units_of(run)]
    fast = [rate * (1.0 if unit in TENSOR_UNITS else FAST_ALGORITHM) for unit, rate in rates if rate is not None]
    return max(fast, default=None)


def at_most_one(evidence: Evidence) -> Iterator[Finding]:
    """Check each fraction of a peak other than ceilings: tensor units never exceed it, others not without a mark."""
    for run in evidence.measured_cells:
        tensor = any(unit in TENSOR_UNITS for unit in units_of(run))
        for row in evidence.fractions.get(key_of(run), ()):
            if row.utilization_ratio is not None and row.denominator not in CEILINGS:
                marked = any(mark.startswith("above_one") for mark in row.warnings)
                text = f"{row.method} by {row.numerator_source} is {row.utilization_ratio:.3g} of {row.denominator}"
                yield finding(run.cell_id, row.utilization_ratio <= 1 or (marked and not tensor), text)


def converged(evidence: Evidence) -> Iterator[Finding]:
    """Check that the interval converged."""
    for run in evidence.measured_cells:
        yield finding(run.cell_id, run.status == "ok", run.reason)


def losses(evidence: Evidence) -> Iterator[Finding]:
    """Check that the first loss is known and the last one finite; an unknown last loss fails only with a warning."""
    for run in evidence.measured_cells:
        if run.first_loss is None and run.data != LOOP:
            yield Finding(run.cell_id, False, "the first loss is unknown")
        if run.last_loss is not None:
            yield Finding(run.cell_id, math.isfinite(run.last_loss))
        elif marks := [mark for mark in run.warnings if mark.startswith("loss")]:
            yield Finding(run.cell_id, False, marks[0])


SAME = 1e-6
"""Relative difference up to which numbers one division apart are the same."""

PRODUCTS = ("matmul", "convolution")


def _product_ceilings(evidence: Evidence) -> list[Ceiling]:
    return [row for row in evidence.data.ceilings if row.status == "ok" and row.operation in PRODUCTS]


def _name(row: Ceiling) -> str:
    return f"{row.session} {row.precision} {row.operation} {row.shape} {row.layout}".rstrip()


def ceiling_rate(evidence: Evidence) -> Iterator[Finding]:
    """Check that each row is FLOP ÷ median, and within the datasheet's rate at the highest clock unless it names the
    fast algorithm of its kernels."""
    sessions = {session.session: session for session in evidence.data.sessions}
    for row in _product_ceilings(evidence):
        if row.flop is None or not row.median_s or row.flop_per_s is None:
            yield Finding(RUN, False, f"{_name(row)}: ok without a time, a count or a rate")
            continue
        rate = row.flop / row.median_s
        text = f"{_name(row)}: {row.flop_per_s:.6g} FLOP/s, {row.flop} FLOP in {row.median_s:.6g} s are {rate:.6g}"
        yield finding(RUN, math.isclose(row.flop_per_s, rate, rel_tol=SAME), text)
        home = sessions.get(row.session)
        known = peaks.lookup(home.device_name) if home is not None and not home.device.startswith("cpu") else None
        if known is None or home is None:
            continue
        clock_hz = home.preflight.get("sm_clock_max_hz")
        limit = limit_of(row, known, float(clock_hz) if clock_hz else None)
        if limit is not None:
            text = f"{_name(row)}: {row.flop_per_s:.4g} FLOP/s, its unit has {limit:.4g}"
            if has_fast_algorithm(row):
                text += f" with {row.family}" if row.family in FAST_ALGORITHMS else " and no fast algorithm is named"
            yield finding(RUN, row.flop_per_s <= limit, text)


def ceiling_load(evidence: Evidence) -> Iterator[Finding]:
    """Check that calls of the ceilings that cells are divided by scatter as on an idle device: for each session the
    fastest kernel of a unit, by device, precision and allocator. Sessions without a cell's last attempt in the
    precision are left out."""
    used = {(run.session, run.device, run.precision, run.malloc) for run in evidence.data.runs}
    groups: dict[tuple[str, ...], list[Ceiling]] = {}
    for row in _product_ceilings(evidence):
        home = row.session, row.device, row.precision, row.malloc
        if home in used:
            groups.setdefault((*home, row.unit), []).append(row)
    for (*_, unit), rows in groups.items():
        if (fastest := best(rows, unit)) is not None:
            text = loaded(fastest)
            yield finding(RUN, not text, f"{_name(fastest)}: {text}")


GATES: tuple[Gate, ...] = (
    Gate(
        "synchronised",
        "blocks of steps and of a paired ceiling do not overlap, end after their device work and fit into the window",
        synchronised,
        "timed blocks",
        ("committed",),
    ),
    Gate(
        "ceiling_rate",
        "a ceiling is its FLOP ÷ the median time of its calls; none is above the peak of its unit, except convolutions "
        "whose kernels name a fast algorithm",
        ceiling_rate,
        "a ceiling",
    ),
    Gate(
        "ceiling_load",
        "the calls of a session's ceilings scatter as on an idle device",
        ceiling_load,
        "a ceiling",
    ),
    Gate(
        "possible_time",
        "no step is faster than its FLOP at the highest clock, nor 1.25 × the ceiling measured here; nor is a paired "
        "ceiling above the latter",
        possible_time,
        "a peak at the highest clock, or a ceiling",
        ("committed", "synchronised", "flags", *COUNTED),
    ),
    Gate(
        "at_most_one",
        "utilization of tensor units is at most 1; above 1 on others is marked",
        at_most_one,
        "a utilization of a datasheet's peak or the user's",
        ("synchronised", "flags", "conventions", "possible_time", *COUNTED),
        on=("cuda",),
    ),
    Gate(
        "converged",
        "each interval is as narrow as requested, over enough blocks",
        converged,
        "timed blocks",
        ("committed", "synchronised"),
    ),
    Gate(
        "losses",
        "the loss of the first step is known, and that of the last timed step is finite",
        losses,
        "a loss",
        ("committed",),
    ),
)
