"""What checkpointing would bring a step, and the largest batch that would fit: no step with checkpoints is traced.

The choices are those of `analysis.footprint.step.checkpointing.curve` at the batch that is asked for. The largest batch
of each is where the lines of two small batches, changed in the same way, cross the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.footprint.step.checkpointing import Choice, checkpointed, curve, stretches_of
from analysis.footprint.step.largest_batch import MOST, SMALL, BatchFit, Lines
from reports.footprint.checkpoints import Checkpoints
from runners.footprint.fit import capability, moments

if TYPE_CHECKING:
    from runners.footprint.step import StepTrace


def checkpoints(
    step_at: Callable[[int], StepTrace], batch_size: int, fit: BatchFit | None, device: str, name: str
) -> Checkpoints:
    """What checkpointing would bring a step; with a fit, the largest batch of each choice. Raises what `step_at` does.

    name: of the device, which decides the workspaces.
    """
    step = step_at(batch_size)
    choices = curve(step.operations, step.storages)
    if fit is None:
        return Checkpoints(choices)
    most = fit.largest_batch if fit.refused else MOST
    found = [_largest(step_at, each, fit.available_bytes, device, capability(name), most) for each in choices[1:]]
    return Checkpoints(choices, (fit.largest_batch, *found))


def _largest(
    step_at: Callable[[int], StepTrace], choice: Choice, available_bytes: int, device: str, known: str | None, most: int
) -> int | None:
    """The largest batch up to `most` that fits with a choice of checkpoints; None where the model refuses a small one,
    or small ones differ in their operations."""
    both = []
    for batch in SMALL:
        try:
            step = step_at(batch)
            stretches = stretches_of(step.operations, choice)
        except (KeyError, ValueError):
            return None
        operations, storages = checkpointed(step.operations, step.storages, stretches)
        changed = replace(step, operations=operations, storages=storages)
        both.append(moments(changed, device, known))
    low, high = both
    if len(low) != len(high):
        return None
    return min(most, Lines((SMALL[0], low), (SMALL[1], high)).largest(available_bytes))
