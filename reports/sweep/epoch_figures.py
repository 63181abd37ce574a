"""Draws the time per epoch by batch size: a panel per model (and variant), a colour per precision.

`epoch_times` takes rows of work_times.csv and returns file name → figure. A filled mark is the full batches' mean time
× their number + the last batch's time. A hollow mark is the same under the profiler. A cross is an epoch that was run
from end to end. Bars are 95 % intervals; for repeats they reach from the lowest to the highest end. Where a point is
missing, the cell's status is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from reports.shared import figure_panels, figure_style
from reports.shared.html import FigureCaption
from results.records.answers import WorkTime

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


EPOCH_TIMES = "epoch_time_by_batch"

CAPTIONS = {
    EPOCH_TIMES: FigureCaption(
        "How long an epoch takes at each batch size, profiled and not",
        "work_times.csv",
        "A panel for each model: batch size across, seconds an epoch upwards with bars for 95 % intervals; filled "
        "without the profiler, hollow under it, a cross for an epoch that was run whole.",
    ),
}
"""Figure → its caption on the page."""

SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("not profiled", {}),
    "profiled_": ("under the profiler", {"markerfacecolor": "white", "linestyle": (0, (3, 2))}),
    "real_": ("a whole epoch, run", {"marker": "x", "markersize": 6, "linestyle": "none", "zorder": 4}),
}
"""Prefix of the columns → its label, and how its marks differ from the precision's look."""

_MOST_PANELS = 16

_DECADE = 8.0
"""A panel needs a logarithmic axis if its largest time is more than this many times its smallest."""


def epoch_times(passes: Sequence[WorkTime]) -> dict[str, Figure]:
    """Return file name → figure; {} without epochs. passes: rows of work_times.csv of one run."""
    rows = figure_panels.drawable([row for row in passes if row.work == "epoch"], WorkTime)
    if rows.empty:
        return {}
    points = _epoch_points(rows)
    models = [str(label) for label in points["label"].unique()]
    images = sorted({int(items) for items in rows["items"].dropna()})
    return figure_panels.paged(EPOCH_TIMES, models, _MOST_PANELS, partial(_epoch_figure, points, images))


def _epoch_points(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per model, variant, precision and batch size."""
    columns = [f"{prefix}{name}" for prefix in SERIES for name in ("time_s", "low_s", "high_s")]
    how = {"time_s": "mean", "low_s": "min", "high_s": "max"}
    aggregated = {name: (name, how[name.removeprefix("profiled_").removeprefix("real_")]) for name in columns}
    points = (
        figure_panels.floats(rows, columns)
        .groupby(["model", "variant", "precision", "batch_size"], sort=False, as_index=False)
        .agg(**aggregated, status=("status", figure_panels.worst))
    )
    return points.assign(label=figure_panels.labels(points))


def _epoch_figure(points: pd.DataFrame, images: Sequence[int], models: Sequence[str]) -> Figure:
    points = points[points["label"].isin(models)]
    looks = figure_style.looks(figure_panels.in_order(points["precision"]))
    batches = sorted(int(batch) for batch in points["batch_size"].unique())
    figure, drawn, spare = figure_panels.batch_panels(models, batches, less=4)
    times = points.set_index("label")[[f"{prefix}time_s" for prefix in SERIES]].stack().groupby(level="label")
    logarithmic = bool((times.max() / times.min() > _DECADE).any())
    for axes, model in zip(drawn, models, strict=True):
        _epoch_panel(axes, points[points["label"] == model], looks)
        figure_panels.time_axis(axes, logarithmic)
    marks = figure_panels.marks_of(looks)  # a precision each, and what hollow marks and crosses are, if there are any
    marker = next(iter(looks.values()))[1]
    for prefix, (label, look) in SERIES.items():
        if points[f"{prefix}time_s"].notna().any():
            shown = {"marker": marker, "linestyle": "-", "linewidth": 1, **look}
            marks.append(figure_panels.mark(label, color=figure_panels.GREY, **shown))
    size = f" of {images[0]:,} images" if len(images) == 1 else ""
    below, up = ("batch size", "bars: 95 % interval"), f"time per epoch{size}, s"
    return figure_panels.finish(figure, drawn, marks, *below, spare=spare, upwards=up)


def _epoch_panel(axes: Axes, points: pd.DataFrame, looks: figure_style.Looks) -> None:
    """Draw lines over the batch size; words hang from the top where there is no time."""
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
        gaps += [(float(row["batch_size"]), figure_panels.status_text(row["status"]), colour) for row in lost]
    figure_panels.write_reasons(axes, gaps, len(looks))
