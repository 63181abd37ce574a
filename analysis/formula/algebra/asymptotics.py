"""How a formula grows: its leading term and limits as a symbol grows, derivatives, and what it reacts to most.

As a symbol grows, ⌊x⌋ and ⌈x⌉ grow as x does, and a maximum as its fastest argument. Derivatives take a rounding for
what it rounds and say so; `difference` is exact. Not claimed: a limit where rounding decides it (2·⌊n/2⌋ - n has none)
is refused, not guessed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

import sympy

from analysis.formula.algebra.evaluate import Point, checked_point, partly, value
from analysis.formula.algebra.expressions import Expr, names, symbol, unknown_name
from analysis.formula.algebra.format import pretty

_ROUNDINGS = (sympy.floor, sympy.ceiling)
_EXTREMES = (sympy.Max, sympy.Min)


@dataclass(frozen=True)
class Leading:
    """What a formula comes to as one symbol grows: coefficient · symbol ** degree, the symbol not in the former."""

    coefficient: Expr
    degree: int


def leading(expression: Expr, name: str) -> Leading:
    """The leading term in one symbol. Raises ValueError where there is none, or rounding decides it."""
    main = symbol(name)
    found = _leading(sympy.expand(sympy.sympify(expression)), main)
    coefficient = sympy.factor(found.coefficient)
    if coefficient.has(main):
        raise ValueError(f"expected a formula with a leading term in {name}, got {pretty(coefficient)}, which has none")
    return Leading(coefficient, found.degree)


def limit(expression: Expr, name: str, over: Expr = 1) -> Expr:
    """What expression ÷ over tends to as a symbol grows: a formula in the others, 0, or ±infinity (sympy.oo).

    Raises ValueError as `leading` does, for `over` = 0, and where the sign of an infinity depends on other symbols.
    """
    above, below = leading(expression, name), leading(over, name)
    if below.coefficient == 0:
        raise ValueError("expected a divisor that is not 0")
    ratio = sympy.cancel(above.coefficient / below.coefficient)
    if ratio == 0 or above.degree < below.degree:
        return sympy.Integer(0)
    if above.degree == below.degree:
        return sympy.factor(ratio)
    if ratio.is_positive or ratio.is_negative:
        return sympy.oo if ratio.is_positive else -sympy.oo
    raise ValueError(f"expected a coefficient of known sign, got {pretty(ratio)}")


def smooth(expression: Expr) -> Expr:
    """The formula with each rounding replaced by what it rounds."""
    return sympy.sympify(expression).replace(lambda part: isinstance(part, _ROUNDINGS), lambda part: part.args[0])


def derivative(expression: Expr, name: str) -> Expr:
    """The derivative by one symbol, roundings taken for what they round, multiplied out.

    Raises ValueError for a maximum, minimum or remainder, which have none everywhere, and an unknown symbol.
    """
    _check_symbol(name, names(expression))
    whole = smooth(expression)
    if whole.has(sympy.Mod, *_EXTREMES):
        raise ValueError(f"expected a formula with a derivative everywhere, got {pretty(whole)}")
    return sympy.expand(sympy.diff(whole, symbol(name)))


def difference(expression: Expr, name: str, by: int = 1) -> Expr:
    """What one symbol growing by `by` adds, exactly and with its roundings, multiplied out."""
    main = symbol(name)
    whole = sympy.sympify(expression)
    return sympy.expand(whole.subs(main, main + by) - whole)


def elasticity(expression: Expr, name: str, point: Point) -> Fraction:
    """d log f / d log x at a point, exactly: x · f'(x) / f(x), roundings taken for what they round.

    Of a maximum the argument that is largest there counts (of equals the first). Raises ValueError for a formula that
    is 0 there, one with a remainder, and a point as `evaluation.value` does.
    """
    given = checked_point(point, names(expression), [*names(expression), *point])
    if name not in given:
        raise ValueError(unknown_name("symbol", name, given))
    others = {other: number for other, number in given.items() if other != name}
    main = _active(partly(smooth(expression), others), {name: given[name]})
    if main.has(sympy.Mod):
        raise ValueError(f"expected a formula with a derivative, got {pretty(main)}")
    here = {name: given[name]}
    whole = value(main, here, here)
    if whole == 0:
        raise ValueError(f"expected a formula that is not 0 at {name}={given[name]}")
    return Fraction(given[name]) * value(sympy.diff(main, symbol(name)), here, here) / whole


def _leading(expression: Expr, main: Expr) -> Leading:
    if not expression.has(main):
        return Leading(expression, 0)
    if expression == main:
        return Leading(sympy.Integer(1), 1)
    if isinstance(expression, sympy.Mul):
        parts = [_leading(factor, main) for factor in expression.args]
        return Leading(sympy.Mul(*(part.coefficient for part in parts)), sum(part.degree for part in parts))
    if isinstance(expression, sympy.Pow) and expression.exp.is_Integer:
        base = _leading(expression.base, main)
        return Leading(base.coefficient**expression.exp, base.degree * int(expression.exp))
    if isinstance(expression, sympy.Add):
        return _of_sum(expression, main)
    if isinstance(expression, _ROUNDINGS):
        inside = _leading(expression.args[0], main)
        return inside if inside.degree > 0 else Leading(expression, 0)
    if isinstance(expression, _EXTREMES):
        return _of_extreme(expression, main)
    return Leading(expression, 0)  # a remainder: bounded, and in the leading coefficient only where there is no limit


def _of_sum(expression: Expr, main: Expr) -> Leading:
    parts = [_leading(term, main) for term in expression.args]
    degree = max(part.degree for part in parts)
    coefficient = sympy.expand(sympy.Add(*(part.coefficient for part in parts if part.degree == degree)))
    if sympy.cancel(coefficient) != 0:
        return Leading(coefficient, degree)
    together = sympy.expand(sympy.cancel(expression))
    if together == expression:
        raise ValueError(f"expected a formula whose leading term rounding does not decide, got {pretty(expression)}")
    return _leading(together, main)


def _of_extreme(expression: Expr, main: Expr) -> Leading:
    """The argument that grows fastest, for arguments that are positive in the end."""
    parts = [_leading(argument, main) for argument in expression.args]
    for part in parts:
        if not part.coefficient.is_nonnegative:
            raise ValueError(f"expected coefficients of known sign, got {pretty(part.coefficient)}")
    choose = max if isinstance(expression, sympy.Max) else min
    degree = choose(part.degree for part in parts)
    ties = [part.coefficient for part in parts if part.degree == degree]
    return Leading(ties[0] if len(ties) == 1 else expression.func(*ties), degree)


def _active(expression: Expr, point: Point) -> Expr:
    """The formula with each maximum replaced by its argument that is largest at the point; minima likewise."""
    if not expression.has(*_EXTREMES):
        return expression
    arguments = [_active(argument, point) for argument in expression.args]
    if not isinstance(expression, _EXTREMES):
        return expression.func(*arguments)
    choose = max if isinstance(expression, sympy.Max) else min
    return choose(arguments, key=lambda argument: value(argument, point, point))


def _check_symbol(name: str, valid: Collection[str]) -> None:
    if name not in valid:
        raise ValueError(unknown_name("symbol", name, valid))
