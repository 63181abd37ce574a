"""Draws what a profiler recorded and what cleaning made of it: FLOP per image, by operation, backward ÷ forward.

`figures` takes a `Built` (everything derived from a run) and returns file name → figure. "As found" is the profiler's
own count. "As cleaned" has no duplicates, and gaps are filled from the recorded shapes. If the profiler has no number
for some products, a triangle marks their sum as "at least". Counts are exact: equal counts of several cells share a
mark, different ones have separate marks, and none is a mean. Next to a model's backward ÷ forward is its exact value, 2
- the share of its first operation, whose input needs no gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.utilization.numerators import OWN
from cleaning.counts import line
from reports.shared import figure_panels, figure_style
from reports.shared.html import FigureCaption
from reports.shared.numbers import digits, scaled, shortened_name
from results.records.counts import CleanedOperation, ProfileCount, Ratio

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cleaning.reconcile.derived import Built

CAPTIONS = {
    "flops_per_image_by_batch": FigureCaption(
        "What the profiler says an image costs, as found and as cleaned: in most models the same at each batch",
        "cleaned/profile_counts.csv",
        "A panel for each model: images in a step across, GFLOP an image upwards; circles are forward, squares "
        "backward, hollow as found, filled as cleaned, with a line through the cleaned ones.",
    ),
    "flops_by_operation": FigureCaption(
        "Which operations the profiler counts right, too high or too low",
        "cleaned/profiled_operations.csv.gz",
        "Bars for each part of one model in order of execution, forward on the left, backward on the right, in "
        "GFLOP of one image; plain bars were found right, hatched ones were added or taken out by cleaning.",
    ),
    "backward_forward_by_operation": FigureCaption(
        "Backward ÷ forward of each kind of operation, found and cleaned",
        "cleaned/ratios.csv",
        "A row for each kind of operation: its backward ÷ forward FLOP across, a mark for each value, hollow as "
        "found, filled as cleaned, black our own count; a dashed line at 2.",
    ),
    "backward_forward_by_model": FigureCaption(
        "Backward ÷ forward of each model beside its exact value",
        "cleaned/ratios.csv",
        "A row for each model: backward ÷ forward FLOP across, hollow as found, filled as cleaned, a black stroke "
        "for the exact value, a dashed line at 2.",
    ),
}
"""Figure → its caption on the page."""

PHASES = ("forward", "backward")
PASSES = ("one", "batch", "last")
"""Passes that have a profile; an epoch is their sum."""

_MOST_PANELS = 16
_MOST_BARS = 54
_MOST_FIGURES = 3
_BAR_IN = 0.145
_AT_LEAST: dict[str, Any] = {"marker": "^", "markerfacecolor": "none", "markersize": 6}
"""Look of a mark for a sum that lacks some products."""


def figures(built: Built) -> dict[str, Figure]:
    """Return file name → figure, for all profiles."""
    variants = {row.cell_id: row.variant for row in built.utilization}
    models = {row.cell_id: figure_style.label(row.model) for row in (*built.profile_counts, *built.utilization)}
    return (
        by_batch(figure_panels.drawable(built.profile_counts, ProfileCount), variants)
        | by_operation(figure_panels.drawable(built.cleaned_operations, CleanedOperation), models)
        | ratios(figure_panels.drawable([row for row in built.ratios if row.level in ("model", "kind")], Ratio))
    )


# --- FLOP per image by batch size ----------------------------------------------------------------------------------


def by_batch(frame: pd.DataFrame, variants: Mapping[str, str]) -> dict[str, Figure]:
    """Return file name → figure: one panel a model. frame: rows of cleaned/profile_counts.csv; variants: of each
    cell."""
    rows = figure_panels.one_source(frame[frame["work"].isin(PASSES) & frame["phase"].isin(PHASES)])
    if rows.empty:
        return {}
    states = {name: _per_image(rows, name) for name in ("found", "found_at_least", "cleaned")}
    states["found_at_least"] = states["found_at_least"].where(states["found"].isna())
    rows = rows.assign(label=_labels(rows, variants), **states)
    models = [str(label) for label in rows["label"].unique()]
    return figure_panels.paged("flops_per_image_by_batch", models, _MOST_PANELS, partial(_batch_figure, rows))


def _labels(rows: pd.DataFrame, variants: Mapping[str, str]) -> pd.Series[str]:
    """Return the model; with its variant where that changes its counts (another image size does, another layout does
    not)."""
    rows = rows.assign(variant=[variants.get(cell, "") for cell in rows["cell_id"]])
    counted = rows.dropna(subset=["cleaned_flop"]).assign(image=_per_image(rows, "cleaned"))
    several = counted.groupby(["model", "items", "phase"])["image"].nunique().groupby("model").max()
    differing = set(several[several > 1].index)
    full = figure_panels.labels(rows)
    return full.where(rows["model"].isin(differing), rows["model"])


def _per_image(rows: pd.DataFrame, state: str) -> pd.Series[float]:
    numbers = figure_panels.floats(rows, (f"{state}_flop", "items"))
    return numbers[f"{state}_flop"] / numbers["items"]


def _batch_figure(rows: pd.DataFrame, models: Sequence[str]) -> Figure:
    rows = rows[rows["label"].isin(models)]
    items = sorted(int(size) for size in rows["items"].unique())
    scale, prefix = scaled(10 * float(rows[["found", "found_at_least", "cleaned"]].max().max()))
    figure, drawn, spare = figure_panels.batch_panels(models, items)
    for axes, model in zip(drawn, models, strict=True):
        _batch_panel(axes, rows[rows["label"] == model], scale)
    marks = []
    for phase, (colour, marker) in figure_style.looks(PHASES, "phase").items():
        hollow = {"markerfacecolor": "none", "markersize": 6.5}
        marks.append(figure_panels.mark(f"{phase}, as found", color=colour, marker=marker, **hollow))
        marks.append(figure_panels.mark(f"{phase}, cleaned", color=colour, marker=marker, markersize=3.2))
    if bool(rows["found_at_least"].notna().any()):
        marks.append(figure_panels.mark("as found, at least", color=figure_panels.GREY, **_AT_LEAST))
    below = ("images in a step", "lines: the affine law a·b + c through the cleaned counts, per image")
    return figure_panels.finish(figure, drawn, marks, *below, spare=spare, upwards=f"{prefix}FLOP per image")


def _batch_panel(axes: Axes, rows: pd.DataFrame, scale: float) -> None:
    """Draw one model: a ring for the profiler's number, a dot for the cleaned one, a text where there is neither."""
    gaps: list[tuple[float, str, Any]] = []
    highest = 0.0
    for phase, (colour, marker) in figure_style.looks(PHASES, "phase").items():
        own = rows[rows["phase"] == phase]
        looks = {"found": {"markerfacecolor": "none", "markersize": 6}, "found_at_least": _AT_LEAST}
        for state, look in {**looks, "cleaned": {"markersize": 2.8}}.items():
            points = own.dropna(subset=[state]).drop_duplicates(subset=["items", state])
            if points.empty:
                continue
            y = points[state] / scale
            highest = max(highest, float(y.max()))
            drawn = {"marker": marker, "color": colour, "linestyle": "none", "clip_on": False, "zorder": 3, **look}
            axes.plot(points["items"], y, **drawn)
        _law(axes, own, colour, scale)
        known = set(own.dropna(subset=["cleaned"])["items"])
        lost = own[~own["items"].isin(known)].drop_duplicates(subset=["items", "status"])
        gaps += [
            (float(row["items"]), figure_panels.status_text(row["status"]), colour)
            for row in figure_panels.records(lost)
        ]
    axes.set_ylim(0, highest * 1.12 or 1.0)
    if not highest:
        axes.set_yticks([])
    figure_panels.write_reasons(axes, gaps, len(PHASES))


