"""The whole number at which a model just fits: the largest batch within a memory, the smallest beyond a ridge point.

`solve` answers a request (`analysis.formula.algebra.constraints`) at fixed values of the other symbols. The answer is
exact: the relation holds there and, where `Solution.beyond` is a number, no longer there. `proof` says how far that is
known: by "roots" and by "monotone" for every whole number, by "searched" up to `searched_to` only
(`analysis.formula.algebra.monotonicity`).

Where the relation holds up to a number, the answer is the largest for which it does, for `>=` as for `<=`; where it
holds from a number on, the smallest. Where it holds in several stretches, `<=` takes the end of the last and `>=` the
start of the first. Of `==` it is the smallest.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import sympy

from analysis.formula.algebra.constraints import Constraint, amount
from analysis.formula.algebra.evaluate import Exact, Point, checked_point, partly, value
from analysis.formula.algebra.expressions import Expr, names, symbol
from analysis.formula.algebra.monotonicity import Runs, limit, runs

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


def _limit(side: Expr, name: str) -> Fraction | None:
    """What a side tends to as the unknown grows, where that is a number that is known."""
    try:
        found = limit(side, name)
    except ValueError:  # rounding decides it: the message then has one end less
        return None
    return Fraction(int(found.p), int(found.q)) if found.is_Rational else None
