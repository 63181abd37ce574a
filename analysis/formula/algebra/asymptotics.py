"""How a formula grows: its leading term and its limit as a symbol grows.

As a symbol grows, ⌊x⌋ and ⌈x⌉ grow as x does, and a maximum as its fastest argument. Not claimed: a limit where
rounding decides it (2·⌊n/2⌋ - n has none) is refused, not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from analysis.formula.algebra.expressions import Expr, symbol
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


def limit(expression: Expr, name: str) -> Expr:
    """What a formula tends to as a symbol grows: a formula in the others, 0, or ±infinity. Raises ValueError as
    `leading` does."""
    found = leading(expression, name)
    if found.degree < 0:
        return sympy.Integer(0)
    return found.coefficient if found.degree == 0 else found.coefficient * sympy.oo


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
