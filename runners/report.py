"""`python -m runners.report RUN`: rebuilds every table and figure of a run from its raw rows.

`--check` puts the run through every gate instead, and writes nothing. Of two runs it says whether they differ, with
`--out` as a page, too, and with `--fail-if` whether the second may replace the first (`reports/compare/gate.py`).

Needs neither a GPU nor torch. Raw files are read and never changed; what is written is derived and may be written
again: utilization.csv and its likes, cleaned/, figures/, report.html (`docs/schema.md` lists them). A figure or a page
that cannot be made costs itself alone. `rebuild` is the same as a function.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reports.shared.layout import csv_of, documents, to_csv
from results.errors import Inconsistent
from results.records.answers import (
    Comparison,
    GateCheck,
    Headline,
    ParallelStep,
    StepTime,
    Utilization,
    Verdict,
    WorkTime,
    stands,
)
from results.records.counts import Agreement, BatchLaw, CleanedOperation, CleaningLog, FlopCount, ProfileCount, Ratio
from results.records.rows import Record
from results.store.layout import compress
from results.store.manifest import MANIFEST, Manifest
from results.store.reading import RunData, read_operation_table, read_operations, read_profile, read_run
from results.text_files import json_value, read_text
from runners.cli.arguments import choice_error, names, number, share
from runners.cli.exits import FAILED, GATE, UNWRITABLE, Mistake, as_mistake, exit_code, guarded
from runners.cli.model_options import Options, parser_of
from runners.cli.output import Page, attempt, put_figures, say, show_answer, write_file

if TYPE_CHECKING:
    from argparse import Namespace

    from pandas import DataFrame

    from cleaning.gates.evidence import Evidence, SelfTest
    from cleaning.reconcile.variants import Built
    from reports.compare.page import ComparedRun

HEADLINE = "headline.csv"
UTILIZATION = "utilization.csv"
COMPARISON = "comparison.csv"
PAGE = "report.html"
FIGURES = "figures"

RAW_UNTOUCHED = "; raw rows are untouched"

SHOWN = 3
"""How many problems of a run without cells its one line names."""

DESCRIPTION = (
    "Rebuild every table and figure of a run from its raw rows; --check puts it through gates; of two runs, say "
    "whether they differ. Needs no GPU and no torch."
)

CONDITIONS = ("slower", "flop", "bytes", "launches", "memory")
"""Names that --fail-if takes. They repeat those of `reports.compare.gate`, which is slow to import."""


def parse_conditions(text: str) -> tuple[tuple[str, float], ...]:
    """Return a `type=`: "slower:2%,flop:0" as names with their limits, as ratios."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, colon, limit = (word.strip() for word in part.partition(":"))
        if name not in CONDITIONS:
            raise argparse.ArgumentTypeError(choice_error("condition", name, CONDITIONS))
        if not colon or not limit:
            raise argparse.ArgumentTypeError(f"expected {name}:LIMIT, as in {name}:2%, got {part.strip()!r}")
        if name in limits:
            raise argparse.ArgumentTypeError(f"expected {name} once, got it twice")
        try:
            limits[name] = share(limit)
        except argparse.ArgumentTypeError as fault:
            raise argparse.ArgumentTypeError(f"{name}: {fault}") from fault
    return tuple(limits.items())


