"""Training steps of small nets, on fake or real tensors, and what to ask of their traces."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.operations.fake_mode import FakeMode, fake_mode, to_fake
from measure.operations.tracer import StepParts, Trace, trace_step
from results.records.counts import Operation, Storage
from workloads.catalogue.base import Batch
from workloads.step import OPTIMIZERS, TrainingStep

Build = Callable[[FakeMode | None], StepParts]


class Small(nn.Module):
    """Convolution, normalisation, activation in place, linear layer: (2, 3, 8, 8) → (2, 4, 6, 6) → (2, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.act(self.bn(self.conv(x))).mean((2, 3)))


class Calls(nn.Module):
    """A module around a function of itself and its inputs, with children and parameters by name."""

    def __init__(self, forward: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def parts(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...] = (2, 3, 8, 8),
    optimizer: str = "sgd",
    autocast: torch.dtype | None = None,
) -> Build:
    """How to build a training step of a small net with two classes, on fake or real tensors."""

    def build(mode: FakeMode | None) -> StepParts:
        torch.manual_seed(0)
        model, inputs, target = make(), torch.randn(shape), torch.zeros(shape[0], dtype=torch.long)
        if mode is not None:
            to_fake(model, mode)
            inputs, target = to_fake((inputs, target), mode)
        chosen = OPTIMIZERS[optimizer](model.parameters())
        scaler = torch.amp.GradScaler("cpu") if autocast is torch.float16 else None
        step = TrainingStep(model, F.cross_entropy, chosen, [Batch((inputs,), target)], "cpu", autocast, scaler)
        return StepParts(step, model, chosen, (inputs, target))

    return build


def product(rate: float = 0.1) -> tuple[FakeMode, StepParts]:
    """relu(x · W), summed: x (2, 4), W (4, 3), plain SGD."""
    mode = fake_mode()

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x @ self.weight)

    model = to_fake(Product(), mode)
    x = to_fake(torch.randn(2, 4), mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def step(mark: Callable[[str], None]) -> None:
        optimizer.zero_grad()
        mark("forward")
        loss = model(x).sum()
        mark("backward")
        loss.backward()
        mark("optimizer")
        optimizer.step()
        mark("end")

    return mode, StepParts(step, model, optimizer, x)


def run(built: StepParts, mode: FakeMode | None, steps_before: int = 1) -> Trace:
    return trace_step(
        built.step,
        model=built.model,
        optimizer=built.optimizer,
        inputs=built.inputs,
        mode=mode,
        steps_before=steps_before,
    )


def fake_trace(build: Build) -> Trace:
    mode = fake_mode()
    return run(build(mode), mode)


def real_trace(build: Build) -> Trace:
    return run(build(None), None)


def named(recorded: Trace, name: str, phase: str | None = None) -> list[Operation]:
    return [o for o in recorded.operations if o.name == name and phase in (None, o.phase)]


def one(recorded: Trace, name: str, phase: str | None = None) -> Operation:
    (found,) = named(recorded, name, phase)
    return found


def at_work(recorded: Trace) -> list[Operation]:
    """The operations that are not views: how many views autograd takes differs between versions of torch."""
    return [o for o in recorded.operations if o.kind != "view"]


def live_bytes(storages: Iterable[Storage], index: int) -> int:
    """Bytes that exist while operation `index` runs."""
    return sum(s.nbytes for s in storages if s.born_index <= index and (s.died_index is None or s.died_index >= index))


def check_laws(recorded: Trace) -> None:
    """What holds of every trace."""
    storages = {s.id: s for s in recorded.storages}
    assert sorted(storages) == list(range(len(storages)))
    assert [o.index for o in recorded.operations] == list(range(len(recorded.operations)))
    for o in recorded.operations:
        assert len(o.reads) == len(o.input_names) == len(o.input_shapes) == len(o.input_dtypes)
        assert len(o.output_shapes) == len(o.output_dtypes)
        assert len(set(o.writes)) == len(o.writes)
        for read in o.reads:
            assert storages[read].born_index < o.index
        for used in (*o.reads, *o.writes):
            died = storages[used].died_index
            assert storages[used].born_index <= o.index
            assert died is None or died >= o.index
        if o.forward_index is not None:
            assert o.forward_index < o.index
            origin = recorded.operations[o.forward_index]
            assert origin.forward_index is None
            assert origin.module == o.module
            assert o.sequence_nr is not None
            # More where one operation made two nodes (CopySlices); none where autograd did not see the operation.
            assert origin.sequence_nr is None or origin.sequence_nr <= o.sequence_nr
