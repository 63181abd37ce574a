"""Time per epoch by batch size, profiled and not, drawn from work_times.csv alone.

One panel a model (and variant), one colour a precision. Filled: the full batches' mean × their number + the last
batch's; hollow: the same under the profiler; a cross: an epoch that was run from end to end. Bars are 95 % intervals;
cells that were repeated are one point at their mean, the bar spanning all their intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from reports.shared import figure_panels, figure_style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "epoch_time_by_batch"

SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("not profiled", {}),
    "profiled_": ("under the profiler", {"markerfacecolor": "white", "linestyle": (0, (3, 2))}),
    "real_": ("a whole epoch, run", {"marker": "x", "markersize": 6, "linestyle": "none", "zorder": 4}),
}
"""Prefix of the columns → what it is, and how it differs from a precision's own look."""

_MOST_PANELS = 16
_DECADE = 8.0
"""A panel whose times differ more than this many times needs a logarithmic axis."""


def epoch_times(frame: pd.DataFrame) -> dict[str, Figure]:
    """File name → figure; {} without epochs. frame: rows of work_times.csv."""
    rows = frame[frame["work"] == "epoch"]
    if rows.empty:
        return {}
    points = _points(rows)
    models = [str(label) for label in points["label"].unique()]
    images = sorted({int(items) for items in rows["items"].dropna()})
    return figure_panels.paged(NAME, models, _MOST_PANELS, partial(_figure, points, images))


def _points(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a model, variant, precision and batch size."""
    columns = [f"{prefix}{name}" for prefix in SERIES for name in ("time_s", "low_s", "high_s")]
    how = {"time_s": "mean", "low_s": "min", "high_s": "max"}
    aggregated = {name: (name, how[name.removeprefix("profiled_").removeprefix("real_")]) for name in columns}
    points = (
        figure_panels.floats(rows, columns)
        .groupby(["model", "variant", "precision", "batch_size"], sort=False, as_index=False)
        .agg(**aggregated, status=("status", figure_panels.worst))
    )
    return points.assign(label=figure_panels.labels(points))


def _figure(points: pd.DataFrame, images: Sequence[int], models: Sequence[str]) -> Figure:
    points = points[points["label"].isin(models)]
    looks = figure_style.looks(figure_panels.in_order(points["precision"]))
    batches = sorted(int(batch) for batch in points["batch_size"].unique())
    figure, drawn, spare = figure_panels.batch_panels(models, batches, less=4)
    logarithmic = any(_spread(points[points["label"] == model]) > _DECADE for model in models)
    for axes, model in zip(drawn, models, strict=True):
        _panel(axes, points[points["label"] == model], looks)
        figure_panels.time_axis(axes, logarithmic)
    size = f" of {images[0]:,} images" if len(images) == 1 else ""
    below, up = ("batch size", "bars: 95 % interval"), f"time per epoch{size}, s"
    return figure_panels.finish(figure, drawn, _marks(looks, points), *below, spare=spare, upwards=up)


def _spread(points: pd.DataFrame) -> float:
    """Longest ÷ shortest time of a panel."""
    known = points[[f"{prefix}time_s" for prefix in SERIES]]
    low, high = known.min().min(), known.max().max()
    return float(high / low) if low > 0 else 1.0


def _panel(axes: Axes, points: pd.DataFrame, looks: figure_style.Looks) -> None:
    """Lines over the batch size; words hang from the top where there is no time."""
    gaps: list[tuple[float, str, Any]] = []
    for precision, (colour, marker) in looks.items():
        own = points[points["precision"] == precision].sort_values("batch_size")
        for prefix, (_, look) in SERIES.items():
            known = own.dropna(subset=[f"{prefix}time_s"])
            known = known.assign(
                **{to: known[f"{prefix}{name}_s"] for to, name in (("value", "time"), ("low", "low"), ("high", "high"))}
            )
            full = {"marker": marker, "linestyle": "-", "linewidth": 1, "color": colour, **look}
            figure_panels.dots(axes, known, "batch_size", "value", **full)
        lost = figure_panels.records(own[own["time_s"].isna()])
        gaps += [(float(row["batch_size"]), figure_panels.why(row["status"]), colour) for row in lost]
    figure_panels.hang_words(axes, gaps, len(looks))


def _marks(looks: figure_style.Looks, points: pd.DataFrame) -> list[Any]:
    """A precision each, and what hollow marks and crosses are, if there are any."""
    marks = figure_panels.marks_of(looks)
    marker = next(iter(looks.values()))[1]
    for prefix, (words, look) in SERIES.items():
        if points[f"{prefix}time_s"].notna().any():
            shown = {"marker": marker, "linestyle": "-", "linewidth": 1, **look}
            marks.append(figure_panels.mark(words, color=figure_panels.GREY, **shown))
    return marks
