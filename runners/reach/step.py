"""The operations of a step of any model at any batch, traced on fake tensors. torch is imported inside functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.devices import PRECISIONS
from analysis.profile import fused
from results.records import StepOperation
from runners.footprint.step import StepOptions, StepTrace, parts, rules, trace_batch

SMALL = (2, 4)
"""The batches from which the amounts at any batch follow: batch normalisation of single values needs two."""

Operations = Sequence[StepOperation]


def operations_at(asked: StepOptions, batch_size: int, mode: str = "train") -> Operations:
    """The operations of one step, in the groups of ideal fusion. Raises Unavailable, ValueError or whatever the model
    raises that cannot be run so."""
    trace = trace_batch if mode == "train" else trace_forward
    return operations_of(asked, trace(asked, batch_size))


def operations_of(asked: StepOptions, step: StepTrace) -> Operations:
    """The operations of a traced step, in the groups of ideal fusion."""
    from measure.profile import in_groups, operation_rows

    rows, _ = operation_rows(step.operations, (), asked.precision, asked.device)
    return in_groups(rows, fused(step.operations, step.storages))


def trace_forward(asked: StepOptions, batch_size: int) -> StepTrace:
    """The forward pass of a model in evaluation mode, without gradients."""
    from measure.fake import fake_mode, quiet
    from measure.operations import trace_step
    from measure.profile import ModelStep

    with quiet():
        mode = fake_mode()
        built = parts(replace(asked, optimizer="none"), batch_size, mode)
        model, (inputs, _target) = built.model.eval(), built.inputs
        policy = PRECISIONS[asked.precision]
        step = ModelStep(model, tuple(inputs), {}, None, None, None, "forward", policy, "cpu")
        with rules(asked.device):
            found = trace_step(step, model=model, inputs=inputs, mode=mode, steps_before=0)
    return StepTrace(batch_size, found.operations, found.storages, found.notes)
