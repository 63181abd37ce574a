"""Restores a model and the generators of random numbers after the model was run; also sums a model's outputs.

After the contexts `preserved_state` and `evaluating` every module has its former attributes, lists and modes, and every
parameter its gradient. After `preserved_random` the random numbers of Python, PyTorch (on the CPU) and NumPy go on
where they were. Not restored: changes that the model's code makes outside of its modules; the model's own generators;
generators of other devices. Counters run a model under `evaluating`: eval mode with gradients on. The backward pass
that they count starts at `sum_of_outputs`, the sum of all output tensors. Parameters get gradients, and the input needs
none.
"""

import contextlib
import ctypes
import operator
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from results.records.calls import instances


@contextlib.contextmanager
def preserved_state(model: torch.nn.Module) -> Iterator[None]:
    """Restore all modules of the model after the context."""
    modules = list(model.modules())
    attributes = [(module, dict(vars(module))) for module in modules]
    contents = [
        (value, value.copy())
        for module in modules
        for value in vars(module).values()  # parameters, buffers, hooks and children, too
        if isinstance(value, (list, dict, set))
    ]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    try:
        yield
    finally:
        for module, held in attributes:
            if not _holds_same_objects(module.__dict__, held):
                module.__dict__.clear()
                module.__dict__.update(held)
        for value, before in contents:
            if isinstance(value, list):
                value[:] = before
            elif isinstance(value, set) or not _holds_same_objects(value, before):
                value.clear()
                value.update(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _holds_same_objects(now: Any, before: Any) -> bool:
    """Return whether a dict has the very objects that it had, in their order."""
    return list(now) == list(before) and all(map(operator.is_, now.values(), before.values()))


@contextlib.contextmanager
def preserved_random() -> Iterator[Callable[[], bool]]:
    """Restore the random numbers after the context. Yields a function that returns whether any was drawn since."""
    before = _state()

    def state_changed() -> bool:
        return not _same_numbers(before, _state())

    try:
        yield state_changed
    finally:
        if state_changed():
            _set(before)


def _state() -> tuple[Any, Any, Any]:
    numpy = sys.modules.get("numpy.random")
    return random.getstate(), torch.get_rng_state(), None if numpy is None else numpy.get_state()


def _same_numbers(before: tuple[Any, Any, Any], now: tuple[Any, Any, Any]) -> bool:
    if before[2] is not None and now[2] is not None:
        (kind, keys, *rest), (kind_now, keys_now, *rest_now) = before[2], now[2]
        if (kind, rest) != (kind_now, rest_now) or bytes(keys) != bytes(keys_now):
            return False
    return bool(before[0] == now[0]) and _bytes_of(before[1]) == _bytes_of(now[1])


def _bytes_of(state: torch.Tensor) -> bytes:
    """Return a state's content as bytes without running a kernel: the first comparison in a process would cost half a
    megabyte."""
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def _set(before: tuple[Any, Any, Any]) -> None:
    random.setstate(before[0])
    torch.set_rng_state(before[1])
    if before[2] is not None:
        sys.modules["numpy.random"].set_state(before[2])


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Set eval mode, turn gradients on and remove those that parameters hold; restore the model after the context."""
    with preserved_state(model), torch.enable_grad():
        model.eval()
        for parameter in model.parameters():
            parameter.grad = None
        yield


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Return all tensors in nested lists, tuples, mappings and dataclasses."""
    return instances(value, torch.Tensor)


def arguments(inputs: Any) -> tuple[Any, ...]:
    """Return the positional arguments of a model: the items of a tuple or list, or else the one object. A
    PackedSequence is one."""
    several = isinstance(inputs, (tuple, list)) and not isinstance(inputs, PackedSequence)
    return tuple(inputs) if several else (inputs,)


def check_outputs(model: torch.nn.Module, outputs: Any) -> None:
    """Raise ValueError where a trainable model returns no tensor: its backward pass would be left out."""
    if next(iter(tensors(outputs)), None) is None and any(parameter.requires_grad for parameter in model.parameters()):
        what = f"expected outputs of the model that are or hold tensors, got {type(outputs).__name__}"
        raise ValueError(f"{what}: pass loss_of=, which returns the tensors of the loss")


def sum_of_outputs(outputs: Any, dense: bool = False) -> torch.Tensor | None:
    """Return the sum of all output tensors that require a gradient, with both parts of complex ones; None if none does,
    since there is no backward pass then. dense: whether each gradient is made contiguous, for operators that refuse one
    without strides."""
    sums = []
    for tensor in tensors(outputs):
        if tensor.requires_grad:
            tensor = _DenseGradient.apply(tensor) if dense else tensor
            sums.append((torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).sum())
    return torch.stack(sums).sum() if len(sums) > 1 else sums[0] if sums else None


class _DenseGradient(torch.autograd.Function):
    """Returns the tensor, and makes its gradient contiguous."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0].contiguous()
