"""Which numbers a field of a record may hold: what its annotation says, else what follows from its unit.

A number is finite and not negative, and one whose name ends in a unit of `UNITS` is within that unit's range. A field
for which that is not so says it where it is declared: `slope: Annotated[int | None, SIGNED]`. What a list or a mapping
holds has a range only where its field says so. Not claimed: that a value within its range is true.
"""

import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Range:
    """The values from `low` to `high`. above: `low` itself is none of them. infinite: infinity is one of them."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    infinite: bool = False

    def holds(self, value: float) -> bool:
        """Whether a number is one of the range's; NaN never is."""
        if isinstance(value, float) and not math.isfinite(value):
            return self.infinite and not math.isnan(value) and self.low <= value
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def check(self, name: str, value: Any) -> None:
        """Raises ValueError, naming the column, for a number outside, by itself or within a list or mapping. Text,
        None and booleans pass, since the types of fields are checked elsewhere."""
        if isinstance(value, (int, float)):
            if value is not True and value is not False and not self.holds(value):
                raise ValueError(f"column {name}: expected {self}, got {_short(value)}")
        elif isinstance(value, (tuple, list, Mapping)):
            for part in value.values() if isinstance(value, Mapping) else value:
                self.check(name, part)

    def __str__(self) -> str:
        if self.high < math.inf:
            return f"a number from {self.low:g} to {self.high:g}"
        if self.low == -math.inf:
            return "a number" if self.infinite else "a finite number"
        return f"a finite number {'above' if self.above else 'of at least'} {self.low:g}"


SIGNED = Range()
NOT_NEGATIVE = Range(0)
POSITIVE = Range(0, above=True)
FROM_ONE = Range(1)
FROM_MINUS_ONE = Range(-1)
PROBABILITY = Range(0, 1)
ANY = Range(infinite=True)

UNITS: Mapping[str, Range] = {"_per_s": POSITIVE, "_c": Range(-273.15)}
"""The end of a field's name → its range, where that is not NOT_NEGATIVE."""

REQUEST = "request"
"""In the annotation of a parameter of a cell that leaves its training step as it is: what is measured of it, and how
often. Cells that differ in nothing else have one step."""

Json = Mapping[str, Any]
Counts = Annotated[Json, NOT_NEGATIVE]
Shapes = Annotated[tuple[Any, ...], NOT_NEGATIVE]

FromOne = Annotated[int, FROM_ONE]
FromMinusOne = Annotated[int, FROM_MINUS_ONE]
Signed = Annotated[float, SIGNED]
Positive = Annotated[float, POSITIVE]
Probability = Annotated[float, PROBABILITY]


def range_of(name: str, hint: Any) -> Range | None:
    """The range of a field's numbers; None for a field of text, or of values of any kind. hint: with its extras."""
    own = _annotated(hint)
    if own is not None or not {int, float} & {hint, *typing.get_args(hint)}:
        return own
    return next((kept for end, kept in UNITS.items() if name.endswith(end)), NOT_NEGATIVE)


def _annotated(hint: Any) -> Range | None:
    """The range that an annotation holds, at whatever depth."""
    if isinstance(hint, Range):
        return hint
    return next((kept for part in typing.get_args(hint) if (kept := _annotated(part)) is not None), None)


def _short(value: float) -> str:
    """A number as a message has it: integers may have a million digits."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} binary digits"
    return repr(value)
