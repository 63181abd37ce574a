"""The largest of many forms: never another than that of all, at any sizes, and few where few suffice."""

from __future__ import annotations

from fractions import Fraction

import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.formula.derivation.footprint_terms import Basis, above, largest
from analysis.formula.derivation.interpolate import ONE, Atom, Form, value_of

LEAST = {"batch": 1, "image": 5}
ATOMS = (
    Atom("batch"), Atom("image"), Atom("image", 2, 1), Atom("image", 4, 3), Atom("image", 4, -3), Atom("image", 6, 5),
)  # fmt: skip

monomials = st.dictionaries(st.sampled_from(ATOMS), st.integers(1, 2), max_size=3).map(
    lambda d: tuple(sorted(d.items()))
)
forms = st.dictionaries(monomials, st.builds(Fraction, st.integers(-9, 40).filter(bool), st.sampled_from((1, 4))))
points = st.fixed_dictionaries({"batch": st.integers(1, 10**5), "image": st.integers(5, 10**4)})


def kept(known: list[Form]) -> list[Form]:
    basis = Basis(known)
    rows = numpy.array([basis.row(form) for form in known], dtype=numpy.int64).reshape(len(known), -1)
    return [basis.form(rows[place]) for place in largest(basis, rows, LEAST)]


@settings(max_examples=60, deadline=None)
@given(st.lists(forms, min_size=1, max_size=8), st.lists(points, min_size=1, max_size=6))
def test_the_largest_of_what_is_kept_is_the_largest_of_all(known: list[Form], where: list[dict[str, int]]) -> None:
    found = kept(known)
    assert all(form in known for form in found)
    for point in (LEAST, *where):
        assert max(value_of(form, point) for form in found) == max(value_of(form, point) for form in known)


@given(points)
def test_roundings_in_variables_that_are_never_below_0(point: dict[str, int]) -> None:
    """Each variable is what its atom has beyond the rest of its expression: read off the atoms from coarse to fine."""
    found = above(ATOMS, LEAST)
    known: dict[int, int] = {}
    for number, atom in sorted(enumerate(ATOMS), key=lambda pair: (pair[1].symbol, -pair[1].by, pair[1].add)):
        rest = sum(c * known[key[0]] if key else c for key, c in found[atom].items() if key != (number,))
        known[number] = atom(point[atom.symbol]) - rest
        assert known[number] >= 0
        assert found[atom][number,] == 1


def test_a_layer_between_others_is_dropped() -> None:
    """a · (5 - k) + b · k for k in 0 … 5: for any a and b the largest is at an end."""
    batch, image = ((Atom("batch"), 1),), ((Atom("image"), 1),)
    layers = [{batch: Fraction(64 * (5 - k) + 8), image: Fraction(12 * k + 3), ONE: Fraction(7)} for k in range(6)]
    assert kept(layers) == [layers[0], layers[5]]
    higher = {**layers[2], ONE: Fraction(8)}
    assert kept([*layers, higher]) == [layers[0], layers[5], higher]


def test_of_equal_forms_one_is_kept_and_a_rounding_is_below_its_size() -> None:
    size, half = ((Atom("image"), 1),), ((Atom("image", 2, 1), 1),)
    same = {size: Fraction(3)}
    assert kept([same, dict(same)]) == [same]
    assert kept([same, {half: Fraction(3)}]) == [same]
    assert kept([same, {half: Fraction(5)}]) == [same]  # 5 ⌈image/2⌉ ≤ 3 image from 5 on: 15 ≤ 15, 15 ≤ 18, 20 ≤ 21, …
    assert len(kept([same, {half: Fraction(6)}])) == 2  # 3 image ≤ 6 ⌈image/2⌉, which is not seen
