"""Derives everything that follows from a run's raw rows: as files (`rebuild`), or as `Evidence` for the gates.

`rebuild` takes a run's directory, writes the derived files and returns a `Built`. `evidence_of` returns the `Evidence`
that gates check; a gate is a test of a run's consistency. Neither needs a GPU or torch. Raw files are read and never
changed. Derived files may be written again: utilization.csv and other tables, cleaned/, figures/, report.html
(`docs/schema.md` lists them). If the figures or the page cannot be made, those of an earlier report stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reports.shared.layout import to_csv
from results.records.answers import (
    Headline,
    ParallelStep,
    StepTime,
    Utilization,
    WorkTime,
)
from results.records.counts import (
    Agreement,
    BatchLaw,
    CleanedOperation,
    CleaningLog,
    FlopCount,
    Operation,
    ProfileCount,
    Ratio,
)
from results.records.rows import Record
from results.store.layout import compress
from results.store.manifest import Manifest
from results.store.reading import RunData, read_operation_table, read_operations, read_profile, read_run
from results.text_files import json_value, read_text
from runners.cli.output import attempt, put_figures, say, write_file

if TYPE_CHECKING:
    from pandas import DataFrame

    from cleaning.gates.evidence import Evidence, SelfTest
    from cleaning.reconcile.derived import Built

HEADLINE = "headline.csv"
UTILIZATION = "utilization.csv"
PAGE = "report.html"
FIGURES = "figures"

RAW_UNTOUCHED = "; raw rows are untouched"

SHOWN = 3
"""Maximum number of problems that the line about a run without cells names."""


def rebuild(path: Path, out: Path | None = None) -> Built:
    """Derive everything from the raw rows of the run directory `path` and write it there, or into `out`.

    The returned problems include figures and pages that could not be made. Raises ValueError if `path` holds no run or
    no committed cell, StoreFault if a file could not be written.
    """
    return rebuilt(path, out)[0]


def rebuilt(path: Path, out: Path | None, reprice: bool = False) -> tuple[Built, list[str]]:
    """Return the derived tables, whose problems include the faults, and the faults. reprice: whether operations are
    counted again, if they were by other rules."""
    data = committed_run(path)
    if data.unchecked:
        say(f"note: {path} is unchecked, as older runs are: a change in its rows would not be seen")
    built, manifest = _built(data, reprice), data.manifest
    del data  # raw rows take half of the memory
    for file, content in derived_tables(built):
        write_file((out or path) / file, content, RAW_UNTOUCHED)
    faults = put_page(
        out or path, lambda: _pictures(built), lambda pictures: _page(built, pictures, manifest), RAW_UNTOUCHED
    )
    return replace(built, problems=(*built.problems, *faults)), faults


def committed_run(path: Path) -> RunData:
    """Return a run with a committed cell. Raises ValueError if there is none."""
    data = read_run(path)
    if not data.runs:
        problems = f" ({'; '.join(data.problems[:SHOWN])})" if data.problems else ""
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell{problems}")
    return data


def _built(data: RunData, reprice: bool = False) -> Built:
    """Return everything that is derived from a run."""
    from cleaning.reconcile.run import build

    path = data.path
    operations = partial(_by_present_rules if reprice else read_operation_table, path)
    return build(data, operations, partial(read_profile, path), partial(_recording, path))


def _by_present_rules(path: Path, trace_id: str) -> list[Operation]:
    from analysis.operators.registry import by_present_rules

    return [*map(by_present_rules, read_operation_table(path, trace_id))]


def _recording(path: Path, file: str) -> tuple[DataFrame, DataFrame]:
    """Return calls and kernels of the last step of a recording in the run `path`. Raises ValueError if it is damaged or
    cut."""
    from measure.trace.attribute import last_step
    from runners.cli.model_options import read_recording

    recording = read_recording(path / file, last_step)
    if recording.missing:
        raise ValueError(f"{file}: calls are missing from it: {recording.missing[0].reason}")
    return recording.calls, recording.kernels


def put_page(
    out: Path, draw: Callable[[], Mapping[str, bytes]], page: Callable[[dict[str, str]], str], other_files: str = ""
) -> list[str]:
    """Write figures, then the page that shows them; return a line for each that could not be made, whose file of an
    earlier report stays. Raises StoreFault."""
    faults: list[str] = []
    pictures = put_figures(out / FIGURES, draw, faults, other_files)
    text = attempt(PAGE, lambda: page(pictures), faults)
    if text is not None:
        write_file(out / PAGE, text, other_files)
    return faults


def derived_tables(built: Built) -> Iterable[tuple[str, bytes]]:
    """Return (file, content) of every derived table; a table without rows has its header only."""
    from reports.sweep.headline import headline_rows

    tables: dict[str, tuple[Sequence[Record], type[Record]]] = {
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
        **({"parallel.csv": (built.parallel_steps, ParallelStep)} if built.parallel_steps else {}),
    }
    for file, (rows, record) in tables.items():
        content = to_csv(rows, record).encode()
        yield file, compress(content) if file.endswith(".gz") else content


def _pictures(built: Built) -> dict[str, bytes]:
    """Return file name → content of every figure."""
    from reports.shared import figure_style
    from reports.sweep import figures

    return figure_style.render_all(lambda: figures.figures(built))


def _page(built: Built, pictures: dict[str, str], manifest: Manifest | None) -> str:
    from reports.sweep.page import page

    return page(built, pictures, manifest)


def evidence_of(path: Path) -> Evidence:
    """Return everything that the gates need from the run directory `path`. Raises ValueError if it holds no run, or
    none with a committed cell."""
    from cleaning.gates.evidence import Evidence, facts_or_fault

    data = read_run(path)
    if not data.all_runs:
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell")
    built = _built(data)
    traces = {run.trace_id: partial(read_operations, path, run.trace_id) for run in data.runs if run.trace_id}
    return Evidence(
        data=data,
        facts={trace_id: facts_or_fault(read) for trace_id, read in traces.items()},
        rebuilt=built.utilization,
        profile_counts=built.profile_counts,
        agreement=built.agreement,
        batch_laws=built.batch_laws,
        self_test=self_test_of(path),
    )


def self_test_of(path: Path) -> SelfTest | str | None:
    """Return the self-test in a run's directory; as text, why it cannot be read; None if there is none."""
    from cleaning.gates.evidence import SELF_TEST_FILE, parsed

    if not (path / SELF_TEST_FILE).is_file():
        return None
    try:
        return parsed(json_value(read_text(path / SELF_TEST_FILE)))
    except (ValueError, OSError) as fault:
        return f"cannot be read: {fault}"
