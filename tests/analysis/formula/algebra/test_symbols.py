"""Formulas as text: what is written is read back, by us and by sympy; what is no formula is refused in one line."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import sympy
from hypothesis import given, settings

from analysis.formula.algebra.expressions import names, parse, plain, rational, symbol, unknown_name
from tests.support.made_up_operations.formulas_made_up import NAMES, SYMBOLS, formulas

B, H, S = SYMBOLS


@settings(deadline=None, max_examples=40)
@given(formulas())
def test_text_is_read_back_to_the_same_formula(formula: Any) -> None:
    text = plain(formula)
    assert parse(text) == formula
    assert parse(text, NAMES) == formula
    by_sympy = sympy.sympify(text, locals={name: symbol(name) for name in NAMES})
    assert sympy.expand(by_sympy - formula) == 0
    assert plain(parse(text)) == text


@settings(deadline=None, max_examples=15)
@given(formulas(), formulas())
def test_quotients_and_products_are_read_back_to_equal_ones(one: Any, other: Any) -> None:
    for formula in (one * (other + H), sympy.Mul(2, one + B, evaluate=False), one / (S + 1)):
        assert sympy.expand(parse(plain(formula)) - formula) == 0


def test_leading_terms_come_first_in_one_order() -> None:
    terms = [8 * H, 16 * H**2, 2 * H * S, sympy.Integer(2), B**2 * H, sympy.floor(H / 2) / 3]
    texts = set()
    for _ in range(20):
        random.shuffle(terms)
        texts.add(plain(sympy.Add(*terms)))
    assert texts == {"batch**2*hidden + 16*hidden**2 + 2*hidden*seq + 8*hidden + floor(hidden/2)/3 + 2"}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2*hidden^2", 2 * H**2),
        ("24·hidden²·batch", 24 * H**2 * B),
        ("hidden⁻²", 1 / H**2),
        ("-hidden**2", -(H**2)),
        ("2**-1", sympy.Rational(1, 2)),
        ("2**3**2", sympy.Integer(512)),
        ("1_000 - 2 - 3", sympy.Integer(995)),
        ("12/2/3*hidden", 2 * H),
        ("0.1 + 1.5e3", rational(15001) / 10),
        ("2--3", sympy.Integer(5)),
        ("floor(hidden/2 + 1/2)", sympy.floor((H + 1) / 2)),
        ("Max(hidden, batch, 3) + Mod(seq, 4)", sympy.Max(H, B, 3) + sympy.Mod(S, 4)),
        (" ( hidden ) ", H),
    ],
)
def test_texts_by_hand(text: str, meant: Any) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a number, a name or a bracket, but the text ends: ''"),
        ("hidden +", "but the text ends: 'hidden +'"),
        ("2 hidden", "expected an operator, got 'hidden' in '2 hidden'"),
        ("(hidden", "expected a closing bracket, but the text ends"),
        ("hidden)", "expected an operator, got ')'"),
        ("hidden $ 2", "expected a formula, got '$' in 'hidden $ 2'"),
        ("hiden", "unknown name: expected batch, hidden or seq, got 'hiden', nearest hidden"),
        ("flor(hidden)", "unknown function: expected floor, ceiling, Max, Min or Mod, got 'flor', nearest floor"),
        ("__import__('os')", "expected a formula, got \"'os')\""),
        ("hidden.real", "expected a formula, got '.real'"),
        ("floor(1, 2)", "expected 1 arguments of floor, got 2"),
        ("Mod(hidden, 0)", "expected a divisor that is not 0"),
        ("1/0", "expected a divisor that is not 0"),
        ("1/(hidden - hidden)", "expected a divisor that is not 0"),
        ("0**-1", "expected a divisor that is not 0"),
        ("9**9**9", "expected whole powers up to 1000, got 387420489"),
        ("((9**1000)**1000)**1000", "formula_bits=N raises the limit"),
        ("9" * 5000 + " + hidden", "expected a number of at most 4300 digits, got '999"),
        ("((9*hidden)**1000)**1000", "formula_bits=N raises the limit"),
        ("(hidden**1000)**1000", "expected whole powers up to 1000, got 1000000"),
        ("2**hidden", "expected whole powers up to 1000, got hidden"),
        ("2**0.5", "expected whole powers up to 1000, got 1/2"),
        ("hidden⁻", "expected a power such as ²"),
        ("1e9999", "expected an operator, got 'e9999'"),
        ("(" * 70 + "1" + ")" * 70, "expected brackets no deeper than 60"),
    ],
)
def test_what_is_no_formula_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as fault:
        parse(text, NAMES)
    assert "\n" not in str(fault.value)


def test_thousands_of_terms_are_written_and_read() -> None:
    formula = sympy.Add(*((i + 2) * H ** (i % 50) * S ** (i // 50) for i in range(3000)))
    assert parse(plain(formula)) == formula


def test_a_names_meaning_may_be_a_formula() -> None:
    assert parse("2*size", {"size": H * B}) == 2 * H * B


@pytest.mark.parametrize("name", ["", "2x", "lambda", "a b", "größe", "floor"])
def test_what_cannot_be_a_symbol(name: str) -> None:
    with pytest.raises(ValueError, match="expected a symbol's name"):
        symbol(name)


def test_names_and_lines() -> None:
    assert names(H * B + 1, 3, S) == ["batch", "hidden", "seq"]
    assert (
        unknown_name("unit", "gib", ["s", "GiB", "GB"])
        == "unknown unit: expected s, GiB or GB, got 'gib', nearest GiB or GB"
    )
    assert unknown_name("unit", "zzz", []) == "unknown unit: expected none, got 'zzz'"
    many = unknown_name("unit", "n19", [f"n{i}" for i in range(20)])
    assert many.startswith(
        "unknown unit: expected n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11 or 8 others, got 'n19', nearest n19"
    )
    assert rational(0.1) == sympy.Rational(3602879701896397, 2**55)
