"""Draws the utilization of a run by model, precision, batch size and method, from the rows of utilization.csv.

`figures` takes a `Built` (everything derived from the run) and returns file name → figure. Points are cells, and bars
are their 95 % intervals in utilization.csv. Repeats of a cell are one point at their mean, with a bar over all their
intervals (`points_of`). If a value could not be measured, the reason stands in place of the point. Cells
that are divided by different measured ceilings stay separate points, and the legend has the range of the ceilings. The
figure by method has a row per model, and in each row a line of points per method. The method says where the FLOP come
from. Theory is 3 × a counter's forward pass, exact counts the step's operations. One, batch and epoch are a profiler's
counts of a sample, a batch and an epoch. All have the same denominator. Theory is that of fvcore and ptflops (used by
Hobbhahn's 2021 post), else of the first counter by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cleaning.reconcile.derived import HEADLINES, METHODS, RECORDED_METHODS, Built
from reports.shared import figure_panels, figure_style
from reports.shared.html import FigureCaption
from reports.shared.numbers import OF_WHAT, ceiling_name, shortened_name, si, variant_lines
from results.records.answers import Utilization

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINT = ("model", "variant", "precision", "batch_size")
"""Columns that distinguish the points of a figure."""

BY_METHOD = "utilization_by_method"
CAPTIONS = {
    "utilization_by_model": FigureCaption(
        "Which model uses most of the peak, by batch size and precision",
        "utilization.csv",
        "Dots with bars for 95 % intervals: a row for each model, the best on top, utilization in percent across, a "
        "panel for each batch size, a colour and mark for each precision.",
    ),
    "utilization_by_batch": FigureCaption(
        "How the utilization of each model changes with the batch size",
        "utilization.csv",
        "Lines: a panel for each model, batch size across, utilization in percent upwards with bars for 95 % "
        "intervals, a colour and mark for each precision.",
    ),
    "utilization_by_method": FigureCaption(
        "How far the ways of counting agree on each model's utilization",
        "utilization.csv",
        "Dots with bars for 95 % intervals: a row for each model, and in it one dot for each method (theory of each "
        "counter, one, batch, epoch, exact); utilization in percent across.",
    ),
    "utilization_by_method_post2021": FigureCaption(
        "The same in the arithmetic of the 2021 post, to compare with its 0.3 to 0.75",
        "utilization_post2021.csv",
        "Dots with bars for 95 % intervals: a row for each model, and in it one dot for each method, as the 2021 "
        "post counts: a multiply-add is 1, over the fp32 peak.",
    ),
}
"""Figure → its caption on the page."""

LANES = ("theory, fvcore", "theory, ptflops", "one", "batch", "epoch", "exact")

_NEEDED = (
    *("cell_id", "method", "numerator_source", "denominator", "status", "peak_flop_per_s", "peak_source", *POINT),
    *(f"{of}_{end}ratio" for of in ("utilization", "windows") for end in ("low_", "high_", "")),
)
"""Columns of utilization.csv that are drawn or that distinguish points."""

_MOST_ROWS_IN = 9.0
"""Height of the rows of one page."""

_COLUMNS = 3
_MOST_PANELS = 20
_MOST_LANES = 84


def figures(built: Built) -> dict[str, Figure]:
    """Return file name → figure, for all rows of utilization.csv and, where passes were recorded, of
    utilization_post2021.csv."""
    fractions = figure_panels.drawable(built.utilization, Utilization, _NEEDED)
    drawn = by_model(fractions) | by_method(fractions)
    if any(row.method in RECORDED_METHODS for row in built.post2021):
        drawn |= by_method(figure_panels.drawable(built.post2021, Utilization, _NEEDED), post2021=True)
    return drawn


def by_model(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return file name → figure: utilization by model and precision, and by batch size where there are several.

    frame: rows of utilization.csv. Empty without cells. Draw and render inside `figure_style.theme()`.
    """
    known = frame.dropna(subset=["utilization_ratio"])
    method = next((m for m in METHODS if (known["method"] == m).any()), "exact")
    rows = frame[frame["method"] == method] if (frame["method"] == method).any() else frame
    points = points_of(rows[rows["denominator"] == headline(rows)].drop_duplicates(subset="cell_id"), POINT)
    if points.empty:
        return {}
    points = points.assign(row=figure_panels.labels(points), series=points["precision"])
    names = _best_first(points)
    lines = max(name.count("\n") + 1 for name in names)
    # so that neither labels nor lanes cover their neighbours
    row_in = max(0.22, 0.11 * points["series"].nunique(), figure_panels.LINE_IN * lines + 0.06)
    most = max(1, int((_MOST_ROWS_IN / math.ceil(points["batch_size"].nunique() / _COLUMNS) - 0.35) / row_in))
    looks = figure_style.looks(figure_panels.in_order(points["precision"].unique()))
    peaks = {name: f"{name}{_peaks(points[points['precision'] == name])}" for name in looks}
    marks = figure_panels.marks_of(looks, peaks)
    numerator = "" if method == "exact" else f" by {method}"
    below = f"utilization{numerator}, % of {_of(points)}; bars: 95 % interval"
    draw = partial(_row_panels, points, looks, row_in, marks, [below])
    drawn = figure_panels.paged("utilization_by_model", names, most, draw)
    if points.dropna(subset=["value"])["batch_size"].nunique() > 1:
        draw = partial(_batch_panels, points, looks, marks, below)
        drawn |= figure_panels.paged("utilization_by_batch", names, _MOST_PANELS, draw)
    return drawn


