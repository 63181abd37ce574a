"""Points and sweeps as text: by hand, and every bad one in a line."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.formula.algebra.evaluate import as_csv, axes, parse_point, points, rows, span
from analysis.formula.algebra.expressions import parse


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


@given(st.integers(1, 200), st.integers(0, 200), st.integers(1, 50))
def test_a_range_holds_every_step_up_to_its_last(first: int, more: int, step: int) -> None:
    found = list(span(f"{first}:{first + more}:{step}"))
    assert found == [n for n in range(1, 500) if first <= n <= first + more and (n - first) % step == 0]


def test_commas_part_values_and_symbols() -> None:
    assert axes("hidden=512:1536:512,batch=1,2,4:6:2,x=3") == {
        "hidden": (512, 1024, 1536),
        "batch": (1, 2, 4, 6),
        "x": (3,),
    }
    assert parse_point("hidden=2004, vocab=10004") == {"hidden": 2004, "vocab": 10004}


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


def test_a_point_has_one_value_each() -> None:
    with pytest.raises(ValueError, match=re.escape("expected one value for batch, got 6: 1, 2, 3, 4, 5, …")):
        parse_point("batch=1:6")


def test_every_combination_the_last_axis_fastest() -> None:
    found = list(points({"a": (1, 2), "b": (3, 4)}, {"c": 9}))
    assert found == [{"c": 9, "a": a, "b": b} for a in (1, 2) for b in (3, 4)]
    assert list(points({}, {"c": 9})) == [{"c": 9}]
    with pytest.raises(ValueError, match="expected a symbol to be fixed or swept, got both for a"):
        points({"a": (1,)}, {"a": 2})
    with pytest.raises(ValueError, match="expected at most 1,000,000 points, got 4,000,000"):
        points({"a": range(1, 2001), "b": range(1, 2001)})


def test_rows_as_csv() -> None:
    formulas = {"flop": parse("hidden^9"), "intensity": parse("hidden/8")}
    text = as_csv(rows(formulas, points(axes("hidden=1:1001:1000"))))
    assert text == f"hidden,flop,intensity\n1,1,0.125\n1001,{1001**9},125.125\n"
    assert as_csv([]) == ""
    assert as_csv([{"a": Fraction(1, 3)}]) == "a\n0.3333333333333333\n"
