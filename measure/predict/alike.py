"""Whether two modules are built alike, so that the same input takes the same course through both.

`signature` is equal for modules whose types, settings, training modes, and parameters' and buffers' sizes, dtypes,
strides and requires_grad are equal, child by child; values of parameters are not looked at. It is None for a module
that may do more than its settings say: hooks, a forward of its own instance, a compiled call, objects among its
settings whose state nobody sees, or code that works on global or enclosing variables. Such a module is run each time.

Not seen: code that changes objects which it reaches through the attributes of an imported module.
"""

from __future__ import annotations

import dis
import enum
import functools
import operator
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_BARE = frozenset(vars(nn.Module())) - {"training"}
_PLAIN = frozenset(
    (
        int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format, torch.Size,
        types.BuiltinFunctionType, type,
    )
)  # fmt: skip
_DERIVED = "_reversed_padding_repeated_twice"
"""A list that a convolution makes of its other settings."""

_MUTABLE = (list, dict, set, deque, bytearray, torch.Tensor, nn.Module, Counter, defaultdict, OrderedDict)
_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]
_TRUSTED = ("torch.nn.", "torchvision.")
"""Code that is known to keep nothing outside of its modules."""


_RATES = frozenset(
    (
        "torch.nn.modules.dropout.Dropout", "torch.nn.modules.dropout.Dropout1d", "torch.nn.modules.dropout.Dropout2d",
        "torch.nn.modules.dropout.Dropout3d", "torchvision.ops.stochastic_depth.StochasticDepth",
    )
)  # fmt: skip
"""Modules whose setting `p` is how much is dropped: what is run depends on whether that is all or nothing alone."""


@functools.cache
def _drops(kind: type) -> bool:
    return f"{kind.__module__}.{kind.__qualname__}" in _RATES


class NotAlike(Exception):
    """A module that nothing can be said about."""


def signature(module: nn.Module) -> Any:
    """See the module; hashable. None for a module that must run each time."""
    try:
        return _signature(module)
    except (NotAlike, TypeError):
        return None


def _signature(module: nn.Module) -> tuple[Any, ...]:
    kind = type(module)
    own = module.__dict__
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        raise NotAlike
    children = own["_modules"]
    settings = None if children else _layer(kind, own)
    if settings is None:
        if not keeps_to_itself(kind) or own.get("_compiled_call_impl") is not None:
            raise NotAlike
        rate = _drops(kind)
        settings = tuple(
            [
                (name, value in (0, 1) and value if rate and name == "p" else _frozen(value))
                for name, value in own.items()
                if name not in _BARE
            ]
        )
    held = [
        None if tensor is None else (name, tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad)
        for part in (own["_parameters"], own["_buffers"])
        for name, tensor in part.items()
    ]
    below = tuple([(name, None if child is None else _signature(child)) for name, child in children.items()])
    return kind, settings, tuple(held), below


_names: dict[tuple[type, int], Any] = {}
_plain_kinds: set[tuple[type, ...]] = set()


def _layer(kind: type, own: dict[str, Any]) -> Any:
    """The settings of one of PyTorch's own layers, taken at once; None where they are not as plain as usual."""
    if not kind.__module__.startswith("torch.nn.modules.") or _drops(kind):
        return None
    asked = kind, len(own)
    getter = _names.get(asked)
    if getter is None:
        names = [name for name in own if name not in _BARE and name != _DERIVED]
        getter = _names[asked] = operator.itemgetter("training", *names, "training")
    try:
        values = getter(own)
        kinds = tuple(map(type, values))
        hash(values)
    except (KeyError, TypeError):
        return None
    if kinds not in _plain_kinds:
        if any(each not in _PLAIN and each is not tuple for each in kinds):
            return None
        _plain_kinds.add(kinds)
    return values, kinds


def _frozen(value: Any) -> Any:
    """A setting as something to compare; 1, 1.0 and True differ. Raises NotAlike for what may have a state."""
    kind = type(value)
    if kind in _PLAIN:
        return value if kind is str else (kind, value)
    if kind in (tuple, list):
        return kind, tuple([_frozen(item) for item in value])
    if isinstance(value, torch.Tensor):
        return id(value), value._version, value.requires_grad
    if isinstance(value, type):
        return value
    if isinstance(value, enum.Enum):
        return kind, value.name
    if kind is types.FunctionType and not value.__closure__:
        return value
    if kind in (dict, OrderedDict):
        return kind, tuple([(_frozen(name), _frozen(item)) for name, item in value.items()])
    if kind is functools.partial:
        return kind, _frozen(value.func), _frozen(value.args), _frozen(value.keywords)
    raise NotAlike


@functools.cache
def keeps_to_itself(kind: type) -> bool:
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


def hints(model: nn.Module) -> dict[int, Any]:
    """id of each module that has children and, at a glance, a likeness elsewhere in the model → what it looks like.

    Only to save work: what looks alike need not be.
    """
    looks: dict[int, Any] = {}
    _look(model, looks)
    seen = Counter(look for look in looks.values() if look is not None)
    return {module: look for module, look in looks.items() if look is not None and seen[look] > 1}


def _look(module: nn.Module, looks: dict[int, Any]) -> int:
    """The look of a module as a number, noted if it has children."""
    own = module.__dict__
    parts: list[Any] = [type(module)]
    for tensor in own["_parameters"].values():
        parts.append(None if tensor is None else tensor.shape)
    children = own["_modules"]
    if not children:
        return hash(tuple(parts))
    for child in children.values():
        if child is not None:
            parts.append(_look(child, looks))
    look = hash(tuple(parts))
    looks[id(module)] = look
    return look
