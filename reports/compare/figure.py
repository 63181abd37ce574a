"""Step times of two runs against each other: one dot a cell, its ratio B ÷ A with the 95 % interval.

From the rows of a comparison alone. The axis is logarithmic, as the ratio is compared, so that twice and half are as
far from 1. Cells of one run alone and cells without a time have no ratio and are not drawn; the table has their reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from analysis.stats.comparison import SESSIONS
from reports.compare.cells import cell_names
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import percent
from results.records.comparisons import FASTER, SAME, SLOWER, UNKNOWN, Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "step_time_ratio"

MOST = 40
"""Cells on one figure; more go on to the next."""

_LOOKS: dict[str, tuple[int, str, bool]] = {
    SLOWER: (3, "s", True),
    FASTER: (2, "^", True),
    SAME: (0, "o", True),
    UNKNOWN: (7, "D", False),
}
"""Verdict → (place in the palette, marker, filled)."""

_ROW_IN = 0.2
_ROOM = 1.04
_WIDEST = 1.4
"""An interval that goes on further than this beyond the outermost dot leaves the panel."""

_TICKS = (
    "1 2 0.5 1.5 0.7 1.2 0.8 1.1 0.9 4 0.25 10 0.1 3 0.3 1.3 1.05 0.95 1.4 0.6 1.02 0.98 1.75 2.5 6 0.4 8 20 0.05 5 50"
)
"""Numbers that may stand below the axis, those that come first before others that they would cover."""

_MOST_TICKS = 9

Dot = tuple[str, Comparison]


def ratios(rows: Sequence[Comparison]) -> dict[str, Figure]:
    """File name → figure, those that take longest in B on top; {} without any ratio. Draw inside `style.theme()`."""
    named: list[Dot] = list(zip(cell_names(rows), rows, strict=True))
    known = sorted((dot for dot in named if dot[1].ratio is not None), key=lambda dot: -(dot[1].ratio or 0.0))
    if not known:
        return {}
    span = _span([row for _, row in known])
    return figure_panels.named(NAME, [("", partial(_figure, page, span)) for page in figure_panels.pages(known, MOST)])


def _span(rows: Sequence[Comparison]) -> tuple[float, float]:
    """What is drawn: all ratios and the margin, and of wide intervals as much as leaves the dots apart."""
    ratios = [row.ratio or 1.0 for row in rows]
    ends = [end for row in rows for end in (row.low_ratio, row.high_ratio) if end is not None] or ratios
    margin = 1 + max((row.margin_ratio for row in rows if row.margin_ratio is not None), default=0.0)
    lowest, highest = min(*ratios, 1 / margin), max(*ratios, margin)
    return max(min(*ends, lowest), lowest / _WIDEST) / _ROOM, min(max(*ends, highest), highest * _WIDEST) * _ROOM


def _figure(dots: Sequence[Dot], span: tuple[float, float]) -> Figure:
    figure, (axes,), _ = figure_panels.grid(1, 1, 0.35 + _ROW_IN * max(4, len(dots)), width_in=figure_style.PAGE_IN)
    margins = {row.margin_ratio for _, row in dots if row.margin_ratio is not None}
    for margin in margins:
        axes.axvspan(1 / (1 + margin), 1 + margin, color="0.92", linewidth=0, zorder=0)
    axes.axvline(1, color="0.3", linewidth=1, zorder=1)
    for place, (_, row) in enumerate(dots):
        ratio = row.ratio or 0.0
        low, high = (ratio if end is None else end for end in (row.low_ratio, row.high_ratio))
        axes.errorbar(
            [ratio],
            [place],
            xerr=[[ratio - low], [high - ratio]],
            capsize=2.5,
            elinewidth=1,
            zorder=3,
            **_look(row.verdict),
        )
    axes.set_yticks(range(len(dots)), [figure_style.label(name) for name, _ in dots])
    axes.set_ylim(len(dots) - 0.5, -0.5)
    figure_panels.lines_between(axes, len(dots))
    _across(axes, span)
    figure_panels.plain([axes])
    figure_panels.legend(figure, _marks({row.verdict for _, row in dots}))
    within = f"grey: within ±{' or '.join(percent(margin) for margin in sorted(margins))}, the same" if margins else ""
    beside = ", relative to a ceiling timed beside both" if any(row.basis == SESSIONS for _, row in dots) else ""
    figure_panels.say_below(
        figure, f"mean step time in B ÷ in A{beside}; right of 1, B is slower", f"bars: 95 % interval; {within}"
    )
    return figure


def _look(verdict: str) -> dict[str, Any]:
    import seaborn as sns

    place, marker, filled = _LOOKS[verdict]
    colour = sns.color_palette("colorblind")[place] if filled else "0.4"
    return {"color": colour, "fmt": marker, "markersize": 4.5, "markerfacecolor": colour if filled else "white"}


def _marks(verdicts: set[str]) -> list[Any]:
    """The legend: what B is."""
    looks = {verdict: _look(verdict) for verdict in _LOOKS if verdict in verdicts}
    return [
        figure_panels.mark(f"B is {verdict}" if verdict != UNKNOWN else verdict, marker=look.pop("fmt"), **look)
        for verdict, look in looks.items()
    ]


def _across(axes: Axes, span: tuple[float, float]) -> None:
    """A logarithmic axis with plain numbers."""
    axes.set_xscale("log")
    axes.minorticks_off()
    ticks: list[float] = []
    for tick in (tick for tick in map(float, _TICKS.split()) if span[0] <= tick <= span[1]):
        if all(abs(math.log(tick / other)) * _MOST_TICKS >= math.log(span[1] / span[0]) for other in ticks):
            ticks.append(tick)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlim(*span)
