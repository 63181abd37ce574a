"""Utilization by model, precision and batch size, drawn from utilization.csv alone.

Points are cells, bars their 95 % intervals (of the step time; peaks have none). Cells that were repeated are one point
at their mean, the bar spanning all their intervals. What could not be measured is written where its point would be,
never left out and never drawn as zero. Nothing is read from anywhere else, and no file is written here.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleaning.reconcile import HEADLINES, METHODS
from reports.shared import (
    GREY,
    OF_WHAT,
    batch_axis,
    figure_style,
    gravest,
    grid,
    hang_words,
    labels,
    percent_top,
    plain,
    si,
    title,
    why,
)
from reports.shared.figure_panels import WORDS, in_order
from results.records import Utilization

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINT = ("model", "variant", "precision", "batch_size")
"""What sets the points of a figure apart."""

_FAR = 1e3
"""How many times its value an interval without an upper end goes on: beyond any panel."""

Looks = dict[str, tuple[Any, str]]
"""Precision → (colour, marker)."""


def read(path: Path) -> pd.DataFrame:
    """utilization.csv with the types of its record. Raises ValueError for a file that is none."""
    from results.store import table

    with path.open(encoding="utf-8", newline="") as file:
        names, *rows = list(csv.reader(file)) or [[]]
    if not set(names) >= {"cell_id", "attempt", "utilization_ratio"}:
        raise ValueError(f"expected the columns of utilization.csv, got {','.join(names)[:60]!r} in {path}")
    return table(str(path), Utilization, names, [rows] if rows else [])


def figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """File name → figure: utilization by model and precision, and by batch size where there are several.

    frame: from `read`. Empty without cells. Draw and render inside `style.theme()`.
    """
    points = chosen(frame)
    if points.empty:
        return {}
    drawn = {"utilization_by_model": by_model(points)}
    measured = points.dropna(subset=["utilization_ratio"])
    if measured["batch_size"].nunique() > 1:
        drawn["utilization_by_batch"] = by_batch(points)
    return drawn


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a point, of the best method and over the first denominator that are known."""
    known = frame.dropna(subset=["utilization_ratio"])
    method = next((m for m in METHODS if (known["method"] == m).any()), "exact")
    rows = frame[frame["method"] == method] if (frame["method"] == method).any() else frame
    rows = rows[rows["denominator"] == headline(rows)].drop_duplicates(subset="cell_id")
    points = rows.groupby(list(POINT), sort=False, as_index=False).agg(
        utilization_ratio=("utilization_ratio", "mean"),
        low=("utilization_low_ratio", "min"),
        high=("utilization_high_ratio", "max"),
        peak=("peak_flop_per_s", "max"),
        lowest_peak=("peak_flop_per_s", "min"),
        status=("status", gravest),
        denominator=("denominator", "first"),
        method=("method", "first"),
    )
    return points.assign(label=labels(points))


def headline(rows: pd.DataFrame) -> str:
    """The first denominator that some row has a ratio over; where none has, the last that there are rows of."""
    known = rows.dropna(subset=["utilization_ratio"])
    found = [name for name in HEADLINES if (known["denominator"] == name).any()]
    there = [name for name in HEADLINES if (rows["denominator"] == name).any()]
    return (found or there[-1:] or [HEADLINES[-1]])[0]


def by_model(points: pd.DataFrame) -> Figure:
    """One panel a batch size, one row a model, the precisions above one another; best model on top."""
    models = _best_first(points)
    batches = sorted(points["batch_size"].unique())
    looks = figure_style.looks(in_order(points["precision"].unique()))
    height = 0.35 + max(1.0, len(models) * max(0.22, 0.11 * len(looks)))
    figure, panels, spare = grid(len(batches), 3, height)
    for axes, batch in zip(panels, batches, strict=True):
        _model_panel(axes, points[points["batch_size"] == batch], models, looks)
        axes.set_title(f"batch {batch}")
        axes.set_yticks(range(len(models)), models)
        axes.set_ylim(len(models) - 0.5, -0.5)
    _ratio_axes(panels, points, horizontal=True)
    _finish(figure, points, panels, spare, looks)
    figure.supxlabel(_axis_label(points), fontsize=figure_style.LABEL_PT)
    return figure


