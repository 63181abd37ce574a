"""What an answer hangs on: for each input the interval of the answer when that input alone is not known.

One panel an answer, the widest bar on top, a line at the answer itself, and below all bars the interval of the answer
with every input unknown at once. Drawn from Answers and Swings alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.stats import Estimate, Swing
from reports.project.shared import quantity
from reports.shared import digits, figure_panels, figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INPUTS: Mapping[str, str] = {
    "utilization": "utilization",
    "price": "price of an hour",
    "watts": "watts",
    "pue": "PUE",
    "intensity": "carbon intensity",
    "law": "scaling law",
}
TITLES: Mapping[str, str] = {
    "flop": "training compute, FLOP",
    "gpu_hours": "GPU-hours",
    "error": "error",
    "cost": "cost, in the currency given",
    "energy_kwh": "energy, kWh",
    "co2_kg": "CO2e, kg",
    "loss": "loss, nats per token",
    "parameters": "parameters",
    "tokens": "tokens",
}

_WRITTEN: Mapping[str, Any] = {"fontsize": 6.5, "bbox": {"facecolor": "white", "linewidth": 0, "pad": 0.4}}
_ALL = "all together"
_BAR = 0.62
_ROW_IN = 0.24
_FRAME_IN = 0.72
_FEW_DECADES = 100.0
_LOG_FROM = 3.0
"""Ends further apart than this many times are drawn on an axis of logarithms."""


def tornadoes(found: Mapping[str, tuple[Estimate, Sequence[Swing]]], confidence: float) -> Figure:
    """One figure with a panel for each answer. Draw and render inside `style.theme()`."""
    from matplotlib.figure import Figure

    rows = [len(swings) + 1 for _, swings in found.values()]
    height = sum(_FRAME_IN + row * _ROW_IN for row in rows) + 0.3
    figure = Figure(figsize=(figure_style.COLUMN_IN * 1.5, height), layout="constrained")
    axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=[row + 2 for row in rows])[:, 0]
    for axis, (name, (answer, swings)) in zip(axes, found.items(), strict=True):
        _panel(axis, TITLES.get(name, name), answer, swings)
    figure_panels.say_below(
        figure, f"bars: {100 * confidence:g} % interval with this input alone unknown, others at their median"
    )
    return figure


def _panel(axis: Axes, title: str, answer: Estimate, swings: Sequence[Swing]) -> None:
    import seaborn as sns

    colours = sns.color_palette("colorblind")
    bars = [*[(INPUTS.get(s.input, s.input), s.low, s.high, colours[0]) for s in swings]]
    if len(bars) > 1:
        bars = [*bars, (_ALL, answer.low, answer.high, "0.45")]
    logarithmic = answer.low > 0 and answer.high / answer.low > _LOG_FROM
    if logarithmic:
        axis.set_xscale("log")
    for row, (_, low, high, colour) in enumerate(bars):
        axis.barh(row, high - low, _BAR, low, color=colour, linewidth=0, zorder=3)
        for value, side, shift in ((low, "right", -3), (high, "left", 3)):
            axis.annotate(
                _short(value, answer.high - answer.low),
                (value, row),
                (shift, 0),
                textcoords="offset points",
                ha=side,
                va="center",
                **_WRITTEN,
            )
    axis.axvline(answer.value, color="0.1", linewidth=0.9, zorder=4)
    axis.set_yticks(range(len(bars)), [bar[0] for bar in bars])
    axis.set_ylim(len(bars) - 0.5, -0.5)
    axis.set_title(f"{title}: {_short(answer.value, answer.high - answer.low)}")
    _room(axis, answer, logarithmic)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", left=False)
    figure_panels.plain([axis])


def _room(axis: Axes, answer: Estimate, logarithmic: bool) -> None:
    """Limits with room for the numbers beside the bars, and few enough ticks to read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,g}" if 1e-3 < value < 1e6 else _short(value))
    )
    axis.xaxis.set_minor_locator(NullLocator())
    few = answer.high / answer.low < _FEW_DECADES if logarithmic else False
    subs = (1.0, 2.0, 5.0) if few else (1.0,)
    axis.xaxis.set_major_locator(LogLocator(10, subs, numticks=6) if logarithmic else MaxNLocator(4))
    if logarithmic:
        room = (answer.high / answer.low) ** 0.22
        axis.set_xlim(answer.low / room, answer.high * room)
        return
    room = 0.22 * (answer.high - answer.low) or abs(answer.value) * 0.1 or 1.0
    axis.set_xlim(answer.low - room, answer.high + room)


def _short(value: float, width: float = math.inf) -> str:
    """With as many digits as tell two ends apart that are so far from each other."""
    apart = math.ceil(math.log10(abs(value) / width)) + 2 if value and 0 < width < math.inf else 3
    return quantity(value).replace(".00e", "e") if apart <= 3 else digits(value, min(apart, 8))
