"""How often a recorded profile counted each product, before and after cleaning: a table that is drawn, a row a product.

Of the step with the most wrong counts, where steps are marked: there cleaning has the most to say. No file is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.shared import figure_panels, figure_style
from reports.shared.numbers import digits, fitting

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHASES = ("forward", "recompute", "backward")

_MOST_ROWS = 54
_ROW_IN = 0.145
_LABEL_LETTERS = 40
_REASON_LETTERS = 30

Row = Mapping[str, Any]
Line = dict[str, list[Row]]
"""Phase → the operations of one forward product in it."""


def count_figure(products: pd.DataFrame) -> dict[str, Figure]:
    """A table, one row a forward product: kernels, and how often it was counted before and after, by phase."""
    rows, step = _worst_step(products[products["phase"].isin(PHASES)])
    if rows.empty:
        return {}
    lines = _lines(rows)
    kept, rest = _page_lines(lines)
    phases = [phase for phase in PHASES if any(phase in line for line in lines.values())]
    figure, (axes,), _ = figure_panels.grid(1, 1, 0.5 + (len(kept) + 1) * _ROW_IN, width_in=figure_style.PAGE_IN)
    axes.set_xlim(0, 3 * len(phases) + 3)
    for y, line in enumerate(kept.values()):
        for at, phase in enumerate(phases):
            if phase in line:
                _cells(axes, 3 * at, y, line[phase])
        reasons = [str(row["reason"]) for same in line.values() for row in same if row["reason"]]
        axes.text(
            3 * len(phases) + 0.1,
            y,
            fitting(", ".join(dict.fromkeys(reasons)), _REASON_LETTERS),
            fontsize=6,
            va="center_baseline",
        )
    _heads(axes, phases)
    figure_panels.label_rows(axes, [fitting(name, _LABEL_LETTERS) for name in kept], bars=True, fontsize=6.5)
    axes.grid(visible=False)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    more = f"; {len(rest)} smaller operations are not drawn" if rest else ""
    where = f"step {step}, the one with the most wrong counts" if step is not None else "the recording"
    below = (
        f"products of {where}: kernels, and how many products are counted before and after cleaning (backward makes "
        f"one for each gradient){more}"
    )
    return {"counts_by_operation": figure_panels.finish(figure, [], _verdict_marks(rows), below)}


def _worst_step(rows: pd.DataFrame) -> tuple[pd.DataFrame, int | None]:
    """The rows of the first step with the most wrong verdicts, and its number; all rows where none is marked."""
    marked = rows[rows["step"].notna()]
    if marked.empty:
        return rows, None
    steps, wrong = marked["step"].to_numpy(np.int64), marked["verdict"].isin(("over", "under")).to_numpy(bool)
    numbers = np.unique(steps)
    step = int(numbers[np.argmax([wrong[steps == number].sum() for number in numbers])])
    return marked[steps == step], step


def _lines(rows: pd.DataFrame) -> dict[str, Line]:
    """Name of the forward product → its operations by phase; one without a forward product has its own line.

    What checkpointing recalculates stands beside the forward product of the same module and sizes.
    """
    found: dict[int, Line] = {}
    names: dict[int, str] = {}
    every = figure_panels.records(rows.sort_values("index"))
    known = {row["index"] for row in every if row["phase"] != "backward"}
    for row in every:
        key = row["forward_index"] if row["forward_index"] in known else row["index"]
        found.setdefault(key, {}).setdefault(row["phase"], []).append(row)
        shapes = [shape for shape in json.loads(row["input_shapes"] or "[]") if isinstance(shape, list) and shape]
        plain = [shape for shape in shapes if all(isinstance(size, int) for size in shape)]
        sizes = " · ".join("×".join(map(str, shape)) for shape in plain[:2])
        name = str(row["module"] or row["name"].removeprefix("aten::"))
        names.setdefault(key, f"{name} {sizes}".strip())
    _join_recomputed(found, names)
    lines: dict[str, Line] = {}
    for key in sorted(found):
        lines[_unique(names[key], lines)] = found[key]
    return lines


def _join_recomputed(found: dict[int, Line], names: Mapping[int, str]) -> None:
    """Move lines of recomputation alone to the forward product of their name, where a module sets it apart."""
    forward = {names[key]: key for key, line in found.items() if "forward" in line and line["forward"][0]["module"]}
    for key in [key for key, line in found.items() if "forward" not in line and "recompute" in line]:
        to = forward.get(names[key])
        if to is not None and found[to].keys().isdisjoint(found[key]):
            found[to].update(found.pop(key))


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    return next(other for i in range(2, len(taken) + 3) if (other := f"{name} #{i}") not in taken)


def _page_lines(lines: Mapping[str, Line]) -> tuple[Mapping[str, Line], list[str]]:
    """Lines that fit on a page, in their order: of more than that the largest, as found or as they are."""
    if len(lines) <= _MOST_ROWS:
        return lines, []
    size = {
        name: sum(max(row["raw_flop"] or 0, row["repaired_flop"] or 0) for same in line.values() for row in same)
        for name, line in lines.items()
    }
    kept = set(sorted(lines, key=lambda name: -size[name])[:_MOST_ROWS])
    return {name: lines[name] for name in lines if name in kept}, [name for name in lines if name not in kept]


def _cells(axes: Axes, x: float, y: int, rows: Sequence[Row]) -> None:
    """Three cells: number of kernels, times counted before in the colour of the verdict, times counted after."""
    verdicts = {str(row["verdict"]) for row in rows}
    verdict = next((verdict for verdict in ("over", "under", "unknown") if verdict in verdicts), "right")
    axes.text(x + 0.5, y, str(sum(row["kernels"] for row in rows)), fontsize=6, ha="center", va="center_baseline")
    _cell(axes, x + 1, y, _times(rows, "raw"), verdict)
    after = _times(rows, "repaired")
    _cell(axes, x + 2, y, after, "unknown" if "?" in after else "right")


def _times(rows: Sequence[Row], state: str) -> str:
    """How many products were counted, FLOP ÷ FLOP of one product: "2", of two calls "1+1"; "?" for unknown."""
    return "+".join(_times_of(row, state) for row in rows)


def _times_of(row: Row, state: str) -> str:
    flop = row[f"{state}_flop"]
    if not row["unit_flop"] or flop is None:
        return "?"
    text = digits(flop / row["unit_flop"])
    return text.rstrip("0").rstrip(".") if "." in text else text


def _cell(axes: Axes, x: float, y: int, text: str, verdict: str) -> None:
    from matplotlib.patches import Rectangle

    colour, hatch = figure_style.verdict_looks()[verdict]
    axes.add_patch(Rectangle((x + 0.05, y - 0.42), 0.9, 0.84, hatch=hatch, **_faint(colour)))
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6} if hatch else None
    axes.text(x + 0.5, y, text, fontsize=6, ha="center", va="center_baseline", bbox=box)


def _faint(colour: Any) -> dict[str, Any]:
    return {"facecolor": (*colour, 0.22), "edgecolor": (*colour, 0.75), "linewidth": 0}


def _heads(axes: Axes, phases: Sequence[str]) -> None:
    """What the columns are, above them."""
    ticks = [3 * at + part + 0.5 for at in range(len(phases)) for part in range(3)]
    axes.set_xticks(ticks, ["kernels", "found", "cleaned"] * len(phases), fontsize=6)
    axes.xaxis.tick_top()
    heads = [(phase, 3 * index + 1.5, "center") for index, phase in enumerate(phases)]
    look: dict[str, Any] = {"fontsize": 7.5, "weight": "bold", "textcoords": "offset points"}
    for text, x, align in (*heads, ("reason", 3 * len(phases) + 0.1, "left")):
        axes.annotate(text, (x, 1), (0, 15), ha=align, xycoords=axes.get_xaxis_transform(), **look)


def _verdict_marks(rows: pd.DataFrame) -> list[Any]:
    seen = {*rows["verdict"], "right"}
    words = {
        "right": "right",
        "over": "counted too often",
        "under": "counted too little",
        "unknown": "no count from sizes",
    }
    return [
        figure_panels.patch(words[verdict], hatch=hatch, **_faint(colour))
        for verdict, (colour, hatch) in figure_style.verdict_looks().items()
        if verdict in seen
    ]
