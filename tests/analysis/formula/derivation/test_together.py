"""Forms from few points: found where they are products and sums, left alone where they are not."""

from dataclasses import replace
from fractions import Fraction

import pytest

from analysis.formula.derivation.derive import formulas
from analysis.formula.derivation.interpolate import ONE, Atom, value_of
from analysis.formula.derivation.joint_interpolation import JointFit, derive_joint
from analysis.formula.derivation.rounding import roundings
from analysis.formula.derivation.sampling import Axis, NoSample
from results.records import Operation
from tests.analysis.formula.derivation.test_symbolic import product

AXES = [Axis("n", 3), Axis("k", 5)]


def window(before, behind, **attributes):
    """A pool over one axis, whose sides are before and behind."""
    given = {"kernel_size": [3], "stride": [2], "padding": [1], **attributes}
    return Operation(
        0, "aten.max_pool1d", "pooling", "forward", "", None, None, ("self",), ((1, 1, before),), ("float32",),
        ((1, 1, behind),), ("float32",), given, (0,), (1,),
    )  # fmt: skip


def table(size):
    """Tables of one product of (n × size) and (size × n)."""
    return lambda point: replace(product(point, k=size(**point)))


def test_roundings_follow_the_attributes_of_windows():
    """Behind kernel 3, stride 2, padding 1: floor((x + 1) / 2); behind another without padding, of its side y,
    floor((y − 1) / 2) = floor((x − 1) / 4)."""
    found = roundings("x", 64, [window(64, 32), window(32, 15, padding=[0]), window(99, 50)])
    assert found == [{((Atom("x", *atom), 1),): 1} for atom in ((1, 0), (2, 1), (4, -1))]


def test_a_window_that_only_loses_its_border_gives_the_symbol_less_a_constant():
    assert roundings("x", 64, [window(64, 62, stride=[1], padding=[0])])[1] == {((Atom("x"), 1),): 1, ONE: -2}


def test_a_window_that_rounds_up_and_a_side_that_it_does_not_make():
    """ceil((64 − 3) / 2) + 1 = 32 = floor((64 − 3 + 1 + 2) / 2); a side of 33 is not behind it."""
    assert roundings("x", 64, [window(64, 32, padding=[0], ceil_mode=True)])[1] == {((Atom("x", 2, 0), 1),): 1}
    assert len(roundings("x", 64, [window(64, 33, padding=[0], ceil_mode=True)])) == 1


def asked(size):
    points = []

    def sample_at(point):
        points.append(dict(point))
        return table(size)(point)

    return sample_at, points


@pytest.mark.parametrize(
    ("size", "tables"),
    [
        (lambda n, k: 7, 4),
        (lambda n, k: 6 * n * k, 4),
        (lambda n, k: 3 * k * k, 4),
        (lambda n, k: 2 * k + 9, 5),
        (lambda n, k: n * (k * k + 1), None),
    ],
)
def test_what_is_found_holds_elsewhere(size, tables):
    sample_at, points = asked(size)
    sizes = derive_joint(sample_at, AXES, {})
    if tables is None:
        assert sizes is None
        return
    assert len(points) == tables
    assert len(sizes.samples) - sizes.fitted == 2
    values = tuple(size(**sample.point) for sample in sizes.samples)
    for n, k in ((101, 7), (8, 1009)):
        assert value_of(sizes.form(values), {"n": n, "k": k}) == size(n, k)


@pytest.mark.parametrize(
    "size",
    [lambda n, k: n * (n + 1) // 2, lambda n, k: (n + 5) // 6, lambda n, k: max(n, 40), lambda n, k: 4 + (n > 150)],
)
def test_other_sizes_are_left_to_the_longer_way(size):
    assert derive_joint(table(size), AXES, {}) is None


def test_the_longer_way_still_finds_them():
    """k (k + 1) / 2 columns: 2 n² of them are the product's FLOP."""
    sample_at = table(lambda n, k: k * (k + 1) // 2)
    assert derive_joint(sample_at, AXES, {}) is None
    form = formulas(sample_at, AXES).total("model_flop")
    assert value_of(form, {"n": 50, "k": 9}) == 2 * 50 * 50 * 45


def test_two_roundings_that_points_do_not_tell_apart_give_none():
    here, there = (replace(product({"n": n}), operations=(window(n, n // 2),)) for n in (64, 128))
    finder = JointFit([here, there], ["n"])
    assert finder.fit((32, 64)) is None
    assert finder.fit((5, 5)) == {ONE: 5}
    third = replace(product({"n": 97}), operations=(window(97, 49),))
    assert JointFit([here, third], ["n"]).fit((32, 49)) == {((Atom("n", 2, 1), 1),): Fraction(1)}


def test_a_point_that_the_model_does_not_take_leaves_it_to_the_longer_way():
    def sample_at(point):
        if point["n"] > 30:
            raise NoSample("too wide")
        return table(lambda n, k: n)(point)

    assert derive_joint(sample_at, AXES, {}) is None


@pytest.mark.parametrize("checks", [1, 2])
def test_multiples_of_forms_seen_elsewhere_are_confirmed_as_often_as_is_asked(checks):
    sample_at, points = asked(lambda n, k: 12 * n)
    forms = [{((Atom("n"), power),): Fraction(1)} for power in (1, 2)]
    assert derive_joint(sample_at, AXES, {}, forms, checks=checks) is not None
    assert len(points) == 2 + checks
