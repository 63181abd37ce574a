"""Whether two modules have one structure, so that the same input takes the same course through both.

Signatures are equal for modules whose types, settings, training modes, and parameters' and buffers' sizes, dtypes,
strides and requires_grad are equal, child by child; values of parameters are not looked at. There is none for a module
that may do more than its settings say: hooks, a forward of its own instance, a compiled call, objects among its
settings whose state nobody sees, or code that works on global or enclosing variables. Such a module is run each time.

What code does is decided by `measure/fast_count/module_purity.py`.

`prepared` finds models that need not be kept: those whose code is known to change nothing of its modules, and that are
on meta. Their modules are looked at once, for likenesses; neither their attributes nor their gradients are noted or put
back. What is known of code is in `measure/fast_count/module_purity.py`; not claimed of any model that has a hook, a
function of somebody else's among its settings, or a tensor on another device.
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
from torch.utils._pytree import tree_leaves

from measure.fast_count.module_purity import is_pure, is_unrecognised, mutates_no_module
from measure.model.state_snapshot import Parts, modules, parts_on_meta

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


_getters: dict[tuple[type, int], Any] = {}
"""Class and number of attributes → (names of settings, what takes them)."""

_plain_kinds: set[tuple[type, ...]] = set()
_simple_kinds: set[tuple[type, ...]] = set()


class Incomparable(Exception):
    """A module that nothing can be said about."""


class Likeness:
    """Numbers for the modules of a model, equal where their signatures are.

    They are taken once, at the beginning, if all code of the model is known to leave its modules as they are
    (`fixed`); else again at each call, because what ran before may have changed a module. repeated: modules with
    children that were built like another one; no other can be replayed. on_meta: whether all tensors are, and have
    no hooks; it is only known of a model that is fixed. modes: what the modules' `training` is.
    """

    def __init__(self, model: nn.Module) -> None:
        self._numbers: dict[Any, int] = {}
        self._kinds: set[type] = set()
        self._strange = False
        self.on_meta = True
        self.modes: set[bool] = set()
        parents: list[nn.Module] = []
        self._taken: dict[int, int | None] = {}
        whole = self._number(model, self._taken, parents)
        self.fixed = whole is not None and not self._strange and all(map(mutates_no_module, self._kinds))
        seen = Counter(self._taken.values())
        self.repeated = [m for m in parents if (number := self._taken[id(m)]) is not None and seen[number] > 1]

    def of(self, module: nn.Module) -> int | None:
        """The number of a module with children as it is now; None for one that must run each time."""
        return self._taken.get(id(module)) if self.fixed else self._number(module, {}, [])

    def _number(self, module: nn.Module, known: dict[int, int | None], parents: list[nn.Module]) -> int | None:
        """known: id of a module with children → its number; parents: they themselves. Both grow."""
        own = module.__dict__
        children = own["_modules"]
        if not children:
            return self._layer_number(type(module), own)
        if id(module) in known:
            return known[id(module)]
        below: list[int | None] = []
        for child in children.values():
            if child is None:
                below.append(-1)
            else:
                within = child.__dict__
                below.append(
                    self._number(child, known, parents)
                    if within["_modules"]
                    else self._layer_number(type(child), within)
                )
        number = None if None in below else self._noted(type(module), own, below)
        known[id(module)] = number
        parents.append(module)
        return number

    def _layer_number(self, kind: type, own: dict[str, Any]) -> int | None:
        """The number of a module without children. A layer like an earlier one is known at once.

        Its signature is of settings taken at once, if it is one of PyTorch's own layers and they are as plain as usual.
        """
        if not _is_layer(kind) or _hooked(own):
            return self._noted(kind, own, ())
        values = _extras(kind, own)[1]
        kinds = tuple(map(type, values))
        plain = (kind, values, kinds, *_held(own))
        try:
            number = self._numbers.get(plain)
        except TypeError:  # a setting that has no hash
            return self._noted(kind, own, ())
        if number is None:
            return self._new(plain, kind, own) if _are_plain(kinds) else self._noted(kind, own, ())
        return number

    def _noted(self, kind: type, own: dict[str, Any], below: Sequence[int | None]) -> int | None:
        """The number of any module by its signature: type, settings, tensors, names and numbers of children."""
        self._kinds.add(kind)
        names, values = _extras(kind, own)
        kinds = tuple(map(type, values))
        simple = kinds in _simple_kinds or _are_simple(kinds)
        self._strange = self._strange or not (simple or not any(map(is_unrecognised, values)))
        if _hooked(own):
            return None
        try:
            settings = _settings(kind, own, names, values, simple)
            key = (kind, names, *settings, kinds if simple else (), *_held(own), *own["_modules"], *below)
            number = self._numbers.get(key)
        except (Incomparable, TypeError):
            return None
        if number is not None:
            return number
        self.on_meta = self.on_meta and (simple or all(map(_is_on_meta, tree_leaves(values))))
        return self._new(key, kind, own)

    def _new(self, key: Any, kind: type, own: dict[str, Any]) -> int:
        """The number of the first module of its signature."""
        self._kinds.add(kind)
        self.modes.add(own["training"])
        for tensors in (own["_parameters"], own["_buffers"]):
            self.on_meta = self.on_meta and all(map(_is_on_meta, tensors.values()))
        number = self._numbers[key] = len(self._numbers)
        return number


def _is_on_meta(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or (
        value.is_meta and not (value._backward_hooks or value._post_accumulate_grad_hooks)
    )


@functools.cache
def _is_layer(kind: type) -> bool:
    """Whether this is a layer of PyTorch's own all of whose settings matter as they are."""
    return kind.__module__.startswith("torch.nn.modules.") and not _drops(kind)


