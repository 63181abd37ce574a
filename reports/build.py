"""From the raw rows of a run to everything that is told of it: cleaned records, utilization.csv, one view a cell.

Pure: no file is read or written here, and nothing is measured again. Each cell is told by its last committed attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from analysis.denominators import Denominator, datasheet, denominators
from analysis.numerators import Counted, Numerator, count_table, exact, theory, theory_as_published
from analysis.step_times import step_times
from analysis.utilization import Measurement, measurement, rows
from cleaning.pipeline import Cleaned, clean
from cleaning.raw import records
from results.errors import Inconsistent
from results.records import MEASURED, Operation, Run, Sample, Sitting, StepTime, Telemetry, Utilization
from results.store import RunData

C = TypeVar("C", Sample, Telemetry)
ReadOperations = Callable[[str], Sequence[Operation]]

HEADLINES = ("datasheet", "user", "ceiling")
"""The first of these that is known is what a person is told first."""

METHODS = ("exact", "theory")
"""The first of these that could count is the numerator a person is told first."""


@dataclass(frozen=True)
class View:
    """One cell: its row, its fractions, and what its operation table holds (None: no table)."""

    run: Run
    fractions: tuple[Utilization, ...]
    counted: Counted | None = None

    @property
    def measured(self) -> bool:
        return self.run.status in MEASURED

    @property
    def headline(self) -> Utilization | None:
        """The fraction told first: the best numerator over the first known denominator; None without a ratio."""
        found = (self.fraction(method, denominator) for method in METHODS for denominator in HEADLINES)
        return next((fraction for fraction in found if fraction is not None), None)

    @property
    def timed(self) -> Utilization | None:
        """Any row of the cell that has a step time, with an achieved rate where there is one."""
        timed = [row for row in self.fractions if row.time_s is not None]
        return next((row for row in timed if row.achieved_flop_per_s is not None), timed[0] if timed else None)

    def fraction(self, method: str, denominator: str) -> Utilization | None:
        """The row of this method and denominator, if it has a ratio."""
        for row in self.fractions:
            if (row.method, row.denominator) == (method, denominator) and row.utilization_ratio is not None:
                return row
        return None


@dataclass(frozen=True)
class Built:
    """Everything derived from one run directory. problems: what was wrong with its files, a line each."""

    cleaned: Cleaned
    utilization: tuple[Utilization, ...]
    step_times: tuple[StepTime, ...]
    views: tuple[View, ...]
    sittings: tuple[Sitting, ...]
    problems: tuple[str, ...] = ()


def build(data: RunData, read_operations: ReadOperations) -> Built:
    """Cleans the raw rows and divides.

    read_operations: trace id → operation table; may raise ValueError or Inconsistent, which become reasons in rows.
    """
    cleaned = clean(data)
    tables = _Tables(read_operations)
    samples, telemetry = _by_cell(records(data.samples, Sample)), _by_cell(records(data.telemetry, Telemetry))
    views = []
    times: list[StepTime] = []
    for run in data.runs:
        mine = [sample for sample in samples.get(run.cell_id, []) if sample.attempt == run.attempt]
        times += step_times(run, mine)
        measured = measurement(run, samples.get(run.cell_id, []), telemetry.get(run.cell_id, []))
        views.append(_view(measured, data, cleaned, tables))
    fractions = tuple(row for view in views for row in view.fractions)
    return Built(
        cleaned, fractions, tuple(times), tuple(views), tuple(data.sittings), (*data.problems, *tables.problems)
    )


def _by_cell(rows: Iterable[C]) -> dict[str, list[C]]:
    cells: dict[str, list[C]] = {}
    for row in rows:
        cells.setdefault(row.cell_id, []).append(row)
    return cells


class _Tables:
    """Operation tables, each read and added up once."""

    def __init__(self, read: ReadOperations) -> None:
        self._read = read
        self._known: dict[str, Counted | str] = {}

    def of(self, trace_id: str) -> Counted | str:
        """What the table holds, or why there is none."""
        if trace_id not in self._known:
            self._known[trace_id] = self._count(trace_id)
        return self._known[trace_id]

    @property
    def problems(self) -> list[str]:
        return [why for trace_id, why in self._known.items() if trace_id and isinstance(why, str)]

    def _count(self, trace_id: str) -> Counted | str:
        if not trace_id:
            return "no operation table was recorded for this cell"
        try:
            operations = self._read(trace_id)
        except (Inconsistent, ValueError) as fault:
            return f"operation table {trace_id}: {fault}"
        return count_table(operations) if operations else f"operation table {trace_id} is empty"


def _view(measured: Measurement, data: RunData, cleaned: Cleaned, tables: _Tables) -> View:
    run = measured.run
    counted = tables.of(run.trace_id)
    fractions = rows(measured, _numerators(run, cleaned, counted), _denominators(measured, data))
    return View(run, tuple(fractions), None if isinstance(counted, str) else counted)


def _numerators(run: Run, cleaned: Cleaned, counted: Counted | str) -> list[Numerator]:
    """One for each method of the cell, and of theory one for each counter."""
    found = []
    if "exact" in run.methods:
        found.append(
            Numerator("exact", "flopledger", reason=counted) if isinstance(counted, str) else exact(counted, run)
        )
    if "theory" in run.methods:
        found += [theory(cleaned.flop_counts, run, counter) for counter in run.counters]
        if "fvcore" in run.counters:
            found.append(theory_as_published(cleaned.flop_counts, run))
    return found


def _denominators(measured: Measurement, data: RunData) -> tuple[Denominator, ...]:
    run = measured.run
    sitting = next((sitting for sitting in data.sittings if sitting.sitting == run.sitting), None)
    name = sitting.device_name if sitting else ""
    sheet = datasheet(name, run.device, _multiprocessors(sitting))
    return denominators(run, sheet, measured.clock_hz, data.ceilings, _peak_tflops(data.manifest.options))


def _multiprocessors(sitting: Sitting | None) -> int | None:
    count = sitting.environment.get("multiprocessors") if sitting else None
    return count if isinstance(count, int) else None


def _peak_tflops(options: Mapping[str, Any]) -> float | None:
    """What the user passed as --peak-tflops, in 10^12 FLOP/s."""
    value = options.get("peak_tflops")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
