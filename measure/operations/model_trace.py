"""Which operations does a training step of any model run? The trace of a copy of the model on fake tensors.

Every count of the product comes from it. The caller's model and the random numbers are left as they were, no data is
copied, and no real tensor is made. It raises what fake tensors raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_map

from measure.fake.mode import fake_copy, fake_mode
from measure.model.batch_masks import batch_mask
from measure.model.random_state import kept_random
from measure.model.run import check_outputs, summed
from measure.operations.packed_sequences import note_ends
from measure.operations.tracer import Trace, trace_step

MakeOptimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

DREW = "the model drew random numbers while it ran: one of its courses is counted"
"""The note of a trace that may be another one the next time."""


def trace_model(
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    train: bool | None,
    grad_inputs: bool | None,
    loss_of: Callable[[Any], Any] | None,
    make_optimizer: MakeOptimizer | None = None,
) -> Trace:
    """The operations of model(*inputs, **kwargs) and of the backward pass of the sum of its outputs, or of what
    `loss_of` makes of them.

    make_optimizer: parameters that need a gradient → an optimizer, whose second step is in the trace, too.
    """
    mode = fake_mode()
    copied, (given, named) = fake_copy(model, (inputs, dict(kwargs)), mode)
    note_ends((inputs, dict(kwargs)), (given, named))
    with mode:
        trained = [parameter for parameter in copied.parameters() if parameter.requires_grad]
        optimizer = make_optimizer(trained) if make_optimizer is not None and trained else None
    if train is not None:
        copied.train(train)
    if grad_inputs is not None:
        given, named = tree_map(_asking(grad_inputs), (given, named))

    def step(mark: Callable[[str], None]) -> None:
        if optimizer is not None:
            optimizer.zero_grad()
        mark("forward")
        with torch.enable_grad():
            outputs = copied(*given, **named)
            loss = outputs if loss_of is None else loss_of(outputs)
            mark("loss")
            check_outputs(copied, loss)
            total = summed(loss)
        if total is not None:
            mark("backward")
            total.backward()
        if optimizer is not None:
            mark("optimizer")
            optimizer.step()
        mark("end")

    before = 0 if optimizer is None else 1  # the state that the recorded step finds
    with kept_random() as drawn:
        trace = trace_step(
            step, model=copied, optimizer=optimizer, inputs=(given, named), mode=mode, steps_before=before,
            batch=batch_mask(model, inputs, kwargs),
        )  # fmt: skip
        return replace(trace, notes=(*trace.notes, DREW)) if drawn() else trace


def _asking(wanted: bool) -> Callable[[Any], Any]:
    def with_gradient(value: Any) -> Any:
        return value.requires_grad_(wanted) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return with_gradient
