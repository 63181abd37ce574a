"""The line a·b + c through counts at several batches, exactly: it goes through every point or there is none.

Counts are whole numbers, and a law that misses one of them by a single unit is no law: nothing is fitted. What a line
that is missing means is for the caller to say.
"""

from collections.abc import Iterable
from fractions import Fraction

Point = tuple[int, int | float]
"""(batch size, count); a float is taken for exactly what it holds."""


def line(points: Iterable[Point]) -> tuple[Fraction, Fraction] | None:
    """a and c of the line through all points; None if they are on none, or are at fewer than two batches."""
    exact = {(x, Fraction(y)) for x, y in points}
    if not exact:
        return None
    (x0, y0), (x1, y1) = min(exact), max(exact)
    if x0 == x1:
        return None
    slope = (y1 - y0) / (x1 - x0)
    constant = y0 - slope * x0
    return (slope, constant) if all(slope * x + constant == y for x, y in exact) else None


def affine(points: Iterable[Point], at: int) -> int | None:
    """The value at batch `at` of the line through all points; None if there is none, or it is not whole there."""
    law = line(points)
    if law is None:
        return None
    value = law[0] * at + law[1]
    return int(value) if value.denominator == 1 else None
