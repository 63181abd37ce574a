"""How similar workloads are by what their time goes to: cosine distance, and clusters by true centroid linkage.

A workload is a vector of shares, one an operation type. The distance of two is 1 - cos of the angle between them, so
that the whole time does not count. A cluster is the mean of its members' vectors *as they are*, and its distance to
another is that between the two means (Adolf et al., IISWC 2016, section V-C: "centroid linkage" on cosine distance).

Not claimed: that a height may not lie below an earlier one. Centroid linkage can invert; `inverted` says where.
scipy's `linkage(…, "centroid")` is of Euclidean distances: on cosine ones it runs and is wrong, and on vectors made
one long its clusters' means are not one long. It is not used here; its dendrogram takes `matrix`.

Pictures compare variants of workloads: as coded, and as in the paper.
A picture has every workload once, in the variant that it is of, or in the only one that was recorded of it. So two
pictures differ by the variants alone, and not by who is in them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.characterize.operation_mix import Mix


@dataclass(frozen=True)
class Merge:
    """Two clusters become one. left, right: their members, those named first on the left; height: their distance."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    height: float

    @property
    def members(self) -> tuple[str, ...]:
        return self.left + self.right


@dataclass(frozen=True)
class _Cluster:
    members: tuple[str, ...]
    total: tuple[float, ...]  # sum of the members' vectors: 1 - cos does not see by what it is divided


def cosine_distance(left: Sequence[float], right: Sequence[float]) -> float:
    """1 - cos of the angle between two vectors: 0 the same direction, 1 nothing in common.

    Raises ValueError for vectors of different lengths, or one of zeros, which has no direction.
    """
    if len(left) != len(right):
        raise ValueError(f"expected vectors of one length, got {len(left)} and {len(right)}")
    lengths = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(y * y for y in right))
    if lengths == 0:
        raise ValueError("expected vectors with a direction, got one of zeros")
    return max(0.0, 1 - math.fsum(x * y for x, y in zip(left, right, strict=True)) / lengths)


def centroid_linkage(vectors: Mapping[str, Sequence[float]]) -> list[Merge]:
    """The merges of all into one cluster, the nearest pair first; of pairs as near the one named first.

    vectors: name → shares, all of one length. Raises ValueError as `cosine_distance` does.
    """
    clusters = [_Cluster((name,), tuple(map(float, vector))) for name, vector in vectors.items()]
    merges = []
    while len(clusters) > 1:
        pairs = [(i, j) for i in range(len(clusters)) for j in range(i + 1, len(clusters))]
        i, j = min(pairs, key=lambda pair: _between(clusters[pair[0]], clusters[pair[1]]))
        left, right = clusters[i], clusters[j]
        merges.append(Merge(left.members, right.members, _between(left, right)))
        total = tuple(x + y for x, y in zip(left.total, right.total, strict=True))
        clusters[i] = _Cluster(left.members + right.members, total)
        del clusters[j]
    return merges


def _between(left: _Cluster, right: _Cluster) -> float:
    return cosine_distance(left.total, right.total)


def matrix(names: Sequence[str], merges: Sequence[Merge]) -> list[tuple[float, float, float, float]]:
    """The merges as scipy's `dendrogram` takes them: two clusters' numbers, height, members. names: 0, 1, … there."""
    numbers: dict[frozenset[str], int] = {frozenset((name,)): number for number, name in enumerate(names)}
    rows = []
    for number, merge in enumerate(merges, len(names)):
        rows.append(
            (
                float(numbers[frozenset(merge.left)]),
                float(numbers[frozenset(merge.right)]),
                merge.height,
                float(len(merge.members)),
            )
        )
        numbers[frozenset(merge.members)] = number
    return rows


def inverted(merges: Sequence[Merge]) -> list[Merge]:
    """Merges below the height of one that made a part of them: a dendrogram of these crosses itself."""
    heights: dict[frozenset[str], float] = {}
    found = []
    for merge in merges:
        parts = (frozenset(merge.left), frozenset(merge.right))
        if any(heights.get(part, 0.0) > merge.height for part in parts):
            found.append(merge)
        heights[frozenset(merge.members)] = merge.height
    return found


def pictures(mixes: Sequence[Mix]) -> dict[str, list[Mix]]:
    """Variant → the mixes of its picture, labelled without the variant; empty where no workload has two
    variants, or where there is no other workload.

    mixes: those that stand for their workloads (`analysis/characterize/summary.py`, `comparable_mixes`).
    """
    forms: dict[str, dict[str, Mix]] = {}
    for each in mixes:
        variant = each.recording.variant
        forms.setdefault(
            each.recording.workload.replace(f"@{variant}", "") if variant else each.recording.workload, {}
        )[each.recording.variant] = each
    if len(forms) < 2:
        return {}
    several = dict.fromkeys(variant for mine in forms.values() if len(mine) > 1 for variant in mine)
    return {
        variant: [replace(mine.get(variant) or next(iter(mine.values())), label=name) for name, mine in forms.items()]
        for variant in several
    }
