"""A model on meta tensors, run and left as it was.

A model that is on meta already runs itself; of any other a copy does, whose tensors have its tensors' sizes, strides
and dtypes and no values. Afterwards every module has the attributes, lists and modes it had, every parameter its
gradient. Not undone: what the model's code changes outside of its modules; for random numbers see `random_state.py`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from measure.fake.mode import as_given, check_dense

_SAVED = (list, dict, set)
_BARE = frozenset(vars(torch.nn.Module()))
_UNHELD = _BARE - {"_parameters", "_buffers"}
_HOLDERS = (list, tuple, dict, OrderedDict)


def on_meta(tree: Any, grad: bool | None = None) -> Any:
    """Inputs in any nesting, by their sizes; one that comes twice comes twice, and one that is no leaf is none.

    grad: whether floating-point ones need a gradient; None: as they do.
    """
    known: dict[int, torch.Tensor] = {}

    def turned(value: Any) -> Any:
        if isinstance(value, PackedSequence):  # it refuses sizes of batches that are not on the CPU, and is run by them
            data, order, back = map(turned, (value.data, value.sorted_indices, value.unsorted_indices))
            return PackedSequence(data, value.batch_sizes, order, back)
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in known:
            made = _meta_like(value)
            wants = value.requires_grad if grad is None else grad
            known[id(value)] = as_given(made, wants and (made.is_floating_point() or made.is_complex()), value)
        return known[id(value)]

    return tree_map(turned, tree, is_leaf=lambda value: isinstance(value, PackedSequence))


@dataclass(frozen=True)
class Parts:
    """The modules of a model of which something may change, itself first, and those among them that may change what
    they have besides their mode and their parameters' gradients."""

    every: list[torch.nn.Module]
    changing: list[torch.nn.Module]


def copy_on_meta(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of the model without values."""
    held = (tensor for module in modules(model) for tensor in _tensors_of(module))
    instead: dict[int, Any] = {}
    for tensor in held:
        if id(tensor) not in instead:
            made = _meta_like(tensor)
            instead[id(tensor)] = (
                torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
                if isinstance(tensor, torch.nn.Parameter)
                else made.requires_grad_(tensor.requires_grad)
            )
    return copy.deepcopy(model, instead)


def parts_of(model: torch.nn.Module) -> Parts:
    """The model's modules."""
    every = modules(model)
    return Parts(every, [module for module in every if not _is_steady(module)])


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
def preserved_state(parts: Parts, train: bool | None) -> Iterator[None]:
    """Run the model inside; afterwards all its modules are as before.

    train: the mode it runs in; None: each module in its own.
    """
    modes = [(module, module.training) for module in parts.every] if train is not None else []
    states = [(module, dict(module.__dict__), _contents(module)) for module in parts.changing]
    gradients = [(p, p.grad) for module in parts.every for p in module._parameters.values() if p is not None]
    try:
        if train is not None:
            parts.every[0].train(train)
        yield
    finally:
        for module, attributes, contents in states:
            if not _same(module.__dict__, attributes):
                module.__dict__.clear()
                module.__dict__.update(attributes)
            for value, before in contents:
                _refill(value, before)
        for module, training in modes:
            module.training = training
        for parameter, gradient in gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient


def _meta_like(tensor: torch.Tensor) -> torch.Tensor:
    check_dense(tensor)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _tensors_of(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    for name, value in module.__dict__.items():
        if isinstance(value, torch.Tensor):
            yield value
        elif type(value) in _HOLDERS and value and name not in _UNHELD:
            yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


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


def _refill(value: Any, before: Any) -> None:
    if isinstance(value, list):
        value[:] = before
    elif isinstance(value, dict):
        if not _same(value, before):
            value.clear()
            value.update(before)
    elif value ^ before:
        value.clear()
        value.update(before)
