"""Why a published step may be faster than its bound: rules, each with what the data must show for it to hold.

A step that is faster and that no rule explains is a fault of the bound, the count, the peak or the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.atlas.published_step import PublishedStep

CACHES: Mapping[str, float] = {
    "NVIDIA GeForce RTX 4090": 72e6,
    "NVIDIA GeForce RTX 5090": 96e6,
}
"""Bytes of the L2 cache, of cards whose cache holds whole tensors of a step. Source: NVIDIA's whitepapers of Ada and
RTX Blackwell."""


@dataclass(frozen=True)
class Rule:
    """most: the largest bound ÷ time that the rule explains; reason: in words."""

    name: str
    most: float
    reason: str


CACHE = Rule(
    "cache",
    1.02,
    "bound by memory alone on a card whose L2 cache can hold tensors between groups, which the bound takes from memory",
)
CLOCK = Rule(
    "clock",
    1.04,
    "bound by arithmetic on a GeForce card, whose boost clock is nominal: it may run faster than the sheet's peak says",
)


def explained(row: PublishedStep) -> Rule | None:
    """The rule that explains why a row is faster than its bound; None where none does."""
    ratio, attainable = row.achieved_over_bound_ratio, row.attainable_ratio
    if ratio is None or attainable is None or ratio <= 1:
        return None
    if attainable < 0.05 and row.device in CACHES and row.compiled and ratio <= CACHE.most:
        return CACHE
    if attainable > 0.8 and "GeForce" in row.device and ratio <= CLOCK.most:
        return CLOCK
    return None
