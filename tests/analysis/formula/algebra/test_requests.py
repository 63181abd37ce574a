"""Definition, law, injected fault: requests, formulas and sweeps as text, by hand and read back; bad ones refused."""

import re
from fractions import Fraction
from typing import Any

import pytest
import sympy
from hypothesis import given, settings

from analysis.formula.expressions import parse, plain, rational, symbol
from analysis.formula.requests import Candidates, amount, axes, parse_point, points, request, span
from tests.support.made_up_operations.formulas_made_up import NAMES, SYMBOLS, formulas

QUANTITIES = {
    "footprint": parse("16*hidden^2 + 4*batch*hidden"),
    "time": parse("batch*hidden/1000"),
    "intensity": parse("batch/2"),
    "parameters": parse("4*hidden^2"),
    "ridge": rational(17),
}
MEASURES = {"footprint": "B", "time": "s", "intensity": "FLOP/B", "parameters": ""}


@pytest.mark.parametrize(
    ("text", "left", "relation", "right", "unknown", "candidates"),
    [
        ("footprint <= 32 GiB for batch", "footprint", "<=", 32 * 2**30, "batch", Candidates()),
        ("footprint<=1.5e3kB for batch", "footprint", "<=", 1_500_000, "batch", Candidates()),
        ("time < 0.5 s for hidden", "time", "<", Fraction(1, 2), "hidden", Candidates()),
        ("time ≤ 20 ms for batch multiple of 8", "time", "<=", Fraction(1, 50), "batch", Candidates(8, 8)),
        ("intensity >= ridge for batch = 1 mod 8", "intensity", ">=", 17, "batch", Candidates(1, 8)),
        ("intensity ≥ 20 FLOP/B for batch ≡ 16 mod 8", "intensity", ">=", 20, "batch", Candidates(8, 8)),
        ("parameters > 7 G for hidden in 64:4100:64", "parameters", ">", 7 * 10**9, "hidden", Candidates(64, 64, 4096)),
        ("parameters = 1_024 for hidden in 1:9", "parameters", "==", 1024, "hidden", Candidates(1, 1, 9)),
        ("parameters == 1e6 for hidden in 4:4", "parameters", "==", 10**6, "hidden", Candidates(4, 1, 4)),
        ("2 * footprint + 1 KiB <= 3 * 1 MiB for batch", "2*footprint + 1024", "<=", 3 * 2**20, "batch", Candidates()),
        ("4*hidden^2 <= 10 for hidden", "4*hidden^2", "<=", 10, "hidden", Candidates()),
    ],
)
def test_requests_by_hand(
    text: str, left: str, relation: str, right: Fraction, unknown: str, candidates: Candidates
) -> None:
    found = request(text, QUANTITIES, measures=MEASURES)
    assert plain(found.left) == plain(parse(left, {**QUANTITIES, "hidden": symbol("hidden")}))
    assert (found.relation, found.right, found.unknown) == (relation, rational(right), unknown)
    assert found.candidates == candidates
    assert found.measure == MEASURES.get(left.split()[0].removeprefix("2*"), "")
    assert request(text, QUANTITIES).measure == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("footprint", "expected QUANTITY <= NUMBER UNIT for SYMBOL"),
        ("footprint <= 5", "expected QUANTITY <= NUMBER UNIT for SYMBOL"),
        ("footprint => 5 for batch", "expected QUANTITY <= NUMBER UNIT for SYMBOL"),
        ("1 <= footprint <= 5 for batch", "expected QUANTITY <= NUMBER UNIT for SYMBOL"),
        ("footprnt <= 5 GiB for batch", "got 'footprnt', nearest footprint"),
        ("footprint <= 5 GIB for batch", "got 'GIB', nearest GiB"),
        ("footprint <= 5 Gib for batch", "nearest GiB"),
        ("footprint <= 5 GiB for bach", "unknown symbol: expected batch or hidden, got 'bach', nearest batch"),
        (
            "footprint <= 5 ms for batch",
            "expected footprint in B, kB, MB, GB, TB, PB, EB, KiB, MiB, GiB, TiB, PiB, got 'ms'",
        ),
        ("5 ms >= footprint for batch", "expected footprint in B"),
        ("parameters <= 5 GiB for batch", "expected parameters in k, M, G, T, P, E, got 'GiB'"),
        ("footprint <= five for batch", "unknown name"),
        ("footprint <= 5 GiB for batch multiple of 0", "expected a step of at least 1"),
        ("footprint <= 5 GiB for batch = 1 mod 0", "expected a step of at least 1"),
        ("footprint <= 5 GiB for batch even", "expected multiple of M, = R mod M, in FIRST:LAST[:STEP] or nothing"),
        ("footprint <= 5 GiB for batch in 9:1", "with FIRST ≤ LAST"),
        ("footprint <= 5 GiB for 3", "unknown symbol"),
        ("footprint <= 5 GiB for  !", "expected a symbol after for, got '!'"),
    ],
)
def test_bad_requests_get_one_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as fault:
        request(text, QUANTITIES, measures=MEASURES)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("number", "measure", "text"),
    [
        (43_057_000_000, "B", "40.1 GiB"),
        (1023, "B", "1,023 B"),
        (Fraction(1, 40), "s", "25 ms"),
        (Fraction(5, 2), "s", "2.5 s"),
        (1_500_000_000, "FLOP", "1.5 GFLOP"),
        (1_500_000, "", "1,500,000"),
        (Fraction(35, 2), "FLOP/B", "17.5 FLOP/B"),
        (Fraction(1, 3), "", "0.333333"),
        (-(2**31), "B", "-2 GiB"),
        (10**30, "", "1e+30"),
    ],
)
def test_amounts(number: Fraction, measure: str, text: str) -> None:
    assert amount(number, measure) == text


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
        ("", "expected a formula, got ''"),
        ("hidden +", "expected a formula, got 'hidden +'"),
        ("2 hidden", "expected a formula, got '2 hidden'"),
        ("(hidden", "expected a formula, got '(hidden'"),
        ("hidden)", "expected a formula, got 'hidden)'"),
        ("hidden $ 2", "expected a formula, got 'hidden $ 2'"),
        ("hiden", "unknown name: expected batch, hidden or seq, got 'hiden', nearest hidden"),
        ("flor(hidden)", "unknown function: expected floor, ceiling, Max, Min or Mod, got 'flor', nearest floor"),
        ("__import__('os')", "expected a formula, got \"'os'\" in"),
        ("hidden.real", "expected a formula, got 'hidden.real'"),
        ("floor(1, 2)", "expected 1 argument(s) of floor, got 2"),
        ("Mod(hidden, 0)", "expected a divisor that is not 0"),
        ("1/0", "expected a divisor that is not 0"),
        ("1/(hidden - hidden)", "expected a divisor that is not 0"),
        ("0**-1", "expected a divisor that is not 0"),
        ("9**9**9", "expected whole powers up to 1000, got 387420489"),
        ("((9**1000)**1000)**1000", "formula_bits=N raises the limit"),
        ("9" * 5000 + " + hidden", "expected a number of at most 4300 digits"),
        ("((9*hidden)**1000)**1000", "formula_bits=N raises the limit"),
        ("(hidden**1000)**1000", "expected whole powers up to 1000, got 1000000"),
        ("2**hidden", "expected whole powers up to 1000, got hidden"),
        ("2**0.5", "expected whole powers up to 1000, got 1/2"),
        ("hidden⁻", "expected a formula, got 'hidden⁻'"),
        ("1e9999", "expected a formula, got '1e309' in '1e9999'"),
        ("(" * 70 + "1" + ")" * 70, "expected brackets no deeper than 60"),
        ("0x10", "expected a formula, got '16' in '0x10'"),
        ("hidden if batch else seq", "expected a formula, got"),
        ("Max()", "expected at least 1 argument(s) of Max, got 0"),
    ],
)
def test_what_is_no_formula_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as fault:
        parse(text, NAMES)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("name", ["", "2x", "lambda", "a b", "größe", "floor"])
