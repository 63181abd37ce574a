"""Definition, law, injected fault: values and forms of formulas against sympy and by hand; bad points in one line."""

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, example, given, settings

from analysis.formula.expressions import parse, partly, plain, pretty, rows, shortest, symbol, value
from tests.support.made_up_operations.formulas_made_up import NAMES, SYMBOLS, formulas, points

B, H, S = SYMBOLS


def by_sympy(formula: Any, point: dict[str, int]) -> Fraction:
    found = sympy.sympify(formula).subs({symbol(name): number for name, number in point.items()})
    return Fraction(int(found.p), int(found.q))


@settings(deadline=None, max_examples=30)
@given(formulas(), points)
def test_values_are_those_of_substitution(formula: Any, point: dict[str, int]) -> None:
    found = value(formula, point, NAMES)
    assert found == by_sympy(formula, point)
    assert isinstance(found, int) == (by_sympy(formula, point).denominator == 1)


@settings(deadline=None, max_examples=6)
@given(formulas(), formulas(), points)
def test_quotients_and_roundings_of_them_are_exact(above: Any, below: Any, point: dict[str, int]) -> None:
    assume(by_sympy(below, point) != 0)
    quotient = above / below if below != 0 else above
    for formula in (quotient, quotient**2 + H, sympy.Max(quotient, B, evaluate=False)):
        assert value(formula, point, NAMES) == by_sympy(formula, point)
    for kind in (sympy.floor, sympy.ceiling):
        found = by_sympy(quotient, point)
        assert value(kind(quotient, evaluate=False), point, NAMES) == by_sympy(
            kind(sympy.Rational(found.numerator, found.denominator)), {}
        )


@settings(deadline=None, max_examples=30)
@given(formulas(), points)
def test_a_part_of_the_symbols_may_be_put_in_first(formula: Any, point: dict[str, int]) -> None:
    some = {"hidden": point["hidden"]}
    assert value(partly(formula, some), point, NAMES) == value(formula, point, NAMES)
    assert H not in sympy.sympify(partly(formula, some)).free_symbols


def test_nothing_passes_through_a_float_or_64_bits() -> None:
    n = 2**40 + 1
    assert value(H**5 + 1, {"hidden": n}) == n**5 + 1
    assert value(H**5 / 3, {"hidden": n}) == Fraction(n**5, 3)
    assert value(sympy.floor(H / 3), {"hidden": 10**30 + 2}) == (10**30 + 2) // 3
    assert value(H * B, {"hidden": np.int64(2**62), "batch": np.int64(8)}) == 2**65
    assert type(value(H * B, {"hidden": np.int64(3), "batch": 1})) is int
    assert value(sympy.Max(H, H - sympy.Rational(1, 10**30), evaluate=False), {"hidden": 10**20}) == 10**20


def test_thousands_of_terms_are_no_deep_tree() -> None:
    formula = sympy.Add(*(symbol(f"a{i}") ** 2 for i in range(6_000)))
    assert value(formula, {f"a{i}": 2 for i in range(6_000)}) == 24_000


