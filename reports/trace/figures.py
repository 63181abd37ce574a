"""What a recorded profile says, as pictures: FLOP of a step, ratios, a timeline, and with `count_figures.py` how
often each product was counted.

Drawn from what operation_instances.csv.gz and kernels.csv.gz hold; an empty table makes fewer figures. Where the
recorder marked steps, products are those of one step: the one with the most wrong counts, since that is where cleaning
has the most to say. Not claimed: FLOP per image, which a recording does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.operators.registry import PRODUCTS
from analysis.trace.missing import MISSING
from cleaning.trace.totals import UNKNOWN_OPERATOR
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import digits, scaled
from reports.trace.count_figures import PHASES, count_figure
from reports.trace.text import timed_kernels
from reports.trace.timeline import has_states
from results.records.operations import OperationInstance
from results.store.tables import table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from reports.trace.timeline import Trace

STATES = ("raw", "deduplicated", "repaired")
ALL_PHASES = ("forward", "loss", "recompute", "backward", "optimizer", "")

_COLOURS: dict[str, int | str] = {"forward": 0, "backward": 3, "recompute": 1, "loss": 9, "optimizer": 2, "": "0.6"}
_HATCHES = {"forward": "", "recompute": "....", "backward": "////"}
_FINEST = 1500
"""Into how many pieces a timeline is cut: gaps shorter than one are not drawn."""


def figures(trace: Trace) -> dict[str, Figure]:
    """File name → figure. Draw and render inside `style.theme()`."""
    instances, states = table(OperationInstance, trace.cleaned.instances), has_states(trace)
    known = _has_count(instances, "expected_flop") | _has_count(instances, "raw_flop")
    products = instances[known | _without_count(instances)]
    if not states:
        products = products.assign(raw_flop=products["repaired_flop"])
    drawn = count_figure(instances[known]) | _flop_per_step(products) if states else {}
    drawn |= _ratios(products, ("raw", "repaired") if states else ("repaired",))
    drawn |= _timeline(instances, timed_kernels(trace))
    return drawn


def _without_count(frame: pd.DataFrame) -> pd.Series[bool]:
    """Operations that make products, by their kind or by their kernels, and have no count after repair, or are not
    there."""
    makes = frame["kind"].isin(PRODUCTS) | (frame["reason"] == UNKNOWN_OPERATOR)
    return (makes & frame["repaired_flop"].isna()) | _absent(frame)


def _absent(frame: pd.DataFrame) -> pd.Series[bool]:
    """Rows that stand for calls which are not in the recording."""
    return frame["reason"].fillna("").astype(str).str.startswith(MISSING)


def _has_count(frame: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Where a count is there and not 0."""
    return _numbers(frame, name) > 0


def _numbers(frame: pd.DataFrame, name: str) -> pd.Series[float]:
    """A column of counts as floats for drawing, 0 for unknown."""
    filled: pd.Series[float] = figure_panels.floats(frame, (name,))[name].fillna(0.0)
    return filled


# --- FLOP of a step, before and after --------------------------------------------------------------------------------


def _flop_per_step(products: pd.DataFrame) -> dict[str, Figure]:
    """Three bars, one a state, each of its phases; mean over the marked steps."""
    rows = products[products["phase"].isin(PHASES)]
    if rows.empty:
        return {}
    steps = int(rows["step"].nunique()) or 1
    sums = {
        state: {phase: _numbers(rows[rows["phase"] == phase], f"{state}_flop").sum() / steps for phase in PHASES}
        for state in STATES
    }
    highest = max(sum(parts.values()) for parts in sums.values())
    scale, prefix = scaled(highest)
    figure, (axes,), _ = figure_panels.grid(1, 1, 1.2, width_in=figure_style.PAGE_IN)
    for y, parts in enumerate(sums.values()):
        _stack(axes, y, {phase: flop / scale for phase, flop in parts.items()}, highest / scale)
    labels = [f"{state}\nat least" if state in _gaps(rows) else state for state in STATES]
    figure_panels.label_rows(axes, labels, bars=True)
    axes.set_xlim(0, highest / scale * 1.02 or 1.0)
    seen = [phase for phase in PHASES if any(parts[phase] for parts in sums.values())]
    marks = [figure_panels.patch(phase, **_look(phase)) for phase in seen]
    what = f"a step, mean of {steps}" if rows["step"].notna().any() else "the recording"
    below = f"{prefix}FLOP of {what}, of the calls recorded: as found, without double counts, gaps filled from shapes"
    return {"flop_per_step": figure_panels.finish(figure, [axes], marks, below)}