def test_what_cannot_be_a_symbol(name: str) -> None:
    with pytest.raises(ValueError, match="expected a symbol's name"):
        symbol(name)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("7", [7]),
        ("2:5", [2, 3, 4, 5]),
        ("512:2048:512", [512, 1024, 1536, 2048]),
        ("512:2047:512", [512, 1024, 1536]),
        ("1:100:*3", [1, 3, 9, 27, 81]),
        (" 3 : 3 ", [3]),
        ("1_000:2_000:1_000", [1000, 2000]),
    ],
)
def test_ranges_by_hand(text: str, values: list[int]) -> None:
    assert list(span(text)) == values


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected NAME=VALUE, NAME=A,B,C or NAME=FIRST:LAST:STEP, got ''"),
        ("5", "expected NAME=VALUE"),
        ("=5", "expected a symbol's name before =, got '=5'"),
        ("a=1,a=2", "expected each symbol once, got 'a=2'"),
        ("a=1,1", "expected each value of a once, got 1, 1"),
        ("a=0", "expected whole numbers of at least 1, got '0'"),
        ("a=-1", "expected whole numbers of at least 1, got '-1'"),
        ("a=1.5", "got '1.5'"),
        ("a=", "got ''"),
        ("a=5:1", "with FIRST ≤ LAST, got '5:1'"),
        ("a=1:2:3:4", "FIRST:LAST:STEP with"),
        ("a=1:9:0", "got '0' in '1:9:0'"),
        ("a=1:9:*1", "expected a factor of at least 2"),
        ("a=1:9000000", "expected at most 1,000,000 values, got more"),
        ("a=1:99999999999999999999999", "expected at most 1,000,000 values, got more"),
    ],
)
def test_bad_sweeps_get_one_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        axes(text)


def test_every_combination_the_last_axis_fastest() -> None:
    found = list(points({"a": (1, 2), "b": (3, 4)}, {"c": 9}))
    assert found == [{"c": 9, "a": a, "b": b} for a in (1, 2) for b in (3, 4)]
    assert list(points({}, {"c": 9})) == [{"c": 9}]
    with pytest.raises(ValueError, match="expected at most 1,000,000 points, got 4,000,000"):
        points({"a": range(1, 2001), "b": range(1, 2001)}, {})


def test_a_point_has_one_value_each() -> None:
    with pytest.raises(ValueError, match=re.escape("expected one value for batch, got 6: 1, 2, 3, 4, 5, …")):
        parse_point("batch=1:6")
