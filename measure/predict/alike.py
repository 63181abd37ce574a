"""Whether two modules are built alike, so that the same input takes the same course through both.

Signatures are equal for modules whose types, settings, training modes, and parameters' and buffers' sizes, dtypes,
strides and requires_grad are equal, child by child; values of parameters are not looked at. There is none for a module
that may do more than its settings say: hooks, a forward of its own instance, a compiled call, objects among its
settings whose state nobody sees, or code that works on global or enclosing variables. Such a module is run each time.

What code does is told by `measure/predict/harmless.py`.
"""

from __future__ import annotations

import enum
import functools
import operator
import types
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from measure.predict.harmless import is_strange, keeps_to_itself, leaves_modules_alone

_BARE = frozenset(vars(nn.Module())) - {"training"}
_PLAIN = frozenset(
    (
        int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format, torch.Size,
        types.BuiltinFunctionType, type,
    )
)  # fmt: skip
_DERIVED = "_reversed_padding_repeated_twice"
"""A list that a convolution makes of its other settings."""

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


class Likeness:
    """Numbers for the modules of a model, equal where their signatures are.

    They are taken once, at the beginning, if all code of the model is known to leave its modules as they are
    (`fixed`); else again at each call, because what ran before may have changed a module. repeated: modules with
    children that were built like another one; no other can be replayed.
    """

    def __init__(self, model: nn.Module) -> None:
        self._numbers: dict[Any, int] = {}
        self._kinds: set[type] = set()
        self._strange = False
        parents: list[nn.Module] = []
        self._taken: dict[int, int | None] = {}
        whole = self._number(model, self._taken, parents)
        self.fixed = whole is not None and not self._strange and all(map(leaves_modules_alone, self._kinds))
        seen = Counter(self._taken.values())
        self.repeated = [m for m in parents if (number := self._taken[id(m)]) is not None and seen[number] > 1]

    def of(self, module: nn.Module) -> int | None:
        """The number of a module with children as it is now; None for one that must run each time."""
        return self._taken[id(module)] if self.fixed else self._number(module, {}, [])

    def _number(self, module: nn.Module, known: dict[int, int | None], parents: list[nn.Module]) -> int | None:
        """known: id of a module with children → its number; parents: they themselves. Both grow."""
        own = module.__dict__
        children = own["_modules"]
        if not children:
            return self._alone(type(module), own)
        if id(module) in known:
            return known[id(module)]
        below = [-1 if child is None else self._number(child, known, parents) for child in children.values()]
        number = None if None in below else self._noted(type(module), own, below)
        known[id(module)] = number
        parents.append(module)
        return number

    def _alone(self, kind: type, own: dict[str, Any]) -> int | None:
        """The number of a module without children. A layer like an earlier one is known at once."""
        plain = None if _hooked(own) else _layer(kind, own)
        try:
            number = None if plain is None else self._numbers.get(plain)
        except TypeError:  # a setting that has no hash
            plain = number = None
        if number is None and plain is not None and _are_plain(plain[2]):
            self._kinds.add(kind)
            number = self._numbers[plain] = len(self._numbers)
        return self._noted(kind, own, ()) if number is None else number

    def _noted(self, kind: type, own: dict[str, Any], below: Sequence[int | None]) -> int | None:
        """The number of any module by its signature: type, settings, tensors, names and numbers of children."""
        self._kinds.add(kind)
        self._strange = self._strange or any(is_strange(value) for name, value in own.items() if name not in _BARE)
        if _hooked(own):
            return None
        try:
            key = (kind, _settings(kind, own), *_held(own), *own["_modules"], *below)
            return self._numbers.setdefault(key, len(self._numbers))
        except (NotAlike, TypeError):
            return None


def _hooked(own: dict[str, Any]) -> bool:
    return bool(
        own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]
    )


def _settings(kind: type, own: dict[str, Any]) -> tuple[Any, ...]:
    """What a module has besides tensors and children. Raises NotAlike for one of which more may matter."""
    if not keeps_to_itself(kind) or own.get("_compiled_call_impl") is not None:
        raise NotAlike
    rate = _drops(kind)
    return tuple(
        [
            (name, value in (0, 1) and value if rate and name == "p" else _frozen(value))
            for name, value in own.items()
            if name not in _BARE and not (name == "forward" and stands_in(value))
        ]
    )


def stands_in(forward: Any) -> bool:
    """Whether this forward is the count's own, in place of the module's (`measure/predict/calls.py`)."""
    return getattr(forward, "stands_in_for_forward", False) is True


def _held(own: dict[str, Any]) -> list[Any]:
    """Parameters and buffers: how many of the first, names, and what each is."""
    parameters, buffers = own["_parameters"], own["_buffers"]
    parts: list[Any] = [len(parameters), *parameters, *buffers]
    for part in (parameters, buffers):
        for tensor in part.values():
            if tensor is None:
                parts.append(None)
            else:
                parts += (tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad)
    return parts


_getters: dict[tuple[type, int], Any] = {}
_plain_kinds: set[tuple[type, ...]] = set()


def _layer(kind: type, own: dict[str, Any]) -> tuple[Any, ...] | None:
    """The signature of one of PyTorch's own layers, its settings taken at once: (type, settings, their types, tensors).

    It holds if the settings are as plain as usual (`_are_plain`). None for others.
    """
    asked = kind, len(own)
    if asked not in _getters:
        names = [name for name in own if name not in _BARE and name != _DERIVED]
        fit = kind.__module__.startswith("torch.nn.modules.") and not _drops(kind)
        _getters[asked] = operator.itemgetter("training", *names, "training") if fit else None
    getter = _getters[asked]
    try:
        values = None if getter is None else getter(own)
    except KeyError:
        return None
    return None if values is None else (kind, values, tuple(map(type, values)), *_held(own))


def _are_plain(kinds: tuple[type, ...]) -> bool:
    """Whether settings of these types are nothing but their values."""
    if kinds not in _plain_kinds:
        if any(each not in _PLAIN and each is not tuple for each in kinds):
            return False
        _plain_kinds.add(kinds)
    return True


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
