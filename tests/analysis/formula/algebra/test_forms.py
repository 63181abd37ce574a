"""Forms and pretty text: equal to what they came from, in one order, as written by hand."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from hypothesis import given, settings

from analysis.formula.algebra.expressions import names, parse, plain, symbol
from analysis.formula.algebra.simplify import collected, degree, expanded, factored, monomials, pretty, shortest
from tests.support.made_up_operations.formulas_made_up import SYMBOLS, formulas, polynomials

B, H, S = SYMBOLS
L, V = symbol("layers"), symbol("vocab")


@settings(deadline=None, max_examples=4)
@given(formulas(), formulas())
def test_every_form_is_equal_to_the_formula_and_so_is_its_text(one: Any, other: Any) -> None:
    every_form_is_equal(one, other)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(formulas(), formulas())
def test_every_form_of_many_formulas_is_equal_to_them(one: Any, other: Any) -> None:
    every_form_is_equal(one, other)


def every_form_is_equal(one: Any, other: Any) -> None:
    formula = one * (other + B)
    forms = [expanded(formula), factored(formula), shortest(formula)]
    forms += [collected(formula, by) for by in names(formula)]
    for form in forms:
        assert sympy.expand(form - formula) == 0
        assert sympy.expand(parse(plain(form)) - formula) == 0


@settings(deadline=None, max_examples=15)
@given(polynomials, polynomials)
def test_pretty_text_says_the_same(one: Any, other: Any) -> None:
    """Read back with commas taken out, which no other text has here."""
    for form in (one, factored(one), shortest(one * (other + 1)), one / (H**2 + 1)):
        assert sympy.expand(parse(pretty(form).replace(",", "")) - form) == 0


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (24 * H**2 * L * B * S, "24·hidden²·batch·layers·seq"),
        (16 * H**2 + 2 * H * V + 8 * H + V + 2, "16·hidden² + 2·hidden·vocab + 8·hidden + vocab + 2"),
        (24286912512 * B, "24,286,912,512·batch"),
        (B - H**2, "-hidden² + batch"),
        (-H, "-hidden"),
        (2 - 3 * H, "-3·hidden + 2"),
        (3 * H**2 / 2 + H / B, "3·hidden²/2 + hidden/batch"),
        (H / (2 * B * S), "hidden/(2·batch·seq)"),
        (1 / H**2, "1/hidden²"),
        ((H**2 + B) / (3 * H + 1), "(hidden² + batch)/(3·hidden + 1)"),
        (3 * B * sympy.floor((H - 1) / 2) ** 12, "3·⌊(hidden - 1)/2⌋¹²·batch"),
        (sympy.ceiling(H * B / 3), "⌈batch·hidden/3⌉"),
        (2 * sympy.Mod(H, 32), "2·(hidden mod 32)"),
        (sympy.Max(H, 3 * B) - sympy.Min(B, 1024), "max(3·batch, hidden) - min(1,024, batch)"),
        (sympy.Rational(-7, 3), "-7/3"),
        (sympy.Integer(0), "0"),
        (sympy.Mul(2, H + 1, evaluate=False), "2·(hidden + 1)"),
        (sympy.Mul(2, H + 1, -1, evaluate=False), "-2·(hidden + 1)"),
        (sympy.sqrt(H) + 1, "sqrt(hidden) + 1"),
    ],
)
def test_pretty_by_hand(formula: Any, text: str) -> None:
    assert pretty(formula) == text


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (24 * B * S * L * H**2 + 4 * B * S**2 * L * H, "4·batch·hidden·layers·seq·(6·hidden + seq)"),
        (-2 * H - 4 * B, "-2·(2·batch + hidden)"),
        (4 * B * H + 6 * B - 2 * H - 3, "(2·batch - 1)·(2·hidden + 3)"),
        (H**2 / 4 + H / 6, "hidden·(3·hidden + 2)/12"),
        (5 * H, "5·hidden"),
        (sympy.Integer(0), "0"),
    ],
)
def test_factored_by_hand(formula: Any, text: str) -> None:
    assert pretty(factored(formula)) == text


def test_collected_by_hand() -> None:
    formula = 16 * H**2 + 2 * H * V + 8 * H + V + 2
    assert pretty(collected(formula, "hidden")) == "16·hidden² + 2·hidden·(vocab + 4) + vocab + 2"
    assert pretty(collected(formula, "vocab")) == "2·(8·hidden² + 4·hidden + 1) + vocab·(2·hidden + 1)"
    assert pretty(shortest(formula)) == "16·hidden² + 2·hidden·(vocab + 4) + vocab + 2"
    rounded = sympy.floor(H / 2) * H + H * B
    assert pretty(collected(rounded, "hidden")) == "hidden·(batch + ⌊hidden/2⌋)"
    with pytest.raises(ValueError, match="unknown symbol: expected batch or hidden, got 'hiden', nearest hidden"):
        collected(rounded, "hiden")


def test_a_long_formula_is_not_collected() -> None:
    formula = sympy.expand((H + B + S + 1) ** 6)  # C(9, 3) = 84 terms
    assert len(formula.args) == 84
    assert shortest(formula) == formula


def test_terms_and_degrees() -> None:
    assert monomials((H + 1) ** 2) == {((H, 2),): 1, ((H, 1),): 2, (): 1}
    assert degree(H**2 * sympy.floor(B / 2) * S / V) == 3
    assert degree(3 * sympy.Mod(H, 2) + sympy.Max(H, B**2)) == 2
    with pytest.raises(ValueError, match=r"expected rational coefficients, got 0\.5"):
        monomials(0.5 * H)


@pytest.mark.parametrize("formula", [H * (B + 1), sympy.Mul(2, B + 1, evaluate=False), (B + 1) ** 2, B * (B + 1) ** -2])
def test_what_is_not_multiplied_out_is(formula: Any) -> None:
    assert expanded(formula) == sympy.expand(formula) != formula
    assert expanded(sympy.floor(B * (H + 1) / 2)) == sympy.floor(sympy.expand(B * (H + 1) / 2))
