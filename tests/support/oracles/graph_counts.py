"""The operations and storages of a module's training step, and what holds of any table of them."""

from dataclasses import replace
from typing import Any

import torch

from analysis.operators.step_table import StepTable
from measure.operations.fake_mode import fake_mode, to_fake
from measure.operations.tracer import trace_step
from results.records.counts import Operation, Storage
from workloads.catalogue.base import Batch, mean_loss
from workloads.step import OPTIMIZERS, TrainingStep


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


def check_whole(table: StepTable) -> None:
    """Indices count up, links lead backwards to what is there, storages are born where they are first written."""
    assert [operation.index for operation in table.operations] == list(range(len(table.operations)))
    made = {storage.id: storage for storage in table.storages}
    assert len(made) == len(table.storages)
    there = {storage.id for storage in table.storages if storage.born_index == -1}
    for operation in table.operations:
        assert set(operation.reads) <= there
        there |= set(operation.writes)
        if operation.forward_index is not None:
            assert operation.forward_index < operation.index
            assert table.operations[operation.forward_index].phase in ("forward", "loss")
    for storage in table.storages:
        if storage.born_index >= 0:
            assert storage.id in table.operations[storage.born_index].writes
        if storage.died_index is not None:
            users = [op.index for op in table.operations if storage.id in (*op.reads, *op.writes)]
            assert storage.died_index >= max(users, default=-1)
