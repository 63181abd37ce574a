"""Numbers as a paper prints them: what they are, and from what they may have been rounded."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))


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


def amount(value: float | None, unit: str = "") -> str:
    """Four digits, or all before the point; from a million on with a prefix: 1.444e15, "FLOP" → "1.444 PFLOP".

    "-" for what is unknown.
    """
    if value is None:
        return "-"
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(value) >= s), (1.0, ""))
    digits = max(4, len(str(int(abs(value / scale)))))
    return f"{float(f'{value / scale:.{digits}g}'):,}".removesuffix(".0") + f" {prefix}{unit}".rstrip()
