"""A model is run and left as it was.

Afterwards every module has the attributes, lists and modes it had, every parameter its gradient. Not undone: what the
model's code changes outside of its modules; for random numbers see `random_state.py`.
"""

import contextlib
import functools
import operator
from collections.abc import Iterator
from typing import Any

import torch

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
