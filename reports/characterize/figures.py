"""A characterization drawn, from what was worked out of its rows: types, skew, likeness, steps.

The likeness of variants stands beside the paper's own Figure 3 where it is reproduced: same workloads, other operation
types. Draw and render inside `style.theme()`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from analysis.characterize.fathom_groups import GROUPS, figure3
from analysis.characterize.operation_mix import Merge, Mix, centroid_linkage, cumulative, matrix, steps_of
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import fitting, si_time
from results.records.characterization import MODES, PLAIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from reports.characterize.answer import CharacterizeAnswer

LEAST_RATIO = 0.01
"""Shares below are not drawn, as in the paper's Figure 3; of types, those below in every workload."""

_LETTERS = 26
_MOST_PANELS = 12
_MOST_TIMES = 4.0


def figures(seen: CharacterizeAnswer) -> dict[str, Figure]:
    """File name → figure, of what was recorded."""
    drawers: dict[str, Callable[[CharacterizeAnswer], Figure | None]] = {
        "types": _types,
        "skew": _skew,
        "likeness": _likeness,
        "likeness_variants": _likeness_variants,
        "steps": _steps,
    }
    drawn = {name: draw(seen) for name, draw in drawers.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _types(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's Figure 3: workloads down, operation types across in the order of their groups; shares with their per
    cent on a logarithmic colour from 1 % to 90 %, white below."""
    import numpy as np
    import seaborn as sns
    from matplotlib.colors import LogNorm

    mixes = seen.compared
    columns = columns_of(mixes)
    if not columns:
        return None
    shares = [{(share.group, share.name): share.share_ratio for share in mix.types} for mix in mixes]
    values = np.array([[row.get(column, 0.0) for column in columns] for row in shares])
    figure, (axes,), _ = figure_panels.grid(1, 1, 1.5 + 0.23 * len(mixes), width_in=figure_style.PAGE_IN + 1.4)
    sns.heatmap(
        values, mask=values < LEAST_RATIO, norm=LogNorm(LEAST_RATIO, 0.90), cmap="YlGnBu", cbar=False, ax=axes,
        annot=100 * values, fmt=".0f", annot_kws={"fontsize": 6}, linewidths=1.2,
        xticklabels=[fitting(name, _LETTERS) for _, name in columns],
        yticklabels=[fitting(mix.label, _LETTERS) for mix in mixes],
    )  # fmt: skip
    axes.tick_params(length=0, labelsize=6)
    axes.tick_params(axis="x", rotation=90)
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
    most: dict[tuple[str, str], float] = defaultdict(float)
    for share in (share for mix in mixes for share in mix.types):
        most[share.group, share.name] = max(most[share.group, share.name], share.share_ratio)
    largest = sorted((key for key in most if most[key] >= LEAST_RATIO), key=lambda key: -most[key])[:44]
    order = [*GROUPS, ""]
    return sorted(largest, key=lambda key: (order.index(key[0]), -most[key]))


def _skew(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's Figure 2: how much of the time in operations the largest types make."""
    shares = {mix.label: [share.share_ratio for share in mix.operations] for mix in seen.compared}
    curves = {label: cumulative(ratios) for label, ratios in shares.items() if any(ratios)}
    if not curves:
        return None
    figure, (axes,), _ = figure_panels.grid(1, 1, 2.6, width_in=figure_style.COLUMN_IN * 1.5)
    marks, looks = (
        [],
        itertools.cycle(itertools.product(("-", "--", "-.", ":"), (0, 1, 2, 3, 4, 5, 6, 7, 9))),
    )  # no yellow
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
    return _dendrograms({"": seen.linkage}) if seen.linkage else None


def _likeness_variants(seen: CharacterizeAnswer) -> Figure | None:
    """A tree of each variant, on one scale; the paper's own before them where it is reproduced."""
    if len(seen.pictures) < 2 or not all(seen.pictures.values()):
        return None
    rows = {name: tuple(cells.values()) for name, cells in figure3().items()}
    paper = {"the paper's Figure 3": centroid_linkage(rows)} if seen.reproduce else {}
    return _dendrograms({**paper, **seen.pictures})


def _dendrograms(trees: Mapping[str, Sequence[Merge]]) -> Figure:
    """Trees side by side, with their leaves on the right; distances grow to the left."""
    from scipy.cluster.hierarchy import dendrogram

    leaves = {name: list(merges[-1].members) for name, merges in trees.items()}
    height_in = 0.3 + 0.21 * max(map(len, leaves.values()))
    width_in = figure_style.PAGE_IN if len(trees) > 1 else figure_style.COLUMN_IN * 1.5
    figure, drawn, _ = figure_panels.grid(len(trees), len(trees), height_in, share_y=False, width_in=width_in)
    furthest = max(merge.height for merges in trees.values() for merge in merges)
    for axes, (name, merges) in zip(drawn, trees.items(), strict=True):
        names = [fitting(leaf, _LETTERS) for leaf in leaves[name]]
        dendrogram(
            matrix(leaves[name], merges), labels=names, ax=axes, orientation="left", leaf_font_size=6.5,
            link_color_func=lambda _: "0.25",
        )  # fmt: skip
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.set_xlim(furthest * 1.08, 0)
        title = {"as_coded": "as coded", "as_paper": "as in the paper"}.get(name, name)
        figure_panels.title(axes, title, len(trees))
    below = "cosine distance of the shares by operation type; clusters by their centroids"
    return figure_panels.finish(figure, drawn, [], below)


def _steps(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's Figure 1 in order of time: each step ÷ the median, with its 95 % interval, and Sen's trend."""
    from matplotlib.ticker import MaxNLocator

    of_training = [pair for pair in seen.steadiness if pair[0].mode == MODES[0]]
    shown = (seen.steadiness if len(seen.steadiness) <= _MOST_PANELS else of_training)[:_MOST_PANELS]
    if not shown:
        return None
    top = 2.0
    figure, drawn, spare = figure_panels.grid(len(shown), 4, 1.35)
    for axes, (recording, series) in zip(drawn, shown, strict=True):
        times = [step.time_s / series.median_s for step in steps_of(seen.data, recording.recording, PLAIN)]
        axes.plot(range(1, len(times) + 1), times, color="0.15", marker="o", markersize=2.6, linewidth=0.7)
        if series.low_s is not None and series.high_s is not None:
            ends = series.low_s / series.median_s, series.high_s / series.median_s
            axes.axhspan(*ends, color="#0173b2", alpha=0.25, linewidth=0)
        if series.trend_ratio is not None and len(times) > 1:
            ends = (1 - series.trend_ratio / 2, 1 + series.trend_ratio / 2)
            axes.plot((1, len(times)), ends, color="#d55e00", linewidth=1, linestyle=(0, (4, 2)))
        top = max(top, 1.15 * max(times))
        for place, time in enumerate(times, 1):
            if time > _MOST_TIMES:
                axes.annotate(
                    f"{time:.1f}",
                    (place, _MOST_TIMES),
                    (0, -12),
                    textcoords="offset points",
                    ha="center",
                    fontsize=6,
                    bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "linewidth": 0, "alpha": 0.85},
                )
        figure_panels.title(axes, recording.workload, len(shown))
        p = "" if series.p_value is None else f", p {series.p_value:.2g}"
        words = f"{recording.mode}, {si_time(series.median_s)}{p}"
        axes.annotate(
            words, (0, 1), (2, -2), xycoords="axes fraction", textcoords="offset points", va="top", fontsize=6
        )
    for axes in drawn:
        axes.set_ylim(0, min(top, _MOST_TIMES))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    marks = (
        figure_panels.mark("a step", color="0.15", marker="o"),
        figure_panels.mark("median, 95 %", color="#0173b2", marker="s", alpha=0.4),
        figure_panels.mark("trend (Sen)", color="#d55e00", linewidth=1, linestyle=(0, (4, 2)), markersize=0),
    )
    below = "steps in order, without the profiler, ÷ their median; p: of no trend (Mann-Kendall)"
    return figure_panels.finish(figure, drawn, marks, below, spare=spare)