def _law(axes: Axes, rows: pd.DataFrame, colour: Any, scale: float) -> None:
    """Draw the line a + c / b through the cleaned counts, or a text if no line holds all of them."""
    known = rows.dropna(subset=["cleaned_flop"])
    counts = {(int(items), int(flop)) for items, flop in zip(known["items"], known["cleaned_flop"], strict=True)}
    sizes = sorted({items for items, _ in counts})
    if len(sizes) < 2:
        return
    law = line(counts)
    if law is None:
        look = {"ha": "left", "va": "bottom", "color": colour, **figure_panels.REASON_STYLE}
        top = max(flop / items for items, flop in counts) / scale
        axes.annotate("on no line", (sizes[0], top), (0, 4), **look)
        return
    slope, constant = (float(part) for part in law)
    b = np.geomspace(sizes[0], sizes[-1], 40)
    axes.plot(b, (slope + constant / b) / scale, color=colour, linewidth=0.9, zorder=2)


# --- FLOP by operation ---------------------------------------------------------------------------------------------


def by_operation(frame: pd.DataFrame, models: Mapping[str, str]) -> dict[str, Figure]:
    """Return file name → figure: for each of up to three models, else for the one with the most wrong numbers.

    frame: rows of cleaned/profiled_operations.csv.gz; models: cell id → model.
    """
    rows = figure_panels.one_source(frame[frame["phase"].isin(PHASES)])
    rows = rows.assign(model=[models.get(cell, cell) for cell in rows["cell_id"]])
    profiles = {str(model): profile_of(own) for model, own in figure_panels.groups(rows, "model")}
    if len(profiles) > _MOST_FIGURES:
        worst = max(profiles, key=lambda model: int((profiles[model]["verdict"] != "right").sum()))
        profiles = {worst: profiles[worst]}
    pages = [(model, partial(_operation_figure, model, own)) for model, own in profiles.items()]
    return figure_panels.named("flops_by_operation", pages)


