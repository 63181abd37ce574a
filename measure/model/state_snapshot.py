"""A model is run and left as it was, and so are the generators of random numbers.

Afterwards every module has the attributes, lists and modes it had, every parameter its gradient, and Python's,
PyTorch's (on the CPU) and NumPy's random numbers go on where they were. Not undone: what the model's code changes
outside of its modules, generators that it keeps of its own, and those of other devices.

How the adapters run a model: as users of counters do, and leaving it as it was.

Eval mode, gradients on, real tensors unless an adapter says otherwise. The backward pass that they count is that of the
sum of all output tensors: its gradients are of parameters, the input needs none. Nothing here counts.
"""

import contextlib
import ctypes
import functools
import operator
import random
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from results.records.counts import instances

_SAVED = (list, dict, set)
_BARE = frozenset(vars(torch.nn.Module()))


def modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """All modules, each once, the model first. Model.modules() takes three times as long."""
    found, stack = {id(model): model}, [model]
    while stack:
        for child in stack.pop()._modules.values():
            if child is not None and id(child) not in found:
                found[id(child)] = child
                if child._modules:
                    stack.append(child)
    return list(found.values())


def _is_steady(module: torch.nn.Module) -> bool:
    """Whether this is a layer of PyTorch's or torchvision's own, which keeps what it has, and its tensors in place."""
    own = module.__dict__
    kind: Any = type(module)
    return not (own["_forward_hooks"] or own["_forward_pre_hooks"]) and _is_own(kind)


@functools.cache
def _is_own(kind: type) -> bool:
    return kind.__module__.startswith(("torch.nn.modules.", "torchvision.ops."))


@contextlib.contextmanager
def preserved_state(model: torch.nn.Module) -> Iterator[None]:
    """Run the model inside; afterwards all its modules are as before."""
    every = modules(model)
    states = [(module, dict(vars(module)), _contents(module)) for module in every if not _is_steady(module)]
    gradients = [(p, p.grad) for module in every for p in module._parameters.values() if p is not None]
    try:
        yield
    finally:
        for module, attributes, contents in states:
            if not _same(module.__dict__, attributes):
                module.__dict__.clear()
                module.__dict__.update(attributes)
            for value, before in contents:
                if isinstance(value, list):
                    value[:] = before
                elif isinstance(value, dict):
                    if not _same(value, before):
                        value.clear()
                        value.update(before)
                elif value ^ before:
                    value.clear()
                    value.update(before)
        for parameter, gradient in gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient


def _contents(module: torch.nn.Module) -> list[tuple[Any, Any]]:
    """Lists, dicts and sets among the attributes (also of parameters, buffers, children), and what they hold."""
    found: list[tuple[Any, Any]] = []
    for name, value in module.__dict__.items():
        if isinstance(value, _SAVED) and (value or name not in _BARE):
            found.append(
                (value, value[:] if isinstance(value, list) else dict(value) if isinstance(value, dict) else set(value))
            )
    return found


def _same(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a dict has the very objects that it had, in their order."""
    return list(now) == list(before) and all(map(operator.is_, now.values(), before.values()))


@contextlib.contextmanager
def kept_random() -> Iterator[Callable[[], bool]]:
    """Random numbers go on afterwards where they were. Gives a function that says whether any was drawn since."""
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
    """What a state holds, without a kernel: the first of a process to compare costs it half a megabyte."""
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def _set(before: tuple[Any, Any, Any]) -> None:
    random.setstate(before[0])
    torch.set_rng_state(before[1])
    if before[2] is not None:
        sys.modules["numpy.random"].set_state(before[2])


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
