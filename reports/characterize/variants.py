"""How much of the likeness of workloads is a matter of their variant: as text, as rows, and drawn side by side.

Of recordings of the same workloads in two variants alone. The picture of the paper's own Figure 3 stands beside ours
where it is reproduced: same workloads, other operation types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from analysis.characterize.fathom_groups import figure3
from analysis.characterize.similarity import Merge, centroid_linkage, matrix
from reports.characterize.text import CharacterizeAnswer
from reports.shared import figure_panels
from reports.shared.layout import Part, table_of
from reports.shared.numbers import fitting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "the paper's Figure 3"
TITLES = {"as_coded": "as coded", "as_paper": "as in the paper"}
MOST_PAIRS = 8
"""Listed of those that moved."""

LEAST_CHANGE = 0.02

_LEAF_IN = 0.21
_LETTERS = 24


def to_lines(seen: CharacterizeAnswer) -> Iterator[Part]:
    """The linkage of each variant, and the pairs that it moves most."""
    for variant, merges in seen.pictures.items():
        yield f"Likeness, {variant} where there are two: cosine distance, centroid linkage"
        rows = [["distance", "joins", "with"]]
        rows += [[f"{merge.height:.4f}", _short(merge.left), _short(merge.right)] for merge in merges]
        yield table_of(rows, words=(1, 2), wraps=(1, 2))
    changes = [each for each in seen.distance_changes if each.change >= LEAST_CHANGE][:MOST_PAIRS]
    if changes:
        yield "Distances that differ most between the variants"
        rows = [["workload", "and", *seen.pictures]]
        rows += [[each.left, each.right, *(f"{each.distances[one]:.2f}" for one in seen.pictures)] for each in changes]
        yield table_of(rows, words=(0, 1), wraps=(0, 1))


def _short(names: Sequence[str]) -> str:
    return " + ".join(names)


def rows(seen: CharacterizeAnswer) -> list[dict[str, Any]]:
    """A row a pair of workloads and variant."""
    return [
        {"left": each.left, "right": each.right, "variant": variant, "distance": distance}
        for each in seen.distance_changes
        for variant, distance in each.distances.items()
    ]


def figure(seen: CharacterizeAnswer) -> Figure | None:
    """A tree of each variant, on one scale; the paper's own before them where it is reproduced."""
    trees = {name: merges for name, merges in trees_of(seen).items() if merges}
    if len(seen.pictures) < 2 or not all(seen.pictures.values()):
        return None
    leaves = max(len(leaves_of(merges)) for merges in trees.values())
    made, drawn, _ = figure_panels.grid(len(trees), len(trees), 0.3 + _LEAF_IN * leaves, share_y=False)
    furthest = max(merge.height for merges in trees.values() for merge in merges)
    for axes, (name, merges) in zip(drawn, trees.items(), strict=True):
        tree(axes, leaves_of(merges), merges, size=6.5)
        axes.set_xlim(furthest * 1.08, 0)
        figure_panels.title(axes, TITLES.get(name, name), len(trees))
    figure_panels.plain(drawn)
    for axes in drawn:
        axes.spines["left"].set_visible(False)
    figure_panels.say_below(made, "cosine distance of the shares by operation type; clusters by their centroids")
    return made


def trees_of(seen: CharacterizeAnswer) -> dict[str, Sequence[Merge]]:
    """Name of a panel → its merges."""
    rows = {name: tuple(cells.values()) for name, cells in figure3().items()}
    paper = {PAPER: centroid_linkage(rows)} if seen.reproduce else {}
    return {**paper, **seen.pictures}


def leaves_of(merges: Sequence[Merge]) -> list[str]:
    """The names of a linkage, in the order of the last merge."""
    return list(merges[-1].members) if merges else []


def tree(axes: Axes, names: Sequence[str], merges: Sequence[Merge], size: float = 7) -> None:
    """A dendrogram whose leaves are on the right; distances grow to the left."""
    from scipy.cluster.hierarchy import dendrogram

    dendrogram(
        matrix(names, merges), labels=[fitting(name, _LETTERS) for name in names], orientation="left", ax=axes,
        link_color_func=lambda _: "0.25", leaf_font_size=size,
    )  # fmt: skip
    axes.grid(axis="y", visible=False)
