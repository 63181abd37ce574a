"""Utilization by model, precision and batch size, drawn from utilization.csv alone.

Points are cells, bars their 95 % intervals (of the step time; peaks have none; where a run repeats cells those of any
window, see `with_ends`). Cells that were repeated are one point at their mean, the bar spanning all their intervals.
What could not be measured is written where its point would be, never left out and never drawn as zero. Cells that are
divided by different measured ceilings are points of their own, never a mean; the legend has the range of the ceilings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cleaning.reconcile.variants import HEADLINES, METHODS
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import OF_WHAT, ceiling_name, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

POINT = ("model", "variant", "precision", "batch_size")
"""What sets the points of a figure apart."""

_MOST_ROWS_IN = 9.0
"""Height of the rows of one page."""

_COLUMNS = 3
_MOST_PANELS = 20
Looks = dict[str, dict[str, Any]]
"""Series → how matplotlib draws it: color and marker."""


def figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """File name → figure: utilization by model and precision, and by batch size where there are several.

    frame: rows of utilization.csv. Empty without cells. Draw and render inside `style.theme()`.
    """
    points = chosen(frame)
    if points.empty:
        return {}
    best = points.groupby("row", sort=False)["value"].max().fillna(-1.0)  # those without any last
    rows = [str(row) for row in best.sort_values(ascending=False, kind="stable").index]
    lines = max(row.count("\n") + 1 for row in rows)
    # so that neither labels nor lanes cover their neighbours
    row_in = max(0.22, 0.11 * points["series"].nunique(), figure_panels.LINE_IN * lines + 0.06)
    most = max(1, int((_MOST_ROWS_IN / math.ceil(points["batch_size"].nunique() / _COLUMNS) - 0.35) / row_in))
    kinds = {"utilization_by_model": (partial(by_model, points, row_in), most)}
    if points.dropna(subset=["value"])["batch_size"].nunique() > 1:
        kinds["utilization_by_batch"] = (partial(by_batch, points), _MOST_PANELS)
    drawn: dict[str, Figure] = {}
    for name, (draw, count) in kinds.items():
        pages = figure_panels.pages(rows, count)
        drawn |= figure_panels.named(name, [(f"from {page[0]}", partial(draw, page)) for page in pages])
    return drawn


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a point, of the best method and over the first denominator that are known."""
    known = frame.dropna(subset=["utilization_ratio"])
    method = next((m for m in METHODS if (known["method"] == m).any()), "exact")
    rows = frame[frame["method"] == method] if (frame["method"] == method).any() else frame
    points = points_of(rows[rows["denominator"] == headline(rows)].drop_duplicates(subset="cell_id"), POINT)
    return points.assign(row=figure_panels.labels(points), series=points["precision"])


def points_of(rows: pd.DataFrame, point: Sequence[str]) -> pd.DataFrame:
    """One row a point and ceiling; cells that were repeated are one at their mean. point: what sets points apart."""
    rows = with_ends(rows.assign(ceiling=ceilings(rows)), [*point, "ceiling"])
    return rows.groupby([*point, "ceiling"], sort=False, as_index=False).agg(
        value=("utilization_ratio", "mean"),
        low=("low", "min"),
        high=("high", "max"),
        peak=("peak_flop_per_s", "max"),
        lowest_peak=("peak_flop_per_s", "min"),
        status=("status", figure_panels.worst),
        denominator=("denominator", "first"),
        method=("method", "first"),
    )


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


def headline(rows: pd.DataFrame) -> str:
    """The first denominator that the most rows have a ratio over; where none has, the last that there are rows of."""
    known = rows.dropna(subset=["utilization_ratio"])["denominator"].value_counts()
    found = [name for name in HEADLINES if name in known]
    there = [name for name in HEADLINES if (rows["denominator"] == name).any()]
    return max(found, key=lambda name: int(known[name])) if found else (there[-1:] or [HEADLINES[-1]])[0]


def by_model(points: pd.DataFrame, row_in: float, rows: Sequence[str]) -> Figure:
    """One panel a batch size, one row a model, the series above one another; best model on top.

    rows: those of this page; axes and legend are those of all points.
    """
    batches = sorted(points["batch_size"].unique())
    looks = _looks(points)
    here = points[points["row"].isin(rows)]
    figure, panels, spare = figure_panels.grid(len(batches), _COLUMNS, 0.35 + max(1.0, len(rows) * row_in))
    for axes, batch in zip(panels, batches, strict=True):
        figure_panels.ratio_rows(axes, here[here["batch_size"] == batch], rows, looks)
        axes.set_title(f"batch {batch}")
    figure_panels.percent_axes(panels, points)
    return figure_panels.finish(figure, panels, _marks(points, looks), _axis_label(points), spare=spare)


def by_batch(points: pd.DataFrame, rows: Sequence[str]) -> Figure:
    """One panel a model, batch size across, one line a series. rows: those of this page."""
    looks = _looks(points)
    batches = sorted(int(batch) for batch in points["batch_size"].unique())
    figure, panels, spare = figure_panels.batch_panels(rows, batches, share_y=True)
    for axes, row in zip(panels, rows, strict=True):
        figure_panels.ratio_lines(axes, points[points["row"] == row], looks)
    figure_panels.percent_axes(panels, points, upwards=True)
    below = ("batch size", _axis_label(points))
    return figure_panels.finish(figure, panels, _marks(points, looks), *below, spare=spare, upwards="utilization, %")


def _looks(points: pd.DataFrame) -> Looks:
    looks = figure_style.looks(figure_panels.in_order(points["precision"].unique()))
    return {precision: {"color": colour, "marker": marker} for precision, (colour, marker) in looks.items()}


def _marks(points: pd.DataFrame, looks: Looks) -> list[Any]:
    """A precision each, and what its utilization is a fraction of; a range where the peaks of its cells differ."""
    marks = []
    for precision, look in looks.items():
        mine = points[points["precision"] == precision]
        sizes = [si(peak, "FLOP/s") for peak in (mine["lowest_peak"].min(), mine["peak"].max()) if not math.isnan(peak)]
        of = f", of {' to '.join(dict.fromkeys(sizes))}" if sizes else ""
        marks.append(figure_panels.mark(f"{precision}{of}", **look))
    return marks


def _axis_label(points: pd.DataFrame) -> str:
    """What the ratio is of, and what the bars are."""
    denominator = str(points["denominator"].iloc[0])
    numerator = "" if points["method"].iloc[0] == "exact" else f" by {points['method'].iloc[0]}"
    return f"utilization{numerator}, % of {OF_WHAT.get(denominator, denominator)}; bars: 95 % interval"
