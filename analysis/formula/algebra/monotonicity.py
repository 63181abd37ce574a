"""How a formula behaves as its unknown grows: its leading term, its limit, and where it satisfies a relation to 0.

As a symbol grows, ⌊x⌋ and ⌈x⌉ grow as x does, and a maximum as its fastest argument. Not claimed: a limit where
rounding decides it (2·⌊n/2⌋ - n has none) is refused, not guessed.

`runs` gives runs of candidates that satisfy the relation, and how that is known.
It takes one of three ways, the first that applies:

* **roots**: of a quotient of polynomials the sign can change only at a root of either, and those are isolated exactly;
* **monotone**: built of parts that only grow (or only shrink) with the unknown, it crosses 0 once, and that place is
  bracketed by doubling and halved;
* **searched**: every candidate of a stated range is tried, and nothing is said beyond it.

Each test of a candidate is an exact evaluation. Not claimed: the second way looks at the shape of the formula only, so
that a formula may be monotone and not be seen to be.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sympy

from analysis.formula.algebra.constraints import Candidates
from analysis.formula.algebra.evaluate import Exact, compiled
from analysis.formula.algebra.expressions import Expr, symbol
from analysis.formula.algebra.simplify import pretty

_ROUNDED = (sympy.floor, sympy.ceiling)
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
    if isinstance(expression, _ROUNDED):
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


HOLDS: Mapping[str, Callable[[Exact, int], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
}

SEARCHED = 100_000
"""How many candidates are tried where nothing is known of a formula's course."""

BEYOND = 2**64
"""A monotone formula that has not crossed 0 up to here is said never to."""

_ROUNDINGS = (sympy.floor, sympy.ceiling)


@dataclass(frozen=True)
class Runs:
    """Stretches of candidates in which the relation holds, rising, each (first, last); last None: without end.

    proof: "roots", "monotone" or "searched". searched_to: the last candidate that was tried, if searched.
    """

    runs: tuple[tuple[int, int | None], ...]
    proof: str
    searched_to: int | None = None


def runs(formula: Expr, relation: str, unknown: Expr, candidates: Candidates) -> Runs:
    """Where `formula relation 0` holds for the unknown, which is the formula's only symbol.

    Raises ValueError where the formula is divided by 0 at a candidate.
    """
    whole = sympy.sympify(formula)
    test = _test(whole, relation, unknown)
    quotient = _quotient(whole, unknown)
    if quotient is not None:
        return Runs(_by_roots(quotient, test, candidates), "roots")
    way = direction(whole.subs(unknown, unknown + candidates.first - 1), unknown)
    if way is not None and (relation != "==" or way != 0):
        return Runs(_by_halving(whole, way, relation, unknown, candidates), "monotone")
    last = candidates.first + (SEARCHED - 1) * candidates.step
    if candidates.last is not None:
        last = min(last, candidates.last)
    numbers = filter(test, range(candidates.first, last + 1, candidates.step))
    return Runs(_merged([(number, number) for number in numbers], candidates), "searched", last)


def direction(formula: Expr, unknown: Expr) -> int | None:
    """1: never falls as the unknown grows from 1 on; -1: never rises; 0: constant; None: unknown.

    Other symbols are positive whole numbers.
    """
    if not formula.has(unknown):
        return 0
    if formula == unknown:
        return 1
    if isinstance(formula, sympy.Add):
        return _common([direction(term, unknown) for term in formula.args])
    if isinstance(formula, _ROUNDINGS):
        return direction(formula.args[0], unknown)
    if isinstance(formula, sympy.Max | sympy.Min):
        return _common([direction(argument, unknown) for argument in formula.args])
    if isinstance(formula, sympy.Mul):
        return _of_product(formula, unknown)
    if isinstance(formula, sympy.Pow) and formula.exp.is_Integer and formula.base.is_nonnegative:
        return _turned(direction(formula.base, unknown), formula.exp)
    return None


def _of_product(formula: Expr, unknown: Expr) -> int | None:
    constant, varying = formula.as_independent(unknown, as_Add=False)
    if not all(factor.is_nonnegative for factor in sympy.Mul.make_args(varying)):
        return None
    if constant.is_nonnegative is None and constant.is_nonpositive is None:
        return None
    factors = [direction(factor, unknown) for factor in sympy.Mul.make_args(varying)]
    return _turned(_common(factors), constant)


def _common(ways: list[int | None]) -> int | None:
    """The direction of things that go together: that of those that move, None where two go against each other."""
    if None in ways:
        return None
    moving = {way for way in ways if way}
    return None if len(moving) == 2 else next(iter(moving), 0)


