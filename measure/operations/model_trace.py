"""Traces the operations of a training step of any model, on a copy of the model; returns a `Trace`.

Every exact count of this program comes from that trace. `trace_model` takes a model and its inputs, and runs a copy on
fake tensors, which have no data. It raises whatever fake tensors raise. `trace_any` catches that and runs a copy with
values instead. The caller's model and the random numbers stay as they were.
"""

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from measure.model.attention_masks import has_masks
from measure.model.state_snapshot import check_outputs, preserved_random, sum_of_outputs
from measure.operations.control_flow import MODULE as FLEX
from measure.operations.fake_mode import fake_copy, fake_mode, quiet_logs, tensors_of
from measure.operations.tracer import Trace, trace_step
from results.errors import Unavailable, one_line, plain_message
from results.process import free_bytes

MakeOptimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

DREW = "the model drew random numbers while it ran: one of its possible runs is counted"
"""The note of a trace that may differ the next time."""

ON_VALUES = "counted on real tensors"
"""Beginning of the note of a trace that fake tensors could not run."""


def trace_model(
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    train: bool | None,
    loss_of: Callable[[Any], Any] | None,
    make_optimizer: MakeOptimizer | None = None,
    has_values: bool = False,
    dense: bool = False,
) -> Trace:
    """Return the operations of model(*inputs, **kwargs) and of the backward pass of the sum of its outputs, or of the
    loss that `loss_of` makes of them.

    train: whether to set train or eval mode; None: as it is. make_optimizer: parameters that need a gradient → an
    optimizer, whose second step is in the trace, too. has_values: whether the step runs on real tensors with the same
    values instead of fake ones. dense: as in `sum_of_outputs`.
    """
    mode = None if has_values else fake_mode()
    copied, (positional, named) = fake_copy(model, (inputs, dict(kwargs)), mode)
    with contextlib.nullcontext() if mode is None else mode:
        trained = [parameter for parameter in copied.parameters() if parameter.requires_grad]
        optimizer = make_optimizer(trained) if make_optimizer is not None and trained else None
    if train is not None:
        copied.train(train)

    def step(mark: Callable[[str], None]) -> None:
        if optimizer is not None:
            optimizer.zero_grad()
        mark("forward")
        with torch.enable_grad():
            outputs = copied(*positional, **named)
            loss = outputs if loss_of is None else loss_of(outputs)
            mark("loss")
            check_outputs(copied, loss)
            total = sum_of_outputs(loss, dense)
        if total is not None:
            mark("backward")
            try:
                total.backward()
            except Exception as fault:
                if loss_of is None and not isinstance(fault, Unavailable):
                    fault.add_note("the loss is the sum of all outputs: pass loss_of= for another loss")
                raise
        if optimizer is not None:
            mark("optimizer")
            optimizer.step()
        mark("end")

    before = 0 if optimizer is None else 1  # the state that the recorded step finds
    with preserved_random() as drawn:
        trace = trace_step(
            step, model=copied, optimizer=optimizer, inputs=(positional, named), mode=mode, steps_before=before,
            batch=has_masks(model, inputs, kwargs),
        )  # fmt: skip
        return replace(trace, notes=(*trace.notes, DREW)) if drawn() else trace


def trace_any(model: torch.nn.Module, inputs: tuple[Any, ...], kwargs: Mapping[str, Any], **options: Any) -> Trace:
    """Trace as `trace_model` does, or a copy with values if fake tensors cannot run the step; a note says so.

    Raises Unavailable with the cause if there is no such copy, or it cannot run the step either.
    """
    with quiet_logs():
        was_loaded = FLEX in sys.modules
        try:
            return trace_model(model, inputs, kwargs, **options)
        except Exception as fault:  # noqa: BLE001  a user's code, which may run on real tensors
            first = fault
        is_dense = "stride" in str(first)
        if is_dense or (FLEX in sys.modules and not was_loaded):  # the run imported FlexAttention, now replaced
            with contextlib.suppress(Exception):  # the first fault is the one that is reported
                return trace_model(model, inputs, kwargs, dense=is_dense, **options)
    if why := _why_no_values(model, (inputs, kwargs)):
        raise Unavailable(f"the step could not be traced on fake tensors: {_reason(first)}; {why}") from first
    try:
        trace = trace_model(model, inputs, kwargs, has_values=True, dense=True, **options)
    except Exception as fault:
        raise Unavailable(f"the step could not be run: {_reason(fault)}") from fault
    return replace(trace, notes=(f"{ON_VALUES}: {_reason(first)}", *trace.notes))


def _reason(fault: Exception) -> str:
    return "; ".join((one_line(plain_message(str(fault)), 200), *getattr(fault, "__notes__", ())))


def _why_no_values(model: torch.nn.Module, inputs: Any) -> str:
    """Return why there is no copy with values, as an addition to another reason; "" if there is one."""
    held = [*tensors_of(model), *(leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))]
    if any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in held):
        return "the model or its inputs have no values to run with"
    needed = 2 * sum(
        {id(tensor): tensor.nbytes for tensor in held if tensor.is_cpu and tensor.layout is torch.strided}.values()
    )
    free = free_bytes()
    if free is not None and needed > free:
        return f"a copy with values and its gradients need {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
    return ""
