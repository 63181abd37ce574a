"""What the code of a module class may change, as far as its own code says: why blocks may be taken as equal.

`is_pure`: it works on no variable outside of its modules. `mutates_no_module`: it changes no attribute of
any module but when it is built, and draws no random numbers but PyTorch's, which is known of PyTorch's layers and
torchvision's models alone (tests look through their code). Not seen: code that changes objects which it reaches through
the attributes of an imported module.
"""

from __future__ import annotations

import dis
import functools
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

_MUTABLE = (list, dict, set, deque, bytearray, torch.Tensor, nn.Module, Counter, defaultdict, OrderedDict)
_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]
_TRUSTED = ("torch.nn.", "torchvision.")
"""Code that is known to keep nothing outside of its modules."""

FIXED = ("torch.nn.modules.", "torchvision.models.", "torchvision.ops.")
"""Code that changes no attribute of a module but when it is built."""

NOT_FIXED = (
    "torch.nn.modules.lazy",
    "torchvision.models.detection.",
    "torchvision.models.optical_flow.",
    "torchvision.ops.poolers",
)
"""But for this."""


@functools.cache
def is_pure(kind: type) -> bool:
    """Whether the code of a module class names no variable, global or of an enclosing function, that can change."""
    if kind.__call__ is not nn.Module.__call__ and "__call__" in _defined(kind):
        return False
    return all(_harmless(function) for function in _functions(kind))


def _defined(kind: type) -> set[str]:
    return {
        name for part in kind.__mro__ if part is not nn.Module and issubclass(part, nn.Module) for name in vars(part)
    }


def _functions(kind: type) -> Iterator[types.FunctionType]:
    """The functions of a class and its bases, but for those of PyTorch and torchvision."""
    for part in kind.__mro__:
        if part not in (nn.Module, object) and not part.__module__.startswith(_TRUSTED):
            for value in vars(part).values():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(function, types.FunctionType):
                    yield function


def _harmless(function: types.FunctionType) -> bool:
    held = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if any(name != "__class__" for name in held):
        return False
    for code in _codes(function.__code__):
        if _STORE_GLOBAL in code.co_code[::2]:
            return False
        if any(isinstance(function.__globals__.get(name), _MUTABLE) for name in code.co_names):
            return False
    return True


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@functools.cache
def mutates_no_module(kind: type) -> bool:
    """See the module."""
    return all(
        part is object or (part.__module__.startswith(FIXED) and not part.__module__.startswith(NOT_FIXED))
        for part in kind.__mro__
    )


def is_unrecognised(value: Any) -> bool:
    """Whether a setting holds a function or class of neither Python, PyTorch nor torchvision."""
    if isinstance(value, (types.FunctionType, type)):
        return not f"{value.__module__}.".startswith(("builtins.", "torch.", "torchvision."))
    if isinstance(value, functools.partial):
        return any(is_unrecognised(part) for part in (value.func, value.args, value.keywords))
    if isinstance(value, (tuple, list)):
        return any(is_unrecognised(part) for part in value)
    if isinstance(value, dict):
        return any(is_unrecognised(part) for part in value.values())
    return False
