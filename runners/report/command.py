"""`python -m runners.report RUN`: rebuilds every table and figure of a run from its raw rows.

With `--check` it puts the run through gates instead, and of two runs it says whether they
differ, with `--out` as a page, too, and with `--fail-if` whether the second may replace
the first (`runners/report/compare.py`).

Needs neither a GPU nor torch. Raw files are read and never changed; what is written is derived and may be written
again: utilization.csv and its likes, cleaned/, figures/, report.html (`docs/schema.md` lists them). A figure or a page
that cannot be made costs itself alone. `rebuild` is the same as a function.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runners.cli.arguments import choice_error, names, number, share
from runners.cli.exits import UNWRITABLE, Mistake, as_mistake, guarded
from runners.cli.model_options import Options, parser_of
from runners.cli.output import attempt, put, put_figures, say, show_answer
from runners.report.derived import HEADLINE, UTILIZATION, derived_tables, recording, show_rows

if TYPE_CHECKING:
    from argparse import Namespace

    from cleaning.reconcile.variants import Built
    from reports.sweep.checks import Predictions
    from results.store.manifest import Manifest


PAGE = "report.html"
FIGURES = "figures"

KEPT = "; raw rows are untouched"

FORMATS = ("table", "text", "markdown", "csv", "json")

SHOWN = 3
"""How many problems of a run without cells its one line names."""

DESCRIPTION = (
    "Rebuild every table and figure of a run from its raw rows; --check puts it through gates; of two runs, say "
    "whether they differ. Needs no GPU and no torch."
)


CONDITIONS = ("slower", "flop", "bytes", "launches", "memory")
"""Of --fail-if: the names of `reports.compare.CONDITIONS`, which takes longer to import than a mistake may."""


def parse_conditions(text: str) -> tuple[tuple[str, float], ...]:
    """A `type=`: "slower:2%,flop:0" as names with their limits, as ratios."""
    found: list[tuple[str, float]] = []
    for part in text.split(","):
        name, colon, limit = (word.strip() for word in part.partition(":"))
        if name not in CONDITIONS:
            raise argparse.ArgumentTypeError(choice_error("condition", name, CONDITIONS))
        if not colon or not limit:
            raise argparse.ArgumentTypeError(f"expected {name}:LIMIT, as in {name}:2%, got {part.strip()!r}")
        if name in dict(found):
            raise argparse.ArgumentTypeError(f"expected {name} once, got it twice")
        try:
            found.append((name, share(limit)))
        except argparse.ArgumentTypeError as fault:
            raise argparse.ArgumentTypeError(f"{name}: {fault}") from fault
    return tuple(found)


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
        "help": "of a run: print which step times that FILE predicted held (docs/gpu.md)",
    },
    "format": {"choices": FORMATS, "help": "how to print (default: table); markdown: of --fail-if"},
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
    """The command. 0: everything is rebuilt; 2: the caller's mistake, as one line; 3: a file could not be made; 5: a
    condition of --fail-if is met."""
    options = parser_of("report", DESCRIPTION, {"": OPTIONS}).parse_args(arguments)
    return guarded(lambda: _dispatch(options))


def _dispatch(options: Namespace) -> int:
    """What the options ask for; the exit code."""
    several, is_plain = len(options.runs) > 1, options.convention == "flop"
    mistakes = (
        (options.check and several, f"--check: expected one run, got {len(options.runs)}"),
        (
            (options.across or options.margin is not None) and not several,
            "--across and --margin: expected two runs to compare, got one",
        ),
        (options.fail_if and not several, "--fail-if: expected two runs, RUN_A RUN_B, got one"),
        (
            (options.undecided or options.format == "markdown") and not options.fail_if,
            "--undecided and --format markdown: expected --fail-if beside them, as in --fail-if slower:2%",
        ),
        (
            options.predictions is not None and (several or options.check or not is_plain),
            "--predictions: expected one run, without --check and --convention",
        ),
    )
    for is_wrong, words in mistakes:
        if is_wrong:
            raise Mistake(words)
    if options.check:
        from runners.report import compare

        return compare.render_check(options.runs[0], options.format)
    if several:
        return _compare(options)
    return _rebuild(options)


def _compare(options: Namespace) -> int:
    from reports.compare.cells import ACROSS
    from runners.report import compare

    if len(options.runs) > 2:
        raise Mistake(f"expected one run, or two to compare, got {len(options.runs)}")
    for name in options.across:
        if name not in ACROSS:
            raise Mistake(choice_error("field", name, ACROSS))
    first, second = options.runs
    return compare.render(
        first,
        second,
        options.format,
        options.across,
        options.margin,
        options.out,
        options.fail_if or (),
        options.undecided or "pass",
    )


def _rebuild(options: Namespace) -> int:
    """Rebuilds and prints; the exit code."""
    from results.errors import Inconsistent

    (directory,) = options.runs
    with as_mistake(ValueError, Inconsistent, OSError):
        predictions = _predictions(options.predictions) if options.predictions else None
        built, faults = _rebuilt(directory, options.out)
        if predictions is not None:
            show_predictions(built, predictions, options.format)
    if predictions is None:
        show(built, options.format, options.out or directory, options.convention)
    for line in faults:
        say(f"error: {line}")
    return UNWRITABLE if faults else 0


def rebuild(path: Path, out: Path | None = None) -> Built:
    """Derives everything from the raw rows of the run directory `path` and writes it there, or into `out`.

    A figure or a page that could not be made is among the problems of what is returned. Raises ValueError if `path`
    holds no run or no committed cell, StoreFault if a file could not be written.
    """
    return _rebuilt(path, out)[0]


def _predictions(path: Path) -> Predictions:
    """The predictions in a file. Raises ValueError, OSError."""
    from reports.sweep.checks import read_predictions

    try:
        return read_predictions(path)
    except ValueError as fault:
        raise ValueError(f"--predictions: {path}: {fault}") from fault


def show_predictions(built: Built, predictions: Predictions, form: str) -> None:
    """A row for each cell that was predicted, on stdout. Raises ValueError where none was."""
    from reports.shared.layout import csv_of
    from reports.sweep.checks import checked, predictions_text

    rows = checked(built, predictions)
    show_answer(form, lambda width, colour: predictions_text(rows, width, colour), lambda: rows, lambda: csv_of(rows))


def _rebuilt(path: Path, out: Path | None) -> tuple[Built, list[str]]:
    """What was derived, with its faults among the problems; the faults."""
    from cleaning.reconcile.run import build
    from results.store.reading import read_operation_table, read_run
    from results.store.store import read_profile

    data = read_run(path)
    if not data.runs:
        problems = f" ({'; '.join(data.problems[:SHOWN])})" if data.problems else ""
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell{problems}")
    if data.unsealed:
        say(f"note: {path} is unsealed, as older runs are: a change in its rows would not be seen")
    built = build(
        data,
        partial(read_operation_table, path),
        partial(read_profile, path),
        partial(recording, path),
    )
    faults = write(built, out or path, data.manifest)
    return replace(built, problems=(*built.problems, *faults)), faults


def write(built: Built, out: Path, manifest: Manifest | None = None) -> list[str]:
    """Puts every derived file into `out`, each whole: tables first, then the figures, then the page.

    manifest: what the page also tells of. Returns a line for each figure or page that could not be made; files of an
    earlier report in its place stay. Raises StoreFault.
    """
    for file, content in derived_tables(built):
        put(out / file, content, KEPT)
    faults: list[str] = []
    pictures = put_figures(out / FIGURES, lambda: _pictures(built), faults, KEPT)
    page = attempt(PAGE, lambda: _page(built, pictures, manifest), faults)
    if page is not None:
        put(out / PAGE, page, KEPT)
    return faults


def _pictures(built: Built) -> dict[str, bytes]:
    """File name → content of every figure."""
    from reports.shared import figure_style
    from reports.sweep.figures import gallery

    return figure_style.render_all(lambda: gallery.figures(built))


def _page(built: Built, pictures: dict[str, str], manifest: Manifest | None) -> str:
    from reports.sweep.page import page

    return page(built, pictures, manifest)


def show(built: Built, form: str, out: Path, convention: str = "flop") -> None:
    """Data on stdout; where the files are on stderr. convention: of CONVENTIONS, of the rows that are shown."""
    from reports.sweep.table import to_text
    from results.records.answers import Utilization

    rows = built.utilization if convention == "flop" else built.post2021
    show_rows(form, lambda width, colour: to_text(built, width, colour, convention), rows, Utilization)
    say(f"written to {out}: {HEADLINE}, {UTILIZATION}, cleaned, {FIGURES}, {PAGE}")
