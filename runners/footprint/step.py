"""The training step whose memory `runners.footprint` tells: built and traced at any batch on fake tensors.

It takes no memory and no device. torch is imported inside the functions. A step that fake tensors cannot run is traced
on real ones, if its batch is small.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from results.errors import Unavailable
from results.library_words import plain_words
from results.records.operations import Operation, Storage
from runners.workers.any_model import LARGEST_REAL, get

if TYPE_CHECKING:
    from measure.fake.mode import FakeMode
    from measure.operations.tracer import StepParts, Trace

NONE = "none"
"""The optimizer of a step that makes gradients alone."""

ACCUMULATED = 2
"""Batches of a step whose gradients are summed that are traced: all later ones are like the second."""


@dataclass(frozen=True)
class StepOptions:
    """A step. hyper: what the factory takes beside the model. device: whose rules: on "cuda" optimizers work on all
    parameters at once, and autocast and dropout keep what they do there. accumulate: batches a
    step of the optimizer."""

    model: str
    precision: str = "fp32"
    optimizer: str = "sgd"
    device: str = "cuda"
    accumulate: int = 1
    layout: str = "channels_first"
    hyper: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepTrace:
    """What a step does at one batch. notes: what was unusual."""

    batch_size: int
    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    notes: tuple[str, ...] = ()


def trace_batch(asked: StepOptions, batch_size: int) -> StepTrace:
    """The step at a batch. Raises Unavailable, ValueError or whatever the model raises that cannot be trained so."""
    from measure.fake.mode import NOT_ON_FAKE, fake_mode, quiet
    from measure.operations.tracer import trace_step

    reason: tuple[str, ...] = ()
    with _quietly(), quiet():
        try:
            mode = fake_mode()
            built = parts(asked, batch_size, mode)
            found = _trace(asked, built, mode)
        except NOT_ON_FAKE as fault:
            if not isinstance(fault, Unavailable):
                raise
            if batch_size > LARGEST_REAL:
                raise Unavailable(
                    f"expected a batch of {LARGEST_REAL} at most, for a step on real tensors: {fault}"
                ) from fault
            reason = (f"{plain_words(str(fault))}: the step was run on real tensors",)
            built = parts(asked, batch_size, None)
            found = trace_step(built.step, model=built.model, optimizer=built.optimizer, inputs=built.inputs)
    return StepTrace(batch_size, found.operations, found.storages, (*reason, *found.notes))


def _trace(asked: StepOptions, built: StepParts, mode: FakeMode) -> Trace:
    """One step on the fake tensors of a mode."""
    from measure.operations.tracer import trace_step

    with rules(asked.device):
        return trace_step(
            built.step, model=built.model, optimizer=built.optimizer, inputs=built.inputs, mode=mode, steps_before=0
        )


def rules(device: str) -> contextlib.AbstractContextManager[None]:
    """What a device's dispatcher does otherwise than a CPU's."""
    from measure.operations.cuda_dispatch import cuda_rules

    return cuda_rules() if device == "cuda" else contextlib.nullcontext()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """What a model's own code prints goes to stderr: stdout has the answer."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def parts(asked: StepOptions, batch_size: int, mode: FakeMode | None, device: str = "cpu") -> StepParts:
    """The step on fake tensors of a mode, whose optimizer has its state; without one on real tensors of a device."""
    return _step_parts(asked, _build(asked, mode, device), batch_size, mode, device)


@dataclass(frozen=True)
class _Built:
    """A model, and what trains it."""

    workload: Any
    model: Any
    optimizer: Any


def _build(asked: StepOptions, mode: FakeMode | None, device: str) -> _Built:
    import torch

    from measure.fake.mode import to_fake
    from workloads.training.step import have_state, optimizer_of

    workload = get(asked.model, **asked.hyper)
    with torch.random.fork_rng(devices=[]), torch.device(device if mode is None else "meta"):
        torch.manual_seed(0)
        model = workload.build(**workload.hyper).train()
    if asked.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    if mode is not None:
        to_fake(model, mode)
    trained = _trained(model, asked)
    with contextlib.nullcontext() if mode is None else mode:
        optimizer = optimizer_of("sgd-plain" if asked.optimizer == NONE else asked.optimizer, workload, trained)
        for group in optimizer.param_groups if asked.device == "cuda" else ():
            if "foreach" in group:
                group["foreach"] = True
        if asked.optimizer != NONE and mode is not None:
            have_state(optimizer, trained)
    return _Built(workload, model, optimizer)


def _step_parts(asked: StepOptions, built: _Built, batch_size: int, mode: FakeMode | None, device: str) -> StepParts:
    import torch

    from measure.operations.tracer import StepParts
    from runners.workers.batches import in_layout
    from workloads.training.step import GradientStep, TrainingStep

    with contextlib.nullcontext() if mode is None else mode:
        generator = torch.Generator(device).manual_seed(0) if mode is None else None
        batch = built.workload.batch(built.workload.hyper, batch_size, torch.device(device), generator)
        batch = in_layout(asked.layout, batch)
        step: Any = TrainingStep(
            built.model, built.workload.loss, built.optimizer, [batch], device.partition(":")[0],
            **_precision(asked, device), accumulate=min(asked.accumulate, ACCUMULATED),
        )  # fmt: skip
    is_whole = asked.optimizer != NONE
    optimizer = built.optimizer if is_whole else None
    return StepParts(step if is_whole else GradientStep(step), built.model, optimizer, (batch.inputs, batch.target))


def _trained(model: Any, asked: StepOptions) -> list[Any]:
    """Its parameters that are trained. Raises ValueError where there is none."""
    found = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not found:
        frozen = f"; --frozen {','.join(asked.hyper['frozen'])} has all" if asked.hyper.get("frozen") else ""
        raise ValueError(f"expected a parameter that is trained, got none{frozen}")
    return found


def _precision(asked: StepOptions, device: str) -> dict[str, Any]:
    import torch

    policy = PRECISIONS[asked.precision]
    return {
        "autocast": getattr(torch, policy.autocast) if policy.autocast else None,
        "scaler": torch.amp.GradScaler(device.partition(":")[0]) if policy.scaler else None,
    }
