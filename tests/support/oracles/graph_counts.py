"""What the tests of graph files compare: a training step's counts of a workload, and of the module it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from analysis.operators.registry import not_understood, total
from measure.fake.mode import fake_mode, to_fake
from measure.operations.tracer import trace_step
from results.records import Operation, Storage
from runners.workers.any_model import training
from workloads.catalogue.base import Batch, Workload
from workloads.training.losses import mean_loss
from workloads.training.step import OPTIMIZERS, TrainingStep


def of_workload(workload: Workload, size: int) -> dict[str, int]:
    """Model FLOP by phase of one step at this batch."""
    return by_phase(training(workload, size))


def of_module(model: torch.nn.Module, *inputs: Any) -> dict[str, int]:
    """The same of a module, with the same loss."""
    return by_phase(step_of(model, *inputs)[0])


def step_of(model: torch.nn.Module, *inputs: Any) -> tuple[tuple[Operation, ...], tuple[Storage, ...]]:
    """The operations and storages of one step of SGD on fake tensors."""
    mode = fake_mode()
    batch = Batch(inputs, None)
    model, batch = to_fake(model.train(), mode), replace(batch, inputs=to_fake(inputs, mode))
    with mode:
        optimizer = OPTIMIZERS["sgd"](list(model.parameters()))
        step = TrainingStep(model, mean_loss, optimizer, [batch], "cpu")
    trace = trace_step(step, model=model, optimizer=optimizer, inputs=batch.inputs, mode=mode)
    return trace.operations, trace.storages


def by_phase(operations: Sequence[Operation]) -> dict[str, int]:
    assert not not_understood(operations)
    return {
        phase: int(total(op for op in operations if op.phase == phase).model_flop) for phase in ("forward", "backward")
    }
