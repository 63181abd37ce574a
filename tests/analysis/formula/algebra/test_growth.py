"""Growth by hand and against large numbers: leading terms and limits."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analysis.formula.algebra.evaluate import value
from analysis.formula.algebra.expressions import parse
from analysis.formula.algebra.monotonicity import leading, limit
from tests.support.made_up_operations.formulas_made_up import NAMES, SYMBOLS, atoms, formulas

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


def test_limits_by_hand() -> None:
    assert limit(parse("(24*hidden^2 + 1)/(4*hidden^2)"), "hidden") == 6
    assert limit(parse("1/hidden"), "hidden") == 0
    assert sympy.expand(limit(parse("batch + seq/hidden"), "hidden") - B) == 0
    assert (limit(H * B, "hidden"), limit(-H, "hidden")) == (sympy.oo, -sympy.oo)


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