def profile_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one profile of a model: of one sample where there is one, of the first cell that has it."""
    pass_name = next(name for name in (*PASSES, *rows["work"]) if (rows["work"] == name).any())
    rows = rows[rows["work"] == pass_name]
    first: pd.DataFrame = rows[rows["cell_id"] == rows["cell_id"].iloc[0]]
    return first


def bars_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return (name of the forward operation, phase) → FLOP by verdict, names in the order of execution.

    Verdicts: numbers on which profiler and cleaning agree (right), that cleaning added (under) and removed (over), and
    the profiler's where shapes give no count (unknown); uncounted: products of the last kind, which may have 0 FLOP. A
    backward operation is added to its forward operation; one without is a row of its own at the end.
    """
    forward = rows[rows["phase"] == "forward"].sort_values("index")
    names = forward["module"].where(forward["module"] != "", forward["name"])
    number = names.groupby(names).cumcount() + 1
    names = names + (" #" + number.astype(str)).where(number > 1, "")
    called = dict(zip(forward["index"], names, strict=True))
    of = rows["index"].where(rows["phase"] == "forward", rows["forward_index"])
    numbers = figure_panels.floats(rows, ("found_flop", "cleaned_flop"))
    recorded, cleaned = numbers["found_flop"].fillna(0.0), numbers["cleaned_flop"]
    flop = {"under": (cleaned - recorded).clip(lower=0), "over": (recorded - cleaned).clip(lower=0)}
    flop |= {"right": recorded.where(recorded < cleaned, cleaned), "unknown": recorded.where(cleaned.isna(), 0.0)}
    parts = rows.assign(
        **flop, uncounted=cleaned.isna(), operation=of.map(called).fillna("without a forward operation")
    )
    order = {name: index for index, name in enumerate(names)}
    sums = parts.groupby(["operation", "phase"])[[*VERDICTS, "uncounted"]].sum()
    return sums.sort_index(
        key=lambda level: level.map(order).fillna(len(order)), level="operation", sort_remaining=False
    )


def fitting_bars(bars: pd.DataFrame) -> tuple[list[str], pd.DataFrame]:
    """Return the names that fit on a page, in their order, the largest if there are more; and the bars left for
    texts."""
    size = bars[[*VERDICTS]].sum(axis="columns").groupby("operation", sort=False).sum()
    most = _MOST_BARS - (len(size) > _MOST_BARS)
    largest = set(size.sort_values(ascending=False, kind="stable").index[:most])
    return [str(name) for name in size.index if name in largest], bars.drop(index=[*largest], level="operation")


