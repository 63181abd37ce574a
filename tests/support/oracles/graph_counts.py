"""The operations and storages of a module's training step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from measure.fake.mode import fake_mode, to_fake
from measure.operations.tracer import trace_step
from results.records.operations import Operation, Storage
from workloads.catalogue.base import Batch, mean_loss
from workloads.training.step import OPTIMIZERS, TrainingStep


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