def _turned(way: int | None, factor: Expr) -> int | None:
    if way is None:
        return None
    return way if factor.is_nonnegative else -way


def _test(formula: Expr, relation: str, unknown: Expr) -> Callable[[int], bool]:
    function, holds = compiled(formula), HOLDS[relation]
    constant = not formula.has(unknown)

    def test(number: int) -> bool:
        try:
            return holds(function() if constant else function(number), 0)
        except ZeroDivisionError as fault:
            raise ValueError(
                f"expected a formula that is nowhere divided by 0, got one at {unknown}={number}"
            ) from fault

    return test


def _quotient(formula: Expr, unknown: Expr) -> tuple[Expr, Expr] | None:
    """Numerator and divisor as polynomials in the unknown, or None where it is none."""
    if formula.has(sympy.Mod, sympy.Max, sympy.Min, sympy.Abs, *_ROUNDINGS):
        return None
    above, below = sympy.fraction(sympy.together(formula))
    return sympy.Poly(above, unknown, domain="QQ"), sympy.Poly(below, unknown, domain="QQ")


def _by_roots(
    quotient: tuple[Expr, Expr], test: Callable[[int], bool], candidates: Candidates
) -> tuple[tuple[int, int | None], ...]:
    """Runs of candidates between breaks: whole numbers at or beside a root, each a stretch of its own."""
    breaks: set[int] = set()
    for polynomial in quotient:
        if polynomial.degree() > 0:
            for (low, high), _ in polynomial.intervals(eps=sympy.Rational(1, 4)):
                breaks |= set(range(int(sympy.floor(low)), int(sympy.ceiling(high)) + 1))
    stretches: list[tuple[int, int | None]] = []
    start = candidates.first
    for place in sorted(breaks):
        if place >= start:
            stretches += [(start, place - 1), (place, place)]
            start = place + 1
    stretches.append((start, None))
    inside = (_inside(stretch, candidates) for stretch in stretches)
    return _merged([stretch for stretch in inside if stretch is not None and test(stretch[0])], candidates)


def _inside(stretch: tuple[int, int | None], candidates: Candidates) -> tuple[int, int | None] | None:
    """The first and the last candidate in a stretch; None where there is none."""
    low, high = stretch
    step, first = candidates.step, candidates.first
    start = first + -(-(low - first) // step) * step
    ends = [end for end in (high, candidates.last) if end is not None]
    if not ends:
        return start, None
    end = first + (min(ends) - first) // step * step
    return (start, end) if start <= end else None


def _merged(parts: list[tuple[int, int | None]], candidates: Candidates) -> tuple[tuple[int, int | None], ...]:
    """Neighbouring stretches put together."""
    found: list[tuple[int, int | None]] = []
    for low, high in parts:
        if found and found[-1][1] == low - candidates.step:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return tuple(found)


def _by_halving(
    formula: Expr, way: int, relation: str, unknown: Expr, candidates: Candidates
) -> tuple[tuple[int, int | None], ...]:
    if relation == "==":
        return _equal(formula, way, unknown, candidates)
    test = _test(formula, relation, unknown)
    falls_off = (way >= 0) == (relation in ("<", "<="))  # holds at first, then no more
    change = _change(test, falls_off, candidates)
    if falls_off:
        ends = candidates.last if change is None else change - candidates.step
        return () if change == candidates.first else ((candidates.first, ends),)
    return () if change is None else ((change, candidates.last),)


def _equal(formula: Expr, way: int, unknown: Expr, candidates: Candidates) -> tuple[tuple[int, int | None], ...]:
    """From the first candidate at or past 0 to the last before it is past."""
    reached = _change(_test(formula, ">=" if way > 0 else "<=", unknown), False, candidates)
    passed = _change(_test(formula, ">" if way > 0 else "<", unknown), False, candidates)
    if reached is None or reached == passed:
        return ()
    return ((reached, candidates.last if passed is None else passed - candidates.step),)


def _change(test: Callable[[int], bool], before: bool, candidates: Candidates) -> int | None:
    """The first candidate at which a test that changes once is no longer `before`; None: it never changes."""
    count = candidates.count() or BEYOND // candidates.step + 1

    def changed(index: int) -> bool:
        return test(candidates.first + index * candidates.step) != before

    low, high = -1, 0  # nothing has changed at low
    while not changed(high):
        if high == count - 1:
            return None
        low, high = high, min(2 * high + 1, count - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if changed(middle) else (middle, high)
    return candidates.first + high * candidates.step
