"""The exact trace of a step of any model, with its optimizer: what `count` and `footprint` read.

On fake tensors: no memory, no device, and the caller's model is left as it is. A model whose course depends on values
runs as a copy with values, and the notes say so.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from measure.model.run import arguments
from measure.operations.model_trace import MakeOptimizer, trace_any
from measure.operations.tracer import Trace

Optimizer = torch.optim.Optimizer | type[torch.optim.Optimizer] | MakeOptimizer


def step_trace(
    model: torch.nn.Module,
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    optimizer: Optimizer | None,
    loss_of: Callable[[Any], Any] | None,
    train: bool | None = None,
) -> Trace:
    """The operations and storages of forward, backward and optimizer step of model(*inputs, **kwargs).

    inputs: a tensor, or a tuple or list of arguments. optimizer: one that exists (another of its class and defaults is
    made for the copy of the model), a class, or a function of the parameters. train: the mode that the model runs in;
    None: each module in its own. Raises ValueError for what is no model, Unavailable with the cause where the step
    cannot be run.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"expected a torch.nn.Module as model, got {type(model).__name__}")
    make = None if optimizer is None else _maker(optimizer)
    return trace_any(model, arguments(inputs), kwargs or {}, train=train, loss_of=loss_of, make_optimizer=make)


def _maker(optimizer: Optimizer) -> MakeOptimizer:
    if isinstance(optimizer, torch.optim.Optimizer):
        kind: Any = type(optimizer)
        defaults = dict(optimizer.defaults)
        return lambda parameters: kind(parameters, **defaults)
    if callable(optimizer):
        return optimizer
    raise ValueError(f"expected an optimizer, its class or a function that makes one, got {type(optimizer).__name__}")