def _hooked(own: dict[str, Any]) -> bool:
    return bool(
        own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]
    )


def _extras(kind: type, own: dict[str, Any]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Names and values of a module's settings, whether it trains first."""
    asked = kind, len(own)
    names, getter = _getters.get(asked) or _learned(asked, own)
    try:
        return names, getter(own)
    except KeyError:  # as many settings as another of its class, with other names
        del _getters[asked]
        names, getter = _learned(asked, own)
        return names, getter(own)


def _learned(asked: tuple[type, int], own: dict[str, Any]) -> tuple[tuple[str, ...], Any]:
    """How settings are taken from such a module at once."""
    derived = (_DERIVED,) if asked[0].__module__.startswith("torch.nn.modules.") else ()
    names = ("training", *(name for name in own if name not in _BARE and name not in ("training", *derived)))
    names = names if len(names) > 1 else ("training", "training")  # a getter of one name gives no tuple
    learned = names, operator.itemgetter(*names)
    _getters[asked] = learned
    return learned


def _settings(
    kind: type, own: dict[str, Any], names: Sequence[str], values: Sequence[Any], simple: bool
) -> Sequence[Any]:
    """The settings as something to compare. Raises Incomparable for a module of which more may matter.

    simple: whether their types say that they are nothing but their values.
    """
    if not is_pure(kind) or own.get("_compiled_call_impl") is not None:
        raise Incomparable
    if _drops(kind):
        return [v in (0, 1) and v if name == "p" else _frozen(v) for name, v in zip(names, values, strict=True)]
    if simple:
        return values
    return [
        None if name == "forward" and stands_in(value) else _frozen(value)
        for name, value in zip(names, values, strict=True)
    ]


def stands_in(forward: Any) -> bool:
    """Whether this forward is the count's own, in place of the module's (`measure/fast_count/intercepted_calls.py`)."""
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
                hooks = tensor._backward_hooks or tensor._post_accumulate_grad_hooks
                parts += (
                    tensor.shape,
                    tensor.stride(),
                    tensor.dtype,
                    tensor.requires_grad,
                    tensor.is_meta,
                    bool(hooks),
                )
    return parts


def _are_plain(kinds: tuple[type, ...]) -> bool:
    """Whether settings of these types are nothing but their values, in a layer of PyTorch's own."""
    if kinds not in _plain_kinds:
        if any(each not in _PLAIN and each is not tuple for each in kinds):
            return False
        _plain_kinds.add(kinds)
    return True


def _are_simple(kinds: tuple[type, ...]) -> bool:
    """Whether settings of these types are nothing but their values in any module: no functions, classes, containers."""
    if all(each in _PLAIN and each not in (type, types.BuiltinFunctionType) for each in kinds):
        _simple_kinds.add(kinds)
        return True
    return False


def _frozen(value: Any) -> Any:
    """A setting as something to compare; 1, 1.0 and True differ. Raises Incomparable for what may have a state."""
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
    raise Incomparable


def prepared(model: torch.nn.Module, train: bool | None, known_code: bool) -> tuple[Parts, Likeness | None]:
    """The model on meta, with what of it is to be kept; its likeness, if that is known as the model will run.

    train: the mode it is to run in; None: as each module is. known_code: whether nothing but the model's own code will
    run with it, no loss of the caller's, no hooks on all modules.
    """
    first = next(model.parameters(), None)
    alike = Likeness(model) if known_code and (first is None or first.is_meta) else None
    if alike is None or not (alike.fixed and alike.on_meta):
        parts = parts_on_meta(model)
        return parts, alike if train is None and parts.every[0] is model else None
    if train is None or alike.modes == {train}:
        return Parts([model], [], settled=True), alike
    return Parts(modules(model), [], settled=True), None
