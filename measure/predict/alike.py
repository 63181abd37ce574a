"""Whether two modules are built alike, so that the same input takes the same course through both.

Signatures are equal for modules whose types, settings, training modes, and parameters' and buffers' sizes, dtypes,
strides and requires_grad are equal, child by child; values of parameters are not looked at. There is none for a module
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


class Likeness:
    """Numbers for the modules of a model, equal where their signatures are.

    They are taken once, at the beginning, if all code of the model is known to leave its modules as they are
    (`fixed`); else again at each call, because what ran before may have changed a module.
    """

    def __init__(self, model: nn.Module) -> None:
        self._numbers: dict[Any, int] = {}
        self._taken: dict[int, int | None] = {}
        self._parents: list[nn.Module] = []
        self.fixed = True
        self._number(model, self._taken)
        seen = Counter(self._taken[id(module)] for module in self._parents)
        self.repeated = [m for m in self._parents if (n := self._taken[id(m)]) is not None and seen[n] > 1]
        """Modules with children that were built like another one: no other can be replayed."""

    def of(self, module: nn.Module) -> int | None:
        """The number of a module as it is now; None for one that must run each time."""
        return self._taken[id(module)] if self.fixed else self._number(module, {})

    def _number(self, module: nn.Module, known: dict[int, int | None]) -> int | None:
        if id(module) in known:
            return known[id(module)]
        own = module.__dict__
        children = own["_modules"]
        below = tuple([-1 if child is None else self._number(child, known) for child in children.values()])
        plain = None if children else _layer(type(module), own)
        try:
            key = None if None in below else (*_signature(module, plain), below)
            number = None if key is None else self._numbers.setdefault(key, len(self._numbers))
        except (NotAlike, TypeError):
            number = None
        known[id(module)] = number
        if known is self._taken:
            if children:
                self._parents.append(module)
            self.fixed = self.fixed and number is not None and _is_fixed(module, plain is not None)
        return number


def _signature(module: nn.Module, plain: Any) -> tuple[Any, ...]:
    """(type, settings, parameters and buffers, names of children) of a module without its children.

    plain: the settings of a layer of PyTorch's own, or None. Raises NotAlike.
    """
    kind = type(module)
    own = module.__dict__
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        raise NotAlike
    settings = _settings(kind, own) if plain is None else plain
    held = [
        None if tensor is None else (name, tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad)
        for part in (own["_parameters"], own["_buffers"])
        for name, tensor in part.items()
    ]
    return kind, settings, tuple(held), tuple(own["_modules"])


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


_FIXED = ("torch.nn.modules.", "torchvision.models.", "torchvision.ops.")
_NOT_FIXED = ("torch.nn.modules.lazy", "torchvision.models.detection.", "torchvision.models.optical_flow.")


@functools.cache
def _leaves_modules_alone(kind: type) -> bool:
    """Whether it is known of a class that its code changes no attribute of a module but when it is built."""
    return all(
        part is object or (part.__module__.startswith(_FIXED) and not part.__module__.startswith(_NOT_FIXED))
        for part in kind.__mro__
    )


def _is_fixed(module: nn.Module, plain: bool) -> bool:
    """Whether this module's code is known to leave modules as they are, functions among its settings included."""
    if not _leaves_modules_alone(type(module)):
        return False
    return plain or not any(_is_strange(value) for name, value in module.__dict__.items() if name not in _BARE)


def _is_strange(value: Any) -> bool:
    """Whether a setting holds a function or class of neither Python, PyTorch nor torchvision."""
    if isinstance(value, (types.FunctionType, type)):
        return not f"{value.__module__}.".startswith(("builtins.", "torch.", "torchvision."))
    if isinstance(value, functools.partial):
        return any(_is_strange(part) for part in (value.func, value.args, value.keywords))
    if isinstance(value, (tuple, list)):
        return any(_is_strange(part) for part in value)
    if isinstance(value, dict):
        return any(_is_strange(part) for part in value.values())
    return False


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
