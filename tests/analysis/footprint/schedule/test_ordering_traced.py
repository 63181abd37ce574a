"""Minimal footprints of traced steps: by hand, by law, and by running a step for real in the order that was found."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from analysis.footprint.dependencies import graph, with_views
from analysis.footprint.minimum import PREFERENCES, Minimal, listed, minimal
from measure.operations.tracer import Trace
from results.errors import Inconsistent
from tests.support.fakes.replayed import recorded
from tests.support.nets.memory_steps import NETS, accumulated, perceptron
from tests.support.nets.small_steps import fake_trace, parts, product, run

KEPT = ("weight", "buffer", "optimizer_state", "input")


@cache
def traced(name: str, optimizer: str = "adamw", batch_size: int | None = None) -> Trace:
    make, shape = NETS[name]
    return fake_trace(parts(make, (batch_size or shape[0], *shape[1:]), optimizer))


def of(trace: Trace) -> Minimal:
    return minimal(trace.operations, trace.storages)


def test_a_traced_step_by_hand() -> None:
    """relu(x · W), summed: while xᵀ · G makes the gradient of W (48), there are W (48), x (32) and G (24).

    The eager step has the loss and its gradient beside them, 4 each, which nobody reads any more.
    """
    mode, built = product()
    found = of(run(built, mode))
    assert (found.minimal_bytes, found.lower_bound_bytes, found.eager_bytes) == (152, 152, 160)


def test_a_deep_net_has_one_gradient_at_a_time() -> None:
    """30 layers of 64 × 64 on a batch of 1, with plain SGD. W is all weights, L one layer's matrix.

    The eager step ends with all gradients: 2 W and more. In the minimal order there is hardly more than one matrix of
    gradients beside the weights, as each is added to its weight as soon as it is made. Activations are 30 rows of 64
    for each of the linear layers and its tanh.
    """
    found = of(fake_trace(parts(lambda: perceptron(64, 30), (1, 64), "sgd-plain")))
    layer, row = 64 * 64 * 4, 64 * 4
    weights = 30 * (layer + row) + (2 * 64 + 2) * 4
    assert found.eager_bytes > 2 * weights
    assert weights + layer < found.minimal_bytes < weights + layer + 2 * 30 * row + 8 * row
    turn = {index: place for place, index in enumerate(found.order)}
    assert turn[max(turn)] < len(turn) - 1  # the eager step's last is not the last


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("name", NETS)
def test_the_order_of_a_small_net_is_the_bounds_or_near(name: str, optimizer: str) -> None:
    """The bound to the byte, but for one net, of which it is within 4 %."""
    trace = traced(name, optimizer)
    found = of(trace)
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


@pytest.mark.parametrize("name", ["linear", "attention"])
def test_what_is_not_in_the_ledger_is_missed(name: str) -> None:
    """Each weight and each of Adam's moments by its bytes; no storage ever makes it more."""
    trace = traced(name)
    found = of(trace)
    for dropped in trace.storages[:: 1 + len(trace.storages) // 40]:
        less = replace(trace, storages=tuple(replace(s, nbytes=s.nbytes * (s is not dropped)) for s in trace.storages))
        without = of(less).minimal_bytes
        if dropped.role in KEPT and dropped.died_index is None:
            assert without == found.minimal_bytes - dropped.nbytes
        assert found.minimal_bytes - dropped.nbytes <= without <= found.minimal_bytes


def test_accumulated_gradients_wait_for_the_second_batch() -> None:
    """All weights and gradients are there when the second backward pass begins: no order is below these."""
    build = parts(*NETS["linear"], "sgd-plain")
    trace = fake_trace(accumulated(build))
    found = of(trace)
    weights = sum(s.nbytes for s in trace.storages if s.role == "weight")
    assert of(fake_trace(build)).minimal_bytes < found.minimal_bytes <= found.eager_bytes
    assert found.minimal_bytes > weights


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
    for order in (of(trace).order, with_views(trace.operations, found, late)):
        assert order != tuple(range(len(order)))
        after = seen.again(order)
        assert all(torch.equal(after[number], wanted[number]) for number in wanted)
    now = {number: seen.tensors[number] for number in wanted}
    assert all(torch.equal(now[number], wanted[number]) for number in wanted)


def test_a_scaled_loss_is_looked_at_before_the_optimizer_steps() -> None:
    """The gradients' scale is checked on the host: no weight changes before all gradients have been looked at."""
    trace = fake_trace(parts(*NETS["linear"], "sgd", torch.float16))
    (asked,) = (o.index for o in trace.operations if not o.writes)
    turn = {index: place for place, index in enumerate(of(trace).order)}
    weights = {s.id for s in trace.storages if s.role == "weight"}
    changes = [turn[o.index] for o in trace.operations if weights & set(o.writes) and o.kind != "view"]
    assert changes
    assert min(changes) > turn[asked]
