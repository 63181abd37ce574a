"""Gates of what is kept: committed rows, one machine, dense peaks."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from analysis.devices import peaks
from analysis.devices.precisions import UNITS
from cleaning.gates.evidence import RUN, Evidence, Finding, finding
from results.records.cell import Run
from results.store.layout import by_cell, key_of
from results.store.manifest import DIRTY, differing

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
    used = {run.sitting for run in evidence.data.runs}
    sittings = [sitting for sitting in evidence.data.sittings if sitting.sitting in used]
    for first, second in itertools.pairwise(sittings):
        words = ", ".join(f"{name} ({a!r}, {b!r})" for name, a, b in differing(first, second))
        yield finding(RUN, not words, f"{first.sitting} and {second.sitting} differ in {words}")
    for sitting in sittings:
        version = str(sitting.environment.get("harness_version") or evidence.data.manifest.harness_version or "")
        known = "+g" in version or not sitting.device.startswith("cuda")
        words = f"{sitting.sitting} was measured by {version or 'unknown code'}"
        yield Finding(RUN, known and not version.endswith(DIRTY), words if known else f"{words}, of no known commit")


def peak(evidence: Evidence) -> Iterator[Finding]:
    """Each peak that was divided by, against the table of today and against what the multiprocessors could do."""
    by_key = by_cell(evidence.rebuilt)
    for run in evidence.measured_cells:
        for row in by_key.get(key_of(run), ()):
            if row.denominator in ("datasheet", "user") and row.peak_flop_per_s is not None:
                yield from _of_row(evidence, run, row.denominator, row.peak_flop_per_s)


def _of_row(evidence: Evidence, run: Run, denominator: str, value: float) -> Iterator[Finding]:
    sitting = evidence.sitting(run)
    environment, name = (sitting.environment, sitting.device_name) if sitting else ({}, "")
    count = environment.get("multiprocessors")
    if denominator == "datasheet":
        known = peaks.lookup(name, count if isinstance(count, int) else None)
        dense = {unit: known.peaks[unit] for unit in UNITS if unit in known.peaks} if known else {}
        limit = max([dense[unit] for unit in units_of(run) if unit in dense] or dense.values(), default=0.0)
        words = f"datasheet peak {value:.4g}, the table's dense one {limit:.4g} FLOP/s"
        yield Finding(run.cell_id, value <= limit * (1 + SAME), words)
    runs = [run] if denominator == "datasheet" else evidence.measured_cells  # the user's is one for all units
    bound = max(filter(None, (_bound(environment, name, each) for each in runs)), default=None)
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
