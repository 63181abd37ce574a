"""Growth by hand and against large numbers: leading terms, limits, derivatives, elasticities."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analysis.formula.algebra.asymptotics import (
    Leading,
    derivative,
    difference,
    elasticity,
    leading,
    limit,
    smooth,
)
from analysis.formula.algebra.evaluate import value
from analysis.formula.algebra.expressions import parse, symbol
from tests.support.made_up_operations.formulas_made_up import NAMES, SYMBOLS, atoms, formulas, points, polynomials

B, H, S = SYMBOLS


@pytest.mark.parametrize(
    ("text", "coefficient", "degree"),
    [
        ("16*hidden^2 + 2*hidden*seq", "16", 2),
        ("(hidden + 1)^2 - hidden^2", "2", 1),
        ("3*floor((hidden + 1)/2)^2*batch + hidden^2", "3*batch/4 + 1", 2),
        ("floor(ceiling(hidden/2)/2)", "1/4", 1),
        ("hidden/(2*hidden + batch)", "1/2", 0),
        ("batch/hidden + 1/hidden^2", "batch", -1),
        ("Max(3*hidden, hidden*batch/2, 1000)", "Max(3, batch/2)", 1),
        ("Min(3*hidden, hidden^2)", "3", 1),
        ("hidden + Mod(hidden, 7)", "1", 1),
        ("hidden + 1/(hidden + 1) - hidden", "1", -1),
        ("(hidden^2 + 1)/hidden - hidden", "1", -1),
        ("(hidden^2 + floor(seq/2))/hidden - hidden", "floor(seq/2)", -1),
        ("batch*seq", "batch*seq", 0),
    ],
)
def test_leading_terms_by_hand(text: str, coefficient: str, degree: int) -> None:
    found = leading(parse(text), "hidden")
    assert sympy.expand(found.coefficient - parse(coefficient)) == 0
    assert found.degree == degree


@settings(deadline=None, max_examples=60)
@given(formulas(atoms.filter(lambda atom: not isinstance(atom, sympy.Mod))), st.sampled_from(NAMES))
def test_a_leading_term_is_what_the_formula_comes_to(formula: Any, name: str) -> None:
    """At 10⁶⁰ beside others below 50, lower terms are below a part in 10⁶ of a formula of this size."""
    point = {"batch": 17, "hidden": 31, "seq": 47, name: 10**60}
    try:
        found = leading(formula, name)
    except ValueError:
        assume(False)
    assume(found.coefficient != 0)
    coefficient = value(found.coefficient, point, NAMES)
    assume(coefficient != 0)
    ratio = value(formula, point, NAMES) / Fraction(coefficient * 10 ** (60 * found.degree))
    assert abs(ratio - 1) < Fraction(1, 10**6)


@pytest.mark.parametrize(
    ("above", "below", "tends"),
    [
        ("6*seq*batch*(16*hidden^2 + 2*hidden)", "16*hidden^2 + 3*hidden", "6*seq*batch"),
        ("24*floor(hidden/2)^2", "hidden^2", "6"),
        ("hidden", "hidden^2", "0"),
        ("0", "hidden", "0"),
        ("5*batch + 5", "batch + 1", "5"),
    ],
)
def test_limits_by_hand(above: str, below: str, tends: str) -> None:
    assert sympy.expand(limit(parse(above), "hidden", parse(below)) - parse(tends)) == 0


def test_limits_without_end() -> None:
    assert limit(H**2 * B, "hidden", H) == sympy.oo
    assert limit(-(H**2) * B, "hidden", H) == -sympy.oo
    with pytest.raises(ValueError, match="expected a coefficient of known sign, got batch - seq"):
        limit((B - S) * H, "hidden")
    with pytest.raises(ValueError, match="expected a divisor that is not 0"):
        limit(H, "hidden", 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2*floor(hidden/2) - hidden", "whose leading term rounding does not decide"),
        ("Mod(hidden, 2)", "expected a formula with a leading term in hidden, got hidden mod 2, which has none"),
        ("hidden*Mod(hidden, 3)", "which has none"),
        ("floor(7/hidden + 1/2)", "which has none"),
        ("Max(hidden, (batch - seq)*hidden)", "expected coefficients of known sign"),
    ],
)
def test_what_rounding_decides_is_not_guessed(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        leading(parse(text), "hidden")


def test_derivatives_by_hand() -> None:
    assert derivative(3 * H**2 * B + sympy.floor(H / 2) * S, "hidden") == 6 * B * H + S / 2
    assert smooth(sympy.floor(sympy.ceiling(H / 2) / 3) + 1) == H / 6 + 1
    with pytest.raises(ValueError, match="unknown symbol: expected batch or hidden, got 'seq'"):
        derivative(B * H, "seq")
    for corner in (sympy.Max(H, B), sympy.Mod(H, 3)):
        with pytest.raises(ValueError, match="expected a formula with a derivative everywhere"):
            derivative(corner, "hidden")


@settings(deadline=None, max_examples=30)
@given(formulas(), points, st.integers(1, 9))
def test_differences_are_exact(formula: Any, point: dict[str, int], by: int) -> None:
    later = {**point, "hidden": point["hidden"] + by}
    expected = value(formula, later, NAMES) - value(formula, point, NAMES)
    assert value(difference(formula, "hidden", by), point, NAMES) == expected


def test_elasticities_by_hand() -> None:
    """16 h² + 8 h b at h = 4, b = 2: 256 + 64; x f' / f = (512 + 64) / 320 in h and 64 / 320 in b."""
    formula, at = 16 * H**2 + 8 * H * B, {"hidden": 4, "batch": 2}
    assert elasticity(formula, "hidden", at) == Fraction(9, 5)
    assert elasticity(formula, "batch", at) == Fraction(1, 5)
    assert elasticity(formula, "seq", {**at, "seq": 1}) == 0
    assert elasticity(1 / H**2 + 0 * B, "hidden", {"hidden": 3}) == -2


