"""The minimal footprint against every order of small steps, its laws, and traced steps by hand."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.footprint import minimum
from analysis.footprint.live_bytes import footprint
from analysis.footprint.minimum import Minimal, minimal
from tests.support.made_up_operations.made_up_steps import (
    Step,
    least_peak,
    ledger,
    operation,
    peak_of,
    steps,
    tied,
)

FEW = settings(max_examples=60, deadline=None)


def of(step: Step) -> Minimal:
    return minimal(*step)


def there(step: Step, found: Minimal) -> tuple[int, ...]:
    """The order of what is no view."""
    return tuple(index for index in found.order if step[0][index].kind != "view")


@FEW
@given(steps(most=11))
def test_the_least_peak_of_all_orders_is_between_both_ends(step: Step) -> None:
    """And is reached where the two are equal."""
    found = of(step)
    if there(step, found):
        assert found.lower_bound_bytes <= least_peak(step) <= found.minimal_bytes


@FEW
@given(steps(most=14))
def test_the_order_has_the_peak_and_keeps_what_is_tied(step: Step) -> None:
    found = of(step)
    assert found.lower_bound_bytes <= found.minimal_bytes <= found.eager_bytes
    assert found.proven == (found.lower_bound_bytes == found.minimal_bytes)
    assert found == of(step)
    assert sorted(found.order) == list(range(len(step[0])))
    assert found.eager_bytes == footprint(*step).peak_bytes
    if order := there(step, found):
        assert peak_of(step, order) == found.minimal_bytes
        turn = {index: place for place, index in enumerate(order)}
        for second, first in ((b, a) for b in sorted(turn) for a in sorted(turn) if a < b):
            assert turn[first] < turn[second] or not tied(step[0][first], step[0][second])


@FEW
@given(steps(most=8))
def test_a_view_comes_after_what_wrote_and_before_what_uses(step: Step) -> None:
    """A view may be what a later operation reads: no one that uses its storage after it runs before it, and none that
    wrote it before runs after it."""
    operations, _ = step
    turn = {index: place for place, index in enumerate(of(step).order)}
    for view in (o for o in operations if o.kind == "view"):
        for other in operations:
            if other.kind != "view" and set(view.reads) & {*other.reads, *other.writes}:
                if other.index > view.index:
                    assert turn[view.index] < turn[other.index]
                elif set(view.reads) & set(other.writes):
                    assert turn[other.index] < turn[view.index]


@FEW
@given(steps(), st.integers(0, 50), st.integers(1, 5))
def test_what_stays_is_added_and_sizes_scale(step: Step, more: int, factor: int) -> None:
    operations, storages = step
    found = of(step)
    kept = replace(storages[0], id=len(storages), nbytes=more, role="weight", born_index=-1, died_index=None)
    assert of((operations, (*storages, kept))).minimal_bytes == found.minimal_bytes + more
    larger = tuple(replace(each, nbytes=each.nbytes * factor) for each in storages)
    assert of((operations, larger)).minimal_bytes == factor * found.minimal_bytes


def test_two_products_of_which_one_is_read_at_once() -> None:
    """a (8) and b (6) are made, then summed to a number each (1): one after the other there are 8 + 1 + 0, then
    1 + 6 + 1. Made first, both are there: 14, and 15 while the first is summed."""
    rows = (((), (0,)), ((), (1,)), ((0,), (2,)), ((1,), (3,)))
    operations = [operation(index, *row) for index, row in enumerate(rows)]
    step = ledger(operations, (8, 6, 1, 1), ("temporary",) * 4, {2, 3})
    found = of(step)
    assert (found.eager_bytes, found.minimal_bytes, found.proven) == (15, 9, True)
    assert found.order == (0, 2, 1, 3)


TIES = {
    "none": ((0,), (1,), "elementwise", 10),
    "a read before a write": ((0,), (0, 1), "elementwise", 20),
    "both draw": ((), (1,), "random", 20),
    "a number for the host": (None, (1,), "elementwise", 20),
}


@pytest.mark.parametrize("tie", TIES)
def test_what_keeps_its_order(tie: str) -> None:
    """x (10 bytes) is made, then y (10) is used up, then x. If the two may change places, y goes before x comes."""
    first, second, kind, expected = TIES[tie]
    made = operation(0, first or (), (2,), kind=kind)
    told = [] if first is not None else [operation(1, (2,))]
    used = operation(1 + len(told), second, (0,) if 0 in second else (3,), kind=kind)
    operations = [made, *told, used, operation(2 + len(told), (2,), (3,))]
    found = of(ledger(operations, (0, 10, 10, 0), ("weight", *("temporary",) * 3), {0}))
    assert (found.minimal_bytes, found.eager_bytes, found.proven) == (expected, 20, True)


def test_a_sum_of_gradients_takes_the_place_of_one() -> None:
    """Of two gradients of 10 bytes that meet in the backward pass, beside 3 bytes: no third one of 10 is there."""
    operations = [
        operation(0, (0,), (1,), phase="backward"),
        operation(1, (0,), (2,), phase="backward"),
        operation(2, (1, 2), (3,), name="aten.add", phase="backward"),
        operation(3, (3,), (4,), phase="backward"),
    ]
    step = ledger(operations, (3, 10, 10, 10, 1), ("weight", *("temporary",) * 4), {0, 4})
    assert of(step).minimal_bytes == 23
    forward = [replace(each, phase="forward") for each in operations]
    assert of((tuple(forward), step[1])).minimal_bytes == 33


@pytest.mark.parametrize("outlives", [True, False])
def test_a_gradient_goes_once_the_optimizer_has_used_it(outlives: bool) -> None:
    """Two weights of 4 bytes with gradients of 4, which the eager step holds to its end: 16 bytes. Each gradient used
    as it is made: 12. Without the optimizer's step gradients are a result, and stay: 16."""
    operations = [
        operation(0, (0,), (2,), phase="backward"),
        operation(1, (1,), (3,), phase="backward"),
        operation(2, (0, 2), (0,), name="aten.add_", phase="optimizer"),
        operation(3, (1, 3), (1,), name="aten.add_", phase="optimizer"),
    ]
    roles = ("weight", "weight", "gradient", "gradient")
    found = of(ledger(operations, (4,) * 4, roles, {0, 1, 2, 3} if outlives else {0, 1}))
    assert (found.eager_bytes, found.minimal_bytes) == (16, 12)
    assert found.order in ((0, 2, 1, 3), (1, 3, 0, 2))
    assert of(ledger(operations[:2], (4,) * 4, roles, {0, 1, 2, 3})).minimal_bytes == 16


@FEW
@given(steps(most=9))
def test_a_bound_without_what_is_before_and_after_is_never_above(step: Step) -> None:
    found = of(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minimum, "MOST_REACHED", 0)
        assert of(step).lower_bound_bytes <= found.lower_bound_bytes


TIED = """
import random
from tests.support.made_up_operations.made_up_steps import ledger, operation
from analysis.footprint.minimum import minimal

dice = random.Random(5)
rows = [operation(n, dice.sample(range(n + 2), 2), [n + 2]) for n in range(60)]
sizes = [dice.choice((1, 2, 4)) for _ in range(62)]
found = minimal(*ledger(rows, sizes, ["temporary"] * 62, set()))
assert found.lower_bound_bytes < found.minimal_bytes < found.eager_bytes
print(found)
"""
"""A step of many equal choices."""


def test_it_is_the_same_in_every_process() -> None:
    root = Path(__file__).parents[4]
    said = {
        subprocess.run(
            [sys.executable, "-c", TIED],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}:{root / 'tests'}"},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(said) == 1
