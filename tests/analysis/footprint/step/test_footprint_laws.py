"""Footprints of traced steps: one by hand, and what holds of every step."""

from __future__ import annotations

import pytest

from analysis.footprint.caching_allocator import replay
from analysis.footprint.live_bytes import Footprint, StepPlace, footprint
from measure.operations.tracer import Trace
from tests.support.nets.memory_steps import NETS, accumulated
from tests.support.nets.small_steps import fake_trace, parts, product, run

ALWAYS = ("weight", "buffer", "optimizer_state")


def of(trace: Trace) -> Footprint:
    """The footprint of a trace."""
    return footprint(trace.operations, trace.storages)


def test_a_traced_step_by_hand() -> None:
    """relu(x · W), summed, as `test_operations.test_liveness_by_hand` derives it: W 48 and x 32 bytes always.

    The peak is xᵀ · G in the backward pass: beside W and x the loss 4, its gradient 4, the product's gradient 24, and
    the gradient of W, 48, in the making. What has the highest share is W itself, then W's gradient.
    """
    mode, built = product()
    trace = run(built, mode)
    found = of(trace)
    (back,) = (op for op in trace.operations if op.name == "aten.mm" and op.phase == "backward")
    assert (found.peak_bytes, found.peak_at) == (80 + 4 + 4 + 24 + 48, StepPlace(back.index, "aten.mm", "", "backward"))
    assert found.by_category == {
        "weight": 48,
        "buffer": 0,
        "gradient": 48,
        "optimizer_state": 0,
        "input": 32,
        "activation": 4,  # the loss
        "cast": 0,
        "temporary": 4 + 24,
    }
    assert [(each.nbytes, each.category, each.made.operation) for each in found.held[:2]] == [
        (48, "weight", ""),
        (48, "gradient", "aten.mm"),
    ]
    assert found.total_bytes[0] == 80 + 48  # the gradient of the step before


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_optimizers_step_has_weights_gradients_and_state(name: str, optimizer: str) -> None:
    trace = fake_trace(parts(*NETS[name], optimizer))
    found = of(trace)
    kept = sum(s.nbytes for s in trace.storages if s.role in ALWAYS)
    gradients = sum(s.nbytes for s in trace.storages if s.role == "gradient" and s.born_index >= 0)
    assert gradients > 0
    working = [op.index + 1 for op in trace.operations if op.phase == "optimizer"]
    assert min(found.total_bytes[i] for i in working) >= kept + gradients
    assert min(found.total_bytes) >= kept


LAYER = 256 * 48 * 4
"""Bytes of one layer's output in the nets of linear layers."""
END = 2 * 256 * 2 * 4 + 2 * 4
"""Bytes of two classes before and after log_softmax, the loss, and the weight that it was divided by."""
WIDE, LAST = (48 * 48 + 48) * 4, (48 * 2 + 2) * 4
"""Bytes of the weights of a layer and of the last one."""


@pytest.mark.parametrize(
    ("name", "activations", "gradients"),
    [
        ("linear", 4 * LAYER, 4 * WIDE + LAST),  # what each of four tanh gives
        ("checkpoint", 2 * LAYER, 4 * WIDE + LAST),  # what the recomputed part takes and gives
        ("frozen", 2 * LAYER, WIDE + LAST),  # what the first trained layer takes, and its tanh gives
    ],
)
def test_what_is_kept_for_backward(name: str, activations: int, gradients: int) -> None:
    found = of(fake_trace(parts(*NETS[name], "sgd")))
    assert max(found.timeline["activation"]) == activations + END
    assert found.timeline["gradient"][-1] == gradients


def test_accumulating_keeps_the_gradients_of_the_first_batch() -> None:
    """The gradients that the first backward pass made are there throughout the second, beside those to be added."""
    once, twice = (of(fake_trace(wrap(parts(*NETS["linear"], "sgd")))) for wrap in (lambda build: build, accumulated))
    gradients = max(once.timeline["gradient"])
    assert once.peak_bytes < twice.peak_bytes <= once.peak_bytes + gradients


@pytest.mark.parametrize("name", NETS)
def test_live_bytes_are_below_what_is_reserved(name: str) -> None:
    trace = fake_trace(parts(*NETS[name], "adamw"))
    reserved = replay(trace.storages, len(trace.operations))
    assert of(trace).at_least_bytes <= reserved.allocated_bytes <= reserved.reserved_bytes
    blocks = sum(s.nbytes > 0 for s in trace.storages)
    assert (
        reserved.allocated_bytes < of(trace).at_least_bytes + 512 * blocks
    )  # none here is large enough to stay unsplit
