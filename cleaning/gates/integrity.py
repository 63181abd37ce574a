"""Gates of what is kept: committed rows, one machine, dense peaks, and derived tables that are the raw rows' own."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from analysis.devices import peaks
from analysis.devices.precisions import UNITS
from cleaning.facts.values import faults
from cleaning.gates.evidence import RUN, Evidence, Finding
from results.records.answers import Utilization
from results.records.cell import Run, Sample, Sitting, Telemetry
from results.records.counts import FlopCount
from results.records.rows import Record, header
from results.store.layout import key_of
from results.store.manifest import DIRTY, comparable

PEAK_SLACK = 1.02
"""A datasheet rounds: its figure may lie this much above multiprocessors × rate × highest clock."""

SHOWN = 3
"""Faults of one cell that its words name."""

RAW: tuple[type[Record], ...] = (Sample, Telemetry, FlopCount)
"""The records of a cell whose words are asked."""

SAME = 1e-9
"""Relative difference of two derived numbers that are the same."""


def committed(evidence: Evidence) -> Iterator[Finding]:
    """What the reader left out or could not match with a checksum; values that their columns cannot hold."""
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
    yield from _values(evidence)


def _values(evidence: Evidence) -> Iterator[Finding]:
    """Every value of every raw row: its kind, its least, its words."""
    for cell_id, words in evidence.malformed.items():
        yield Finding(cell_id, False, words)
    for rows in (evidence.data.sittings, evidence.data.ceilings):
        found = [words for row in rows for words in faults(row)]
        yield Finding(RUN, not found, _some(found))
    for run in evidence.data.runs:
        key = key_of(run)
        raw: list[Sequence[Record]] = [evidence.data.by_cell(record).get(key, ()) for record in RAW]
        found = [words for rows in ([run], *raw) for row in rows for words in faults(row)]
        yield Finding(run.cell_id, not found, _some(found))


def _some(words: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(words))
    return "; ".join(distinct[:SHOWN]) + (f" and {len(distinct) - SHOWN} more" if len(distinct) > SHOWN else "")


def one_machine(evidence: Evidence) -> Iterator[Finding]:
    """Sessions that could not have been collected into one run, and code that nobody can look up."""
    used = {run.sitting for run in evidence.data.runs}
    sittings = [sitting for sitting in evidence.data.sittings if sitting.sitting in used]
    for first, second in itertools.pairwise(sittings):
        fields = comparable(first, second)
        words = ", ".join(_beside(name, first, second) for name in fields)
        yield Finding(RUN, not fields, f"{first.sitting} and {second.sitting} differ in {words}" if fields else "")
    for sitting in sittings:
        version = str(sitting.environment.get("harness_version") or evidence.data.manifest.harness_version or "")
        known = "+g" in version or not sitting.device.startswith("cuda")
        words = f"{sitting.sitting} was measured by {version or 'unknown code'}"
        yield Finding(RUN, known and not version.endswith(DIRTY), words if known else f"{words}, of no known commit")


def _beside(name: str, first: Sitting, second: Sitting) -> str:
    field = "driver" if name == "driver_branch" else name
    return f"{name} ({getattr(first, field)!r}, {getattr(second, field)!r})"


def peak(evidence: Evidence) -> Iterator[Finding]:
    """Each peak that was divided by, against the table of today and against what the multiprocessors could do."""
    rows = evidence.published or evidence.rebuilt
    by_cell = {key_of(run): run for run in evidence.measured_cells}
    for key, run in by_cell.items():
        mine = [row for row in rows if key_of(row) == key and row.peak_flop_per_s is not None]
        for row in mine:
            if row.denominator in ("datasheet", "user"):
                yield from _of_row(evidence, run, row)


def _of_row(evidence: Evidence, run: Run, row: Utilization) -> Iterable[Finding]:
    sitting, found = evidence.sitting(run), []
    environment = sitting.environment if sitting else {}
    name = evidence.device_name(run)
    count = environment.get("multiprocessors")
    known = peaks.lookup(name, count if isinstance(count, int) else None)
    value = row.peak_flop_per_s or 0.0
    if row.denominator == "datasheet":
        dense = max((known.peaks[unit] for unit in UNITS if unit in known.peaks), default=0.0) if known else 0.0
        own = [known.peaks[unit] for unit in units_of(run) if unit in known.peaks] if known else []
        limit = max(own, default=dense)
        holds = value <= limit * (1 + SAME)
        found.append(
            Finding(run.cell_id, holds, f"datasheet peak {value:.4g}, the table's dense one {limit:.4g} FLOP/s")
        )
    runs = [run] if row.denominator == "datasheet" else evidence.measured_cells  # the user's is one for all units
    bound = max(filter(None, (_bound(environment, name, each) for each in runs)), default=None)
    if bound is not None:
        words = f"{row.denominator} peak {value:.4g}, but {bound:.4g} FLOP/s at the highest clock: a sparse figure?"
        found.append(Finding(run.cell_id, value <= bound * PEAK_SLACK, words))
    return found


def units_of(run: Run) -> tuple[str, ...]:
    """The arithmetic units that a cell says its products ran on."""
    return tuple(dict.fromkeys(filter(None, (run.convolution_unit, run.matmul_unit))))


def _bound(environment: object, name: str, run: Run) -> float | None:
    """Multiprocessors × rate × 2 × highest clock of the fastest unit of the cell; None where the device says too
    little."""
    facts = environment if isinstance(environment, dict) else {}
    capability, count, clock_hz = (facts.get(key) for key in ("compute_capability", "multiprocessors", "clock_hz"))
    if not (isinstance(capability, str) and isinstance(count, int) and isinstance(clock_hz, (int, float))):
        return None
    rates = peaks.derived_upper_bound(capability, count, float(clock_hz), "geforce" in name.casefold())
    known = [rates[unit] for unit in units_of(run) if unit in rates]
    return max(known, default=None)


OF_ATTENTION = (
    "attention",
    "causal_flop",
    "mask_exact_flop",
    "causal_utilization_ratio",
    "mask_exact_utilization_ratio",
)
"""Columns that tables of earlier versions lack."""

OF_KERNELS = ("hardware_flop",)
"""The same of a later version."""


def rebuilt(evidence: Evidence) -> Iterator[Finding]:
    """Each row of the run's own utilization.csv beside what its raw rows give now, and rows that it lacks."""
    now = {_place(row): row for row in evidence.rebuilt}
    names = header(Utilization)
    if not any(row.attention for row in evidence.published):  # a table of a version without them
        names = tuple(name for name in names if name not in OF_ATTENTION)
    if all(row.hardware_flop is None for row in evidence.published):
        names = tuple(name for name in names if name not in OF_KERNELS)
    there = {_place(row) for row in evidence.published}
    for row in evidence.rebuilt if evidence.keeps_utilization else ():
        if _place(row) not in there:
            yield Finding(row.cell_id, False, f"{row.method} over {row.denominator}: the row is not there")
    for row in evidence.published:
        other = now.get(_place(row))
        if other is None:
            yield Finding(row.cell_id, False, f"{row.method} over {row.denominator}: the raw rows give no such row")
            continue
        changed = [name for name in names if not _same(getattr(row, name), getattr(other, name))]
        words = ", ".join(f"{name} is {getattr(row, name)}, not {getattr(other, name)}" for name in changed)
        difference = f"{row.method} over {row.denominator}: {words}" if changed else ""
        yield Finding(row.cell_id, not changed, difference)


def _place(row: Utilization) -> tuple[str, int, str, str, str]:
    return row.cell_id, row.attempt, row.method, row.numerator_source, row.denominator


def _same(first: object, second: object) -> bool:
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        return math.isclose(first, second, rel_tol=SAME)
    return first == second
