"""The ledger's bytes against what a CPU really allocates, operation by operation, and against torch's MemTracker.

What the allocator has beyond the ledger is named here to the byte: the loss that `TrainingStep` keeps from the step
before (4 bytes), numbers that became tensors on their way into a kernel (8 bytes), the generator's states that
checkpoint keeps; and, while an operation runs, what its kernel takes for itself, which only some kernels do.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from analysis.footprint.live_bytes import footprint, live_bytes
from measure.operations.tracer import Trace
from tests.support.nets.memory_steps import NETS, accumulated, met
from tests.support.nets.small_steps import Build, fake_trace, parts, real_trace
from tests.support.oracles.allocated import Moment, moments, peak_allocated, tracked

LOSS_BEFORE, NUMBER = 4, 8
GENERATOR = 5056
"""Bytes of torch.get_rng_state() on a CPU."""

WORKING = frozenset(
    (
        "aten.convolution",  # operands in blocks of the processor's width
        "aten.convolution_backward",
        "aten.native_batch_norm",  # sums per thread
        "aten.native_batch_norm_backward",  # and the input again
        "aten.native_layer_norm_backward",
        "aten.mkldnn_rnn_layer",  # repacked weights, scratch
        "aten.mkldnn_rnn_layer_backward",
        "aten._scaled_dot_product_flash_attention_for_cpu",  # a tile per thread
        "aten._scaled_dot_product_flash_attention_for_cpu_backward",
    )
)
"""Operations whose kernels take memory for themselves on a CPU."""
HALF = frozenset(("aten.addmm", "aten.mm", "aten.mean", "aten.add"))
"""And these in bfloat16: packed operands, sums in float32, operands of two dtypes."""

STEPS: dict[str, Build] = {
    **{name: parts(*net, "adamw") for name, net in NETS.items()},
    "accumulation": accumulated(parts(*NETS["linear"], "adamw")),
    "accumulation of attention": accumulated(parts(*NETS["attention"], "sgd")),
    "autocast": parts(*NETS["linear"], "adamw", torch.bfloat16),
    "autocast of convolution": parts(*NETS["convolution"], "adamw", torch.bfloat16),
    "autocast of attention": parts(*NETS["attention"], "adamw", torch.bfloat16),
}
UNWATCHED = {name for name in STEPS if name not in ("convolution", "lstm", "checkpoint") and "autocast" not in name}
"""Steps whose peak is not in a kernel of `WORKING`, nor beside a generator's state."""


@cache
def measured(name: str) -> tuple[Trace, list[Moment]]:
    """What one real step recorded and allocated."""
    assert torch.get_rng_state().nbytes == GENERATOR
    return moments(STEPS[name])


@pytest.mark.parametrize("name", STEPS)
def test_the_ledger_is_the_allocators_as_each_operation_begins(name: str) -> None:
    """What is there as operation i begins: what is there while i runs, but for what i makes."""
    trace, seen = measured(name)
    count = len(trace.operations)
    made = [0] * count
    for each in trace.storages:
        if each.born_index >= 0:
            made[each.born_index] += each.nbytes
    expected = [live - fresh for live, fresh in zip(live_bytes(trace.storages, count)[1:], made, strict=True)]
    beyond = {moment.begins - live for moment, live in zip(seen, expected, strict=True)}
    kept = 0 if name.startswith("accumulation") else LOSS_BEFORE
    states = (0, GENERATOR, 2 * GENERATOR) if name == "checkpoint" else (0,)
    assert beyond <= {kept + number + state for number in (0, NUMBER) for state in states}


@pytest.mark.parametrize("name", STEPS)
def test_only_some_kernels_take_more_while_they_run(name: str) -> None:
    trace, seen = measured(name)
    live = live_bytes(trace.storages, len(trace.operations))[1:]
    slack = LOSS_BEFORE + 3 * NUMBER + 2 * GENERATOR * (name == "checkpoint")
    beyond = [moment.highest - there for moment, there in zip(seen, live, strict=True)]
    assert min(beyond) >= 0
    known = WORKING | HALF if "autocast" in name else WORKING
    assert {op.name for op, more in zip(trace.operations, beyond, strict=True) if more > slack} <= known


@pytest.mark.parametrize("name", sorted(UNWATCHED))
def test_the_peak_is_the_allocators_with_nobody_watching(name: str) -> None:
    """On fake tensors, before running it: all but the loss of the step before."""
    trace = fake_trace(STEPS[name])
    kept = 0 if name.startswith("accumulation") else LOSS_BEFORE
    assert peak_allocated(STEPS[name]) == footprint(trace.operations, trace.storages).peak_bytes + kept


def test_checkpoints_generator_states_are_all_that_is_beyond() -> None:
    """One state was saved in the forward pass, one is put back as the recomputation ends."""
    trace = fake_trace(STEPS["checkpoint"])
    found = footprint(trace.operations, trace.storages)
    assert peak_allocated(STEPS["checkpoint"]) == found.peak_bytes + LOSS_BEFORE + 2 * GENERATOR


def test_a_convolutions_kernel_takes_less_than_its_tensors() -> None:
    """The ledger's peak is another operation, and 0.3 % below."""
    trace = fake_trace(STEPS["convolution"])
    found = footprint(trace.operations, trace.storages)
    beyond = peak_allocated(STEPS["convolution"]) - found.peak_bytes
    assert 0 <= beyond <= 2 * 8 * 16 * 32 * 32 * 4  # two tensors of activations: input and gradient in blocks


def bytes_at_work(trace: Trace, without: tuple[int, ...]) -> list[tuple[str, int]]:
    """(operation, live bytes) of all that are not views: how many of those there are differs."""
    live = live_bytes((each for each in trace.storages if each.id not in without), len(trace.operations))[1:]
    return [(op.name, live[op.index]) for op in trace.operations if op.kind != "view"]


@pytest.mark.parametrize("name", STEPS)
def test_fake_and_real_tensors_have_one_ledger(name: str) -> None:
    """But for the LSTM's workspaces, which the footprint on fake tensors names and real tensors have."""
    fake, real = fake_trace(STEPS[name]), real_trace(STEPS[name])
    unknown = footprint(fake.operations, fake.storages).unknown
    assert bytes_at_work(fake, unknown) == bytes_at_work(real, unknown)
    assert len(unknown) == (2 if name == "lstm" else 0)
    assert all(real.storages[number].nbytes > 0 for number in unknown)
    assert not footprint(real.operations, real.storages).unknown


@pytest.mark.parametrize("name", ["convolution", "lstm", "attention", "in place", "checkpoint", "linear"])
def test_peer(name: str) -> None:
    """MemTracker follows storages, too. It takes no frozen layers and no two forward passes in one step."""
    trace = real_trace(STEPS[name])
    assert tracked(STEPS[name]) == footprint(trace.operations, trace.storages).peak_bytes


def test_gradients_that_meet_are_added_in_place_when_nobody_watches() -> None:
    """The ledger as recorded has the sum beside both gradients, a third tensor (1024, 48), at its peak."""
    build = parts(met, (1024, 48), "adamw")
    trace = fake_trace(build)
    found = footprint(trace.operations, trace.storages).peak_bytes
    assert found <= peak_allocated(build) <= found + LOSS_BEFORE + 2 * NUMBER
    assert max(live_bytes(trace.storages, len(trace.operations))) > found + 150_000