def test_of_a_maximum_the_larger_argument_counts() -> None:
    formula = 2 * sympy.Max(H**3, 100 * B)
    assert elasticity(formula, "hidden", {"hidden": 10, "batch": 9}) == 3
    assert elasticity(formula, "hidden", {"hidden": 10, "batch": 11}) == 0
    least = sympy.Min(H**3, 100 * B)
    assert elasticity(least, "batch", {"hidden": 10, "batch": 9}) == 1


@settings(deadline=None, max_examples=30)
@given(polynomials, points)
def test_elasticities_of_a_sum_weigh_its_terms(formula: Any, point: dict[str, int]) -> None:
    """Σ over terms of power × term, over the sum: another way than differentiating."""
    whole = value(formula, point, NAMES)
    assume(whole != 0)
    terms = sympy.Add.make_args(sympy.expand(formula))
    weighed = sum(sympy.degree(term, H) * value(term, point, NAMES) for term in terms)
    assert elasticity(formula, "hidden", point) == Fraction(weighed) / whole


def test_bad_points_of_elasticities() -> None:
    with pytest.raises(ValueError, match="expected a formula that is not 0 at hidden=3"):
        elasticity(H - 3, "hidden", {"hidden": 3})
    with pytest.raises(ValueError, match="unknown symbol: expected hidden, got 'hiden', nearest hidden"):
        elasticity(H, "hiden", {"hidden": 3})
    with pytest.raises(ValueError, match="expected a value for each of hidden, got none"):
        elasticity(H, "hidden", {})
    with pytest.raises(ValueError, match="expected a formula with a derivative"):
        elasticity(sympy.Mod(H, 2), "hidden", {"hidden": 3})
    assert leading(symbol("x") * H, "x") == Leading(H, 1)
