"""A step's memory drawn: its live bytes over its operations, a stacked area by category with the peak marked."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from analysis.footprint.live_bytes import CATEGORIES
from reports.footprint.text import WORDS, FootprintAnswer
from reports.shared import figure_panels, figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


COLOURS = {
    "weight": 0,
    "buffer": 9,
    "optimizer_state": 4,
    "gradient": 3,
    "input": 7,
    "activation": 1,
    "cast": 8,
    "temporary": 2,
}
"""Category → its index in the palette; from the bottom, what stays first."""

SCALES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))

NARROWEST_RATIO = 0.04
"""Share of the step: a phase that is narrower has no name in the picture."""


def timeline(answer: FootprintAnswer) -> Figure:
    """The picture. A category that is never there is left out of it."""
    found = answer.found
    scale, unit = next(each for each in SCALES if found.at_least_bytes >= each[0] or each[0] == 1)
    shown = [name for name in COLOURS if any(found.timeline[name])]
    figure, (axes,), _ = figure_panels.grid(1, 1, 2.5, width_in=figure_style.PAGE_IN)
    moments = range(-1, len(found.total_bytes) - 1)
    rows = [[nbytes / scale for nbytes in found.timeline[name]] for name in shown]
    colours = [figure_style.colour(COLOURS[name]) for name in shown]
    axes.stackplot(moments, rows, labels=[WORDS[name] for name in shown], colors=colours, step="mid", linewidth=0)
    _mark(axes, answer, scale)
    _phases(axes, answer)
    axes.set(xlim=(-1, max(1, len(moments) - 2)), ylim=(0, 1.22 * max(1, found.at_least_bytes) / scale))
    axes.set(xlabel="operation of the step", ylabel=f"live bytes, {unit}")
    text = f"{answer.model}, batch {answer.batch_size}, {answer.precision}, optimizer {answer.optimizer}"
    text += ", at least" if found.unknown else ""
    axes.set_title(f"{text}: {found.at_least_bytes / scale:.4g} {unit}")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _mark(axes: Any, answer: FootprintAnswer, scale: int) -> None:
    """The peak, with where it is."""
    at, peak = answer.found.peak_at, answer.found.at_least_bytes / scale
    axes.plot([at.index], [peak], marker="v", color="0.1", markersize=5, clip_on=False)
    words = f"peak: {at.operation.removeprefix('aten.') or 'before the step'}{f', {at.module}' if at.module else ''}"
    left = at.index < len(answer.operations) / 2
    axes.annotate(
        words, (at.index, peak), xytext=(6 if left else -6, 5), textcoords="offset points", fontsize=8,
        ha="left" if left else "right", va="bottom",
    )  # fmt: skip


def _phases(axes: Any, answer: FootprintAnswer) -> None:
    """Lines where a phase begins, and the names of those that are wide enough; recomputation is inside of backward."""
    start, count = 0, len(answer.operations)
    named = ["backward" if each.phase == "recompute" else each.phase for each in answer.operations]
    for phase, group in groupby(named):
        length = len(list(group))
        if start:
            axes.axvline(start - 0.5, color="0.35", linewidth=0.6, linestyle=":")
        if length >= NARROWEST_RATIO * count:
            axes.text(start + length / 2, 0.985, phase, transform=axes.get_xaxis_transform(), ha="center", va="top",
                      fontsize=8, color="0.25")  # fmt: skip
        start += length


if set(COLOURS) != set(CATEGORIES):
    raise ValueError(f"expected a colour for each of {CATEGORIES}")