def _operation_figure(model: str, rows: pd.DataFrame) -> Figure:
    bars = bars_of(rows)
    names, rest = fitting_bars(bars)
    highest = float(bars.loc[names, [*VERDICTS]].sum(axis="columns").max())
    scale, prefix = scaled(10.0 * highest)
    left_out = rest.index.get_level_values("operation").nunique()
    labels = [shortened_name(name, 34) for name in (*names, *([f"{left_out} smaller operations"] if left_out else []))]
    figure, drawn, spare = figure_panels.grid(len(PHASES), len(PHASES), 0.4 + max(0.6, len(labels) * _BAR_IN))
    for axes, phase in zip(drawn, PHASES, strict=True):
        _bars(axes, bars[bars.index.get_level_values("phase") == phase].droplevel("phase").reindex(names), scale)
        together = rest[rest.index.get_level_values("phase") == phase][[*VERDICTS]].sum()
        if together.sum():
            sums = ", ".join(f"{verdict} {digits(flop / scale)}" for verdict, flop in together[together > 0].items())
            figure_panels.write_word(axes, f"{sums} {prefix}FLOP, not drawn", 0, len(names))
        axes.set_title(f"{shortened_name(model, 26)}, {phase}" if phase == PHASES[0] else phase)
        figure_panels.label_rows(axes, labels, bars=True, fontsize=6.5)
        axes.set_xlim(0, highest / scale * 1.04 or 1.0)
    pass_name = str(rows["work"].iloc[0])
    what = {"one": "one image", "batch": "a batch", "last": "the last batch of an epoch"}.get(pass_name, pass_name)
    below = f"{prefix}FLOP of {what}, found by {rows['source'].iloc[0]}; in order of execution"
    shown = {name for name in VERDICTS if bars.loc[names, name].any()}
    shown |= {"unknown"} if bars["uncounted"].any() else set()
    looks = figure_style.looks([name for name in VERDICTS if name in shown], "verdict")
    marks = [figure_panels.patch(VERDICTS[name], **figure_style.bar_look(*look)) for name, look in looks.items()]
    return figure_panels.finish(figure, drawn, marks, below, spare=spare)


VERDICTS = {
    "right": "right: found so",
    "under": "under: added by cleaning",
    "over": "over: taken out by cleaning",
    "unknown": "unknown: no count to compare it with",
}
"""Verdict → its text in the legend."""


def _bars(axes: Axes, bars: pd.DataFrame, scale: float) -> None:
    """Draw the parts of the bars from left to right; a text where the profiler's number has nothing to be compared
    with."""
    y, left = np.arange(len(bars)), np.zeros(len(bars))
    for verdict, look in figure_style.looks(VERDICTS, "verdict").items():
        width = bars[verdict].fillna(0.0).to_numpy() / scale
        axes.barh(y[width > 0], width[width > 0], left=left[width > 0], height=0.72, **figure_style.bar_look(*look))
        left += width
    for y_position in y[(bars["uncounted"] > 0).to_numpy()]:
        figure_panels.write_word(axes, "shapes give no count", left[y_position], y_position)


# --- backward ÷ forward ----------------------------------------------------------------------------------------------

PROFILED = ("one", "batch", "epoch")
RULE_OF_THUMB = 2.0

_MOST_MODELS = 18
_AT_LEAST_FLOP = ("forward_at_least_flop", "backward_at_least_flop")
_FAR = 4.0
"""Ratios beyond this are written at the edge instead of stretching the axis."""

_HOLLOW: dict[str, Any] = {"markerfacecolor": "none", "markersize": 5.5}
_CLOSE = 0.5
"""Ratios below this leave no room for a text at 0."""


