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

_NEAR = (1.85, 2.05)
"""What the second panel shows at least: where the ratios of whole models must be."""

_HOLLOW: dict[str, Any] = {"markerfacecolor": "none", "markersize": 5.5}
_CLOSE = 0.5
"""Ratios below this leave no room for words at 0."""


def ratios(frame: pd.DataFrame) -> dict[str, Figure]:
    """File name → figure: by model and by kind, as far as there are rows. frame: rows of cleaned/ratios.csv."""
    rows = figure_panels.floats(frame, ("ratio", "exact_ratio"))
    profiled = figure_panels.one_source(rows[rows["work"].isin(WORKS)])
    models = profiled[profiled["level"] == "model"]
    names = [str(name) for name in models["model"].unique()]
    drawn = figure_panels.paged(BY_MODEL, names, _MOST_MODELS, partial(_by_model, models))
    source = set(profiled["source"])
    ours = rows["source"] == OWN
    kinds = rows[(rows["level"] == "kind") & (ours | (rows["work"].isin(WORKS) & rows["source"].isin(source)))]
    return drawn | ({BY_KIND: _by_kind(kinds)} if not kinds.empty else {})


def _by_model(rows: pd.DataFrame, models: Sequence[str]) -> Figure:
    """Left everything from 0 on, right what is close to 2, enlarged."""
    works = figure_panels.in_order(rows["work"], WORKS)
    here = rows[rows["model"].isin(models)]
    row_in = max(0.24, (len(works) + 1) * figure_panels.LANE_IN)
    figure, drawn, spare = figure_panels.grid(2, 2, 0.35 + max(0.8, len(models) * row_in), share_x=False)
    # the ends of the enlarged panel: the exact ratios and what is close to them
    known = [*here["exact_ratio"].dropna(), *here["ratio"].dropna()]
    close = [ratio for ratio in known if _NEAR[0] - 0.2 <= ratio <= _NEAR[1] + 0.2]
    low, high = (min([_NEAR[0] + 0.04, *close]), max([RULE_OF_THUMB, *close]))
    margin = 0.06 * (high - low)
    near = (low - margin, high + margin)
    for axes, ends in zip(drawn, ((0.0, _reach(here)), near), strict=True):
        axes.set_xlim(*ends)
        for y, model in enumerate(models):
            _model_row(axes, here[here["model"] == model], y, works, ends)
        _rows(axes, [fitting(name, figure_panels.ROW_LETTERS) for name in models])
    drawn[0].set_title("found and cleaned")
    drawn[1].set_title("near 2, enlarged")
    below = ("backward FLOP ÷ forward FLOP of a model", _source(here))
    return figure_panels.finish(figure, drawn, _marks(works, exact=True), *below, spare=spare)


def _model_row(axes: Axes, rows: pd.DataFrame, y: int, works: Sequence[str], ends: tuple[float, float]) -> None:
    """One model: a lane a work, the exact ratio as a thick stroke through all lanes."""
    for exact in figure_panels.distinct(rows["exact_ratio"]):
        if ends[0] <= exact <= ends[1]:
            axes.plot([exact, exact], [y - 0.42, y + 0.42], color="0.1", linewidth=1.6, zorder=2, solid_capstyle="butt")
    lost: dict[str, str] = {}
    places = figure_panels.lanes(works)
    for work, place in places.items():
        mine = rows[rows["work"] == work]
        found, cleaned = (
            figure_panels.distinct(mine.loc[mine["state"] == state, "ratio"]) for state in ("found", "cleaned")
        )
        colour, marker = figure_style.method_looks([work])[work]
        _marked(axes, found, y + place, ends, color=colour, marker=marker, **_HOLLOW)
        _marked(axes, cleaned, y + place, ends, color=colour, marker=marker, markersize=2.8)
        if not mine.empty and not found and not cleaned:
            lost[work] = figure_panels.why(str(mine["status"].iloc[0]))
    if ends[0] > 0:  # the enlarged panel does not say it again
        return
    if len(lost) == len(works) > 1 and len(set(lost.values())) == 1:
        figure_panels.write_word(axes, next(iter(lost.values())), 0, y, fontsize=7)
        return
    for work, words in lost.items():
        figure_panels.write_word(axes, words, 0, y + places[work], figure_style.method_looks([work])[work][0])


def _marked(axes: Axes, ratios: Sequence[float], y: float, ends: tuple[float, float], **look: Any) -> None:
    """Marks inside the axis; far beyond it on the right their number at the edge."""
    inside = [ratio for ratio in ratios if ends[0] <= ratio <= ends[1]]
    if inside:
        axes.plot(inside, [y] * len(inside), linestyle="none", clip_on=False, zorder=3, **look)
    beyond = [ratio for ratio in ratios if ratio > ends[1]]
    if beyond:
        words = ", ".join(dict.fromkeys(digits(ratio) for ratio in beyond))
        words_look: dict[str, Any] = {**figure_panels.WORDS, "fontsize": 5.5, "ha": "right", "va": "center_baseline"}
        axes.annotate(f"{words} →", (ends[1], y), (-2, 0), color=look["color"], **words_look)


