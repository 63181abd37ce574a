"""`python -m runners.report A B`: are these two runs different? Reads both; what it tells is a page only with --out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runners.cli.exits import UNWRITABLE, Mistake
from runners.cli.output import attempt, put, remove_others, say
from runners.report.derived import show_rows
from runners.report.gate import show_gate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from reports.compare.page import Side
    from results.records.comparisons import Comparison
    from results.store.reading import RunData

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
    from reports.compare import cells
    from reports.compare.gate import Condition, judge
    from reports.compare.page import Side
    from results.store.manifest import MANIFEST

    if out is not None and (out / MANIFEST).is_file():  # the files would stand among those of a run
        raise Mistake(f"--out: expected a directory of its own for the comparison, got {out}, which is a run")
    try:
        sides = Side("A", str(a), _read(a)), Side("B", str(b), _read(b))
        rows = cells.compare_runs(sides[0].data, sides[1].data, across, margin_ratio)
        asked = tuple(Condition(name, limit) for name, limit in fail_if)
        checks = judge(sides[0].data, sides[1].data, rows, asked, across) if asked else []
    except (ValueError, OSError) as fault:
        raise Mistake(str(fault)) from fault
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
    from reports.compare import cells as compare_text
    from results.records.comparisons import Comparison

    first, second = (side.path for side in sides)
    show_rows(
        form,
        lambda width, colour: compare_text.to_text(rows, first, second, across, width, colour),
        rows,
        Comparison,
    )


def _write(rows: Sequence[Comparison], sides: tuple[Side, Side], across: Sequence[str], out: Path) -> list[str]:
    """The table, then what is drawn of it, then the page; a line for each that could not be made. Raises StoreFault."""
    from reports.compare import page
    from reports.shared import figure_style
    from reports.sweep.table import to_csv
    from results.records.comparisons import Comparison

    put(out / TABLE, to_csv(rows, Comparison))
    faults: list[str] = []
    drawn = attempt("figures", lambda: figure_style.render_all(lambda: page.ratios(rows)), faults) or {}
    for name, content in drawn.items():
        put(out / FIGURES / name, content)
    if not faults:
        remove_others(out / FIGURES, drawn)
    pictures = {name.removesuffix(".svg"): svg.decode() for name, svg in drawn.items() if name.endswith(".svg")}
    text = attempt(PAGE, lambda: page.page(rows, sides, pictures, across), faults)
    if text is not None:
        put(out / PAGE, text)
    return faults


def _read(path: Path) -> RunData:
    from results.store.reading import read_run

    data = read_run(path)
    if not data.runs:
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell")
    return data
