"""Utilization by model, precision and batch size, drawn from utilization.csv alone.

Points are cells, bars their 95 % intervals (of the step time; peaks have none; where a run repeats cells those of any
window, see `with_ends`). Cells that were repeated are one point at their mean, the bar spanning all their intervals.
What could not be measured is written where its point would be, never left out and never drawn as zero. Cells of one
precision that are divided by different measured ceilings are series of their own, with hollow marks. Nothing is read
from anywhere else, and no file is written here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cleaning.reconcile.view import HEADLINES, METHODS
from reports.shared import figure_panels, figure_style
from reports.shared.figure_panels import (
    GREY,
    WORDS,
    batch_axis,
    gravest,
    grid,
    hang_words,
    in_order,
    labels,
    legend,
    percent_top,
    plain,
    roomy,
    say_below,
    title,
    why,
)
from reports.shared.numbers import OF_WHAT, ceiling_name, fitting, ranks, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINT = ("model", "variant", "precision", "batch_size")
"""What sets the points of a figure apart."""

_FAR = 1e3
"""How many times its value an interval without an upper end goes on: beyond any panel."""

_NEXT = "; ceiling "
"""Between a precision and the rank of its ceiling, in the name of a series."""

_MOST_ROWS_IN = 9.0
"""Height of the rows of one page."""

_COLUMNS = 3
_MOST_PANELS = 20
_ROW_LETTERS = 28
_HOLLOW_SHAPES = "vP<>hX"
Looks = dict[str, dict[str, Any]]
"""Series → how matplotlib draws it: color, marker and, of a further ceiling, a hollow face."""


def figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """File name → figure: utilization by model and precision, and by batch size where there are several.

    frame: from `gallery.read`. Empty without cells. Draw and render inside `style.theme()`.
    """
    points = chosen(frame)
    if points.empty:
        return {}
    rows_in = _row_in(points)
    lines = math.ceil(points["batch_size"].nunique() / _COLUMNS)
    pages = figure_panels.pages(_best_first(points), max(1, int((_MOST_ROWS_IN / lines - 0.35) / rows_in)))
    drawn = figure_panels.named(
        "utilization_by_model", [(f"from {page[0]}", partial(by_model, points, page, rows_in)) for page in pages]
    )
    measured = points.dropna(subset=["utilization_ratio"])
    if measured["batch_size"].nunique() > 1:
        pages = figure_panels.pages(_best_first(points), _MOST_PANELS)
        drawn |= figure_panels.named(
            "utilization_by_batch", [(f"from {page[0]}", partial(by_batch, points, page)) for page in pages]
        )
    return drawn


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a point, of the best method and over the first denominator that are known."""
    known = frame.dropna(subset=["utilization_ratio"])
    method = next((m for m in METHODS if (known["method"] == m).any()), "exact")
    rows = frame[frame["method"] == method] if (frame["method"] == method).any() else frame
    rows = rows[rows["denominator"] == headline(rows)].drop_duplicates(subset="cell_id")
    rows = with_ends(rows.assign(ceiling=ceilings(rows)), [*POINT, "ceiling"])
    points = rows.groupby([*POINT, "ceiling"], sort=False, as_index=False).agg(
        utilization_ratio=("utilization_ratio", "mean"),
        low=("low", "min"),
        high=("high", "max"),
        peak=("peak_flop_per_s", "max"),
        lowest_peak=("peak_flop_per_s", "min"),
        status=("status", gravest),
        denominator=("denominator", "first"),
        method=("method", "first"),
    )
    return points.assign(label=labels(points), series=_series(points))


def with_ends(rows: pd.DataFrame, point: Sequence[str]) -> pd.DataFrame:
    """The rows with `low` and `high`: the interval that is drawn of each.

    Of a cell that was measured once it is that of any window of the run, where that is known; repeats of one point
    show by their own intervals how far windows are apart. point: what sets points apart.
    """
    repeated = rows.groupby(list(point), dropna=False)["cell_id"].transform("size") > 1
    once = rows["windows_low_ratio"].notna() & ~repeated
    return rows.assign(
        low=rows["utilization_low_ratio"].mask(once, rows["windows_low_ratio"]),
        high=rows["utilization_high_ratio"].mask(once, rows["windows_high_ratio"]),
    )


def ceilings(rows: pd.DataFrame) -> list[str]:
    """The measured ceiling of each row, by name; "" where it is divided by anything else."""
    columns = (rows["denominator"], rows["peak_flop_per_s"], rows["peak_source"].fillna("").astype(str))
    return [ceiling_name(*row) for row in zip(*columns, strict=True)]