def _stack(axes: Axes, y: int, parts: Mapping[str, float], highest: float) -> None:
    start = 0.0
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    for phase, flop in parts.items():
        if not flop:
            continue
        axes.barh(y, flop, left=start, height=0.7, **_look(phase))
        if flop > 0.06 * highest:
            axes.text(start + flop / 2, y, digits(flop, 4), fontsize=7, ha="center", va="center", bbox=box)
        start += flop
    if not start:
        figure_panels.write_word(axes, "nothing counted", 0, y)


def _look(phase: str) -> dict[str, Any]:
    """Solid or hatched, in the colour of the phase."""
    return figure_style.bar_look(figure_style.colour(_COLOURS[phase]), _HATCHES.get(phase, ""))


# --- backward ÷ forward ----------------------------------------------------------------------------------------------


def _ratios(products: pd.DataFrame, states: Sequence[str]) -> dict[str, Figure]:
    """Backward ÷ forward of each kind and of all, in these states (as found, as cleaned), beside 2."""
    rows = products[products["phase"].isin(("forward", "backward"))]
    both = rows[rows["kind"].isin(rows.loc[rows["phase"] == "backward", "kind"])]
    kinds = figure_panels.in_order(both["kind"], ("convolution", "matmul", "attention", "recurrent"))
    rows = rows.assign(kind=rows["kind"].replace("", "other"))
    found = {kind: _pair(rows[rows["kind"] == kind]) for kind in (kind or "other" for kind in kinds)}
    if len(found) > 1:
        found["all"] = _pair(rows)
    cut = set(STATES) if _absent(rows).any() else set()
    gaps = {kind: cut | _gaps(rows if kind == "all" else rows[rows["kind"] == kind]) for kind in found}
    found = {kind: {state: None if cut else value for state, value in pair.items()} for kind, pair in found.items()}
    found = {kind: pair for kind, pair in found.items() if pair["repaired"] is not None or pair["raw"] or gaps[kind]}
    if not any(value is not None for pair in found.values() for value in pair.values()):
        return {}
    figure, (axes,), _ = figure_panels.grid(1, 1, 0.35 + 0.42 * len(found), width_in=figure_style.PAGE_IN)
    looks = {"raw": figure_style.bar_look("0.4", "xxxx"), "repaired": _look("forward")}
    for y, (kind, pair) in enumerate(found.items()):
        for aside, state in zip((-0.19, 0.19) if len(states) > 1 else (0.0,), states, strict=True):
            value = pair[state]
            if value is None:
                figure_panels.write_word(
                    axes, "not all counted" if state in gaps[kind] else "no forward count", 0, y + aside
                )
                continue
            axes.barh(y + aside, value, height=0.34, **looks[state])
            look: dict[str, Any] = {"va": "center_baseline", "textcoords": "offset points", "zorder": 4}
            look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
            axes.annotate(digits(value, 4), (value, y + aside), (4, 0), fontsize=7, **look)
    highest = max(2.0, *(value for pair in found.values() for value in pair.values() if value is not None))
    axes.set_xlim(0, highest * 1.12)
    axes.axvline(2, color="0.2", linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
    figure_panels.label_rows(axes, list(found), bars=True)
    words = {"raw": "as found", "repaired": "cleaned" if "raw" in states else "counted"}
    marks = [figure_panels.patch(words[state], **looks[state]) for state in states]
    marks.append(figure_panels.mark("2 : 1", color="0.2", linewidth=0.9, linestyle=(0, (4, 3))))
    below = "backward ÷ forward FLOP; 2 where both gradients are asked for, 1 for a first layer"
    return {"backward_forward_by_kind": figure_panels.finish(figure, [axes], marks, below)}


def _gaps(rows: pd.DataFrame) -> set[str]:
    """The states in which a product has no count."""
    return {state for state in STATES if rows[f"{state}_flop"].isna().any()}


def _pair(rows: pd.DataFrame) -> dict[str, float | None]:
    """State → backward ÷ forward; None without a forward count, or where one of the counts is unknown."""
    found: dict[str, float | None] = {}
    for state in ("raw", "repaired"):
        if state in _gaps(rows):
            found[state] = None
            continue
        sums = [_numbers(rows[rows["phase"] == phase], f"{state}_flop").sum() for phase in ("forward", "backward")]
        found[state] = sums[1] / sums[0] if sums[0] else None
    return found


# --- a step in time --------------------------------------------------------------------------------------------------


def _timeline(instances: pd.DataFrame, kernels: pd.DataFrame) -> dict[str, Figure]:
    """What ran when, one lane a phase: the middle one of the marked steps, else everything."""
    kernels = kernels[kernels["start_s"].notna()]  # PyProf keeps none
    if kernels.empty:
        return {}
    device = kernels.groupby(kernels["device"].fillna(-1))["time_s"].sum().idxmax()
    mine = kernels[kernels["device"].fillna(-1) == device]
    low, high, step = _window(instances, mine)
    mine = mine[(mine["start_s"] >= low) & (mine["start_s"] < high)]
    if mine.empty:
        return {}
    begin = float(mine["start_s"].min())
    length = float((mine["start_s"] + mine["time_s"]).max()) - begin or 1.0
    unit, name = (1.0, "s") if length >= 1 else (1e-3, "ms")
    lanes = [phase for phase in ALL_PHASES if (mine["phase"] == phase).any()]
    figure, (axes,), _ = figure_panels.grid(1, 1, 0.3 + 0.27 * len(lanes), width_in=figure_style.PAGE_IN)
    for y, phase in enumerate(lanes):
        spans = _spans(mine[mine["phase"] == phase], begin, length / _FINEST)
        colour = figure_style.colour(_COLOURS[phase])
        axes.broken_barh(spans / unit, (y - 0.35, 0.7), facecolors=colour, linewidth=0)
        busy = mine.loc[mine["phase"] == phase, "time_s"].sum()
        look: dict[str, Any] = {"va": "center_baseline", "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(f"{digits(busy / unit)} {name}", (length / unit, y), (6, 0), fontsize=7, **look)
    figure_panels.label_rows(axes, [phase or "no phase known" for phase in lanes], bars=True)
    axes.set_xlim(0, length / unit)
    what = "operator calls" if (mine["what"] == "call").any() else "kernels, copies and fills"
    where = f"step {step}" if step is not None else "the recording"
    below = f"{name} since {where} began; {what} by phase, on the right their time together"
    return {"timeline": figure_panels.finish(figure, [axes], [], below)}


def _window(instances: pd.DataFrame, kernels: pd.DataFrame) -> tuple[float, float, int | None]:
    """From the first kernel of the middle step to that of the next one, and the step's number."""
    step_of = dict(zip(instances["index"], instances["step"], strict=True))
    own = kernels.assign(step=kernels["instance"].map(step_of)).dropna(subset=["step"])
    if own.empty:
        return -np.inf, np.inf, None
    starts = own.groupby("step")["start_s"].min().sort_values()
    at = (len(starts) - 1) // 2
    high = float(starts.iloc[at + 1]) if at + 1 < len(starts) else np.inf
    return float(starts.iloc[at]), high, int(starts.index[at])


def _spans(rows: pd.DataFrame, begin: float, finest: float) -> Any:
    """(start, length) of what ran, neighbours nearer than `finest` as one."""
    order = np.argsort(rows["start_s"].to_numpy(float), kind="stable")
    start = rows["start_s"].to_numpy(float)[order] - begin
    end = np.maximum.accumulate(start + np.maximum(rows["time_s"].to_numpy(float)[order], finest / 2))
    first = np.flatnonzero(np.concatenate(([True], start[1:] > end[:-1] + finest)))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return np.column_stack((start[first], end[last] - start[first]))
