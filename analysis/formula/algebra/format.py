"""Formulas as a person reads them: `24·hidden²·batch·layers·seq + 8·hidden + 2`.

Terms of the highest degree come first; in a product the number, then the highest powers, then sums in brackets;
thousands are parted by commas, roundings are ⌊ ⌋ and ⌈ ⌉. The text is for people:
`analysis.formula.algebra.expressions.plain` writes what a program reads. The formula is printed in the form it has
(`analysis.formula.algebra.simplify` makes others), never changed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import sympy

from analysis.formula.algebra.expressions import Expr

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def pretty(expression: Expr) -> str:
    """The expression as one line for a person."""
    return _text(sympy.sympify(expression))


def degree(expression: Expr) -> int:
    """Its degree in all symbols together; a rounding counts as what it rounds, a remainder as a constant."""
    if isinstance(expression, sympy.Symbol):
        return 1
    if isinstance(expression, sympy.Pow) and expression.exp.is_Integer:
        return degree(expression.base) * int(expression.exp)
    if isinstance(expression, sympy.Mod) or not expression.args:
        return 0
    parts = [degree(part) for part in expression.args]
    return sum(parts) if isinstance(expression, sympy.Mul) else max(parts)


def _text(expression: Expr) -> str:
    for kind, method in _METHODS.items():
        if isinstance(expression, kind):
            return method(expression)
    return str(expression)


def _number(expression: Expr) -> str:
    number = Fraction(int(expression.p), int(expression.q))
    return f"{number.numerator:,}" + (f"/{number.denominator:,}" if number.denominator != 1 else "")


def _sum(expression: Expr) -> str:
    text = ""
    for term in sorted(expression.args, key=_rank):
        written = _text(term)
        if text:
            text += f" - {written[1:]}" if written.startswith("-") else f" + {written}"
        else:
            text = written
    return text


def _rank(term: Expr) -> tuple[int, int, str]:
    """Sorts terms: by degree and highest power, both falling, then by the text without its number."""
    _, factors = _factors(term)
    powers = [power for _, power in factors]
    return -degree(term), -max(powers, default=0), "·".join(_power(base, power) for base, power in factors)


def _product(expression: Expr) -> str:
    number, factors = _factors(expression)
    above = [_power(base, power) for base, power in factors if power > 0]
    below = [_power(base, -power) for base, power in factors if power < 0]
    sign = "-" if number < 0 else ""
    if abs(number.numerator) != 1 or not above:
        above.insert(0, f"{abs(number.numerator):,}")
    if number.denominator != 1:
        below.insert(0, f"{number.denominator:,}")
    if not below:
        return sign + "·".join(above)
    divisor = "·".join(below)
    return f"{sign}{'·'.join(above)}/{f'({divisor})' if len(below) > 1 else divisor}"


def _factors(term: Expr) -> tuple[Fraction, list[tuple[Expr, int]]]:
    """The term's number, and its other factors with their powers: highest powers first, then by name, sums last."""
    number, found = Fraction(1), []
    for factor in _flat(term):
        if isinstance(factor, sympy.Rational):
            number *= Fraction(int(factor.p), int(factor.q))
        elif isinstance(factor, sympy.Pow) and factor.exp.is_Integer:
            found.append((factor.base, int(factor.exp)))
        else:
            found.append((factor, 1))
    return number, sorted(found, key=lambda pair: (isinstance(pair[0], sympy.Add), -pair[1], _text(pair[0])))


def _flat(term: Expr) -> list[Expr]:
    return [part for factor in term.args for part in _flat(factor)] if isinstance(term, sympy.Mul) else [term]


def _power(base: Expr, power: int) -> str:
    text = _text(base)
    inner = f"({text})" if isinstance(base, sympy.Add | sympy.Mul | sympy.Mod | sympy.Pow) else text
    return inner if power == 1 else inner + str(power).translate(_RAISED)


def _rounded(left: str, right: str) -> Callable[[Expr], str]:
    @functools.lru_cache(maxsize=4096)  # a rounding occurs in many terms
    def text(expression: Expr) -> str:
        """With one denominator below the whole: ⌊(image - 1)/2⌋."""
        inside = expression.args[0]
        below = math.lcm(*(int(term.as_coeff_Mul()[0].q) for term in sympy.Add.make_args(inside)))
        if not isinstance(inside, sympy.Add) or below == 1:
            return f"{left}{_text(inside)}{right}"
        return f"{left}({_text(sympy.Add(*(below * term for term in inside.args)))})/{below:,}{right}"

    return text


def _called(name: str) -> Callable[[Expr], str]:
    return lambda expression: f"{name}({', '.join(sorted(map(_text, expression.args)))})"


def _remainder(expression: Expr) -> str:
    left, right = (_power(argument, 1) for argument in expression.args)
    return f"{left} mod {right}"


_METHODS: Mapping[Any, Callable[[Expr], str]] = {
    sympy.Rational: _number,
    sympy.Symbol: lambda expression: str(expression.name),
    sympy.Add: _sum,
    sympy.Mul: _product,
    sympy.Pow: lambda expression: _product(expression) if expression.exp.is_Integer else str(expression),
    sympy.floor: _rounded("⌊", "⌋"),
    sympy.ceiling: _rounded("⌈", "⌉"),
    sympy.Mod: _remainder,
    sympy.Max: _called("max"),
    sympy.Min: _called("min"),
}
