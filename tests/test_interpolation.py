"""Interpolation gives back the polynomial that made the values, and says where there is none."""

from __future__ import annotations

import itertools
import random
import re
from fractions import Fraction
from typing import Any

import pytest
import sympy
from formulas_made_up import SYMBOLS, formulas, rational
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.evaluation import value
from analysis.interpolation import axes, by_residue, check, interpolate, nodes
from analysis.pretty import pretty
from analysis.symbols import symbol
from results.errors import Inconsistent

B, H, S = SYMBOLS
L, W, T = (symbol(name) for name in ("layers", "width", "steps"))


@settings(deadline=None, max_examples=30)
@given(
    st.dictionaries(
        st.tuples(*[st.integers(0, 2)] * 3),
        formulas(st.sampled_from((B, H, sympy.floor(S / 2)))),
        max_size=6,
    ),
    st.integers(1, 7),
    st.integers(1, 4),
)
def test_polynomials_in_three_symbols_with_formulas_as_coefficients(
    parts: dict[tuple[int, ...], Any], first: int, step: int
) -> None:
    law = sympy.Add(*(part * L**i * W**j * T**k for (i, j, k), part in parts.items()))
    over = axes({"layers": 2, "width": 2, "steps": 2}, first, step)
    at = {node: law.subs(dict(zip((L, W, T), node, strict=True))) for node in nodes(over)}
    found = interpolate(over, at)
    assert sympy.expand(found - law) == 0
    for point in ({"layers": 31, "width": 17, "steps": 5}, {"layers": 1, "width": 1, "steps": 1000}):
        expected = law.subs({symbol(name): number for name, number in point.items()})
        check(found, point, expected)
        with pytest.raises(Inconsistent):
            check(found, point, expected + 1)


def test_newton_on_uneven_nodes_against_lagrange() -> None:
    numbers = random.Random(3)
    for _ in range(30):
        places = numbers.sample(range(1, 60), 5)
        at = {(place,): Fraction(numbers.randrange(-(10**15), 10**15), numbers.randrange(1, 9)) for place in places}
        lagrange = sum(
            rational(worth)
            * sympy.prod([(L - other) / sympy.Integer(place - other) for other in places if other != place])
            for (place,), worth in at.items()
        )
        found = interpolate({"layers": places}, {node: rational(worth) for node, worth in at.items()})
        assert sympy.expand(found - lagrange) == 0


def test_by_hand() -> None:
    """Layers 1, 2: 12 h² + b and 24 h² + b; so 12 layers h² + b."""
    found = interpolate({"layers": (1, 2)}, {(1,): 12 * H**2 + B, (2,): 24 * H**2 + B})
    assert found == 12 * L * H**2 + B
    assert interpolate({}, {(): H}) == H
    assert interpolate({"layers": (1, 2)}, {(1,): 0, (2,): 0}) == 0
    assert axes({"layers": 2, "steps": 0}, first=3, step=2) == {"layers": (3, 5, 7), "steps": (3,)}
    assert nodes({"a": (1, 2), "b": (3, 4)}) == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_a_polynomial_of_too_low_a_degree_fails_its_check() -> None:
    over = axes({"layers": 1})
    line = interpolate(over, {(n,): n**2 * H for (n,) in nodes(over)})
    check(line, {"layers": 2}, 4 * H)
    with pytest.raises(Inconsistent, match=re.escape("expected 9·hidden at layers=3, got 7·hidden from")):
        check(line, {"layers": 3}, 9 * H)


@pytest.mark.parametrize(
    ("over", "at", "words"),
    [
        ({"layers": (1, 1)}, {(1,): 3}, "expected at least one node for layers, each once, got [1, 1]"),
        ({"layers": ()}, {}, "expected at least one node for layers, each once, got []"),
        ({"layers": (1, 2)}, {(1,): 3}, "expected a value at every node of the grid, got none at layers=2"),
        ({"layers": (1,)}, {(1,): 3 * L}, "expected values without layers, got 3·layers at layers=1"),
    ],
)
def test_bad_grids_get_one_line(over: Any, at: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        interpolate(over, at)
    with pytest.raises(ValueError, match="expected a degree of at least 0 in layers, got -1"):
        axes({"layers": -1})


@pytest.mark.parametrize("modulus", [1, 2, 3, 4])
def test_quasi_polynomials_of_strides(modulus: int) -> None:
    """⌊(w - 1)/m⌋² · h + w: of degree 2 in each residue, so that three values of each are enough."""

    def law(width: int) -> Any:
        return ((width - 1) // modulus) ** 2 * H + width

    found = by_residue("width", modulus, {width: law(width) for width in range(5, 5 + 3 * modulus)})
    whole = found.expression()
    for width in itertools.chain(range(1, 40), (10**9 + 7,)):
        assert sympy.expand(found.of(width).subs(W, width) - law(width)) == 0
        assert value(whole, {"width": width, "hidden": 3}) == law(width).subs(H, 3)
    assert len(found.polynomials) == modulus
    assert found.of(modulus) == found.polynomials[0]


def test_residues_that_agree_are_one_polynomial() -> None:
    found = by_residue("width", 2, {n: 3 * n + 1 for n in range(1, 9)})
    assert found.expression() == 3 * W + 1
    halves = by_residue("width", 2, {n: sympy.Integer(n // 2) for n in range(1, 5)})
    assert [pretty(p) for p in halves.polynomials] == ["width/2", "width/2 - 1/2"]


def test_residues_without_values_are_named() -> None:
    with pytest.raises(ValueError, match="for every residue modulo 3, got none for 0"):
        by_residue("width", 3, {1: 1, 2: 2})
    with pytest.raises(ValueError, match="expected a modulus of at least 1, got 0"):
        by_residue("width", 0, {1: 1})
