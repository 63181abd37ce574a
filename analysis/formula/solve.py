"""Solves for the integer at which a constraint just holds, such as the largest batch that fits into a memory.

`solve` takes a `Constraint` (`analysis/formula/requests.py`) and fixed values of the other symbols, and returns a
`Solution`. If the relation holds up to a number, that number is the answer. If it holds from a number on, the first
such number is the answer. If it holds on several intervals, `<=` takes the end of the last, `>=` the start of the
first, `==` the smallest number. `proof` is the method. **roots**: the roots of quotients of polynomials were isolated
exactly. **monotone**: sign changes were found by bisection. **searched**: every candidate up to a stated one was tried.
Each test of a candidate is exact. Not claimed: that each monotone formula is recognised.
"""

import operator
import re
from bisect import bisect, bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import sympy

from analysis.formula.expressions import Exact, Expr, Point, checked_point, names, partly, symbol, value
from analysis.formula.requests import Candidates, Constraint, amount

HOLDS: Mapping[str, Callable[[Exact, int], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
}

SEARCHED = 100_000
"""Number of candidates that are tried where a formula is neither a quotient nor known to be monotone."""

BEYOND = 2**62
"""Number of candidates within which a monotone formula has to cross 0; otherwise it is taken never to cross it."""

_ROUNDINGS = (sympy.floor, sympy.ceiling)

Interval = tuple[int, int | None]
"""First and last candidate; last None: without end."""


@dataclass(frozen=True)
class Intervals:
    """Intervals of candidates in which the relation holds, ascending.

    proof: "roots", "monotone" or "searched". searched_to: the last candidate that was tried, if searched.
    """

    intervals: tuple[Interval, ...]
    proof: str
    searched_to: int | None = None


def intervals_where(formula: Expr, relation: str, unknown: Expr, candidates: Candidates) -> Intervals:
    """Return where `formula relation 0` holds for the unknown, the formula's only symbol.

    Raises ValueError where the formula divides by 0 at a candidate.
    """
    whole, name = sympy.sympify(formula), str(unknown)
    first, step = candidates.first, candidates.step
    count = None if candidates.last is None else (candidates.last - first) // step + 1
    last = None if count is None else first + (count - 1) * step
    breaks: Iterable[int]
    if is_quotient(whole):
        breaks, proof = _sign_changes(whole, unknown), "roots"
    elif (way := direction(whole.subs(unknown, unknown + first - 1), unknown)) is not None:
        indices = range(count or BEYOND)

        def rising(index: int) -> int:  # the formula's sign, negated if it falls: never decreases
            return way * value(whole, {name: first + index * step}, [name]).numerator

        crossings = (find(indices, 0, key=rising) for find in (bisect_left, bisect))
        breaks, proof = [first + index * step for index in crossings if index < len(indices)], "monotone"
    else:
        last, proof = first + (min(SEARCHED, count or SEARCHED) - 1) * step, "searched"
        breaks = range(first, last + 1, step)
    starts = sorted({first, *(first + -(-(number - first) // step) * step for number in breaks if number > first)})
    starts = [start for start in starts if last is None or start <= last]
    intervals: list[Interval] = []
    for start, end in zip(starts, [*(start - step for start in starts[1:]), last], strict=True):
        if HOLDS[relation](value(whole, {name: start}, [name]), 0):
            is_next = intervals and intervals[-1][1] == start - step
            intervals.append((intervals.pop()[0] if is_next else start, end))
    return Intervals(tuple(intervals), proof, last if proof == "searched" else None)


def is_quotient(formula: Expr) -> bool:
    """Return whether a formula is a quotient of polynomials."""
    return not formula.has(sympy.Mod, sympy.Max, sympy.Min, sympy.Abs, *_ROUNDINGS)


def _sign_changes(formula: Expr, unknown: Expr) -> list[int]:
    """Return the integers at which the sign can change: those at or next to a root of numerator or denominator, and the
    integers after them."""
    breaks: set[int] = set()
    for part in sympy.fraction(sympy.together(formula)):
        polynomial = sympy.Poly(part, unknown, domain="QQ")
        for (low, high), _ in polynomial.intervals(eps=sympy.Rational(1, 4)) if polynomial.degree() > 0 else ():
            breaks |= set(range(int(sympy.floor(low)), int(sympy.ceiling(high)) + 2))
    return list(breaks)


def direction(formula: Expr, unknown: Expr) -> int | None:
    """Return 1 if a formula never falls as the unknown grows from 1 on, -1 if it never rises, 0 if it is constant.
    None: not known.

    Other symbols are positive integers.
    """
    if not formula.has(unknown):
        return 0
    if formula == unknown:
        return 1
    if isinstance(formula, sympy.Add | sympy.Max | sympy.Min | _ROUNDINGS[0] | _ROUNDINGS[1]):
        return _common(formula.args, unknown)
    if isinstance(formula, sympy.Pow) and formula.exp.is_Integer and formula.base.is_nonnegative:
        way, factor = direction(formula.base, unknown), formula.exp
    elif isinstance(formula, sympy.Mul):
        factor, varying = formula.as_independent(unknown, as_Add=False)
        factors = sympy.Mul.make_args(varying)
        way = _common(factors, unknown) if all(part.is_nonnegative for part in factors) else None
    else:
        return None
    if way is None or (factor.is_nonnegative is None and factor.is_nonpositive is None):
        return None
    return way if factor.is_nonnegative else -way


def _common(parts: Iterable[Expr], unknown: Expr) -> int | None:
    """Return the direction of terms or factors together; None where two oppose each other."""
    ways = {direction(part, unknown) for part in parts} - {0}
    return None if len(ways) > 1 else next(iter(ways), 0)


LIMIT = "limit"
"""Name of the symbol for the bound in `Solution.formula`, where the bound is a number."""

_PROOFS: Mapping[str, str] = {
    "roots": "for every whole number, by the roots of the polynomial",
    "monotone": "for every whole number: the formula only moves one way",
    "searched": "by trying every candidate up to {}; not known beyond",
}


class NoSolution(ValueError):
    """No whole number satisfies the request, or there is no largest one. The message says which, with the values at the
    ends."""


@dataclass(frozen=True)
class Solution:
    """value: the answer. end: "largest" or "smallest" of the numbers that satisfy the request, or "equal" for ==.

    left, right: both sides at the value. formula: where both sides are equal, as a formula of the other symbols (and of
    `limit`, if the right side is a number); None where there is none of degree 2 or less.
    """

    request: Constraint
    value: int
    end: str
    left: Exact
    right: Exact
    proof: str
    searched_to: int | None
    formula: Expr | None

    def why(self) -> str:
        """Describe the proof of the answer."""
        return _PROOFS[self.proof].format(self.searched_to)


def solve(request: Constraint, fixed: Point) -> Solution:
    """Solve a request, with the other symbols at fixed values.

    Raises NoSolution where no candidate, or every one without end, satisfies it; ValueError for a symbol without a
    value and a fixed value of the unknown.
    """
    unknown = symbol(request.unknown)
    wanted = [name for name in names(request.left, request.right) if name != request.unknown]
    held = {name: number for name, number in checked_point(fixed, wanted, [*wanted, *fixed]).items() if name in wanted}
    if request.unknown in fixed:
        raise ValueError(f"expected {request.unknown} to be solved for, got a fixed value of it")
    left, right = partly(request.left, held), partly(request.right, held)
    whole = left - right
    whole = whole if whole.has(sympy.Max, sympy.Min) else sympy.expand(whole)
    where = intervals_where(whole, request.relation, unknown, request.candidates)
    answer, end = _chosen(where, request, left, right)
    point = {request.unknown: answer}
    return Solution(
        request=request,
        value=answer,
        end=end,
        left=value(left, point, point),
        right=value(right, point, point),
        proof=where.proof,
        searched_to=where.searched_to,
        formula=crossing(request.left, request.right, request.unknown),
    )


def crossing(left: Expr, right: Expr, unknown: str) -> Expr | None:
    """Return the unknown at which both sides are equal, as a formula: `(limit - c)/a`, or the larger root of a
    quadratic.

    A right side that is a number is called `limit`. None where the sides are not quotients of polynomials of degree 1
    or 2 in the unknown, and where the quadratic's leading coefficient is not known to be positive.
    """
    main = symbol(unknown)
    bound = sympy.Symbol(LIMIT, positive=True) if sympy.sympify(right).is_Rational else right
    whole = sympy.sympify(left) - bound
    if not is_quotient(whole):
        return None
    above = sympy.fraction(sympy.together(whole))[0]
    coefficients = sympy.Poly(above, main).all_coeffs()
    if len(coefficients) == 2:
        slope, constant = coefficients
        above, below = sympy.fraction(sympy.cancel(-constant / slope))
        return above / sympy.factor(below)
    if len(coefficients) == 3 and coefficients[0].is_positive:
        a, b, c = coefficients
        return (sympy.sqrt(sympy.expand(b**2 - 4 * a * c)) - b) / (2 * a)
    return None


def _chosen(where: Intervals, request: Constraint, left: Expr, right: Expr) -> tuple[int, str]:
    """Return the answer, and which end of an interval it is."""
    candidates, question = request.candidates, request.text.rpartition(" for ")[0]
    if not where.intervals:
        raise NoSolution(_none(where, request, question, left, right))
    (start, stop), (tail, end) = where.intervals[0], where.intervals[-1]
    if request.relation == "==":
        return start, "equal"
    final = where.searched_to if where.searched_to is not None else candidates.last
    is_ending = end is not None and end != final
    if request.relation in ("<=", "<"):
        if is_ending or (tail == candidates.first and candidates.last is not None):
            assert end is not None  # there is a last candidate
            return end, "largest"
        if tail == candidates.first:
            reach = f"up to {where.searched_to:,}" if where.searched_to is not None else "without end"
            raise NoSolution(f"no largest {request.unknown}: every one {reach} satisfies {question}")
        return tail, "smallest"
    if len(where.intervals) == 1 and start == candidates.first and is_ending and stop is not None:
        return stop, "largest"
    return start, "smallest"


def _none(where: Intervals, request: Constraint, question: str, left: Expr, right: Expr) -> str:
    """Return why there is no answer, with the value at the first candidate (and the last, where there is one)."""
    unknown, first = request.unknown, request.candidates.first
    if request.relation == "==":
        reach = "" if where.searched_to is None else f" up to {where.searched_to}"
        return f"no {unknown}{reach} for which {question} exactly"

    def amount_at(side: Expr, number: int) -> str:
        return amount(value(side, {unknown: number}, [unknown]), request.measure)

    last = request.candidates.last or where.searched_to
    ends = [f"{unknown}={number} has {amount_at(left, number)}" for number in dict.fromkeys((first, last or first))]
    condition = f"{re.split('[<>=≤≥]', request.text)[0].strip()} {request.relation} {amount_at(right, first)}"
    if last is None and is_quotient(left) and (tends := sympy.limit(left, symbol(unknown), sympy.oo)).is_Rational:
        ends.append(f"it tends to {amount(value(tends, {}), request.measure)} as {unknown} grows")
    even = "even " if len(ends) == 1 else ""
    return f"no {unknown} satisfies {condition}: {even}{' and '.join(ends)}"
