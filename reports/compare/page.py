"""Builds report.html of a comparison: whether two runs differ, cell by cell, as one HTML file with a figure.

`page` takes the rows of `reports.compare.cells`, both runs and figures as SVG text, and returns the document. It uses
no peak and reads no clock, so that two runs always give the same bytes. Its p-values are Holm-corrected over all cells.
`ratios` takes the rows and draws the figure. It has one dot per cell: the ratio B ÷ A with the 95 % interval. Cells
without a ratio are only in the table, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.stats.comparison import SESSIONS
from reports.compare.cells import HEADS, NO_COUNTERPART, cell_names, closing_lines, interval_text, row_cells
from reports.shared import figure_panels, figure_style
from reports.shared.html import (
    FigureCaption,
    PageBlock,
    PageTable,
    PageVerdict,
    Part,
    Section,
    document,
    natural,
    picture,
    span,
)
from reports.shared.numbers import DASH, STATUS_TEXTS, digits, parts, percent, shortened_name
from results.records.answers import FASTER, ONLY_IN_ONE, SAME, SLOWER, UNKNOWN, Comparison
from results.records.rows import to_text
from results.store.reading import RunData

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_NAME_LETTERS = 60
_ALWAYS = ("host", "before the run: load_1min", "load_1min")
"""Facts in which any two sessions differ."""

_HOW = (
    "Cells are matched by what decides a training step. B ÷ A is the ratio of mean step times, relative to "
    "a ceiling where one was timed beside both: above 1, B is slower. p, differ and p, same are corrected for the "
    "number of cells (Holm); docs/evidence.md says how each verdict is reached."
)


@dataclass(frozen=True)
class ComparedRun:
    """One of the two runs. letter: A or B. path: the run's path as the user typed it."""

    letter: str
    path: str
    data: RunData

    @property
    def name(self) -> str:
        return self.data.manifest.name or self.path

    @property
    def line(self) -> str:
        """The run's name, devices, torch versions and days, in one line."""
        sessions = self.data.sessions
        devices = dict.fromkeys(session.device_name or session.device for session in sessions)
        torch = dict.fromkeys(f"torch {session.torch_version}" for session in sessions if session.torch_version)
        days = dict.fromkeys(session.started_at[:10] for session in sessions if session.started_at)
        return " · ".join((self.name, *devices, *torch, *days))


def page(
    rows: Sequence[Comparison],
    sides: tuple[ComparedRun, ComparedRun],
    figures: Mapping[str, str],
    across: Sequence[str] = (),
) -> str:
    """Return the whole document. rows: of `compare_runs`; figures: name → SVG text; across: fields that were allowed to
    differ."""
    title = " · ".join(("flopledger", f"{sides[1].name} against {sides[0].name}"))
    pictures = [picture(name, svg, CAPTIONS) for name, svg in figures.items()]
    lines = tuple(f"{side.letter}: {line}" for side in sides for line in side.data.problems)
    problems = ("What was wrong with the runs' files; rows that it names are in no number here.", lines)
    sections = (
        Section("cells", "Cells", (_HOW, _cells(rows))),
        Section("figures", "Figures", pictures or ("No cell has a time in both.",)),
        Section("environment", "Environment", _environment(sides)),
        Section("problems", "Problems of files", problems if lines else ()),
    )
    return document(title, _verdict(rows, sides, across), sections)


def sentence(rows: Sequence[Comparison]) -> str:
    """Summarise the cells that both runs have in one sentence."""
    matched = [row for row in rows if row.verdict not in ONLY_IN_ONE]
    count = {verdict: sum(row.verdict == verdict for row in matched) for verdict in (SLOWER, FASTER, SAME, UNKNOWN)}
    all_of = "the cell" if len(matched) == 1 else f"all {len(matched)} cells"
    single_verdict = next((verdict for verdict, number in count.items() if number == len(matched)), "")
    if single_verdict == UNKNOWN:
        return f"Whether B is faster or slower is undecided in {all_of} of both runs."
    if single_verdict:
        word = "takes the same time as A" if single_verdict == SAME else f"is {single_verdict} than A"
        ratios = span([row.ratio for row in matched], digits)
        return f"B {word} in {all_of} of both runs: its steps take {ratios} times as long."
    parts = [f"{verdict} in {number}" for verdict, number in count.items() if number and verdict in (SLOWER, FASTER)]
    parts += [f"the same in {count[SAME]}"] if count[SAME] else []
    text = f"Of the {len(matched)} cells of both runs, B is {', '.join(parts)}"
    return f"{text}; {count[UNKNOWN]} undecided." if count[UNKNOWN] else f"{text}."


