"""Whole numbers that stay exact through a formula's divisions and halves: what a float would round is a fraction here.

The formula's own code runs unchanged on them; a float that it multiplies by is taken for the fraction that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any


def _operation(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator of Exact: of numbers exact, of anything else none, so that a list can be repeated."""

    def apply(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float, Fraction)):
            return NotImplemented
        return Exact(function(Fraction(self), Fraction(other)))

    return apply


class Exact(Fraction):
    """A fraction whose arithmetic with ints and floats stays exact, and that can index where it is whole."""

    __add__ = __radd__ = _operation(lambda left, right: left + right)
    __mul__ = __rmul__ = _operation(lambda left, right: left * right)
    __sub__ = _operation(lambda left, right: left - right)
    __rsub__ = _operation(lambda left, right: right - left)
    __truediv__ = _operation(lambda left, right: left / right)
    __rtruediv__ = _operation(lambda left, right: right / left)
    __floordiv__ = _operation(lambda left, right: left // right)
    __rfloordiv__ = _operation(lambda left, right: right // left)
    __pow__ = _operation(lambda left, right: left ** int(right))

    def __index__(self) -> int:
        if self.denominator != 1:
            raise TypeError(f"expected a whole number, got {self}")
        return int(self.numerator)


def exactly(value: Any) -> Any:
    """The number as an Exact; anything else, and a truth value, as it is."""
    return Exact(value) if isinstance(value, int) and not isinstance(value, bool) else value


def exact_view(source: Any) -> Any:
    """An object of a class of the same name whose whole numbers are exact; the source is not touched."""

    def get(_: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return exactly(getattr(source, name))

    return type(type(source).__name__, (), {"__getattr__": get})()
