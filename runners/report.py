"""`python -m runners.report RUN`: rebuilds every table and figure of a run from its raw rows (`rebuild.py`).

`--check` instead tests the run by every gate (a test of its consistency), and writes nothing. `--predictions FILE`
prints which predicted step times agree with the measured ones. Given two runs, the command reports whether they differ,
and `--out` writes that as a page. `--fail-if` then decides whether the second run may replace the first
(`reports/compare/gate.py`). The command needs neither a GPU nor torch. Raw files are read and never changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reports.shared.layout import csv_of, documents, to_csv
from results.errors import Inconsistent
from results.records.answers import (
    Comparison,
    GateCheck,
    Utilization,
    Verdict,
    stands,
)
from results.records.rows import Record
from results.store.manifest import MANIFEST
from runners.cli.arguments import choice_error, names, number, share
from runners.cli.exits import FAILED, GATE, UNWRITABLE, Mistake, as_mistake, exit_code, guarded
from runners.cli.model_options import Options, parser_of
from runners.cli.output import Page, say, show_answer, write_file
from runners.rebuild import FIGURES, HEADLINE, PAGE, UTILIZATION, committed_run, evidence_of, put_page, rebuilt

if TYPE_CHECKING:
    from cleaning.reconcile.derived import Built
    from reports.compare.page import ComparedRun

COMPARISON = "comparison.csv"

DESCRIPTION = (
    "Rebuild every table and figure of a run from its raw rows, or check it (--check). Given two runs, say whether "
    "they differ. Needs no GPU and no torch."
)

CONDITIONS = ("slower", "flop", "bytes", "launches", "memory")
"""Names that --fail-if takes. They repeat those of `reports.compare.gate`, which is slow to import."""


def parse_conditions(text: str) -> tuple[tuple[str, float], ...]:
    """Parse conditions and their limits, as ratios: "slower:2%,flop:0" is (("slower", 0.02), ("flop", 0.0))."""
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
    "--check": {"action": "store_true", "help": "check the run by every gate instead, and write nothing"},
    "--reprice": {
        "action": "store_true",
        "help": "count again the operations that another version of the rules counted",
    },
    "--predictions": {
        "type": Path,
        "metavar": "FILE",
        "help": "print which step times that FILE predicted held (docs/gpu.md)",
    },
    "format": {
        "choices": ("table", "text", "markdown", "csv", "json"),
        "help": "how to print (default: table); markdown: only with --fail-if",
    },
    "--across": {
        "type": names("field"),
        "default": (),
        "metavar": "FIELD,FIELD",
        "help": "compare runs although they differ in these fields",
    },
    "--margin": {
        "type": number(float, 1e-6, 10),
        "metavar": "RATIO",
        "help": "relative difference up to which step times are the same (0.03 on CUDA, 0.1 on a CPU)",
    },
    "--fail-if": {
        "type": parse_conditions,
        "metavar": "NAME:LIMIT,…",
        "help": "for two runs: exit with code 5 if B exceeds A by more than LIMIT (docs/report.md); NAME is one of "
        f"{', '.join(CONDITIONS)}, as in slower:2%%,flop:0",
    },
    "--undecided": {
        "choices": ("pass", "fail"),
        "help": "with --fail-if: the result where a condition is undecided (default: pass)",
    },
    "convention": {"default": "flop"},
    "out": {"help": "where to write what is derived (default: into the run; for two runs nothing is written)"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. 0: done; 1: a gate of --check fails, or one that must not be open is; 2:
    the caller's mistake; 3: a file could not be made; 5: a condition of --fail-if is met."""
    options = parser_of("report", DESCRIPTION, {"": OPTIONS}).parse_args(arguments)
    return guarded(lambda: _dispatch(options))


def _dispatch(options: argparse.Namespace) -> int:
    """Run what the options request; return the exit code."""
    count, several = len(options.runs), len(options.runs) > 1
    compares, decides = options.across or options.margin is not None, options.undecided or options.format == "markdown"
    mistakes = (
        (options.check and several, f"--check: expected one run, got {count}"),
        (options.check and options.out, "--out: expected without --check, which writes nothing"),
        (
            options.convention != "flop" and (several or options.check),
            "--convention: expected one run to rebuild, without --check",
        ),
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
        (options.reprice and (several or options.check), "--reprice: expected one run, without --check"),
        (count > 2, f"expected one run, or two to compare, got {count}"),
    )
    for is_wrong, message in mistakes:
        if is_wrong:
            raise Mistake(message)
    if options.check:
        return _check(options.runs[0], options.format)
    return _compare(options) if several else _rebuild(options)


# --- one run ---------------------------------------------------------------------------------------------------------


def _rebuild(options: argparse.Namespace) -> int:
    """Rebuild and print; return the exit code."""
    (directory,) = options.runs
    with as_mistake(ValueError, Inconsistent, OSError):
        built, faults = rebuilt(directory, options.out, options.reprice)
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


def show(built: Built, form: str, out: Path, convention: str = "flop") -> None:
    """Print the table on stdout, and on stderr where the files are. convention: one of CONVENTIONS."""
    from reports.sweep.table import to_text

    rows = built.utilization if convention == "flop" else built.post2021
    show_rows(form, lambda width, colour: to_text(built, width, colour, convention), rows, Utilization)
    say(f"written to {out}: {HEADLINE}, {UTILIZATION}, cleaned, {FIGURES}, {PAGE}")


def show_rows(form: str, page: Page, rows: Sequence[Record], kind: type[Record]) -> None:
    """Show records of one kind by `show_answer`; each is a row of CSV and an object of JSON."""
    show_answer(form, page, lambda: documents(rows), lambda: to_csv(rows, kind))


# --- gates -----------------------------------------------------------------------------------------------------------


def _check(path: Path, form: str) -> int:
    """Print the verdicts on a run. Return 0 if no gate fails and none that a published run needs is open, else 1."""
    from cleaning.gates.gates import judge
    from reports.shared.numbers import run_name
    from reports.sweep.table import gates_text

    with as_mistake(ValueError, Inconsistent, OSError):
        evidence = evidence_of(path)
    verdicts = judge(evidence)
    cells = {run.cell_id: run_name(run) for run in evidence.data.runs}
    show_rows(form, lambda width, colour: gates_text(verdicts, cells, width, colour), verdicts, Verdict)
    return 0 if all(map(stands, verdicts)) else FAILED


# --- two runs --------------------------------------------------------------------------------------------------------


def _compare(options: argparse.Namespace) -> int:
    """Print a row for each cell of either run, or the answer of a gate; with --out also write the rows with their page.
    Return the exit code: 5 where the gate fails, 3 for a lost figure.

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
        a, b = (
            ComparedRun(letter, str(path), committed_run(path)) for letter, path in zip("AB", options.runs, strict=True)
        )
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
    """Write the table, then its figures, then the page; return a line for each that could not be made. Raises
    StoreFault."""
    from reports.compare import page
    from reports.shared import figure_style

    write_file(out / COMPARISON, to_csv(rows, Comparison))
    return put_page(
        out,
        lambda: figure_style.render_all(lambda: page.ratios(rows)),
        lambda pictures: page.page(rows, sides, pictures, across),
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