def _verdict(rows: Sequence[Comparison], sides: tuple[ComparedRun, ComparedRun], across: Sequence[str]) -> PageVerdict:
    """Return the sentence; the cell furthest from 1 with its interval; what was compared."""
    matched = [row for row in rows if row.verdict not in ONLY_IN_ONE]
    counts = [f"{len(matched)} in both"]
    counts += [f"{n} {verdict}" for verdict in ONLY_IN_ONE if (n := sum(row.verdict == verdict for row in rows))]
    rests_on = (
        *((side.letter, (side.line, side.path)) for side in sides),
        *([("Differing by choice", (", ".join(across),))] if across else []),
        ("Cells", (", ".join(counts),)),
        ("Meaning", tuple(filter(None, closing_lines(matched)[1:]))),
    )
    return PageVerdict(sentence(rows), _furthest(rows), rests_on)


def _furthest(rows: Sequence[Comparison]) -> str:
    """Return a sentence about the cell with the largest difference and its interval; "" if no cell differs."""
    decided = [(name, row) for name, row in zip(cell_names(rows), rows, strict=True) if row.verdict in (FASTER, SLOWER)]
    if not decided:
        return ""
    name, row = max(decided, key=lambda named: max(named[1].ratio or 1.0, 1 / (named[1].ratio or 1.0)))
    ratio = digits(row.ratio or 0.0)
    known = row.low_ratio is not None and row.high_ratio is not None
    ends = interval_text(row.low_ratio or 0.0, row.high_ratio or 0.0) if known else "unknown"
    interval = f"95 % interval {ends}; same would be within ±{percent(row.margin_ratio or 0.0)}"
    return (
        f"The largest difference: {shortened_name(name, _NAME_LETTERS)}, whose step takes {ratio} times as long in B "
        f"({interval}). Equal steps are compared: no datasheet's peak is in these ratios."
    )


def _cells(rows: Sequence[Comparison]) -> PageTable:
    """Return a row for each cell of either run; cells that only one run has are last, and dim."""
    variants = len({row.variant for row in rows}) > 1
    rows = sorted(rows, key=lambda row: (row.verdict in ONLY_IN_ONE, natural(row.model), row.batch_size, row.precision))
    reasons = any(map(_reason, rows))
    lines = []
    for row in rows:
        model, *texts = row_cells(row)
        below = f"\n{row.variant}" if variants and row.variant else ""
        known = (row.p_different, row.p_same)
        chances = (DASH if p is None else "<0.001" if p < 0.001 else digits(p, 2) for p in known)
        lines.append((model + below, *texts, *chances, *((_reason(row) or DASH,) if reasons else ())))
    columns = (*HEADS, "p, differ", "p, same", *(("reason",) if reasons else ()))
    text_columns = frozenset(("model", "precision", "B is", "reason"))
    dim = frozenset(index for index, row in enumerate(rows) if row.verdict in ONLY_IN_ONE)
    return PageTable("The training step of each cell in B against A", columns, tuple(lines), text_columns, dim)


def _reason(row: Comparison) -> str:
    """Return why there is no verdict. For a cell of only one run that is why it failed there, or "" if it did not."""
    reason = row.reason.removeprefix(NO_COUNTERPART)
    return "" if row.verdict in ONLY_IN_ONE and reason == "ok" else STATUS_TEXTS.get(reason, reason.replace("_", " "))


def _environment(sides: tuple[ComparedRun, ComparedRun]) -> Sequence[Part]:
    """Return the differences between the machines, then how they were measured."""
    a, b = map(_facts, sides)
    names = [name for name in {**a, **b} if a.get(name) != b.get(name) and name not in _ALWAYS]
    rows = tuple((name, a.get(name) or DASH, b.get(name) or DASH) for name in names)
    columns = ("fact", "A", "B")
    differing = PageTable("What differs between the machines of A and B", columns, rows, frozenset(columns))
    same = "The recorded facts of both machines are equal, except for host and load."
    commands = {f"{side.letter} was measured by": "\n".join(side.data.manifest.commands) for side in sides}
    return (differing if rows else same, *(PageBlock(label, text) for label, text in commands.items() if text))