def by_method(frame: pd.DataFrame, *, post2021: bool = False) -> dict[str, Figure]:
    """Return file name → figure: one for each precision and variant, one panel a batch size; {} without cells.

    frame: rows of utilization.csv, or with `post2021` of utilization_post2021.csv.
    """
    rows = frame.assign(series=_lanes(frame))
    rows = rows[rows["series"] != ""]
    rows = rows[rows["denominator"] == headline(rows)].drop_duplicates(subset=["cell_id", "series"])
    points = points_of(rows, (*POINT, "series"))
    points = points.assign(row=points["model"])
    pages = [
        (distinction, partial(_method_figure, page, distinction, post2021)) for distinction, page in _pages(points)
    ]
    return figure_panels.named(f"{BY_METHOD}_post2021" if post2021 else BY_METHOD, pages)


def points_of(rows: pd.DataFrame, point: Sequence[str]) -> pd.DataFrame:
    """Return one row per point and ceiling; cells that were repeated are one at their mean. point: columns that
    distinguish points.

    `low` and `high` are the interval that is drawn: for a cell that was measured once the interval of any window of the
    run, where it is known; repeats of one point show by their own intervals how far windows are apart.
    """
    columns = (rows["denominator"], rows["peak_flop_per_s"], rows["peak_source"].fillna("").astype(str))
    rows = rows.assign(ceiling=[ceiling_name(*row) for row in zip(*columns, strict=True)])
    point = [*point, "ceiling"]
    repeated = rows.groupby(point, dropna=False)["cell_id"].transform("size") > 1
    once = rows["windows_low_ratio"].notna() & ~repeated
    ends = {end: rows[f"utilization_{end}_ratio"].mask(once, rows[f"windows_{end}_ratio"]) for end in ("low", "high")}
    return (
        rows.assign(**ends)
        .groupby(point, sort=False, as_index=False)
        .agg(
            value=("utilization_ratio", "mean"),
            low=("low", "min"),
            high=("high", "max"),
            peak=("peak_flop_per_s", "max"),
            lowest_peak=("peak_flop_per_s", "min"),
            status=("status", figure_panels.worst),
            denominator=("denominator", "first"),
        )
    )


def headline(rows: pd.DataFrame) -> str:
    """Return the denominator over which the most rows have a ratio, the first on a tie; if no row has one, the last
    denominator of the rows."""
    known = rows.dropna(subset=["utilization_ratio"])["denominator"].value_counts()
    if divided := [name for name in HEADLINES if name in known]:
        return max(divided, key=lambda name: int(known[name]))
    there = [name for name in HEADLINES if (rows["denominator"] == name).any()]
    return (there or HEADLINES)[-1]


