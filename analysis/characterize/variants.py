"""Likeness of workloads in one variant against another: as coded, and as in the paper.

A picture has every workload once, in the variant that it is of, or in the only one that was recorded of it. So two
pictures differ by the variants alone, and not by who is in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.characterize.operation_mix import Mix, vectors
from analysis.characterize.similarity import distances


@dataclass(frozen=True)
class Moved:
    """Two workloads, and variant → their cosine distance by operation types."""

    left: str
    right: str
    distances: Mapping[str, float]

    @property
    def change(self) -> float:
        """By how much the distance differs between the variants at most."""
        return max(self.distances.values()) - min(self.distances.values())


def pictures(found: Sequence[Mix]) -> dict[str, list[Mix]]:
    """Variant → the mixes of its picture, labelled without the variant; empty where no workload has two
    variants, or where there is no other workload.

    found: those that stand for their workloads (`analysis/characterize/summary.py`, `compared`).
    """
    forms: dict[str, dict[str, Mix]] = {}
    for each in found:
        forms.setdefault(_without_variant(each), {})[each.recording.variant] = each
    if len(forms) < 2:
        return {}
    several = dict.fromkeys(variant for mine in forms.values() if len(mine) > 1 for variant in mine)
    return {
        variant: [replace(mine.get(variant) or next(iter(mine.values())), label=name) for name, mine in forms.items()]
        for variant in several
    }


def _without_variant(mix: Mix) -> str:
    """ "residual@small" of "residual@as_paper@small"."""
    variant = mix.recording.variant
    return mix.recording.workload.replace(f"@{variant}", "") if variant else mix.recording.workload


def moved(found: Mapping[str, Sequence[Mix]]) -> list[Moved]:
    """Every pair of workloads of these pictures, those first whose distance differs most between them."""
    pairs: dict[tuple[str, str], dict[str, float]] = {}
    for variant, mixes in found.items():
        alike = {name: vector for name, vector in vectors(mixes).items() if any(vector)}
        for pair, distance in distances(alike).items():
            pairs.setdefault(pair, {})[variant] = distance
    told = [Moved(*pair, mine) for pair, mine in pairs.items() if len(mine) == len(found)]
    return sorted(told, key=lambda each: (-each.change, each.left, each.right))
