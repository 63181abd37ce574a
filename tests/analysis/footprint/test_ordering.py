"""The minimal footprint against every order of small steps, its laws, and traced steps by hand.

Minimal footprints of traced steps: by hand, by law, and by running a step for real in the order that was found.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.footprint.dependencies import graph, with_views
from analysis.footprint.live_bytes import footprint
from analysis.footprint.minimum import PREFERENCES, Minimal, listed, minimal
from measure.operations.tracer import Trace
from results.errors import Inconsistent
from tests.support.fakes.replayed import recorded
from tests.support.made_up_operations.made_up_steps import Step, least_peak, ledger, operation, peak_of, steps, tied
from tests.support.nets.memory_steps import NETS
from tests.support.nets.small_steps import fake_trace, parts, product, run

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


KEPT = ("weight", "buffer", "optimizer_state", "input")


@cache
def traced(name: str, optimizer: str = "adamw", batch_size: int | None = None) -> Trace:
    make, shape = NETS[name]
    return fake_trace(parts(make, (batch_size or shape[0], *shape[1:]), optimizer))


def blocks_of(trace: Trace) -> Minimal:
    return minimal(trace.operations, trace.storages)


def test_a_traced_step_by_hand() -> None:
    """relu(x · W), summed: while xᵀ · G makes the gradient of W (48), there are W (48), x (32) and G (24).

    The eager step has the loss and its gradient beside them, 4 each, which nobody reads any more.
    """
    mode, built = product()
    found = blocks_of(run(built, mode))
    assert (found.minimal_bytes, found.lower_bound_bytes, found.eager_bytes) == (152, 152, 160)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("name", NETS)
def test_the_order_of_a_small_net_is_the_bounds_or_near(name: str, optimizer: str) -> None:
    """The bound to the byte, but for one net, of which it is within 4 %."""
    trace = traced(name, optimizer)
    found = blocks_of(trace)
    kept = sum(s.nbytes for s in trace.storages if s.role in KEPT and s.died_index is None)
    assert kept < found.minimal_bytes < found.eager_bytes
    assert found.proven or (
        (name, optimizer) == ("lstm", "sgd") and found.minimal_bytes < 1.04 * found.lower_bound_bytes
    )
    assert sorted(found.order) == list(range(len(trace.operations)))


def test_an_operation_on_a_storage_that_is_not_in_the_ledger() -> None:
    trace = traced("linear")
    with pytest.raises(Inconsistent, match=r"operation 0 uses storage \d+, which is not in the ledger"):
        minimal(trace.operations, trace.storages[-1:])


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("convolution", "sgd"), ("in place", "sgd"), ("attention", "adamw"), ("checkpoint", "adamw"), ("frozen", "adam")],
)
def test_a_step_in_another_order_trains_the_same_weights(name: str, optimizer: str) -> None:
    """To the last bit: in the order that was found, and in one that draws everything as far to the end as it can."""
    seen, trace = recorded(parts(*NETS[name], optimizer))
    count = len(trace.operations)  # the step calls one more after it announced its end
    assert [str(func).rpartition(".")[0] for func, *_ in seen.calls[:count]] == [o.name for o in trace.operations]
    found = graph(trace.operations, trace.storages)
    late = listed(found, 0, PREFERENCES[-1]).order
    wanted = seen.again(range(count))
    for order in (blocks_of(trace).order, with_views(trace.operations, found, late)):
        assert order != tuple(range(len(order)))
        after = seen.again(order)
        assert all(torch.equal(after[number], wanted[number]) for number in wanted)
    now = {number: seen.tensors[number] for number in wanted}
    assert all(torch.equal(now[number], wanted[number]) for number in wanted)
