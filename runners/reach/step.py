"""The cost of a step of any model at any batch, traced on fake tensors. torch is imported inside of the functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from analysis.devices import PRECISIONS
from analysis.profile import fused
from analysis.reach import StepCost, step_cost
from results.records import StepOperation
from runners.footprint.step import StepOptions, StepTrace, parts_at, rules, trace_batch, trace_batches

SMALL = (2, 4)
"""The batches from which the cost at any batch follows: batch normalisation of single values needs two."""


def cost_at(asked: StepOptions, batch_size: int, mode: str = "train") -> StepCost:
    """The cost of one step. Raises Unavailable, ValueError or whatever the model raises that cannot be run so."""
    return step_cost(operations_at(asked, batch_size, mode))


def operations_at(asked: StepOptions, batch_size: int, mode: str = "train") -> tuple[StepOperation, ...]:
    """The operations of one step, in the groups of ideal fusion. Raises what `cost_at` does, but for Unavailable."""
    step = trace_batch(asked, batch_size) if mode == "train" else next(_forward(asked, (batch_size,)))
    return operations_of(asked, step)


def operations_at_each(
    asked: StepOptions, batch_sizes: Sequence[int], mode: str = "train"
) -> Iterator[tuple[StepOperation, ...]]:
    """`operations_at` several batches, of a model that is built once."""
    steps = trace_batches(asked, batch_sizes) if mode == "train" else _forward(asked, batch_sizes)
    return (operations_of(asked, step) for step in steps)


def operations_of(asked: StepOptions, step: StepTrace) -> tuple[StepOperation, ...]:
    """The operations of a traced step, in the groups of ideal fusion."""
    from measure.profile import in_groups, operation_rows

    rows, _ = operation_rows(step.operations, (), asked.precision, asked.device)
    return in_groups(rows, fused(step.operations, step.storages))


def _forward(asked: StepOptions, batch_sizes: Sequence[int]) -> Iterator[StepTrace]:
    """The forward pass of a model in evaluation mode, without gradients, at each batch."""
    from measure.fake import fake_mode, quiet
    from measure.operations import trace_step
    from measure.profile import ModelStep

    with quiet():
        mode = fake_mode()
        each = parts_at(replace(asked, optimizer="none"), batch_sizes, mode)
        for batch_size, built in zip(batch_sizes, each, strict=True):
            model, (inputs, _target) = built.model.eval(), built.inputs
            policy = PRECISIONS[asked.precision]
            step = ModelStep(model, tuple(inputs), {}, None, None, None, "forward", policy, "cpu")
            with rules(asked.device):
                found = trace_step(step, model=model, inputs=inputs, mode=mode, steps_before=0)
            yield StepTrace(batch_size, found.operations, found.storages, found.notes)
