"""Sizes as expressions: found from values, exactly, or not at all."""

from fractions import Fraction
from itertools import product

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.formula.derivation.interpolate import ONE, Atom, Fitter, plus, scaled, solve, through, times, value_of

B, W, IMAGE = Atom("b"), Atom("w"), Atom("i")
POINTS = [
    {"b": 3, "w": 64, "i": 97},
    *({"b": x, "w": 64, "i": 97} for x in (4, 5, 8)),
    *({"b": 3, "w": x, "i": 97} for x in (65, 66, 69)),
    *({"b": 3, "w": 64, "i": x} for x in (98, 99, 102, 119, 134, 160, 187, 221)),
    *({"b": b, "w": w, "i": i} for b, w, i in ((6, 71, 233), (9, 75, 240), (7, 79, 259), (12, 68, 143), (11, 90, 177))),
]


def values(function):
    return tuple(function(**point) for point in POINTS)


@pytest.mark.parametrize(
    "function",
    [
        lambda b, w, i: 7,
        lambda b, w, i: 0,
        lambda b, w, i: 4 * b * w,
        lambda b, w, i: b + w,
        lambda b, w, i: 3 * w * w + 5,
        lambda b, w, i: b * (w + i),
        lambda b, w, i: b * ((i + 1) // 2) ** 2,
        lambda b, w, i: b * w * ((i - 7) // 8),
        lambda b, w, i: ((i + 15) // 16) ** 2 + 1,
        lambda b, w, i: -b,
    ],
)
def test_a_form_is_the_function(function):
    form = Fitter(POINTS).fit(values(function))
    for b, w, i in product((2, 31), (64, 101), (200, 211, 217)):
        assert value_of(form, {"b": b, "w": w, "i": i}) == function(b, w, i)


@pytest.mark.parametrize(
    "function", [lambda b, w, i: b**3, lambda b, w, i: 2**b, lambda b, w, i: max(b, 7), lambda b, w, i: w % 3]
)
def test_what_is_of_no_known_form_has_none(function):
    assert Fitter(POINTS).fit(values(function)) is None


def test_one_value_that_is_wrong_leaves_no_form():
    exact = values(lambda b, w, i: b * w)
    for place in range(len(POINTS)):
        wrong = (*exact[:place], exact[place] + 1, *exact[place + 1 :])
        assert Fitter(POINTS).fit(wrong) is None


def test_too_few_points_are_told_by_their_symbol():
    points = [{"b": 3, "i": 64}, {"b": 4, "i": 64}, {"b": 5, "i": 64}, {"b": 3, "i": 65}, {"b": 3, "i": 66}]
    seen = tuple(p["b"] * ((p["i"] + 1) // 2) for p in points)
    fitter = Fitter(points)
    assert fitter.fit(seen) is None
    assert fitter.curved(seen) == {"i"}


def test_two_roundings_that_are_both_possible_are_a_doubt_which_a_value_of_the_symbol_settles():
    places = (64, 65, 69, 86, 101, 126)
    points = [{"i": x} for x in places]
    fitter = Fitter(points)
    seen = tuple((x - 15) // 16 for x in places)
    symbol, chosen = fitter.doubt(seen, {"i": range(64, 600)})
    assert symbol == "i"
    while chosen:
        points.append({"i": chosen})
        fitter = Fitter(points)
        seen = tuple((p["i"] - 15) // 16 for p in points)
        found = fitter.doubt(seen, {"i": range(64, 600)})
        chosen = found[1] if found else None
    assert fitter.fit(seen) == {((Atom("i", 16, -15), 1),): 1}
    assert len(points) < 16


@settings(deadline=None)  # sympy is slow at first
@given(st.integers(2, 12), st.integers(-12, 11), st.integers(1, 3000))
def test_an_atom_and_its_expression_agree(by, add, value):
    atom = Atom("i", by, add)
    symbol = sympy.Symbol("i", integer=True, positive=True)
    assert atom.expression().subs(symbol, value) == atom(value) == (value + add) // by


FORMS = st.dictionaries(
    st.sampled_from([ONE, ((B, 1),), ((W, 2),), ((B, 1), (W, 1))]), st.fractions(max_denominator=9), max_size=4
)


@given(FORMS, FORMS, st.integers(-9, 9), st.integers(-9, 9))
def test_forms_add_and_multiply_as_their_values_do(left, right, b, w):
    point = {"b": b, "w": w}
    assert value_of(times(left, right), point) == value_of(left, point) * value_of(right, point)
    assert value_of(plus((left, right)), point) == value_of(left, point) + value_of(right, point)
    assert value_of(scaled(left, Fraction(2, 3)), point) == value_of(left, point) * Fraction(2, 3)
    assert all(plus((left, right)).values())


@given(st.lists(st.integers(-50, 50), min_size=3, max_size=3))
def test_a_polynomial_through_points_is_that_polynomial(coefficients):
    there = [2, 3, 5, 9, 11]
    seen = [sum(c * x**n for n, c in enumerate(coefficients)) for x in there]
    form = through(IMAGE, there, seen, 2)
    assert [form.get(((IMAGE, n),) if n else ONE, 0) for n in range(3)] == coefficients


def test_equations_with_no_solution_or_many_have_none():
    rows = [[Fraction(x) for x in row] for row in ((1, 1), (2, 2), (1, 0))]
    assert solve(rows, [Fraction(x) for x in (3, 6, 1)]) == [1, 2]
    assert solve(rows, [Fraction(x) for x in (3, 7, 1)]) is None
    assert solve(rows[:2], [Fraction(x) for x in (3, 6)]) is None
