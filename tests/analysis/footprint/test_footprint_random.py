"""Law, known answer: larger batches never need less; the ledger has the bytes that a CPU really allocates.

What the allocator has beyond the ledger is named here to the byte: the loss that `TrainingStep` keeps from the step
before (4 bytes), numbers that became tensors on their way into a kernel (8 bytes), the generator's states that
checkpoint keeps.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._profiler import _RecordFunctionFast

from analysis.footprint.live_bytes import Footprint, footprint, live_bytes
from measure.operations.tracer import Recorder, Trace
from measure.profile import allocations
from measure.profile.allocations import events, memory_profiler, run_once
from tests.support.nets.memory_steps import NETS, accumulated
from tests.support.nets.small_steps import Build, fake_trace, parts, real_trace

_OPERATION = "the measured operation "


@dataclass(frozen=True)
class Moment:
    """Bytes allocated as an operation begins, and the most while it runs."""

    begins: int
    highest: int


class _Ranges(Recorder):
    """A recorder that puts each operation into a range named by its index."""

    def before(self, func: Any, args: Any, kwargs: Any, seen: Any = None) -> Any:
        call = super().before(func, args, kwargs, seen)
        if call is not None:
            self._range = _RecordFunctionFast(f"{_OPERATION}{self.position}")
            self._range.__enter__()
        return call

    def after(self, call: Any, args: Any, kwargs: Any, out: Any) -> None:
        self._range.__exit__(None, None, None)
        super().after(call, args, kwargs, out)


def peak_allocated(build: Build) -> int:
    """The most bytes that are allocated in the second step of a net, with nobody watching but the profiler."""
    return allocations.on_cpu(lambda: build(None), ()).peak_bytes


def moments(build: Build) -> tuple[Trace, list[Moment]]:
    """The trace of the second step of a net on real tensors, and what was allocated at each of its operations."""
    with memory_profiler() as recording:
        built = run_once(lambda: build(None))
        recorder = _Ranges(built.model, built.optimizer, built.inputs)
        with recorder.recording(None):
            built.step(recorder.mark)
    trace, found = recorder.trace(), events(recording)
    spans = {each.name: each for each in found if each.name.startswith(_OPERATION)}
    memory = (each for each in found if each.name == "[memory]")
    pairs = sorted((each.start_time_ns, each.typed[1].alloc_size) for each in memory)
    return trace, [_moment(pairs, spans[f"{_OPERATION}{i}"]) for i in range(len(trace.operations))]


def _moment(pairs: list[tuple[int, int]], span: Any) -> Moment:
    begins = sum(size for time, size in pairs if time < span.start_time_ns)
    live = highest = begins
    for _time, size in (pair for pair in pairs if span.start_time_ns <= pair[0] <= span.end_time_ns):
        live += size
        highest = max(highest, live)
    return Moment(begins, highest)


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


LOSS_BEFORE, NUMBER = 4, 8
GENERATOR = 5056
"""Bytes of torch.get_rng_state() on a CPU."""


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
