"""What a report reads beside a run's rows (recordings), and its tables as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from results.records.rows import Record
from runners.cli.output import Page, show_answer

if TYPE_CHECKING:
    from pandas import DataFrame

    from cleaning.reconcile.variants import Built


HEADLINE = "headline.csv"
UTILIZATION = "utilization.csv"
PARALLEL = "parallel.csv"
"""Of a run with cells of several ranks alone."""


def derived_tables(built: Built) -> Iterable[tuple[str, bytes]]:
    """(file, content) of every derived table; one without rows is its header alone."""
    from reports.sweep.table import to_csv
    from results.store.layout import compress

    for file, (rows, record) in _rows_of(built).items():
        content = to_csv(rows, record).encode()
        yield file, compress(content) if file.endswith(".gz") else content


def _rows_of(built: Built) -> dict[str, tuple[Sequence[Record], type[Record]]]:
    """File → its rows, and the record that they are of."""
    from reports.sweep.headline import headline_rows
    from results.records.answers import Headline, ParallelStep, StepTime, Utilization, WorkTime
    from results.records.counts import (
        Agreement,
        BatchLaw,
        CleanedOperation,
        CleaningLog,
        FlopCount,
        ProfileCount,
        Ratio,
    )

    return {
        HEADLINE: (headline_rows(built), Headline),
        UTILIZATION: (built.utilization, Utilization),
        "utilization_post2021.csv": (built.post2021, Utilization),
        "step_times.csv": (built.step_times, StepTime),
        "work_times.csv": (built.work_times, WorkTime),
        "cleaned/profiled_operations.csv.gz": (built.cleaned_operations, CleanedOperation),
        "cleaned/profile_counts.csv": (built.profile_counts, ProfileCount),
        "cleaned/ratios.csv": (built.ratios, Ratio),
        "cleaned/agreement.csv": (built.agreement, Agreement),
        "cleaned/batch_law.csv": (built.batch_laws, BatchLaw),
        "cleaned/flop_counts.csv": (built.flop_counts, FlopCount),
        "cleaned/cleaning_log.csv": (built.log, CleaningLog),
        **({PARALLEL: (built.parallel_steps, ParallelStep)} if built.parallel_steps else {}),
    }


def show_rows(form: str, page: Page, rows: Sequence[Record], kind: type[Record]) -> None:
    """`show_answer` of records of one kind, which are a row of CSV and an object of JSON each."""
    from reports.sweep.table import documents, to_csv

    show_answer(form, page, lambda: documents(rows), lambda: to_csv(rows, kind))


def recording(path: Path, file: str) -> tuple[DataFrame, DataFrame]:
    """Calls and kernels of the last step of a recording in the run `path`. Raises ValueError if it is damaged
    or cut."""
    from measure.trace.attribution.phases import last_step
    from runners.cli.model_options import read_recording

    recording = read_recording(path / file, last_step)
    if recording.missing:
        raise ValueError(f"{file}: calls are missing from it: {recording.missing[0].reason}")
    return recording.calls, recording.kernels