def _series(points: pd.DataFrame) -> list[str]:
    """The series of each point: its precision, and the rank of its ceiling where that is not the precision's first."""
    place: dict[tuple[str, str], int] = {}
    for precision, same in points.groupby("precision", sort=False):
        place |= {(str(precision), name): rank for name, rank in ranks(list(same["ceiling"])).items()}
    pairs = [(str(precision), name) for precision, name in zip(points["precision"], points["ceiling"], strict=True)]
    return [f"{pair[0]}{_NEXT}{place[pair] + 1}" if place.get(pair) else pair[0] for pair in pairs]


def _looks(points: pd.DataFrame) -> Looks:
    """Colours and markers are the precisions'; marks of a further ceiling are hollow, each of a shape of its own."""
    base = figure_style.looks(in_order(points["precision"].unique()))
    found: Looks = {}
    for precision, (colour, marker) in base.items():
        found[precision] = {"color": colour, "marker": marker}
        series = sorted({name for name in points["series"] if name.startswith(f"{precision}{_NEXT}")})
        for rank, name in enumerate(series):
            shape = marker if rank == 0 else _HOLLOW_SHAPES[(rank - 1) % len(_HOLLOW_SHAPES)]
            found[name] = {"color": colour, "marker": shape, "markerfacecolor": "white"}
    return found


def headline(rows: pd.DataFrame) -> str:
    """The first denominator that the most rows have a ratio over; where none has, the last that there are rows of."""
    known = rows.dropna(subset=["utilization_ratio"])["denominator"].value_counts()
    found = [name for name in HEADLINES if name in known]
    there = [name for name in HEADLINES if (rows["denominator"] == name).any()]
    return max(found, key=lambda name: int(known[name])) if found else (there[-1:] or [HEADLINES[-1]])[0]


def _row_in(points: pd.DataFrame) -> float:
    """Height of a row of dots, so that neither labels nor lanes cover their neighbours, inch."""
    lines = max(str(label).count("\n") + 1 for label in points["label"])
    return max(0.22, 0.11 * points["series"].nunique(), figure_panels.LINE_IN * lines + 0.06)


def by_model(points: pd.DataFrame, models: Sequence[str], row_in: float) -> Figure:
    """One panel a batch size, one row a model, the series above one another; best model on top.

    models: those of this page; axes and legend are those of all points.
    """
    batches = sorted(points["batch_size"].unique())
    looks = _looks(points)
    here = points[points["label"].isin(models)]
    figure, panels, spare = grid(len(batches), _COLUMNS, 0.35 + max(1.0, len(models) * row_in))
    for axes, batch in zip(panels, batches, strict=True):
        _model_panel(axes, here[here["batch_size"] == batch], models, looks)
        axes.set_title(f"batch {batch}")
        axes.set_yticks(
            range(len(models)),
            ["\n".join(fitting(line, _ROW_LETTERS) for line in model.split("\n")) for model in models],
        )
        axes.set_ylim(len(models) - 0.5, -0.5)
    _ratio_axes(panels, points, horizontal=True)
    _finish(figure, points, panels, spare, looks)
    say_below(figure, _axis_label(points), _ceilings_differ(looks))
    return figure


def by_batch(points: pd.DataFrame, models: Sequence[str]) -> Figure:
    """One panel a model, batch size across, one line a series. models: those of this page."""
    looks = _looks(points)
    batches = sorted(int(batch) for batch in points["batch_size"].unique())
    lines = max(model.count("\n") for model in models)
    figure, panels, spare = grid(
        len(models), 4, (2.0 if len(models) <= 4 else 1.55) + figure_panels.LINE_IN * max(0, lines - 1)
    )
    for axes, model in zip(panels, models, strict=True):
        _batch_panel(axes, points[points["label"] == model], looks)
        title(axes, model, len(models))
        batch_axis(axes, roomy(batches), (batches[0], batches[-1]))
    _ratio_axes(panels, points, horizontal=False)
    _finish(figure, points, panels, spare, looks)
    say_below(figure, "batch size", _axis_label(points), _ceilings_differ(looks))
    figure.supylabel("utilization, %", fontsize=figure_style.LABEL_PT)
    return figure


def _ceilings_differ(looks: Looks) -> str:
    """What hollow marks mean, if there are any."""
    if not any(_NEXT in series for series in looks):
        return ""
    return "hollow: over another ceiling of the same device, measured in another session: compare like marks only"


def _model_panel(axes: Axes, points: pd.DataFrame, models: Sequence[str], looks: Looks) -> None:
    """Dots and intervals of one batch size; words where a cell has no ratio."""
    step = 0.7 / len(looks)
    place = {name: (index - (len(looks) - 1) / 2) * step for index, name in enumerate(looks)}
    for label, same in points.groupby("label", sort=False):
        y = models.index(str(label))
        for series, row in _known_points(same):
            _point(axes, row, 100 * row.utilization_ratio, y + place[series], horizontal=True, **looks[series])
        for series, words in _missing(same):
            colour = looks[series]["color"] if series else GREY
            axes.annotate(words, (0, y + place.get(series, 0)), (3, 0), color=colour, va="center", **WORDS)
    axes.grid(axis="y", visible=False)
    for edge in range(len(models) - 1):
        axes.axhline(edge + 0.5, color="0.93", linewidth=0.6, zorder=0)


