"""How the adapters run a model: as users of counters do, and leaving it as it was.

Eval mode, gradients on, real tensors unless an adapter says otherwise. The backward pass that they count is that of the
sum of all output tensors: its gradients are of parameters, the input needs none. Nothing here counts.
"""

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from results.records.counts import instances

HOOKS = ("_forward_pre_hooks", "_forward_hooks")
"""Where a module keeps what counters hook on it: number → function."""


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Eval mode, gradients on and none held; afterwards every module's mode and every gradient are as they were."""
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    model.eval()
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with torch.enable_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, gradient in gradients:
            parameter.grad = gradient


@contextlib.contextmanager
def preserve_state(model: torch.nn.Module, names: Collection[str] = ()) -> Iterator[None]:
    """Takes off the forward hooks, and the attributes and buffers of these names, that a counter put on modules."""
    before = [
        (m, {held: set(vars(m)[held]) for held in HOOKS}, {n for n in names if hasattr(m, n)}) for m in model.modules()
    ]
    try:
        yield
    finally:
        for module, hooks, had in before:
            for held, keys in hooks.items():
                for added in vars(module)[held].keys() - keys:
                    del vars(module)[held][added]
            for name in names:
                if name not in had and hasattr(module, name):
                    delattr(module, name)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested lists, tuples, mappings and dataclasses."""
    return instances(value, torch.Tensor)


def arguments(inputs: Any) -> tuple[Any, ...]:
    """Positional arguments of a model: those in a tuple or list, or one alone. A PackedSequence is one."""
    several = isinstance(inputs, (tuple, list)) and not isinstance(inputs, PackedSequence)
    return tuple(inputs) if several else (inputs,)


def check_outputs(model: torch.nn.Module, outputs: Any) -> None:
    """Raises ValueError where a model that can be trained gives no tensor: its backward pass would be left out."""
    if next(iter(tensors(outputs)), None) is None and any(each.requires_grad for each in model.parameters()):
        what = f"expected tensors in what the model gives, or in its fields, got {type(outputs).__name__}"
        raise ValueError(f"{what}: loss_of= says what the loss is made of")


def summed(outputs: Any, dense: bool = False) -> torch.Tensor | None:
    """The sum of all output tensors that have a gradient, of complex ones of both parts; None if none has: there is no
    backward pass then. dense: whether each gradient is made whole, for operators that refuse one without strides."""
    sums = []
    for tensor in tensors(outputs):
        if tensor.requires_grad:
            tensor = _DenseGradient.apply(tensor) if dense else tensor
            sums.append((torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).sum())
    return torch.stack(sums).sum() if len(sums) > 1 else sums[0] if sums else None


class _DenseGradient(torch.autograd.Function):
    """The tensor, whose gradient is contiguous."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0].contiguous()