def by_batch(points: pd.DataFrame) -> Figure:
    """One panel a model, batch size across, one line a precision."""
    models = _best_first(points)
    looks = figure_style.looks(in_order(points["precision"].unique()))
    batches = sorted(int(batch) for batch in points["batch_size"].unique())
    figure, panels, spare = grid(len(models), 4, 2.0 if len(models) <= 4 else 1.55)
    for axes, model in zip(panels, models, strict=True):
        _batch_panel(axes, points[points["label"] == model], looks)
        title(axes, model, len(models))
        batch_axis(axes, batches)
    _ratio_axes(panels, points, horizontal=False)
    _finish(figure, points, panels, spare, looks)
    figure.supxlabel(f"batch size\n({_axis_label(points)})", fontsize=figure_style.LABEL_PT)
    figure.supylabel("utilization, %", fontsize=figure_style.LABEL_PT)
    return figure


def _model_panel(axes: Axes, points: pd.DataFrame, models: Sequence[str], looks: Looks) -> None:
    """Dots and intervals of one batch size; words where a cell has no ratio."""
    step = 0.7 / len(looks)
    place = {name: (index - (len(looks) - 1) / 2) * step for index, name in enumerate(looks)}
    for label, same in points.groupby("label", sort=False):
        y = models.index(str(label))
        for precision, row in _known_points(same):
            colour, marker = looks[precision]
            at = (100 * row.utilization_ratio, y + place[precision])
            _point(axes, row, *at, horizontal=True, color=colour, fmt=marker)
        for precision, words in _missing(same):
            colour = looks[precision][0] if precision else GREY
            axes.annotate(words, (0, y + place.get(precision, 0)), (3, 0), color=colour, va="center", **WORDS)
    axes.grid(axis="y", visible=False)
    for edge in range(len(models) - 1):
        axes.axhline(edge + 0.5, color="0.93", linewidth=0.6, zorder=0)


def _batch_panel(axes: Axes, points: pd.DataFrame, looks: Looks) -> None:
    """Lines over the batch size of one model; words hang from the top where a cell has no ratio."""
    for precision, (colour, marker) in looks.items():
        mine = [row for _, row in _known_points(points[points["precision"] == precision].sort_values("batch_size"))]
        axes.plot([r.batch_size for r in mine], [100 * r.utilization_ratio for r in mine], color=colour, linewidth=1)
        for row in mine:
            _point(axes, row, row.batch_size, 100 * row.utilization_ratio, horizontal=False, color=colour, fmt=marker)
    for batch, same in points.groupby("batch_size"):
        missing = [(looks[precision][0] if precision else GREY, words) for precision, words in _missing(same)]
        hang_words(axes, [(float(str(batch)), words, colour) for colour, words in missing])


def _known_points(points: pd.DataFrame) -> list[tuple[str, Any]]:
    """(precision, row) of the points that have a ratio."""
    known = points.dropna(subset=["utilization_ratio"])
    return list(zip(known["precision"], known.itertuples(index=False), strict=True))


def _missing(points: pd.DataFrame) -> list[tuple[str, str]]:
    """(precision, why it has no ratio); a single ("", why) where all precisions have none for the same reason."""
    gaps = points[points["utilization_ratio"].isna()]
    words = [why(status, "no peak") for status in gaps["status"]]
    if len(gaps) == len(points) > 1 and len(set(words)) == 1:
        return [("", words[0])]
    return list(zip(gaps["precision"], words, strict=True))


def _point(axes: Axes, row: Any, x: float, y: float, *, horizontal: bool, **look: Any) -> None:
    """One cell with its interval, which leaves the panel if it is very wide or has no upper end."""
    ratio, endless = row.utilization_ratio, math.isnan(row.high) and not math.isnan(row.low)
    low, high = (ratio if math.isnan(end) else end for end in (row.low, row.high))
    span = [[100 * (ratio - low)], [100 * ratio * _FAR if endless else 100 * (high - ratio)]]
    across, up = (span, None) if horizontal else (None, span)
    bars = axes.errorbar(
        [x], [y], xerr=across, yerr=up, markersize=4, capsize=2.5, elinewidth=1, clip_on=False, zorder=3, **look
    )
    for part in (*bars.lines[1], *bars.lines[2]):
        part.set_clip_on(True)


def _finish(figure: Figure, points: pd.DataFrame, panels: list[Axes], spare: list[Axes], looks: Looks) -> None:
    """What both figures share: the legend outside the data with each precision's peak, no frame, no empty panels."""
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=0, label=_legend(points, name))
        for name, (colour, marker) in looks.items()
    ]
    figure.legend(handles=marks, loc="outside upper center", ncols=min(len(marks), 4 if len(panels) > 1 else 2))
    plain(panels, spare)


def _legend(points: pd.DataFrame, precision: str) -> str:
    """A precision and what its utilization is a fraction of; a range where its cells have different peaks."""
    mine = points[points["precision"] == precision]
    low, high = mine["lowest_peak"].min(), mine["peak"].max()
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