def test_rows() -> None:
    formulas_ = {"flop": 2 * B * H, "parameters": H**2, "per": B / H, "none": sympy.Integer(0)}
    found = rows(formulas_, [{"batch": 2, "hidden": 3}, {"batch": 6, "hidden": 3}])
    assert found[0] == {"batch": 2, "hidden": 3, "flop": 12, "parameters": 9, "per": Fraction(2, 3), "none": 0}
    assert (found[1]["flop"], found[1]["per"]) == (36, 2)
    with pytest.raises(ValueError, match="expected names of formulas that are no symbols, got batch"):
        rows({"batch": H}, [{"batch": 2, "hidden": 3}])


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"batch": 1}, "expected a value for each of batch, hidden, got batch: no hidden"),
        ({}, "expected a value for each of batch, hidden, got none: no batch, hidden"),
        ({"batch": 1, "hiden": 2}, "unknown symbol: expected batch or hidden, got 'hiden', nearest hidden"),
        ({"batch": 1, "hidden": 2, "seq": 3}, "unknown symbol: expected batch or hidden, got 'seq'"),
        ({"batch": 0, "hidden": 1}, "expected a whole number of at least 1 for batch, got 0"),
        ({"batch": True, "hidden": 1}, "expected a whole number of at least 1 for batch, got True"),
        ({"batch": 1.0, "hidden": 1}, "expected a whole number of at least 1 for batch, got 1.0"),
        ({"batch": 5, "hidden": 3}, "expected a point at which nothing is divided by 0, got batch=5, hidden=3"),
    ],
)
def test_bad_points_get_one_line(point: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        value(B / (H - 3), point)


@pytest.mark.parametrize("formula", [sympy.log(H), sympy.sqrt(H), H**B, sympy.Float(0.5) * H, sympy.oo])
def test_what_has_no_exact_value_is_refused(formula: Any) -> None:
    with pytest.raises(ValueError, match=r"expected a formula with an exact value|expected whole powers"):
        value(formula, {"hidden": 2, "batch": 3}, NAMES)


L, V = symbol("layers"), symbol("vocab")


@settings(deadline=None, max_examples=4)
@given(formulas(), formulas())
@example(B + sympy.Max(B, H), sympy.Integer(0))
def test_every_form_is_equal_to_the_formula_and_so_is_its_text(one: Any, other: Any) -> None:
    formula = one * (other + B)
    form = shortest(formula)
    assert sympy.expand(form - formula) == 0
    assert sympy.expand(parse(plain(form)) - formula) == 0
    if not formula.has(sympy.Max):  # which stays as it is
        assert len(pretty(form)) <= len(pretty(sympy.expand(formula)))


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (24 * H**2 * L * B * S, "24·batch·hidden²·layers·seq"),
        (16 * H**2 + 2 * H * V + 8 * H + V + 2, "16·hidden² + 2·hidden·vocab + 8·hidden + vocab + 2"),
        (24286912512 * B, "24,286,912,512·batch"),
        (B - H**2, "-hidden² + batch"),
        (-H, "-hidden"),
        (2 - 3 * H, "-3·hidden + 2"),
        (3 * H**2 / 2 + H / B, "3·hidden²/2 + hidden/batch"),
        (H / (2 * B * S), "hidden/(2·batch·seq)"),
        (1 / H**2, "1/hidden²"),
        ((H**2 + B) / (3 * H + 1), "(hidden² + batch)/(3·hidden + 1)"),
        (3 * B * sympy.floor((H - 1) / 2) ** 12, "3·batch·⌊(hidden - 1)/2⌋¹²"),
        (sympy.ceiling(H * B / 3), "⌈batch·hidden/3⌉"),
        (2 * sympy.Mod(H, 32), "2·(Mod(hidden, 32))"),
        (sympy.Max(H, 3 * B) - sympy.Min(B, 1024), "max(3·batch, hidden) - Min(1,024, batch)"),
        (sympy.Rational(-7, 3), "-7/3"),
        (sympy.Integer(0), "0"),
        (sympy.Mul(2, H + 1, evaluate=False), "2·(hidden + 1)"),
        (sympy.sqrt(H) + 1, "sqrt(hidden) + 1"),
    ],
)
def test_pretty_by_hand(formula: Any, text: str) -> None:
    assert pretty(formula) == text


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (24 * B * S * L * H**2 + 4 * B * S**2 * L * H, "4·batch·hidden·layers·seq·(6·hidden + seq)"),
        (4 * B * H + 6 * B - 2 * H - 3, "(2·batch - 1)·(2·hidden + 3)"),
        (16 * H**2 + 2 * H * V + 8 * H + V + 2, "16·hidden² + 2·hidden·(vocab + 4) + vocab + 2"),
        (5 * H, "5·hidden"),
        (sympy.Integer(0), "0"),
    ],
)
def test_the_shortest_form_by_hand(formula: Any, text: str) -> None:
    assert pretty(shortest(formula)) == text
