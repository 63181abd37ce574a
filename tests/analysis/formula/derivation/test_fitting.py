"""Definition, law, injected fault: sizes as expressions, found from values exactly or not at all.

Also tested are the few of many forms that have the largest value at any sizes, and where the
tables of two points begin to differ.
"""

from fractions import Fraction
from itertools import product

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.formula.footprint import highest
from analysis.formula.interpolate import (
    Atom,
    Fitter,
    Form,
    value_of,
)
from analysis.formula.sampling import Axis, SizeSample, Unfitted, difference, sample_sizes
from results.records.counts import Operation, Storage

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


def test_two_roundings_that_are_both_possible_are_a_doubt_which_a_value_of_the_symbol_settles():
    places = (64, 65, 69, 86, 101, 126)
    points = [{"i": x} for x in places]
    fitter = Fitter(points)
    seen = tuple((x - 15) // 16 for x in places)
    symbol, chosen = fitter.deciding_value(seen, {"i": range(64, 600)})
    assert symbol == "i"
    while chosen:
        points.append({"i": chosen})
        fitter = Fitter(points)
        seen = tuple((p["i"] - 15) // 16 for p in points)
        found = fitter.deciding_value(seen, {"i": range(64, 600)})
        chosen = found[1] if found else None
    assert fitter.fit(seen) == {((Atom("i", 16, -15), 1),): 1}
    assert len(points) < 16


@settings(deadline=None)  # sympy is slow at first
@given(st.integers(2, 12), st.integers(-12, 11), st.integers(1, 3000))
def test_an_atom_and_its_expression_agree(by, add, value):
    atom = Atom("i", by, add)
    symbol = sympy.Symbol("i", integer=True, positive=True)
    assert atom.expression().subs(symbol, value) == atom(value) == (value + add) // by


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
    return [form for _, form in highest([(form, i, i + 1) for i, form in enumerate(known)], len(known), LEAST)]


@settings(max_examples=60, deadline=None)
@given(st.lists(forms, min_size=1, max_size=8), st.lists(points, min_size=1, max_size=6))
def test_the_largest_of_what_is_kept_is_the_largest_of_all(known: list[Form], where: list[dict[str, int]]) -> None:
    found = kept(known)
    assert all(form in known for form in found)
    for point in (LEAST, *where):
        assert max(value_of(form, point) for form in found) == max(value_of(form, point) for form in known)


def row(index, name, shape, module=""):
    return Operation(
        index, f"aten.{name}", "elementwise", "forward", module, None, None, ("self",), (shape,), ("float32",),
        (shape,), ("float32",), {}, (index,), (index + 1,),
    )  # fmt: skip


def table(point, names, shape=(2, 2), parameters=(("weight", (2, 2)),)):
    rows = tuple(row(i, name, shape, f"layer{i}") for i, name in enumerate(names))
    storages = tuple(Storage(i + 1, 16, "temporary", i, None) for i in range(len(rows)))
    return SizeSample(point, rows, storages, tuple(parameters))


def branching(point):
    """Another operation from n 37 on, whatever m is; no step of an m that is no multiple of 3."""
    if point["m"] % 3:
        raise ValueError("only threes")
    return table(point, ["mul", "tanh" if point["n"] >= 37 else "relu", "add"])


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (table({}, ["mul"]), "aten.add in layer1 (forward) is missing"),
        (table({}, ["mul", "add", "neg"]), "aten.neg in layer2 (forward) comes after all others"),
        (table({}, ["mul", "add"], shape=(2, 2, 2)),
         "aten.mul in layer0 (forward) has tensors with other numbers of dimensions"),
        (SizeSample({}, table({}, ["mul", "add"]).operations, (), (("weight", (2, 2)),)),
         "the operations are the same, but parameters or storages differ"),
    ],
)  # fmt: skip
def test_what_differs_first(after, words):
    assert difference(table({}, ["mul", "add"]), after) == words


def rounded(point):
    """A size of floor(n ÷ 16) beside one of m: alike from n 224 to 239."""
    return table(point, ["mul"], shape=(point["m"], point["n"] // 16))


def test_a_rounding_that_no_near_point_shows_is_found():
    """Bytes of a storage are 16 throughout; of the points of n, 224 to 235, none has another size."""
    sizes = sample_sizes(rounded, [Axis("m", 3), Axis("n", 224)], {})
    values = tuple(sample.point["n"] // 16 for sample in sizes.samples)
    form = sizes.form(values)
    for n in (224, 239, 240, 1000, 4096):
        assert value_of(form, {"m": 1, "n": n}) == n // 16


def test_a_branch_far_out_is_told_with_both_sizes():
    with pytest.raises(Unfitted, match=r"between m 3, n 5 and m \d+, n \d+: aten.tanh in layer1 \(forward\) comes"):
        sample_sizes(branching, [Axis("m", 3, 3), Axis("n", 5)], {})
