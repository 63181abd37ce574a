"""The whole number at which a model just fits: the largest batch within a memory, the smallest beyond a ridge point.

`solve` answers a request (`analysis.formula.algebra.constraints`) at fixed values of the other symbols. The answer is
exact: the relation holds there and, where `Solution.beyond` is a number, no longer there. `proof` says how far that is
known: by "roots" and by "monotone" for every whole number, by "searched" up to `searched_to` only.

Where the relation holds up to a number, the answer is the largest for which it does, for `>=` as for `<=`; where it
holds from a number on, the smallest. Where it holds in several stretches, `<=` takes the end of the last and `>=` the
start of the first. Of `==` it is the smallest.

Where a formula satisfies a relation to 0 as its unknown grows: `runs` of candidates, and how that is known.

One of three ways is taken, the first that applies:

* **roots**: of a quotient of polynomials the sign can change only at a root of either, and those are isolated exactly;
* **monotone**: built of parts that only grow (or only shrink) with the unknown, it crosses 0 once, and that place is
  bracketed by doubling and halved;
* **searched**: every candidate of a stated range is tried, and nothing is said beyond it.

Each test of a candidate is an exact evaluation. Not claimed: the second way looks at the shape of the formula only, so
that a formula may be monotone and not be seen to be.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import sympy

from analysis.formula.algebra.constraints import Candidates, Constraint, amount
from analysis.formula.algebra.evaluate import Exact, Point, checked_point, compiled, partly, value
from analysis.formula.algebra.expressions import Expr, names, symbol

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


LIMIT = "limit"
"""The symbol that stands for a bound in `Solution.formula` where the bound is a number."""

_PROOFS: Mapping[str, str] = {
    "roots": "for every whole number, by the roots of the polynomial",
    "monotone": "for every whole number: the formula only moves one way",
    "searched": "by trying every candidate up to {}; not known beyond",
}


class NoSolution(ValueError):
    """No whole number satisfies the request, or every one does; one line says which, with the nearest value."""


@dataclass(frozen=True)
class Solution:
    """value: the answer. end: "largest", "smallest" or "equal": what it is of those that satisfy the request.

    left, right: both sides at the value. beyond: the next candidate past it, which does not satisfy the request (None:
    there is none), beyond_left: the left side there. formula: where both sides are equal, as a formula of the other
    symbols (and of `limit`, if the right side is a number); None where there is none of degree 2 or less.
    """

    unknown: str
    value: int
    end: str
    left: Exact
    right: Exact
    beyond: int | None
    beyond_left: Exact | None
    proof: str
    searched_to: int | None
    formula: Expr | None

    def why(self) -> str:
        """How the answer is known, in words."""
        return _PROOFS[self.proof].format(self.searched_to)


def solve(request: Constraint, fixed: Point, measure: str = "") -> Solution:
    """The answer to a request, the other symbols at fixed values.

    measure: how messages print the sides (empty: as the request says). Raises NoSolution where no candidate, or every
    one without end, satisfies the request; ValueError for a symbol without value and a fixed value of the unknown.
    """
    unknown = symbol(request.unknown)
    wanted = [name for name in names(request.left, request.right) if name != request.unknown]
    held = {name: number for name, number in checked_point(fixed, wanted, [*wanted, *fixed]).items() if name in wanted}
    if request.unknown in fixed:
        raise ValueError(f"expected {request.unknown} to be solved for, got a fixed value of it")
    left, right = partly(request.left, held), partly(request.right, held)
    whole = left - right
    found = runs(
        whole if whole.has(sympy.Max, sympy.Min) else sympy.expand(whole),
        request.relation,
        unknown,
        request.candidates,
    )
    place, end, beyond = _chosen(found, request, left, right, measure or request.measure)

    def at(side: Expr, number: int) -> Exact:
        return value(side, {request.unknown: number}, [request.unknown])

    return Solution(
        unknown=request.unknown,
        value=place,
        end=end,
        left=at(left, place),
        right=at(right, place),
        beyond=beyond,
        beyond_left=None if beyond is None else at(left, beyond),
        proof=found.proof,
        searched_to=found.searched_to,
        formula=crossing(request.left, request.right, request.unknown),
    )


def crossing(left: Expr, right: Expr, unknown: str) -> Expr | None:
    """The unknown at which both sides are equal, as a formula: `(limit - c)/a`, or the larger root of a quadratic.

    A right side that is a number is called `limit`. None where the sides are no quotients of polynomials of degree 1
    or 2 in the unknown, and where the quadratic's leading coefficient is not known to be positive.
    """
    main = symbol(unknown)
    bound = sympy.Symbol(LIMIT, positive=True) if sympy.sympify(right).is_Rational else right
    whole = sympy.sympify(left) - bound
    if whole.has(sympy.floor, sympy.ceiling, sympy.Max, sympy.Min, sympy.Mod):
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


def _chosen(runs: Runs, request: Constraint, left: Expr, right: Expr, measure: str) -> tuple[int, str, int | None]:
    """The answer, which end of a stretch it is, and the candidate beyond it."""
    candidates = request.candidates
    if not runs.runs:
        raise NoSolution(_none(runs, request, left, right, measure))
    if request.relation == "==":
        return runs.runs[0][0], "equal", None
    (start, stop), (tail, end) = runs.runs[0], runs.runs[-1]
    final = runs.searched_to if runs.searched_to is not None else candidates.last
    endless = end is None or end == final
    if request.relation in ("<=", "<"):
        if not endless and end is not None:
            return end, "largest", end + candidates.step
        if tail != candidates.first:
            return tail, "smallest", tail - candidates.step
        if candidates.last is None or end is None:
            raise NoSolution(_every(runs, request))
        return end, "largest", None
    if len(runs.runs) == 1 and start == candidates.first and not endless and stop is not None:
        return stop, "largest", stop + candidates.step
    return start, "smallest", None if start == candidates.first else start - candidates.step


def _every(runs: Runs, request: Constraint) -> str:
    reach = f"up to {runs.searched_to:,}" if runs.searched_to is not None else "without end"
    return f"no largest {request.unknown}: every one {reach} satisfies {_question_text(request)}"


def _question_text(request: Constraint) -> str:
    return request.text.rpartition(" for ")[0]


def _none(runs: Runs, request: Constraint, left: Expr, right: Expr, measure: str) -> str:
    """Why there is no answer, with the value at the first candidate (and the last, where there is one)."""
    at = {request.unknown: request.candidates.first}

    def amount_at(side: Expr, point: Point) -> str:
        return amount(value(side, point, [request.unknown]), measure)

    if request.relation == "==":
        reach = "" if runs.searched_to is None else f" up to {runs.searched_to}"
        return f"no {request.unknown}{reach} for which {_question_text(request)} exactly"
    last = request.candidates.last or runs.searched_to
    ends = [f"{request.unknown}={at[request.unknown]} has {amount_at(left, at)}"]
    if last is not None and last != request.candidates.first:
        ends.append(f"{request.unknown}={last} has {amount_at(left, {request.unknown: last})}")
    written = re.split("[<>=≤≥]", request.text)[0].strip()
    asked = f"{written} {request.relation} {amount_at(right, at)}"
    if last is None and (tends := _limit(left, request.unknown)) is not None:
        ends.append(f"it tends to {amount(tends, measure)} as {request.unknown} grows")
    even = "even " if len(ends) == 1 else ""
    return f"no {request.unknown} satisfies {asked}: {even}{' and '.join(ends)}"


def _limit(side: Expr, unknown: str) -> Fraction | None:
    """What a side tends to as its unknown grows, where it is a quotient of polynomials that tends to a number."""
    quotient = _quotient(sympy.sympify(side), symbol(unknown))
    if quotient is None or quotient[0].degree() > quotient[1].degree():
        return None
    above, below = quotient
    found = above.LC() / below.LC() if above.degree() == below.degree() else sympy.Integer(0)
    return Fraction(int(found.p), int(found.q))
