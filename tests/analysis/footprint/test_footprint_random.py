"""Laws of the footprint over random small nets: monotone in the batch, never below what the optimizer's step needs.

The ledger's bytes against what a CPU really allocates, operation by operation.

What the allocator has beyond the ledger is named here to the byte: the loss that `TrainingStep` keeps from the step
before (4 bytes), numbers that became tensors on their way into a kernel (8 bytes), the generator's states that
checkpoint keeps; and, while an operation runs, what its kernel takes for itself, which only some kernels do.
"""

import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import nn

from analysis.footprint.live_bytes import Footprint, footprint, live_bytes
from measure.operations.tracer import Trace
from tests.support.nets.memory_steps import NETS, accumulated, met
from tests.support.nets.small_steps import Build, fake_trace, parts, real_trace
from tests.support.oracles.allocated import Moment, moments, peak_allocated

WIDTH = 24
SEEDS = range(10)

BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "wide": lambda: nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)),
    "tanh": nn.Tanh,
    "relu": lambda: nn.ReLU(inplace=True),
    "norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm": lambda: nn.BatchNorm1d(WIDTH),
    "residual": lambda: Residual(),
    "frozen": lambda: nn.Linear(WIDTH, WIDTH).requires_grad_(False),
}


class Residual(nn.Module):
    """x + tanh(x · W + b)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.fc(x))


def net(seed: int) -> nn.Module:
    """Up to six blocks of any kind, then two classes."""
    dice = random.Random(seed)
    blocks = [BLOCKS[dice.choice(list(BLOCKS))]() for _ in range(dice.randint(1, 6))]
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *blocks, nn.Linear(WIDTH, 2))


def settings(seed: int) -> tuple[str, torch.dtype | None]:
    """An optimizer and a precision."""
    dice = random.Random(seed + 1000)
    return dice.choice(["sgd-plain", "sgd", "adamw"]), dice.choice([None, torch.bfloat16])


@cache
def traced(seed: int, batch: int) -> Trace:
    optimizer, autocast = settings(seed)
    return fake_trace(parts(lambda: net(seed), (batch, WIDTH), optimizer, autocast))


def of(trace: Trace) -> Footprint:
    return footprint(trace.operations, trace.storages)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_larger_batch_never_needs_less(seed: int) -> None:
    found = [of(traced(seed, batch)) for batch in (2, 3, 7, 64)]
    for smaller, larger in pairwise(found):
        assert smaller.peak_bytes < larger.peak_bytes
        assert all(a <= b for a, b in zip(smaller.total_bytes, larger.total_bytes, strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_optimizers_step_is_a_bound_from_below(seed: int) -> None:
    """Weights, gradients and state by the model's own parameters: nothing of the ledger is asked."""
    optimizer, _ = settings(seed)
    model = net(seed)
    everything = sum(p.nbytes for p in model.parameters())
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    copies = {"sgd-plain": 1, "sgd": 2, "adamw": 3}[optimizer]  # gradients, and the state of the same size
    buffers = sum(b.nbytes for b in model.buffers())
    trace = traced(seed, 3)
    found = of(trace)
    working = [op.index + 1 for op in trace.operations if op.phase == "optimizer"]
    assert min(found.total_bytes[i] for i in working) >= everything + copies * trained + buffers
    assert found.peak_bytes >= everything + copies * trained + buffers


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


def test_gradients_that_meet_are_added_in_place_when_nobody_watches() -> None:
    """The ledger as recorded has the sum beside both gradients, a third tensor (1024, 48), at its peak."""
    build = parts(met, (1024, 48), "adamw")
    trace = fake_trace(build)
    found = footprint(trace.operations, trace.storages).peak_bytes
    assert found <= peak_allocated(build) <= found + LOSS_BEFORE + 2 * NUMBER
    assert max(live_bytes(trace.storages, len(trace.operations))) > found + 150_000
