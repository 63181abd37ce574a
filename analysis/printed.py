"""Numbers as a paper prints them: what they are, and from what they may have been rounded."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Printed:
    """text: with the digits that are printed, as in "9.4e-4"."""

    text: str

    @property
    def value(self) -> float:
        """The number."""
        return float(self.text)

    @property
    def half_unit(self) -> float:
        """Half of a unit of its last digit: how far what was rounded may have been."""
        exponent = Decimal(self.text).as_tuple().exponent
        assert isinstance(exponent, int)  # no infinity is printed
        return float(Decimal(5).scaleb(exponent - 1))

    @property
    def ends(self) -> tuple[float, float]:
        """Of what it may have been rounded from."""
        return self.value - self.half_unit, self.value + self.half_unit


def box(function: Callable[..., float], *printed: Printed) -> tuple[float, float]:
    """The least and the most of a function that is monotone in each argument, over what they may have been."""
    found = [function(*corner) for corner in itertools.product(*(each.ends for each in printed))]
    return min(found), max(found)