def _by_kind(rows: pd.DataFrame) -> Figure:
    """One row a kind, a lane a profile; a mark for each value among the models and batch sizes."""
    rows = rows.assign(work=rows["work"].where(rows["work"] != "", "exact"))
    works = figure_panels.in_order(rows["work"], (*WORKS, "exact"))
    kinds = _kinds(rows)
    row_in = max(0.3, (len(works) + 1) * figure_panels.LANE_IN)
    figure, (axes,), _ = figure_panels.grid(1, 1, 0.35 + max(0.8, len(kinds) * row_in), width_in=figure_style.PAGE_IN)
    ends = (0.0, _reach(rows))
    axes.set_xlim(*ends)
    for y, kind in enumerate(kinds):
        here = rows[rows["name"] == kind]
        known_works = set(here.dropna(subset=["ratio"])["work"])
        for work, place in figure_panels.lanes(work for work in works if work in known_works).items():
            mine = here[here["work"] == work]
            colour, marker = figure_style.method_looks([work])[work]
            for state, look in (("found", _HOLLOW), ("cleaned", {"markersize": 3.0, "alpha": 0.75})):
                known = figure_panels.distinct(mine.loc[mine["state"] == state, "ratio"])
                _marked(axes, known, y + place, ends, color=colour, marker=marker, **look)
            lost = mine[(mine["state"] == "found") & mine["ratio"].isna()]
            if not lost.empty and not (mine["ratio"] < _CLOSE).any():
                status = str(lost["status"].iloc[0])
                words = _why_no_ratio(lost) if status == "unavailable" else figure_panels.why(status)
                figure_panels.write_word(axes, f"as found: {words}", 0, y + place, colour)
    _rows(axes, kinds)
    what = "a mark for each value" if rows["model"].nunique() > 1 else f"of {rows['model'].iloc[0]}"
    below = (f"backward FLOP ÷ forward FLOP of a kind of operation; {what}", _source(rows))
    return figure_panels.finish(figure, [axes], _marks(works, exact=False), *below)


def _why_no_ratio(rows: pd.DataFrame) -> str:
    """Whether the recorder counted a part of the calls, or none."""
    columns = ["forward_at_least_flop", "backward_at_least_flop"]
    known = figure_panels.floats(rows, columns)[columns] > 0
    return "not all counted" if known.any(axis=None) else "nothing counted"


def _kinds(rows: pd.DataFrame) -> list[str]:
    """Kinds that have a ratio, the one with the most forward FLOP first."""
    known = figure_panels.floats(rows.dropna(subset=["ratio"]), ("forward_flop",))
    size = known.groupby("name", sort=False)["forward_flop"].max()
    return [str(name) for name in size.sort_values(ascending=False, kind="stable").index]


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.axvline(RULE_OF_THUMB, color="0.4", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    figure_panels.label_rows(axes, labels)


def _marks(works: Sequence[str], *, exact: bool) -> list[Any]:
    """The works, what hollow and filled mean, and the lines."""
    looks = figure_style.method_looks(works)
    names = {"exact": "our own count"}
    marks = [figure_panels.mark(names.get(work, work), color=c, marker=marker) for work, (c, marker) in looks.items()]
    marks.append(figure_panels.mark("hollow: as found", color=figure_panels.GREY, marker="o", **_HOLLOW))
    marks.append(figure_panels.mark("filled: cleaned", color=figure_panels.GREY, marker="o"))
    if exact:
        stroke = figure_panels.mark("exact: 2 − share of the first", color="0.1", marker="|", markersize=8)
        stroke.set_markeredgewidth(1.6)
        marks.append(stroke)
    dashed = {"color": "0.4", "linewidth": 0.8, "linestyle": (0, (4, 3))}
    return [*marks, figure_panels.mark("2:1, the rule of thumb", **dashed)]


def _source(rows: pd.DataFrame) -> str:
    sources = [name for name in rows["source"].unique() if name != OWN]
    return f"as found and cleaned of {' and '.join(sources)}" if sources else ""


def _reach(rows: pd.DataFrame) -> float:
    """The right end of the axis: above the largest ratio that is not far off, and above 2."""
    known = [*rows["ratio"].dropna(), *rows["exact_ratio"].dropna()]
    highest = max([RULE_OF_THUMB, *(float(ratio) for ratio in known if ratio <= _FAR)])
    return highest * (1.06 if max([highest, *known]) <= highest else 1.2)  # with room for numbers at the edge
