"""Where operations change between two points: tables made by hand, and the lines of code that two calls part at."""

from __future__ import annotations

import pytest

from analysis.formula.derivation.branches import change, difference
from analysis.formula.derivation.interpolate import value_of
from analysis.formula.derivation.sampling import Axis, Restructured, SizeSample, derive
from results.records.operations import Operation, Storage


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


def test_the_neighbours_between_which_operations_change():
    found = change(branching, {"m": 3, "n": 5}, {"m": 9, "n": 1000}, {"m": 3})
    assert (found.before.point, found.after.point) == ({"m": 9, "n": 36}, {"m": 9, "n": 37})
    assert str(found) == (
        "the operations change between n 36 and 37: aten.tanh in layer1 (forward) comes instead of aten.relu in "
        "layer1 (forward)"
    )


def test_downwards_and_in_steps():
    """In steps of 10 from 1000 down: 40 has the other operation, 30 has not."""
    found = change(branching, {"m": 3, "n": 1000}, {"m": 3, "n": 0}, {"n": 10})
    assert (found.before.point["n"], found.after.point["n"]) == (40, 30)


def test_points_that_cannot_be_had_leave_the_two_further_apart():
    """From m 3, n 5 over m 4 (not there) to the end, which differs in both."""

    def odd(point):
        if point == {"m": 4, "n": 5}:
            raise ValueError("not there")
        return table(point, ["mul"] * (1 if point["m"] == 3 else 2))

    found = change(odd, {"m": 3, "n": 5}, {"m": 4, "n": 6}, {})
    assert found.symbols == ("m", "n")
    assert str(found) == (
        "the operations change between m 3, n 5 and m 4, n 6: aten.mul in layer1 (forward) comes after all others"
    )


def test_no_change_is_none():
    assert change(branching, {"m": 3, "n": 5}, {"m": 9, "n": 36}, {}) is None


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (table({}, ["mul"]), "aten.add in layer1 (forward) does not come any more"),
        (table({}, ["mul", "add", "neg"]), "aten.neg in layer2 (forward) comes after all others"),
        (table({}, ["mul", "add"], shape=(2, 2, 2)), "aten.mul in layer0 (forward) has tensors of other dimensions"),
        (table({}, ["mul", "add"], parameters=[("bias", (2,))]), "the parameter bias comes instead of weight"),
        (table({}, ["mul", "add"], parameters=[]), "there are 0 parameters instead of 1"),
        (SizeSample({}, table({}, ["mul", "add"]).operations, (), (("weight", (2, 2)),)),
         "the same operations keep other tensors"),
    ],
)  # fmt: skip
def test_what_differs_first(after, words):
    assert difference(table({}, ["mul", "add"]), after) == words


def rounded(point):
    """A size of floor(n ÷ 16) beside one of m: alike from n 224 to 239."""
    return table(point, ["mul"], shape=(point["m"], point["n"] // 16))


def test_a_rounding_that_no_near_point_shows_is_found():
    """Bytes of a storage are 16 throughout; of the points of n, 224 to 235, none has another size."""
    sizes = derive(rounded, [Axis("m", 3), Axis("n", 224)], {})
    values = tuple(sample.point["n"] // 16 for sample in sizes.samples)
    form = sizes.form(values)
    for n in (224, 239, 240, 1000, 4096):
        assert value_of(form, {"m": 1, "n": n}) == n // 16


def test_sizes_that_end_are_checked_as_far_as_they_go():
    def ending(point):
        if point["n"] > 60:
            raise ValueError("too large")
        return rounded({"m": point["m"], "n": 16 * point["n"]})

    sizes = derive(ending, [Axis("m", 3), Axis("n", 5)], {})
    assert len(sizes.samples) - sizes.fitted == 2


def test_a_branch_far_out_is_told_with_both_points():
    with pytest.raises(Restructured) as fault:
        derive(branching, [Axis("m", 3, 3), Axis("n", 5)], {})
    assert fault.value.base == {"m": 3, "n": 5}
    assert fault.value.point["n"] >= 37


CODE = """
def forward(n):
    total = 0
    for step in range(n):
        total += step
    return 1 if n > 3 else sum(other(n) for _ in range(2))

def other(n):
    return n * 2 if n % 2 else n

def built(n):
    if n > 5:
        n += 1
    return forward(2)

def fails():
    return other(None)
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(CODE)
    names: dict = {}
    exec(compile(CODE, str(path), "exec"), names)
    return names
