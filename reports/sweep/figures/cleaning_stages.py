"""Hobbhahn's three states of a recording (2021), a model a row, drawn from cleaned/profile_counts.csv alone.

As found: what kernels (on a CPU: operator calls) get by PyProf's rule; deduplicated: each multiply-add once, what
the post did by hand; repaired: gaps filled from sizes. A stroke is our own count, where the cell has one of that batch.
A sum that leaves products without a count out is a triangle, "at least". Of kept recordings alone (`--profile`), one
recorder a figure. Equal counts of several cells are one mark, never a mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cleaning.profile.clean import AT_LEAST
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import fitting
from results.records.vocabulary import RECORDERS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "profile_states"
PHASES = ("forward", "backward")
WORKS = ("batch", "one", "last")
"""The first of these that a model has is shown."""

STATES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "found": ("as found", "o", {"markerfacecolor": "none", "markersize": 6.5}),
    "deduplicated": ("deduplicated", "s", {"markerfacecolor": "none", "markersize": 4.2}),
    "cleaned": ("repaired", "o", {"markersize": 2.8}),
}
"""State → what it is called, its marker, its look."""

_COLOURS = ("over", "under", "right")
_MOST_MODELS = 26
_ROW_IN = 0.24
_FAR = 20.0
"""Counts that differ by more than this need a logarithmic axis."""


def states(frame: pd.DataFrame, variants: Mapping[str, str]) -> dict[str, Figure]:
    """File name → figure; {} without recordings. frame: rows of cleaned/profile_counts.csv; variants: of each cell."""
    rows = frame[frame["source"].isin(RECORDERS) & frame["work"].isin(WORKS) & frame["phase"].isin(PHASES)]
    if rows.empty:
        return {}
    drawn = []
    for source, mine in figure_panels.groups(_per_image(rows, variants), "source"):
        pages = figure_panels.pages([str(label) for label in mine["label"].unique()], _MOST_MODELS)
        drawn += [("" if source == RECORDERS[0] else str(source), partial(_figure, mine, page)) for page in pages]
    return figure_panels.named(NAME, drawn)


def _per_image(rows: pd.DataFrame, variants: Mapping[str, str]) -> pd.DataFrame:
    """FLOP an image of one work of each model, with a label."""
    rows = rows.assign(variant=[variants.get(cell, "") for cell in rows["cell_id"]])
    columns = {name: f"{name}_flop" for name in (*STATES, "exact")}
    columns |= {f"{state} at least": name for state, name in AT_LEAST.items()}
    numbers = figure_panels.floats(rows, (*columns.values(), "items"))
    images = {name: numbers[column] / numbers["items"] for name, column in columns.items()}
    images |= {f"{state} at least": images[f"{state} at least"].where(images[state].isna()) for state in STATES}
    rows = rows.assign(label=figure_panels.labels(rows), place=rows["work"].map(WORKS.index), **images)
    first = rows.groupby(["source", "label"])["place"].transform("min")
    return rows[rows["place"] == first]


def _figure(rows: pd.DataFrame, models: Sequence[str]) -> Figure:
    rows = rows[rows["label"].isin(models)]
    figure, drawn, spare = figure_panels.grid(len(PHASES), len(PHASES), 0.35 + max(0.8, len(models) * _ROW_IN))
    verdicts = figure_style.verdict_looks()
    colours = {state: verdicts[verdict][0] for state, verdict in zip(STATES, _COLOURS, strict=True)}
    for axes, phase in zip(drawn, PHASES, strict=True):
        here = rows[rows["phase"] == phase]
        for y, model in enumerate(models):
            _row(axes, here[here["label"] == model], y, colours)
        axes.set_title(phase)
        names = [fitting(name.replace("\n", " "), figure_panels.ROW_LETTERS) for name in models]
        figure_panels.label_rows(axes, names)
    _across(drawn[0], rows)
    marks = [
        figure_panels.mark(words, color=colours[state], marker=marker, **look)
        for state, (words, marker, look) in STATES.items()
    ]
    if rows[[f"{state} at least" for state in STATES]].notna().any(axis=None):
        marks.append(figure_panels.mark("at least", color=figure_panels.GREY, marker="^", markerfacecolor="none"))
    marks.append(figure_panels.mark("our own count", color="0.1", marker="|", markersize=8))
    below = ("FLOP per image", f"recorded by {rows['source'].iloc[0]}")
    return figure_panels.finish(figure, drawn, marks, *below, spare=spare)


def _row(axes: Axes, rows: pd.DataFrame, y: int, colours: Mapping[str, Any]) -> None:
    """One model: its marks, and the exact count as a stroke; words where nothing is known."""
    for exact in sorted(set(rows["exact"].dropna())):
        axes.plot([exact, exact], [y - 0.36, y + 0.36], color="0.1", linewidth=1.4, zorder=2, solid_capstyle="butt")
    known = 0
    for state, (_, marker, look) in STATES.items():
        values = sorted(set(rows[state].dropna()))
        least = sorted(set(rows[f"{state} at least"].dropna()))
        known += len(values) + len(least)
        look_of = {"color": colours[state], "linestyle": "none", "clip_on": False, "zorder": 3, **look}
        for numbers, shape in ((values, marker), (least, "^")):
            if numbers:  # an empty line that is not clipped has no box, and no figure gets a layout with it
                axes.plot(numbers, [y] * len(numbers), marker=shape, **look_of)
    if not known:
        words = figure_panels.why(str(rows["status"].iloc[0])) if len(rows) else "unknown"
        axes.annotate(
            words, (0, y), (3, 0), xycoords=axes.get_yaxis_transform(), va="center_baseline", **figure_panels.WORDS
        )


def _across(axes: Axes, rows: pd.DataFrame) -> None:
    """The axis that both panels share: from zero, or logarithmic where models differ by far."""
    from matplotlib.ticker import EngFormatter

    names = [*STATES, "exact", *(f"{state} at least" for state in STATES)]
    numbers = [value for name in names for value in rows[name].dropna()]
    above = [value for value in numbers if value > 0]
    if above and min(numbers) > 0 and max(above) / min(above) > _FAR:
        axes.set_xscale("log")
        axes.set_xlim(min(above) / 1.5, max(above) * 1.5)
        return
    axes.set_xlim(0, max(above, default=1.0) * 1.08)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