def _best_first(points: pd.DataFrame) -> list[str]:
    """Sort the rows of a figure; those without any utilization come last."""
    best = points.groupby("row", sort=False)["value"].max().fillna(-1.0)
    return [str(name) for name in best.sort_values(ascending=False, kind="stable").index]


def _lanes(frame: pd.DataFrame) -> list[str]:
    """Return the lane of each row: its method, for a theory with its counter; empty for rows that are not shown."""
    sources = set(frame.loc[frame["method"] == "theory", "numerator_source"])
    main = [name for name in ("fvcore", "ptflops") if name in sources] or sorted(sources)[:1]
    named = {"theory": {source: f"theory, {source}" for source in main}, "theory_as_published": {}} if sources else {}
    pairs = zip(frame["method"], frame["numerator_source"], strict=True)
    return [named[method].get(source, "") if method in named else str(method) for method, source in pairs]


def _pages(points: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (what distinguishes it from the first, in words; its points) of a page for each precision and variant, and
    of more pages where models or batch sizes do not fit on one."""
    several = {name: points[name].nunique() > 1 for name in ("precision", "variant")}
    for (precision, variant), own in figure_panels.groups(points, "precision", "variant"):
        parts = [precision] if several["precision"] else []
        parts += variant_lines(variant) if several["variant"] else []
        models = _best_first(own)
        batches = figure_panels.pages(sorted(int(batch) for batch in own["batch_size"].unique()), _COLUMNS)
        for some in figure_panels.pages(models, _MOST_LANES // own["series"].nunique()):
            for sizes in batches:
                batch_range = [f"batch {sizes[0]} to {sizes[-1]}"] if len(batches) > 1 else []
                batch_range += [f"from {some[0]}"] if len(some) < len(models) else []
                here = own[own["model"].isin(some) & own["batch_size"].isin(sizes)]
                yield ", ".join([*parts, *batch_range]), here


def _method_figure(points: pd.DataFrame, distinction: str, post2021: bool) -> Figure:
    looks = figure_style.looks(figure_panels.in_order(points["series"], LANES), "method")
    row_in = max(0.24, (len(looks) + 1) * figure_panels.LANE_IN)
    precision, variant = (str(points[name].iloc[0]) for name in ("precision", "variant"))
    trained = ", ".join([precision, *(variant_lines(variant) if distinction else ())])
    of, trained = f"{_of(points)}{_peaks(points, ', ')}", f"trained in {trained}; bars: 95 % interval"
    below = [f"utilization, % of {of}", trained]
    if post2021:
        below = [
            "utilization in the arithmetic of 2021: a multiply-add as 1, % of the fp32 peak",
            f"here {of}; {trained}",
        ]
    return _row_panels(points, looks, row_in, figure_panels.marks_of(looks), below, _best_first(points))


def _of(points: pd.DataFrame) -> str:
    denominator = str(points["denominator"].iloc[0])
    return OF_WHAT.get(denominator, denominator)


def _peaks(points: pd.DataFrame, start: str = ", of ") -> str:
    """Return the peak of these points, or a range where cells differ; "" where none is known."""
    peaks = (points["lowest_peak"].min(), points["peak"].max())
    sizes = dict.fromkeys(si(peak, "FLOP/s") for peak in peaks if not math.isnan(peak))
    return f"{start}{' to '.join(sizes)}" if sizes else ""


def _row_panels(
    points: pd.DataFrame,
    looks: figure_style.Looks,
    row_in: float,
    marks: Sequence[Any],
    below: Sequence[str],
    rows: Sequence[str],
) -> Figure:
    """Draw one panel per batch size, one row per model, the series above one another; best model on top.

    rows: those of this page; axes and legend are those of all points.
    """
    batches = sorted(int(batch) for batch in points["batch_size"].unique())
    figure, panels, spare = figure_panels.grid(len(batches), _COLUMNS, 0.35 + max(1.0, len(rows) * row_in))
    here = points[points["row"].isin(rows)]
    for axes, batch in zip(panels, batches, strict=True):
        _ratio_rows(axes, here[here["batch_size"] == batch], rows, looks)
        axes.set_title(f"batch {batch}")
    _percent_axes(panels, points)
    return figure_panels.finish(figure, panels, marks, *below, spare=spare)


def _batch_panels(
    points: pd.DataFrame, looks: figure_style.Looks, marks: Sequence[Any], below: str, rows: Sequence[str]
) -> Figure:
    """Draw one panel a model, batch size across, one line a series. rows: those of this page."""
    batches = sorted(int(batch) for batch in points["batch_size"].unique())
    figure, panels, spare = figure_panels.batch_panels(rows, batches, share_y=True)
    for axes, row in zip(panels, rows, strict=True):
        _ratio_lines(axes, points[points["row"] == row], looks)
    _percent_axes(panels, points, upwards=True)
    lines = ("batch size", below)
    return figure_panels.finish(figure, panels, marks, *lines, spare=spare, upwards="utilization, %")


_WIDEST = 1.5
"""An interval that ends below this many times the highest point ends inside of its panel."""


def _percent_axes(panels: Sequence[Axes], points: pd.DataFrame, *, upwards: bool = False) -> None:
    """Draw percent across or upwards, from zero to a little above the largest interval; a line at 100 % where it comes
    near. Intervals so wide that they would press the points together leave the panel."""
    best, widest = 100 * points["value"].max(), 100 * points["high"].max()
    top = float(1.08 * max(best, min(widest, _WIDEST * best))) if best > 0 else 100.0
    for axes in panels:
        (axes.set_ylim if upwards else axes.set_xlim)(0, top)
        if top > 85:
            line = axes.axhline if upwards else axes.axvline
            line(100, color="0.4", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)


def _ratio_rows(axes: Axes, points: pd.DataFrame, rows: Sequence[str], looks: figure_style.Looks) -> None:
    """Draw ratios in percent with their intervals: a row for each of `rows` and in it a lane for each series. Words
    stand where there is no ratio, and only once where all lanes of a row lack it for one reason.

    points: columns row, series, value, low, high, status.
    """
    lanes = figure_panels.lanes(looks)
    pairs = zip(points["row"], points["series"], strict=True)
    points = points.assign(y=[rows.index(row) + lanes[series] for row, series in pairs])
    for series, (colour, marker) in looks.items():
        own = _in_percent(points[points["series"] == series])
        figure_panels.dots(axes, own, "value", "y", color=colour, marker=marker)
    for row, same in figure_panels.groups(points, "row"):
        gaps = same[same["value"].isna()]
        reasons = [figure_panels.status_text(status, "no peak") for status in gaps["status"]]
        if len(gaps) == len(same) and len(set(reasons)) == 1:
            figure_panels.write_word(axes, reasons[0], 0, rows.index(row), fontsize=7)
            continue
        for gap, word in zip(figure_panels.records(gaps), reasons, strict=True):
            figure_panels.write_word(axes, word, 0, gap["y"], looks[gap["series"]][0])
    short = ["\n".join(shortened_name(line, figure_panels.ROW_LETTERS) for line in row.split("\n")) for row in rows]
    figure_panels.label_rows(axes, short)


def _ratio_lines(axes: Axes, points: pd.DataFrame, looks: figure_style.Looks) -> None:
    """Draw ratios in percent over the batch size, a line for each series; words hang from the top where there is
    none."""
    gaps: list[tuple[float, str, Any]] = []
    for series, (colour, marker) in looks.items():
        own = points[points["series"] == series].sort_values("batch_size")
        look = {"color": colour, "marker": marker, "linestyle": "-", "linewidth": 1}
        figure_panels.dots(axes, _in_percent(own), "batch_size", "value", **look)
        for gap in figure_panels.records(own[own["value"].isna()]):
            gaps.append((float(gap["batch_size"]), figure_panels.status_text(gap["status"], "no peak"), colour))
    figure_panels.write_reasons(axes, gaps, len(looks))


def _in_percent(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points that have a value, in percent."""
    known = points.dropna(subset=["value"])
    return known.assign(**{name: 100 * known[name] for name in ("value", "low", "high")})
