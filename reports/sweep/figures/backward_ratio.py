"""Backward ÷ forward FLOP of models and of kinds of operation, drawn from cleaned/ratios.csv alone.

Of each profile (one sample, a batch, an epoch) as the profiler found it and as cleaning left it, beside what it must
be: for a model 2 - the share of its first operation, whose input needs no gradient. The rule of thumb 2:1 is a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from analysis.utilization.numerators import OWN
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import digits, fitting

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BY_MODEL = "backward_forward_by_model"
BY_KIND = "backward_forward_by_operation"
WORKS = ("one", "batch", "epoch")
RULE_OF_THUMB = 2.0

_MOST_MODELS = 18
_FAR = 4.0
"""Ratios beyond this are written at the edge instead of stretching the axis."""

_HOLLOW: dict[str, Any] = {"markerfacecolor": "none", "markersize": 5.5}
_CLOSE = 0.5
"""Ratios below this leave no room for words at 0."""


def ratios(frame: pd.DataFrame) -> dict[str, Figure]:
    """File name → figure: by model and by kind, as far as there are rows. frame: rows of cleaned/ratios.csv."""
    rows = figure_panels.floats(frame, ("ratio", "exact_ratio", "forward_flop"))
    profiled = figure_panels.one_source(rows[rows["work"].isin(WORKS)])
    models = profiled[profiled["level"] == "model"]
    names = [str(name) for name in models["model"].unique()]
    drawn = figure_panels.paged(BY_MODEL, names, _MOST_MODELS, partial(_figure, models, "model"))
    kinds = rows[(rows["level"] == "kind") & ((rows["source"] == OWN) | rows.index.isin(profiled.index))]
    kinds = kinds.assign(work=kinds["work"].where(kinds["work"] != "", "exact"))
    size = kinds.dropna(subset=["ratio"]).groupby("name", sort=False)["forward_flop"].max()  # the most FLOP first
    names = [str(name) for name in size.sort_values(ascending=False, kind="stable").index]
    return drawn | ({BY_KIND: _figure(kinds, "name", names)} if names else {})


def _figure(rows: pd.DataFrame, column: str, names: Sequence[str]) -> Figure:
    """A row for each name, and in it a lane for each profile; a mark for each value among the batch sizes."""
    rows = rows[rows[column].isin(names)]
    works = figure_panels.in_order(rows["work"], (*WORKS, "exact"))
    height_in = 0.6 + max(0.8, len(names) * max(0.3, (len(works) + 1) * figure_panels.LANE_IN))
    figure, (axes,), _ = figure_panels.grid(1, 1, height_in, width_in=figure_style.PAGE_IN)
    known = [RULE_OF_THUMB, *rows["ratio"].dropna(), *rows["exact_ratio"].dropna()]
    highest = max(ratio for ratio in known if ratio <= _FAR)
    end = highest * (1.06 if max(known) <= highest else 1.2)  # with room for numbers at the edge
    axes.set_xlim(0, end)
    axes.axvline(RULE_OF_THUMB, color="0.4", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    for y, name in enumerate(names):
        here = rows[rows[column] == name]
        for exact in figure_panels.distinct(here["exact_ratio"]):
            axes.plot([exact, exact], [y - 0.42, y + 0.42], color="0.1", linewidth=1.6, zorder=2, solid_capstyle="butt")
        for work, place in figure_panels.lanes(works).items():
            _lane(axes, here[here["work"] == work], y + place, end, work)
    figure_panels.label_rows(axes, [fitting(name, figure_panels.ROW_LETTERS) for name in names])
    sources = [name for name in rows["source"].unique() if name != OWN]
    below = (
        f"backward FLOP ÷ forward FLOP of a {'model' if column == 'model' else 'kind of operation'}",
        f"as found and cleaned of {' and '.join(sources)}" if sources else "",
    )
    marks = _marks(works, exact=bool(rows["exact_ratio"].notna().any()))
    return figure_panels.finish(figure, [axes], marks, *below)


def _lane(axes: Axes, rows: pd.DataFrame, y: float, end: float, work: str) -> None:
    """The ratios of one profile; why it has none as it was found."""
    colour, marker = figure_style.looks([work], "method")[work]
    for state, look in (("found", _HOLLOW), ("cleaned", {"markersize": 2.8})):
        known = figure_panels.distinct(rows.loc[rows["state"] == state, "ratio"])
        _marked(axes, known, y, end, color=colour, marker=marker, **look)
    lost = rows[(rows["state"] == "found") & rows["ratio"].isna()]
    if not lost.empty and not (rows["ratio"] < _CLOSE).any():
        status = str(lost["status"].iloc[0])
        words = _why_no_ratio(lost) if status == "unavailable" else figure_panels.why(status)
        figure_panels.write_word(axes, f"as found: {words}", 0, y, colour)


def _marked(axes: Axes, ratios: Sequence[float], y: float, end: float, **look: Any) -> None:
    """Marks inside the axis; far beyond it on the right their number at the edge."""
    inside = [ratio for ratio in ratios if ratio <= end]
    if inside:
        axes.plot(inside, [y] * len(inside), linestyle="none", clip_on=False, zorder=3, **look)
    beyond = [ratio for ratio in ratios if ratio > end]
    if beyond:
        words = ", ".join(dict.fromkeys(digits(ratio) for ratio in beyond))
        words_look: dict[str, Any] = {**figure_panels.WORDS, "fontsize": 5.5, "ha": "right", "va": "center_baseline"}
        axes.annotate(f"{words} →", (end, y), (-2, 0), color=look["color"], **words_look)


def _why_no_ratio(rows: pd.DataFrame) -> str:
    """Whether the recorder counted a part of the calls, or none."""
    columns = ["forward_at_least_flop", "backward_at_least_flop"]
    known = figure_panels.floats(rows, columns)[columns] > 0
    return "not all counted" if known.any(axis=None) else "nothing counted"


def _marks(works: Sequence[str], *, exact: bool) -> list[Any]:
    """The works, what hollow and filled mean, and the lines."""
    marks = figure_panels.marks_of(figure_style.looks(works, "method"), {"exact": "our own count"})
    marks.append(figure_panels.mark("hollow: as found", color=figure_panels.GREY, marker="o", **_HOLLOW))
    marks.append(figure_panels.mark("filled: cleaned", color=figure_panels.GREY, marker="o"))
    if exact:
        stroke = figure_panels.mark("exact: 2 − share of the first", color="0.1", marker="|", markersize=8)
        stroke.set_markeredgewidth(1.6)
        marks.append(stroke)
    dashed = {"color": "0.4", "linewidth": 0.8, "linestyle": (0, (4, 3))}
    return [*marks, figure_panels.mark("2:1, the rule of thumb", **dashed)]