def _facts(side: ComparedRun) -> dict[str, str]:
    """Return facts of a run's machines, by name: each text once."""
    texts: dict[str, dict[str, None]] = {}
    for session in side.data.sessions:
        own = {"device": session.device_name, "driver": session.driver, "torch": session.torch_version}
        before = {f"before the run: {name}": value for name, value in session.preflight.items()}
        for name, value in {**session.environment, **own, **before}.items():
            texts.setdefault(name, {})[to_text(value)] = None
    return {name: "; ".join(filter(None, values)) for name, values in texts.items()}


NAME = "step_time_ratio"
CAPTIONS = {
    NAME: FigureCaption(
        "Which cells take longer in B, and by how much",
        "comparison.csv",
        "Dots with bars for 95 % intervals: a row for each cell of both runs, the mean step time in B ÷ that in A "
        "across; a line at 1, a grey band for the margin within which cells are the same, a colour and mark for "
        "each verdict.",
    ),
}

MOST = 40
"""Cells on one figure; more go on to the next."""

_LOOKS: dict[str, tuple[int | str, str]] = {SLOWER: (3, "s"), FASTER: (2, "^"), SAME: (0, "o"), UNKNOWN: ("0.4", "D")}
"""Verdict → (place in the palette or a grey, marker)."""

_ROW_IN = 0.2
_WIDEST = 1.4
"""An interval that goes beyond the outermost dot by more than this factor is cut at the panel's edge."""

Dot = tuple[str, Comparison]


def ratios(rows: Sequence[Comparison]) -> dict[str, Figure]:
    """Return file name → figure, those that take longest in B on top; {} without any ratio. Draw inside
    `figure_style.theme()`."""
    shared = (
        [part for part in parts(rows[0].variant) if all(part in parts(row.variant) for row in rows)] if rows else []
    )
    own = [replace(row, variant=", ".join(p for p in parts(row.variant) if p not in shared)) for row in rows]
    named: list[Dot] = list(zip(cell_names(own), rows, strict=True))
    known = sorted((dot for dot in named if dot[1].ratio is not None), key=lambda dot: -(dot[1].ratio or 0.0))
    return figure_panels.paged(NAME, known, MOST, _figure)


def _figure(dots: Sequence[Dot]) -> Figure:
    import pandas as pd

    figure, (axes,), _ = figure_panels.grid(1, 1, 0.35 + _ROW_IN * max(4, len(dots)), width_in=figure_style.PAGE_IN)
    margins = sorted({row.margin_ratio for _, row in dots if row.margin_ratio is not None})
    for margin in margins:
        axes.axvspan(1 / (1 + margin), 1 + margin, color="0.92", linewidth=0, zorder=0)
    axes.axvline(1, color="0.3", linewidth=1, zorder=1)
    points = figure_panels.floats(
        pd.DataFrame([(row.verdict, row.ratio, row.low_ratio, row.high_ratio) for _, row in dots], columns=_POINT),
        _POINT[1:],
    )
    marks = []
    for verdict, (hue, marker) in _LOOKS.items():
        drawn = points[points["verdict"] == verdict]
        if not drawn.empty:
            look = {"color": figure_style.colour(hue), "marker": marker}
            figure_panels.dots(axes, drawn.assign(y=drawn.index), "value", "y", markersize=4.5, **look)
            marks.append(figure_panels.mark(f"B is {verdict}" if verdict != UNKNOWN else verdict, **look))
    figure_panels.label_rows(axes, [figure_style.label(name) for name, _ in dots])
    lowest = min(points["value"].min(), 1 / (1 + max(margins, default=0.0)))
    highest = max(points["value"].max(), 1 + max(margins, default=0.0))
    low, high = points[["low", "value"]].min(axis=None), points[["high", "value"]].max(axis=None)
    room = 0.02 * (highest - lowest) + 0.01
    axes.set_xlim(min(lowest, max(low, lowest / _WIDEST)) - room, max(highest, min(high, highest * _WIDEST)) + room)
    within = f"grey: within ±{' or '.join(map(percent, margins))}, the same" if margins else ""
    relative_to = ", relative to a ceiling timed beside both" if any(row.basis == SESSIONS for _, row in dots) else ""
    below = (f"mean step time in B ÷ in A{relative_to}; right of 1, B is slower", f"bars: 95 % interval; {within}")
    return figure_panels.finish(figure, [axes], marks, *below)


_POINT = ("verdict", "value", "low", "high")
