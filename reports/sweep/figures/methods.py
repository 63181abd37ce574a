"""Utilization by model and by method of counting, drawn from utilization.csv (or its variant of 2021) alone.

One row a model, one lane a method: three times a counter's forward pass (theory), the profiled sample, batch and epoch,
and our own count. All are over the same denominator, the first that is known. Of the counters the two that the post
used are shown; if the table has neither, the first it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from reports.shared import figure_panels, figure_style
from reports.shared.numbers import OF_WHAT, si, variant_lines
from reports.sweep.figures.utilization import POINT, headline, points_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NAME = "utilization_by_method"
ORDER = ("theory, fvcore", "theory, ptflops", "one", "batch", "epoch", "exact")
MAIN_COUNTERS = ("fvcore", "ptflops")

_COLUMNS = 3
_MOST_LANES = 84
_LEAST_ROW_IN = 0.24


def by_method(frame: pd.DataFrame, *, post2021: bool = False) -> dict[str, Figure]:
    """File name → figure: one for each precision and variant, one panel a batch size; {} without cells.

    frame: rows of utilization.csv, or with `post2021` of utilization_post2021.csv.
    """
    points = _points(frame)
    if points.empty:
        return {}
    pages = [(apart, partial(_figure, page, apart, post2021)) for apart, page in _pages(points)]
    return figure_panels.named(f"{NAME}_post2021" if post2021 else NAME, pages)


def _points(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a model, variant, precision, batch size and series; cells that were repeated are one at their mean."""
    rows = frame.assign(series=_series(frame))
    rows = rows[rows["series"] != ""]
    rows = rows[rows["denominator"] == headline(rows)].drop_duplicates(subset=["cell_id", "series"])
    points = points_of(rows, (*POINT, "series"))
    return points.assign(row=points["model"])


def _series(frame: pd.DataFrame) -> list[str]:
    """The lane of each row: its method, a theory with its counter; empty for what is not shown."""
    sources = set(frame.loc[frame["method"] == "theory", "numerator_source"])
    main = [name for name in MAIN_COUNTERS if name in sources] or sorted(sources)[:1]
    lanes = []
    for method, source in zip(frame["method"], frame["numerator_source"], strict=True):
        if method == "theory":
            lanes.append(f"theory, {source}" if source in main else "")
        else:
            lanes.append("" if method == "theory_as_published" and sources else str(method))
    return lanes


def _pages(points: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(what sets it apart from the first, in words; its points) of a page for each precision and variant, and of more
    where models or batch sizes do not fit on one."""
    several = {name: points[name].nunique() > 1 for name in ("precision", "variant")}
    for (precision, variant), mine in figure_panels.groups(points, "precision", "variant"):
        words = [precision] if several["precision"] else []
        words += variant_lines(variant) if several["variant"] else []
        models = _models(mine)
        batches = figure_panels.pages(sorted(int(batch) for batch in mine["batch_size"].unique()), _COLUMNS)
        for some in figure_panels.pages(models, _MOST_LANES // mine["series"].nunique()):
            for sizes in batches:
                apart = [f"batch {sizes[0]} to {sizes[-1]}"] if len(batches) > 1 else []
                apart += [f"from {some[0]}"] if len(some) < len(models) else []
                here = mine[mine["model"].isin(some) & mine["batch_size"].isin(sizes)]
                yield ", ".join([*words, *apart]), here


def _models(points: pd.DataFrame) -> list[str]:
    """The best first."""
    best = points.groupby("model", sort=False)["value"].max().fillna(-1.0)
    return [str(name) for name in best.sort_values(ascending=False, kind="stable").index]


def _figure(points: pd.DataFrame, apart: str, post2021: bool) -> Figure:
    series, models = figure_panels.in_order(points["series"], ORDER), _models(points)
    looks = {
        name: {"color": colour, "marker": marker}
        for name, (colour, marker) in figure_style.method_looks(series).items()
    }
    batches = sorted(int(batch) for batch in points["batch_size"].unique())
    row_in = max(_LEAST_ROW_IN, (len(series) + 1) * figure_panels.LANE_IN)
    figure, drawn, spare = figure_panels.grid(len(batches), _COLUMNS, 0.35 + max(0.8, len(models) * row_in))
    for axes, batch in zip(drawn, batches, strict=True):
        figure_panels.ratio_rows(axes, points[points["batch_size"] == batch], models, looks)
        axes.set_title(f"batch {batch}")
    figure_panels.percent_axes(drawn, points)
    marks = [figure_panels.mark(name, **look) for name, look in looks.items()]
    return figure_panels.finish(figure, drawn, marks, *_caption_lines(points, apart, post2021), spare=spare)


def _caption_lines(points: pd.DataFrame, apart: str, post2021: bool) -> list[str]:
    """What the ratio is of, and what the bars are."""
    denominator = str(points["denominator"].iloc[0])
    of = OF_WHAT.get(denominator, denominator)
    low, high = points["lowest_peak"].min(), points["peak"].max()
    if high == high:  # known
        of += f", {' to '.join(dict.fromkeys([si(low, 'FLOP/s'), si(high, 'FLOP/s')]))}"
    precision = str(points["precision"].iloc[0])
    variant = str(points["variant"].iloc[0])
    trained = ", ".join([precision, *variant_lines(variant)]) if apart else precision
    trained = f"trained in {trained}; bars: 95 % interval"
    if not post2021:
        return [f"utilization, % of {of}", trained]
    return ["utilization in the arithmetic of 2021: a multiply-add as 1, % of the fp32 peak", f"here {of}; {trained}"]
