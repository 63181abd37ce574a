"""A characterization drawn, from what was worked out of its rows: types, likeness.

The likeness of variants stands beside the paper's own Figure 3 where it is reproduced: same workloads, other operation
types. Draw and render inside `style.theme()`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from analysis.characterize.fathom_groups import GROUPS, figure3
from analysis.characterize.operation_mix import Merge, Mix, centroid_linkage, matrix
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import fitting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from reports.characterize.answer import CharacterizeAnswer

LEAST_RATIO = 0.01
"""Shares below are not drawn, as in the paper's Figure 3; of types, those below in every workload."""

_LETTERS = 26


def figures(seen: CharacterizeAnswer) -> dict[str, Figure]:
    """File name → figure, of what was recorded: types; the paper's Figure 4, which workloads join at which distance; a
    tree of each variant on one scale, the paper's own before them where it is reproduced."""
    drawn: dict[str, Figure] = {}
    if columns := columns_of(seen.compared):
        drawn["types"] = _types(seen.compared, columns)
    if seen.linkage:
        drawn["likeness"] = _dendrograms({"": seen.linkage})
    if len(seen.pictures) > 1 and all(seen.pictures.values()):
        rows = {name: tuple(cells.values()) for name, cells in figure3().items()}
        paper = {"the paper's Figure 3": centroid_linkage(rows)} if seen.reproduce else {}
        drawn["likeness_variants"] = _dendrograms({**paper, **seen.pictures})
    return drawn


def _types(mixes: Sequence[Mix], columns: Sequence[tuple[str, str]]) -> Figure:
    """The paper's Figure 3: workloads down, operation types across in the order of their groups; shares with their per
    cent on a logarithmic colour from 1 % to 90 %, white below."""
    import numpy as np
    import seaborn as sns
    from matplotlib.colors import LogNorm

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
