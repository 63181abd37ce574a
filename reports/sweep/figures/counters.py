"""What each counter says of a forward or backward pass, beside our own count, drawn from cleaned/agreement.csv alone.

One panel a counter, one row a model. A hollow mark is everything the counter counts, a filled one its convolutions and
matrix products alone, where it tells them apart; both divided by our own count of the same batch. Counts are exact:
values that differ from batch to batch are marks of their own, never a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.shared import figure_panels, figure_style
from reports.shared.numbers import digits, fitting

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORDER = (
    *("flopledger", "flop_counter_mode", "torch_profiler", "fvcore", "ptflops", "ptflops_aten", "pthflops"),
    *("deepspeed", "calflops", "thop", "torchinfo"),
)
"""Counters as the registry has them; others after them."""

PHASES = {"forward": "forward_flops_by_counter", "backward": "backward_flops_by_counter"}
"""Phase → file name."""

_COLUMNS = 4
_MOST_MODELS = 18
_ROW_IN = 0.19
_MOST_NUMBERS = 3
"""That stand beside a row one by one; of more only the ends."""
_LETTERS = 22
_NEAR = 0.15
"""Largest distance from 1 that a linear axis shows."""

_LEAST = 0.002
"""Smallest width of a linear axis; of a smaller one the ticks would be read as a sum, "+1"."""

_STRETCH = 0.01
"""Ratios within ± this of 1 are drawn about linearly, beyond it logarithmically."""

_TICKS = (0.0, 0.9, 1.0, 1.1, 2.0, 10.0, 100.0, 1000.0)
_WORTH_WRITING = 0.1
"""From this distance to 1 on a ratio is written beside its mark."""

_TINY = 0.001


def by_counter(frame: pd.DataFrame) -> dict[str, Figure]:
    """File name → figure, forward and backward, as far as there are rows. frame: rows of cleaned/agreement.csv."""
    rows = figure_panels.floats(frame, ("ratio", "total_ratio", "exact_flop"))
    drawn: dict[str, Figure] = {}
    for phase, name in PHASES.items():
        mine = rows[rows["phase"] == phase]
        models = [str(model) for model in mine["model"].unique()]
        drawn |= figure_panels.paged(name, models, _MOST_MODELS, partial(_figure, mine, phase))
    return drawn


def _figure(rows: pd.DataFrame, phase: str, models: Sequence[str]) -> Figure:
    counters = figure_panels.in_order(rows["counter"], ORDER)
    height = 0.5 + max(0.5, len(models) * _ROW_IN)
    figure, drawn, spare = figure_panels.grid(len(counters), _COLUMNS, height)
    known = np.concatenate([rows["ratio"].dropna(), rows["total_ratio"].dropna(), [1.0]])
    place = _ratio_axis(drawn[0], float(known.min()), float(known.max()))
    names = [_named(rows[rows["model"] == model], model) for model in models]
    for axes, counter in zip(drawn, counters, strict=True):
        _panel(axes, rows[rows["counter"] == counter], models, place)
        axes.axvline(1, color="0.4", linewidth=0.8, zorder=1)
        axes.set_title(counter, fontsize=7.5)
        figure_panels.label_rows(axes, names)
    hollow, (whole, of_products) = {"markerfacecolor": "none", "markersize": 6.5}, _colours()
    marks = (
        figure_panels.mark("everything it counts", color=whole, marker="o", **hollow),
        figure_panels.mark("convolutions and matrix products alone", color=of_products, marker="D", markersize=3.2),
    )
    below = (
        f"{phase} FLOP ÷ our exact count of the same batch (1: equal)",
        f"in brackets: exact {phase} GFLOP per image; a multiply-add is 2 FLOP",
    )
    return figure_panels.finish(figure, drawn, marks, *below, spare=spare)


def _colours() -> tuple[Any, Any]:
    looks = figure_style.phase_looks()
    return looks["backward"][0], looks["forward"][0]


def _panel(axes: Axes, rows: pd.DataFrame, models: Sequence[str], place: Callable[[float], float]) -> None:
    """One counter: its marks, the numbers far from 1, and where it could not count why."""
    totals: list[tuple[float, int]] = []
    products: list[tuple[float, int]] = []
    by_model = dict(figure_panels.groups(rows, "model"))
    for y, model in enumerate(models):
        mine = by_model.get(model, rows.iloc[:0])
        total, product = (figure_panels.distinct(mine[name]) for name in ("total_ratio", "ratio"))
        totals += [(ratio, y) for ratio in total]
        products += [(ratio, y) for ratio in product]
        if total and product:
            axes.plot([min(total + product), max(total + product)], [y, y], color="0.6", linewidth=0.8, zorder=2)
        far = list({_times(ratio): ratio for ratio in (total + product) if abs(ratio - 1) >= _WORTH_WRITING}.values())
        ends = f"{_times(min(far))} to {_times(max(far))}" if far else ""
        notes = [_times(ratio) for ratio in far] if len(far) <= _MOST_NUMBERS else [ends]
        lost = mine[mine["ratio"].isna() & mine["total_ratio"].isna()]
        notes += list(dict.fromkeys(_reason(row, len(mine) > len(lost)) for row in figure_panels.records(lost)))
        if notes:
            _write(axes, ", ".join(notes), total + product, y, place)
    look: dict[str, Any] = {"linestyle": "none", "clip_on": False, "zorder": 3}
    hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 5.5}
    if totals:  # an empty line that is not clipped would take all the room
        axes.plot(*zip(*totals, strict=True), marker="o", color=_colours()[0], **hollow, **look)
    if products:
        axes.plot(*zip(*products, strict=True), marker="D", color=_colours()[1], markersize=2.8, **look)


def _reason(row: Mapping[str, Any], some: bool) -> str:
    """Why there is no ratio; with the batch where other batches have one."""
    words = figure_panels.why(row["status"], "no exact count")
    return f"batch {row['batch_size']}: {words}" if some else words


def _times(ratio: float) -> str:
    """14.1×, 0.48×, <0.001× (but 0× only where it is)."""
    return "<0.001×" if 0 < ratio < _TINY else f"{digits(ratio, 3 if ratio > 1 else 2)}×"


def _write(axes: Axes, words: str, ratios: Sequence[float], y: int, place: Callable[[float], float]) -> None:
    """Words beside the marks of a row, on the side that has more room; at the line of 1 where there are no marks."""
    here = [place(ratio) for ratio in ratios] or [place(1.0)]
    right = 1 - max(here) >= min(here)
    x = (max if right else min)(ratios or [1.0])
    look: dict[str, Any] = {**figure_panels.WORDS, "fontsize": 6, "color": "0.2", "va": "center_baseline"}
    axes.annotate(words, (x, y), (5 if right else -5, 0), ha="left" if right else "right", **look)


def _ratio_axis(axes: Axes, low: float, high: float) -> Callable[[float], float]:
    """Sets the shared axis and returns where on it (0 to 1) a ratio lies.

    Linear close to 1. Where a counter is far off, the distance to 1 is drawn logarithmically, so that 1.003 and 14 can
    both be read.
    """
    if max(1 - low, high - 1) <= _NEAR:
        if high - low < _LEAST:
            low, high = (low + high - _LEAST) / 2, (low + high + _LEAST) / 2
            axes.set_xticks([1 - _LEAST / 2, 1.0, 1 + _LEAST / 2], ["0.999", "1", "1.001"])
        margin = 0.08 * max(high - low, 0.01)
        ends = (low - margin, high + margin)
        axes.set_xlim(*ends)
        return lambda ratio: (ratio - ends[0]) / (ends[1] - ends[0])
    axes.set_xscale("function", functions=(_stretched, _unstretched))
    reach = (float(_stretched(np.array(low))) - 0.4, float(_stretched(np.array(high))) + 0.4)
    ends = (float(_unstretched(np.array(reach[0]))), float(_unstretched(np.array(reach[1]))))
    shown = [tick for tick in _TICKS if ends[0] <= tick <= ends[1]]
    axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
    axes.set_xlim(*ends)
    return lambda ratio: (float(_stretched(np.array(ratio))) - reach[0]) / (reach[1] - reach[0])


def _stretched(ratio: Any) -> Any:
    away = np.asarray(ratio, dtype=float) - 1
    return np.sign(away) * np.log1p(np.abs(away) / _STRETCH)


def _unstretched(place: Any) -> Any:
    place = np.asarray(place, dtype=float)
    return 1 + np.sign(place) * _STRETCH * np.expm1(np.abs(place))


def _named(rows: pd.DataFrame, model: str) -> str:
    """A model with its exact GFLOP per image; from the smallest to the largest where its batches differ."""
    each = (rows["exact_flop"] / rows["batch_size"].astype("float64")).dropna()
    if each.empty:
        return fitting(model, _LETTERS)
    low, high = digits(each.min() / 1e9), digits(each.max() / 1e9)
    return f"{fitting(model, _LETTERS)} ({low if low == high else f'{low} to {high}'})"
