"""A characterization drawn, from what was worked out of its rows: shares, types, skew, likeness, steps, inference.

Groups A to H have a colour and a hatch each in every figure. Draw and render inside `style.theme()`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from analysis.characterize.fathom_groups import GROUPS
from analysis.characterize.operation_mix import Mix, cumulative
from reports.characterize import answer, figures_execution
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import fitting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from reports.characterize.answer import CharacterizeAnswer

LEAST_RATIO = 0.01
"""Shares below are not drawn, as in the paper's Figure 3; of types, those below in every workload."""

HIGHEST_RATIO = 0.90

NO_BREAK = "\N{NO-BREAK SPACE}"

_CELL_IN = 0.23
_LETTERS = 26
_LETTERS_OF_MIXES = 40
_MOST_TYPES = 44
_LINES = ("-", "--", "-.", ":")
_COLOURS = (0, 1, 2, 3, 4, 5, 6, 7, 9)
"""Indices of the palette: all but its yellow."""


def figures(seen: CharacterizeAnswer) -> dict[str, Figure]:
    """File name → figure, of what was recorded."""
    drawers: dict[str, Callable[[CharacterizeAnswer], Figure | None]] = {
        "groups": _groups,
        "types": _types,
        "skew": _skew,
        "likeness": _likeness,
        "likeness_variants": answer.figure,
        "steps": figures_execution.steps,
        "training_inference": figures_execution.training_inference,
        "parallelism": figures_execution.parallelism,
        "tails": figures_execution.tails,
        "reproduced": figures_execution.reproduced,
    }
    drawn = {name: draw(seen) for name, draw in drawers.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _groups(seen: CharacterizeAnswer) -> Figure | None:
    """Workloads down, groups across, every mix a row."""
    mixes = seen.mixes
    if not mixes:
        return None
    columns = [*GROUPS, *(["?"] if any(each.unclassified_ratio >= LEAST_RATIO for each in mixes) else [])]
    cells = [
        [*(each.groups[group].ratio for group in GROUPS), each.unclassified_ratio][: len(columns)] for each in mixes
    ]
    height_in = 1.3 + _CELL_IN * len(mixes)
    figure, (axes,), _ = figure_panels.grid(1, 1, height_in, width_in=figure_style.COLUMN_IN * 1.6)
    _heat(axes, cells, [fitting(each.label, _LETTERS_OF_MIXES) for each in mixes], columns)
    words = ", ".join(f"{letter} {word}".replace(" ", NO_BREAK) for letter, word in GROUPS.items())
    return figure_panels.finish(figure, [], [], "per cent of a step", words)


def _types(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's Figure 3: workloads down, operation types across in the order of their groups."""
    mixes = seen.compared
    columns = columns_of(mixes)
    if not columns:
        return None
    shares = [{(one.group, one.name): one.share_ratio for one in each.types} for each in mixes]
    cells = [[row.get(column, 0.0) for column in columns] for row in shares]
    height_in = 1.5 + _CELL_IN * len(mixes)
    figure, (axes,), _ = figure_panels.grid(1, 1, height_in, width_in=figure_style.PAGE_IN + 1.4)
    labels = [fitting(each.label, _LETTERS) for each in mixes]
    _heat(axes, cells, labels, [fitting(name, _LETTERS) for _, name in columns], size=6, rotation=90, fontsize=6)
    for letter in dict.fromkeys(group for group, _ in columns):
        indices = [index for index, (group, _) in enumerate(columns) if group == letter]
        axes.annotate(
            letter or "?", ((indices[0] + indices[-1] + 1) / 2, 0), (0, 4), textcoords="offset points",
            ha="center", va="bottom", weight="bold", fontsize=8, annotation_clip=False,
        )  # fmt: skip
        axes.axvline(indices[-1] + 1, color="0.4", linewidth=0.8)
    below = f"per cent of a step; types of at least {100 * LEAST_RATIO:.0f} % of any workload's"
    return figure_panels.finish(figure, [], [], below)


def columns_of(mixes: Sequence[Mix]) -> list[tuple[str, str]]:
    """(group, type) of those types that are something anywhere, by group, the largest first; the paper's columns."""
    most: dict[tuple[str, str], float] = {}
    for each in mixes:
        for one in each.types:
            key = (one.group, one.name)
            most[key] = max(most.get(key, 0.0), one.share_ratio)
    kept = sorted(most, key=lambda key: -most[key])
    kept = [key for key in kept if most[key] >= LEAST_RATIO][:_MOST_TYPES]
    order = [*GROUPS, ""]
    return sorted(kept, key=lambda key: (order.index(key[0]), -most[key]))


def _heat(
    axes: Axes,
    cells: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    size: float = 7,
    **look: Any,
) -> None:
    """Shares on a logarithmic colour from 1 % to 90 %, white below; each with its per cent."""
    import numpy as np
    import seaborn as sns
    from matplotlib.colors import LogNorm

    values = np.array(cells, dtype=float)
    sns.heatmap(
        values, mask=values < LEAST_RATIO, norm=LogNorm(LEAST_RATIO, HIGHEST_RATIO), cmap="YlGnBu", cbar=False, ax=axes,
        annot=100 * values, fmt=".0f", annot_kws={"fontsize": size}, linewidths=1.2,
        xticklabels=False, yticklabels=False,
    )  # fmt: skip
    axes.set_xticks([index + 0.5 for index in range(len(columns))], columns, **look)
    axes.set_yticks([index + 0.5 for index in range(len(rows))], rows, fontsize=7)
    axes.tick_params(length=0)


def _skew(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's Figure 2: how much of the time in operations the largest types make."""
    curves = {each.label: cumulative(one.share_ratio for one in each.operations) for each in seen.compared}
    curves = {label: curve for label, curve in curves.items() if curve}
    if not curves:
        return None
    figure, (axes,), _ = figure_panels.grid(1, 1, 2.6, width_in=figure_style.COLUMN_IN * 1.5)
    marks, looks = [], itertools.cycle(itertools.product(_LINES, _COLOURS))
    for (label, curve), (line, colour) in zip(curves.items(), looks, strict=False):
        look = {"color": figure_style.colour(colour), "linestyle": line}
        axes.plot(range(1, len(curve) + 1), [100 * part for part in curve], marker=".", markersize=3, **look)
        marks.append(figure_panels.mark(fitting(label, _LETTERS), linewidth=1.4, markersize=0, **look))
    axes.axhline(90, color="0.4", linewidth=0.8, linestyle=(0, (4, 3)))
    longest = max(next(n for n, part in enumerate(curve, 1) if part > 0.98) for curve in curves.values())
    axes.set_xlim(0.5, longest + 0.5)
    axes.set_ylim(0, 102)
    axes.set_ylabel("per cent of the time in operations")
    return figure_panels.finish(figure, [axes], marks, "operation types, the largest first; dashed: 90 %")


def _likeness(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's Figure 4: which workloads join at which distance."""
    if not seen.linkage:
        return None
    joined = {name for merge in seen.linkage for name in merge.members}
    names = [each.label for each in seen.compared if each.label in joined]
    figure, (axes,), _ = figure_panels.grid(1, 1, 0.6 + _CELL_IN * len(names), width_in=figure_style.COLUMN_IN * 1.5)
    answer.tree(axes, names, seen.linkage)
    axes.set_xlim(max(merge.height for merge in seen.linkage) * 1.08, 0)
    return figure_panels.finish(figure, [axes], [], answer.LIKENESS)
