"""Laws of the footprint over random small nets: monotone in the batch, additive over independent branches, never below
what the optimizer's step needs; and the fitted batch of each by brute force."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import nn

from analysis.footprint.largest_batch import largest_batch
from analysis.footprint.live_bytes import Footprint, footprint
from measure.fake.mode import fake_mode, to_fake
from measure.operations.tracer import Trace, trace_step
from tests.support.nets.small_steps import fake_trace, parts
from workloads.training.step import OPTIMIZERS

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


def branches(seeds: tuple[int, ...], batch: int = 16) -> Trace:
    """One step of nets that share nothing, one after the other; the loss is the sum of their outputs' sums."""
    mode = fake_mode()
    torch.manual_seed(0)
    model = to_fake(nn.ModuleList(net(seed) for seed in seeds), mode)
    inputs = to_fake([torch.randn(batch, WIDTH) for _ in seeds], mode)
    optimizer = OPTIMIZERS["sgd-plain"](model.parameters())

    def step(mark: Callable[[str], None]) -> None:
        optimizer.zero_grad()
        mark("forward")
        losses = [one(x).sum() for one, x in zip(model, inputs, strict=True)]
        loss = losses[0]
        for other in losses[1:]:
            loss = loss + other
        del losses
        mark("backward")
        loss.backward()
        mark("optimizer")
        optimizer.step()
        mark("end")

    return trace_step(step, model=model, optimizer=optimizer, inputs=inputs, mode=mode)


@pytest.mark.parametrize("seed", SEEDS)
def test_independent_branches_add_up(seed: int) -> None:
    """What the backward pass begins with: both branches' weights, inputs and activations, to the byte: the sum of both
    losses and the last of them are two numbers, as each branch alone has one. Afterwards both have all gradients."""
    traces = [branches(seeds) for seeds in ((seed,), (seed + 100,), (seed, seed + 100))]
    one, other, both = map(of, traces)
    begins = [next(op.index for op in trace.operations if op.phase == "backward") for trace in traces]
    kept = [
        {name: found.timeline[name][at] for name in ("weight", "buffer", "input", "activation")}
        for found, at in zip((one, other, both), begins, strict=True)
    ]
    for name, nbytes in kept[2].items():
        assert kept[0][name] + kept[1][name] == nbytes, name
    assert one.timeline["gradient"][-1] + other.timeline["gradient"][-1] == both.timeline["gradient"][-1]
    assert max(one.peak_bytes, other.peak_bytes) < both.peak_bytes <= one.peak_bytes + other.peak_bytes


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_batch_is_brute_forces(seed: int) -> None:
    needs = {batch: of(traced(seed, batch)).peak_bytes for batch in range(2, 12)}
    for batch in (5, 9):
        found = largest_batch(lambda n: of(traced(seed, n)).total_bytes, needs[batch], least=2)
        assert found.largest_batch == batch