def ratios(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return file name → figure: by model and by kind, as far as there are rows. frame: rows of cleaned/ratios.csv."""
    rows = figure_panels.floats(frame, ("ratio", "exact_ratio", "forward_flop"))
    profiled = figure_panels.one_source(rows[rows["work"].isin(PROFILED)])
    models = profiled[profiled["level"] == "model"]
    names = [str(name) for name in models["model"].unique()]
    drawn = figure_panels.paged(
        "backward_forward_by_model", names, _MOST_MODELS, partial(_ratio_figure, models, "model")
    )
    kinds = rows[(rows["level"] == "kind") & ((rows["source"] == OWN) | rows.index.isin(profiled.index))]
    kinds = kinds.assign(work=kinds["work"].where(kinds["work"] != "", "exact"))
    size = kinds.dropna(subset=["ratio"]).groupby("name", sort=False)["forward_flop"].max()  # the most FLOP first
    names = [str(name) for name in size.sort_values(ascending=False, kind="stable").index]
    return drawn | ({"backward_forward_by_operation": _ratio_figure(kinds, "name", names)} if names else {})


def _ratio_figure(rows: pd.DataFrame, column: str, names: Sequence[str]) -> Figure:
    """Return a row for each name, and in it a lane for each profile; a mark for each value among the batch sizes."""
    rows = rows[rows[column].isin(names)]
    passes = figure_panels.in_order(rows["work"], (*PROFILED, "exact"))
    height_in = 0.6 + max(0.8, len(names) * max(0.3, (len(passes) + 1) * figure_panels.LANE_IN))
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
        for pass_name, offset in figure_panels.lanes(passes).items():
            _lane(axes, here[here["work"] == pass_name], y + offset, end, pass_name)
    figure_panels.label_rows(axes, [shortened_name(name, figure_panels.ROW_LETTERS) for name in names])
    sources = [name for name in rows["source"].unique() if name != OWN]
    below = (
        f"backward FLOP ÷ forward FLOP of a {'model' if column == 'model' else 'kind of operation'}",
        f"as found and cleaned of {' and '.join(sources)}" if sources else "",
    )
    marks = _ratio_marks(passes, recorded=bool(sources), exact=bool(rows["exact_ratio"].notna().any()))
    return figure_panels.finish(figure, [axes], marks, *below)


def _lane(axes: Axes, rows: pd.DataFrame, y: float, end: float, pass_name: str) -> None:
    """Draw the ratios of one profile; or why it has none as found."""
    colour, marker = figure_style.looks([pass_name], "method")[pass_name]
    for state, look in (("found", _HOLLOW), ("cleaned", {"markersize": 2.8})):
        known = figure_panels.distinct(rows.loc[rows["state"] == state, "ratio"])
        _marked(axes, known, y, end, color=colour, marker=marker, **look)
    lost = rows[(rows["state"] == "found") & rows["ratio"].isna()]
    if not lost.empty and not (rows["ratio"] < _CLOSE).any():
        reason = figure_panels.status_text(str(lost["status"].iloc[0]))
        if str(lost["status"].iloc[0]) == "unavailable":  # the recorder counted a part of the calls, or none
            counted = figure_panels.floats(lost, _AT_LEAST_FLOP)[[*_AT_LEAST_FLOP]] > 0
            reason = "not all counted" if counted.any(axis=None) else "nothing counted"
        figure_panels.write_word(axes, f"as found: {reason}", 0, y, colour)


def _marked(axes: Axes, ratios: Sequence[float], y: float, end: float, **look: Any) -> None:
    """Draw marks inside the axis; far beyond it on the right their number at the edge."""
    inside = [ratio for ratio in ratios if ratio <= end]
    if inside:
        axes.plot(inside, [y] * len(inside), linestyle="none", clip_on=False, zorder=3, **look)
    beyond = [ratio for ratio in ratios if ratio > end]
    if beyond:
        numbers = ", ".join(dict.fromkeys(digits(ratio) for ratio in beyond))
        look_beyond: dict[str, Any] = {
            **figure_panels.REASON_STYLE,
            "fontsize": 5.5,
            "ha": "right",
            "va": "center_baseline",
        }
        axes.annotate(f"{numbers} →", (end, y), (-2, 0), color=look["color"], **look_beyond)


def _ratio_marks(passes: Sequence[str], *, recorded: bool, exact: bool) -> list[Any]:
    """Return legend entries of the passes, of hollow and filled marks of a recorded profile, and of the lines."""
    marks = figure_panels.marks_of(figure_style.looks(passes, "method"), {"exact": "our own count"})
    if recorded:
        marks.append(figure_panels.mark("hollow: as found", color=figure_panels.GREY, marker="o", **_HOLLOW))
        marks.append(figure_panels.mark("filled: cleaned", color=figure_panels.GREY, marker="o"))
    if exact:
        stroke = figure_panels.mark("exact: 2 − share of the first", color="0.1", marker="|", markersize=8)
        stroke.set_markeredgewidth(1.6)
        marks.append(stroke)
    dashed = {"color": "0.4", "linewidth": 0.8, "linestyle": (0, (4, 3))}
    return [*marks, figure_panels.mark("2:1, the rule of thumb", **dashed)]
