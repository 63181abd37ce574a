"""Sums of numbers some of which are unknown."""

from __future__ import annotations

from collections.abc import Iterable


def known_sum(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None if nothing is. What a recorder that leaves numbers out gives as its total."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def whole_sum(values: Iterable[int | None]) -> int | None:
    """The sum; None if one of the values is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
