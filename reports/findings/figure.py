"""Figures of the findings that are of no single table of a run: utilization against FLOP for each byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reports.findings.low_utilization import LOW
from reports.findings.traffic import Traffic
from reports.shared import figure_style, shown_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAME_PT = 7.0
_LETTER_PT = 0.58 * _NAME_PT
_DOT_PT = 9.0
_PANEL_PT = (455.0, 250.0)
"""Width and height of the panel, about: enough to see what would cover what."""

_BESIDE = (
    *((6.0, -2.5), (None, -2.5), (-12.0, 6.0), (-12.0, -12.0), (6.0, 5.0), (6.0, -11.0)),
    *((None, 5.0), (None, -11.0), (-12.0, 14.0), (-12.0, -20.0)),
)
"""Where a name may begin, in points from its dot, the best first; None: on the left, ending before the dot."""

_TICKS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200)
_ROOM = 1.35
"""Beyond the outermost dots, on a logarithmic axis."""

Box = tuple[float, float, float, float]
"""left, bottom, right, top in points."""


def bytes_and_utilization(traffic: Sequence[Traffic], device_name: str) -> Figure:
    """One dot a model: FLOP for each byte moved with nothing fused, against utilization with its 95 % interval.

    Draw and render inside `style.theme()`. An interval without an upper end goes to the edge.
    """
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(figure_style.PAGE_IN, 4.2), layout="constrained")
    axes = figure.subplots()
    xs = [each.unfused_flop_per_byte for each in traffic]
    top = 125 * max(each.row.utilization_ratio or 0.0 for each in traffic)
    axes.set(xscale="log", xlim=(min(xs) / _ROOM, max(xs) * _ROOM), ylim=(0, top))
    for each in traffic:
        _dot(axes, each, top)
    _name(axes, traffic)
    axes.set_xticks([tick for tick in _TICKS if min(xs) / _ROOM < tick < max(xs) * _ROOM])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("model FLOP for each byte that the step's operations move, nothing fused (an estimate)")
    axes.set_ylabel(f"utilization, % of the {traffic[0].row.denominator}")
    axes.set_title(
        f"{device_name}, batch {traffic[0].run.batch_size}, {traffic[0].run.precision}: few FLOP for each byte, low use"
    )
    return figure


def _dot(axes: Axes, each: Traffic, top: float) -> None:
    looks = figure_style.phase_looks()
    colour, marker = looks["backward" if each.run.model in LOW else "forward"]
    x, y = each.unfused_flop_per_byte, 100 * (each.row.utilization_ratio or 0.0)
    low, high = shown_interval(each.row)
    if low is not None:
        axes.plot([x, x], [100 * low, min(top, 100 * high) if high else top], color=colour, linewidth=1, alpha=0.5)
    axes.plot([x], [y], marker, color=colour, markersize=5.5)


def _name(axes: Axes, traffic: Sequence[Traffic]) -> None:
    """Names beside their dots, each where it covers no dot, no other name and the fewest intervals."""
    places = [_place(axes, each) for each in traffic]
    taken: list[Box] = [(x - _DOT_PT / 2, y - _DOT_PT / 2, x + _DOT_PT / 2, y + _DOT_PT / 2) for x, y in places]
    bars = [_bar(axes, each) for each in traffic]
    for each, (x, y) in zip(traffic, places, strict=True):
        width = _LETTER_PT * len(each.run.model)
        offsets = [(-6.0 - width if dx is None else dx, dy) for dx, dy in _BESIDE]
        boxes = [(x + dx, y + dy, x + dx + width, y + dy + _NAME_PT) for dx, dy in offsets]
        inside = [i for i, box in enumerate(boxes) if box[0] > 0 and box[2] < _PANEL_PT[0]]
        apart = [i for i in inside if not any(_meet(boxes[i], other) for other in taken)]
        free = min(apart, key=lambda i: sum(_meet(boxes[i], bar) for bar in bars), default=0)
        taken.append(boxes[free])
        at = (each.unfused_flop_per_byte, 100 * (each.row.utilization_ratio or 0.0))
        axes.annotate(each.run.model, at, offsets[free], textcoords="offset points", fontsize=_NAME_PT, color="0.2")


def _place(axes: Axes, each: Traffic) -> tuple[float, float]:
    """A dot's place in the panel, in points."""
    left, right = axes.get_xlim()
    across = math.log(each.unfused_flop_per_byte / left) / math.log(right / left)
    return across * _PANEL_PT[0], _up(axes, each.row.utilization_ratio or 0.0)


def _up(axes: Axes, ratio: float) -> float:
    return 100 * ratio / axes.get_ylim()[1] * _PANEL_PT[1]


def _bar(axes: Axes, each: Traffic) -> Box:
    """Where a dot's interval is drawn; only the dot's place where it has none."""
    x, y = _place(axes, each)
    low, high = shown_interval(each.row)
    if low is None:
        return x, y, x, y
    return x - 0.5, _up(axes, low), x + 0.5, _PANEL_PT[1] if high is None else _up(axes, high)


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
