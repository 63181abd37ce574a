"""`python -m runners.report A B`: are these two runs different? Reads both; what it tells is a page only with --out.

`python -m runners.report A B --fail-if slower:2%,flop:0`: may run B replace run A? Exit code 5 where it may not.

Reads both runs and writes nothing but its answer. What each condition means: `reports/compare/gate.py`.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from reports.compare import cells, page
from reports.compare.gate import Condition, fails, gate_markdown, gate_summary, gate_text, judge
from reports.compare.page import Side
from reports.shared import figure_style
from reports.sweep.table import documents, to_csv
from results.records.comparisons import Comparison, GateCheck
from results.store.manifest import MANIFEST
from results.store.reading import RunData, read_run
from runners.cli.exits import GATE, UNWRITABLE, Mistake, as_mistake
from runners.cli.output import attempt, put, put_figures, say, show_answer
from runners.report.derived import show_rows

TABLE = "comparison.csv"
PAGE = "report.html"
FIGURES = "figures"


def render(
    a: Path,
    b: Path,
    form: str,
    across: Collection[str] = (),
    margin_ratio: float | None = None,
    out: Path | None = None,
    fail_if: Sequence[tuple[str, float]] = (),
    undecided: str = "pass",
) -> int:
    """Prints a row for each cell of either run, and writes them with their page into `out`; 0, or 3 for a lost figure.

    fail_if: conditions of a gate with their limits: prints its answer in place of the rows, and returns 5 if it fails.

    Raises Mistake for runs that cannot be compared and for an `out` that is a run, StoreFault.
    """
    if out is not None and (out / MANIFEST).is_file():  # the files would stand among those of a run
        raise Mistake(f"--out: expected a directory of its own for the comparison, got {out}, which is a run")
    with as_mistake(ValueError, OSError):
        sides = Side("A", str(a), _read(a)), Side("B", str(b), _read(b))
        rows = cells.compare_runs(sides[0].data, sides[1].data, across, margin_ratio)
        asked = tuple(Condition(name, limit) for name, limit in fail_if)
        checks = judge(sides[0].data, sides[1].data, rows, asked, across) if asked else []
    faults = [] if out is None else _write(rows, sides, sorted(across), out)
    if asked:
        code = show_gate(checks, asked, sides, form, undecided)
    else:
        code = 0
        _print(rows, sides, form, sorted(across))
    if out is not None:
        say(f"written: {out / TABLE}, {out / FIGURES}, {out / PAGE}")
    for line in faults:
        say(f"error: {line}")
    return UNWRITABLE if faults else code


def _print(rows: Sequence[Comparison], sides: tuple[Side, Side], form: str, across: Sequence[str]) -> None:

    first, second = (side.path for side in sides)
    show_rows(
        form,
        lambda width, colour: cells.to_text(rows, first, second, across, width, colour),
        rows,
        Comparison,
    )


def _write(rows: Sequence[Comparison], sides: tuple[Side, Side], across: Sequence[str], out: Path) -> list[str]:
    """The table, then what is drawn of it, then the page; a line for each that could not be made. Raises StoreFault."""
    put(out / TABLE, to_csv(rows, Comparison))
    faults: list[str] = []
    pictures = put_figures(out / FIGURES, lambda: figure_style.render_all(lambda: page.ratios(rows)), faults)
    text = attempt(PAGE, lambda: page.page(rows, sides, pictures, across), faults)
    if text is not None:
        put(out / PAGE, text)
    return faults


def _read(path: Path) -> RunData:

    data = read_run(path)
    if not data.runs:
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell")
    return data


def show_gate(
    checks: Sequence[GateCheck], asked: Sequence[Condition], sides: tuple[Side, Side], form: str, undecided: str
) -> int:
    """Prints the answer; 5 if the gate fails, else 0."""
    strict = undecided == "fail"
    if form == "markdown":
        print(gate_markdown(checks, asked, sides, strict), end="")
    else:
        show_answer(
            form,
            lambda width, colour: gate_text(checks, asked, sides, strict, width, colour),
            lambda: {**gate_summary(checks, asked, strict), "checks": documents(checks)},
            lambda: to_csv(checks, GateCheck),
        )
    return GATE if fails(checks, strict) else 0