OPTIONS: Options = {
    "runs": {
        "type": Path,
        "metavar": "RUN",
        "nargs": "+",
        "help": "directory of a run, as runners.sweep left it; two: compare them",
    },
    "--check": {"action": "store_true", "help": "put it through every gate instead, and write nothing"},
    "--predictions": {
        "type": Path,
        "metavar": "FILE",
        "help": "print which step times that FILE predicted held (docs/gpu.md)",
    },
    "format": {
        "choices": ("table", "text", "markdown", "csv", "json"),
        "help": "how to print (default: table); markdown: of --fail-if",
    },
    "--across": {
        "type": names("field"),
        "default": (),
        "metavar": "FIELD,FIELD",
        "help": "compare runs that differ in these",
    },
    "--margin": {
        "type": number(float, 1e-6, 10),
        "metavar": "RATIO",
        "help": "same is within this (0.03 on CUDA, 0.1 on a CPU)",
    },
    "--fail-if": {
        "type": parse_conditions,
        "metavar": "NAME:LIMIT,…",
        "help": "of two runs: exit code 5 where B has more of it than LIMIT (docs/report.md); "
        f"of {', '.join(CONDITIONS)}, as in slower:2%%,flop:0",
    },
    "--undecided": {
        "choices": ("pass", "fail"),
        "help": "of --fail-if: the result where a condition is undecided (default: pass)",
    },
    "convention": {"default": "flop"},
    "out": {"help": "where to write what is derived (default: into the run; of two runs nothing)"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. 0: everything is rebuilt; 2: the caller's mistake, as one line; 3: a file could not be made;
    5: a condition of --fail-if is met."""
    options = parser_of("report", DESCRIPTION, {"": OPTIONS}).parse_args(arguments)
    return guarded(lambda: _dispatch(options))


def _dispatch(options: Namespace) -> int:
    """Do what the options ask for; return the exit code."""
    count, several = len(options.runs), len(options.runs) > 1
    compares, decides = options.across or options.margin is not None, options.undecided or options.format == "markdown"
    mistakes = (
        (options.check and several, f"--check: expected one run, got {count}"),
        (compares and not several, "--across and --margin: expected two runs to compare, got one"),
        (options.fail_if and not several, "--fail-if: expected two runs, RUN_A RUN_B, got one"),
        (
            decides and not options.fail_if,
            "--undecided and --format markdown: expected --fail-if beside them, as in --fail-if slower:2%",
        ),
        (
            options.predictions and (several or options.check or options.convention != "flop"),
            "--predictions: expected one run, without --check and --convention",
        ),
        (count > 2, f"expected one run, or two to compare, got {count}"),
    )
    for is_wrong, message in mistakes:
        if is_wrong:
            raise Mistake(message)
    if options.check:
        return _check(options.runs[0], options.format)
    return _compare(options) if several else _rebuild(options)


# --- one run ---------------------------------------------------------------------------------------------------------


def _rebuild(options: Namespace) -> int:
    """Rebuild and print; return the exit code."""
    (directory,) = options.runs
    with as_mistake(ValueError, Inconsistent, OSError):
        built, faults = _rebuilt(directory, options.out)
        if options.predictions is not None:
            from reports.sweep.predictions import compared, predictions_text, read_predictions

            rows = compared(built, read_predictions(options.predictions))
            text = partial(predictions_text, rows)
            show_answer(options.format, text, lambda: rows, lambda: csv_of(rows))
            return _code(faults)
    show(built, options.format, options.out or directory, options.convention)
    return _code(faults)


def _code(faults: Sequence[str]) -> int:
    for line in faults:
        say(f"error: {line}")
    return UNWRITABLE if faults else 0


def rebuild(path: Path, out: Path | None = None) -> Built:
    """Derive everything from the raw rows of the run directory `path` and write it there, or into `out`.

    A figure or a page that could not be made is among the problems of what is returned. Raises ValueError if `path`
    holds no run or no committed cell, StoreFault if a file could not be written.
    """
    return _rebuilt(path, out)[0]


def _rebuilt(path: Path, out: Path | None) -> tuple[Built, list[str]]:
    """Return the derived tables, with faults among the problems; the faults."""
    data = _read(path)
    if data.unchecked:
        say(f"note: {path} is unchecked, as older runs are: a change in its rows would not be seen")
    built = _built(data)
    for file, content in derived_tables(built):
        write_file((out or path) / file, content, RAW_UNTOUCHED)
    faults = _put_page(
        out or path, lambda: _pictures(built), lambda pictures: _page(built, pictures, data.manifest), RAW_UNTOUCHED
    )
    return replace(built, problems=(*built.problems, *faults)), faults


def _read(path: Path) -> RunData:
    """Return a run with a committed cell. Raises ValueError for any other."""
    data = read_run(path)
    if not data.runs:
        problems = f" ({'; '.join(data.problems[:SHOWN])})" if data.problems else ""
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell{problems}")
    return data


def _built(data: RunData) -> Built:
    """Return everything that is derived of a run."""
    from cleaning.reconcile.run import build

    path = data.path
    return build(data, partial(read_operation_table, path), partial(read_profile, path), partial(_recording, path))


def _recording(path: Path, file: str) -> tuple[DataFrame, DataFrame]:
    """Calls and kernels of the last step of a recording in the run `path`. Raises ValueError if it is damaged
    or cut."""
    from measure.trace.attribute import last_step
    from runners.cli.model_options import read_recording

    recording = read_recording(path / file, last_step)
    if recording.missing:
        raise ValueError(f"{file}: calls are missing from it: {recording.missing[0].reason}")
    return recording.calls, recording.kernels


def _put_page(
    out: Path, draw: Callable[[], Mapping[str, bytes]], page: Callable[[dict[str, str]], str], other_files: str = ""
) -> list[str]:
    """Write figures, then the page that shows them; a line for each that could not be made; files of an earlier report
    in its place stay. Raises StoreFault."""
    faults: list[str] = []
    pictures = put_figures(out / FIGURES, draw, faults, other_files)
    text = attempt(PAGE, lambda: page(pictures), faults)
    if text is not None:
        write_file(out / PAGE, text, other_files)
    return faults


def derived_tables(built: Built) -> Iterable[tuple[str, bytes]]:
    """Return (file, content) of every derived table; one without rows is its header alone."""
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


def show(built: Built, form: str, out: Path, convention: str = "flop") -> None:
    """Print data on stdout; where the files are on stderr. convention: of CONVENTIONS, of the rows that are shown."""
    from reports.sweep.table import to_text

    rows = built.utilization if convention == "flop" else built.post2021
    show_rows(form, lambda width, colour: to_text(built, width, colour, convention), rows, Utilization)
    say(f"written to {out}: {HEADLINE}, {UTILIZATION}, cleaned, {FIGURES}, {PAGE}")


def show_rows(form: str, page: Page, rows: Sequence[Record], kind: type[Record]) -> None:
    """Show records of one kind by `show_answer`, which are a row of CSV and an object of JSON each."""
    show_answer(form, page, lambda: documents(rows), lambda: to_csv(rows, kind))


# --- gates -----------------------------------------------------------------------------------------------------------


def _check(path: Path, form: str) -> int:
    """Prints the verdicts on a run. 0: no gate fails, and none that a published run needs is open; else 1."""
    from cleaning.gates.gates import judge
    from reports.shared.numbers import run_name
    from reports.sweep.table import gates_text

    with as_mistake(ValueError, Inconsistent, OSError):
        evidence = evidence_of(path)
    verdicts = judge(evidence)
    cells = {run.cell_id: run_name(run) for run in evidence.data.runs}
    show_rows(form, lambda width, colour: gates_text(verdicts, cells, width, colour), verdicts, Verdict)
    return 0 if all(map(stands, verdicts)) else FAILED


def evidence_of(path: Path) -> Evidence:
    """Return everything that the gates ask of the run directory `path`. Raises ValueError if it holds no run, or none
    with a committed cell."""
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
    """Return the self-test that lies in a run's directory; in words, why it cannot be read; None: there is none."""
    from cleaning.gates.evidence import SELF_TEST_FILE, parsed

    if not (path / SELF_TEST_FILE).is_file():
        return None
    try:
        return parsed(json_value(read_text(path / SELF_TEST_FILE)))
    except (ValueError, OSError) as fault:
        return f"cannot be read: {fault}"


# --- two runs --------------------------------------------------------------------------------------------------------


def _compare(options: Namespace) -> int:
    """Prints a row for each cell of either run, or the answer of a gate, and with --out writes the rows with their
    page. The exit code: 5 where the gate fails, 3 for a lost figure.

    Raises Mistake for runs that cannot be compared and for an `out` that is a run, StoreFault.
    """
    from reports.compare import cells, gate
    from reports.compare.page import ComparedRun

    across, out = sorted(options.across), options.out
    for name in across:
        if name not in cells.ACROSS:
            raise Mistake(choice_error("field", name, cells.ACROSS))
    if out is not None and (out / MANIFEST).is_file():  # the files would stand among those of a run
        raise Mistake(f"--out: expected a directory of its own for the comparison, got {out}, which is a run")
    with as_mistake(ValueError, OSError):
        a, b = (ComparedRun(letter, str(path), _read(path)) for letter, path in zip("AB", options.runs, strict=True))
        rows = cells.compare_runs(a.data, b.data, across, options.margin)
        limits = tuple(gate.Condition(name, limit) for name, limit in options.fail_if or ())
        checks = gate.judge(a.data, b.data, rows, limits, across) if limits else []
    faults = [] if out is None else _write_comparison(rows, (a, b), across, out)
    if limits:
        answer = gate.GateAnswer(checks, limits, (a, b), options.undecided == "fail")
        if options.format == "markdown":
            print(gate.gate_markdown(answer), end="")
        else:
            show_answer(
                options.format,
                lambda width, colour: gate.gate_text(answer, width, colour),
                lambda: gate.document(answer),
                lambda: to_csv(checks, GateCheck),
            )
        code = GATE if answer.fails else 0
    else:
        code = 0
        show_rows(
            options.format,
            lambda width, colour: cells.comparison_text(rows, a.path, b.path, across, width, colour),
            rows,
            Comparison,
        )
    if out is not None:
        say(f"written: {out / COMPARISON}, {out / FIGURES}, {out / PAGE}")
    return _code(faults) or code


def _write_comparison(
    rows: Sequence[Comparison], sides: tuple[ComparedRun, ComparedRun], across: Sequence[str], out: Path
) -> list[str]:
    """Return the table, then what is drawn of it, then the page; a line for each that could not be made. Raises
    StoreFault."""
    from reports.compare import page
    from reports.shared import figure_style

    write_file(out / COMPARISON, to_csv(rows, Comparison))
    return _put_page(
        out,
        lambda: figure_style.render_all(lambda: page.ratios(rows)),
        lambda pictures: page.page(rows, sides, pictures, across),
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
