"""Which measured kernel is the ceiling of a unit: the fastest one, whatever it computes.

A matrix product alone is no ceiling: on a CPU 3 × 3 convolutions reach 2.4 times its rate, and the fastest product is
often not the square one. Not claimed: a ceiling is the best of what was tried, a lower bound of what the device can do.
"""

from __future__ import annotations

from collections.abc import Iterable

from results.records import Ceiling


def best(ceilings: Iterable[Ceiling], unit: str) -> Ceiling | None:
    """The row of this unit with the highest FLOP/s; None if none was measured. The first of equals.

    The caller chooses whose rows these are: ceilings of another device or sitting are not told apart here.
    """
    measured = [c for c in ceilings if c.unit == unit and c.status == "ok" and c.flop_per_s is not None]
    return max(measured, key=lambda c: c.flop_per_s or 0.0, default=None)