def _batch_panel(axes: Axes, points: pd.DataFrame, looks: Looks) -> None:
    """Lines over the batch size of one model; words hang from the top where a cell has no ratio."""
    for series, look in looks.items():
        mine = [row for _, row in _known_points(points[points["series"] == series].sort_values("batch_size"))]
        at = [r.batch_size for r in mine], [100 * r.utilization_ratio for r in mine]
        axes.plot(*at, color=look["color"], linewidth=1)
        for row in mine:
            _point(axes, row, row.batch_size, 100 * row.utilization_ratio, horizontal=False, **look)
    for batch, same in points.groupby("batch_size"):
        missing = [(looks[series]["color"] if series else GREY, words) for series, words in _missing(same)]
        hang_words(axes, [(float(str(batch)), words, colour) for colour, words in missing])


def _known_points(points: pd.DataFrame) -> list[tuple[str, Any]]:
    """(series, row) of the points that have a ratio."""
    known = points.dropna(subset=["utilization_ratio"])
    return list(zip(known["series"], known.itertuples(index=False), strict=True))


def _missing(points: pd.DataFrame) -> list[tuple[str, str]]:
    """(series, why it has no ratio); a single ("", why) where all series have none for the same reason."""
    gaps = points[points["utilization_ratio"].isna()]
    words = [why(status, "no peak") for status in gaps["status"]]
    if len(gaps) == len(points) > 1 and len(set(words)) == 1:
        return [("", words[0])]
    return list(zip(gaps["series"], words, strict=True))


def _point(axes: Axes, row: Any, x: float, y: float, *, horizontal: bool, **look: Any) -> None:
    """One cell with its interval, which leaves the panel if it is very wide or has no upper end."""
    ratio, endless = row.utilization_ratio, math.isnan(row.high) and not math.isnan(row.low)
    low, high = (ratio if math.isnan(end) else end for end in (row.low, row.high))
    span = [[100 * (ratio - low)], [100 * ratio * _FAR if endless else 100 * (high - ratio)]]
    across, up = (span, None) if horizontal else (None, span)
    style = {"markersize": 4, "capsize": 2.5, "elinewidth": 1, "clip_on": False, "zorder": 3, "linestyle": "none"}
    bars = axes.errorbar([x], [y], xerr=across, yerr=up, **{**style, **look})
    for part in (*bars.lines[1], *bars.lines[2]):
        part.set_clip_on(True)


def _finish(figure: Figure, points: pd.DataFrame, panels: list[Axes], spare: list[Axes], looks: Looks) -> None:
    """What both figures share: the legend outside the data with each precision's peak, no frame, no empty panels."""
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], markersize=4, linewidth=0, label=_legend(points, name), **look) for name, look in looks.items()
    ]
    legend(figure, marks)
    plain(panels, spare)


def _legend(points: pd.DataFrame, series: str) -> str:
    """A precision and what its utilization is a fraction of; a range where the units of its cells differ."""
    mine = points[points["series"] == series]
    low, high = mine["lowest_peak"].min(), mine["peak"].max()
    precision = series.split(_NEXT)[0]
    if math.isnan(high):
        return precision
    text = si(high, "FLOP/s")
    return f"{precision}, of {text}" if si(low, "FLOP/s") == text else f"{precision}, of {si(low, 'FLOP/s')} to {text}"


def _ratio_axes(panels: Sequence[Axes], points: pd.DataFrame, *, horizontal: bool) -> None:
    """From zero to `percent_top`; a line at 100 % where it comes near."""
    top = percent_top(points["utilization_ratio"], points["high"])
    for axes in panels:
        (axes.set_xlim if horizontal else axes.set_ylim)(0, top)
        if top > 85:
            line = axes.axvline if horizontal else axes.axhline
            line(100, color="0.4", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)


def _best_first(points: pd.DataFrame) -> list[str]:
    """Labels by their highest utilization, those without any last."""
    best = points.groupby("label", sort=False)["utilization_ratio"].max()
    return [str(label) for label in best.fillna(-1.0).sort_values(ascending=False, kind="stable").index]


def _axis_label(points: pd.DataFrame) -> str:
    """What the ratio is of, and what the bars are."""
    denominator = str(points["denominator"].iloc[0])
    numerator = "" if points["method"].iloc[0] == "exact" else f" by {points['method'].iloc[0]}"
    return f"utilization{numerator}, % of {OF_WHAT.get(denominator, denominator)}; bars: 95 % interval"
