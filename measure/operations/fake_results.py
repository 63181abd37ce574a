"""Caches the results of operators on fake tensors by the signature of the call; also builds models without weights.

`ResultCache.signature` takes a call and returns its `Signature`: sizes, strides and dtype of each tensor, and all other
arguments with their types. The key of PyTorch's own cache costs more than ten times the call. Cached are operators of
`aten` on plain fake CPU tensors of one mode. They write nothing and return new tensors (`Plan.again`), or write to
their first argument and return it (`Plan.returns_self`). Not cached are results that depend on values, share memory
with an argument or another output, or lie on another device. `built_on_meta` returns the model that a function makes,
with sizes and dtypes but without memory. A model whose construction reads values of its tensors is built with values.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from measure.operations.schemas import Plan

_META, _CPU = torch.device("meta"), torch.device("cpu")

_TENSOR = "tensor"
SELF = "self"
"""Stands for the result of a call that returned its first argument."""


class Signature(NamedTuple):
    """A key that distinguishes a call from others, and the tensors among its arguments, in order."""

    key: tuple[Any, ...]
    tensors: list[torch.Tensor]


class ResultCache:
    """Results of calls in one fake mode by their signature; it makes fake tensors as the mode itself does."""

    def __init__(self, mode: FakeTensorMode) -> None:
        first = FakeTensor(mode, torch.empty((), device=_META), _CPU)
        self._mode = mode
        self._attributes = dict(vars(first))  # all fake tensors have these, with equal values
        self._device = "_fake_device" if "_fake_device" in self._attributes else "fake_device"
        loose, core = mode._allow_unsafe_data_ptr_access, torch._C
        self._guarded = core._set_warn_deprecated_on_mutable_data_ptr if loose else core._set_throw_on_mutable_data_ptr

    def signature(self, plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Signature | None:
        """Return a key of this call; None if its result must not be cached."""
        key: list[Any] = []
        tensors: list[torch.Tensor] = []
        if not self._read(plan.mixed, args, key, tensors):
            return None
        if kwargs:
            key.extend(kwargs)
            if not self._read(plan.mixed, kwargs.values(), key, tensors):
                return None
        return Signature(tuple(key), tensors)

    def remember(self, plan: Plan, seen: Signature, args: Sequence[Any], out: Any) -> None:
        """Keep what a call returned, if it can be made again."""
        if plan.returns_self:
            if out is args[0]:
                plan.returned[seen.key] = SELF
        elif (parts := self._parts(out, seen.tensors)) is not None:
            plan.returned[seen.key] = (
                _TENSOR if isinstance(out, torch.Tensor) else list if isinstance(out, list) else tuple,
                parts,
            )

    def make(self, returned: Any, args: Sequence[Any]) -> Any:
        """Make a call's result from its cached description `returned`."""
        if returned is SELF:
            return args[0]
        kind, parts = returned
        if kind is _TENSOR:
            return self.new(*parts[0])
        return kind([None if part is None else self.new(*part) for part in parts])

    def new(self, shape: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        """Return a fake tensor with a new storage."""
        with torch._C._DisableTorchDispatch():
            return self.wrapped(torch.empty_strided(shape, stride, dtype=dtype, device=_META))

    def wrapped(self, bare: torch.Tensor) -> torch.Tensor:
        """Return FakeTensor(mode, bare, cpu), at a quarter of the time."""
        fake = torch.Tensor._make_subclass(FakeTensor, bare, False, dispatch_device=True, device_for_backend_keys=_CPU)
        self._guarded(fake)
        vars(fake).update(self._attributes)
        return fake

    def _read(self, mixed: bool, values: Iterable[Any], key: list[Any], tensors: list[torch.Tensor]) -> bool:
        """Add these arguments to the key; return False where there is no signature."""
        for value in values:
            kind = value.__class__
            if kind is FakeTensor:
                known = value.__dict__
                if known["constant"] is not None or known["fake_mode"] is not self._mode or known[self._device] != _CPU:
                    return False
                try:
                    key.append(value.stride())
                except RuntimeError:  # a tensor without strides
                    return False
                key.append(value.shape)
                key.append(value.dtype)
                tensors.append(value)
            elif kind is list or kind is tuple:
                if not mixed:
                    key.append(tuple(value))
                    continue
                key.append(len(value))
                if not self._read(True, value, key, tensors):
                    return False
            elif isinstance(value, torch.Tensor):
                return False
            else:
                key.append(value)
                key.append(kind)  # 1, 1.0 and True are equal
        return True

    def _parts(self, out: Any, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...] | None:
        """Return (sizes, strides, dtype) of each output, None for one that is None; None if an output is not plain and
        new."""
        if not isinstance(out, (torch.Tensor, tuple, list)):
            return None
        storages = {tensor.untyped_storage()._cdata for tensor in inputs}  # all alive: no address comes twice
        parts: list[Any] = []
        for tensor in (out,) if isinstance(out, torch.Tensor) else out:
            if tensor is None:
                parts.append(None)
            elif self._is_plain(tensor) and tensor.untyped_storage()._cdata not in storages:
                storages.add(tensor.untyped_storage()._cdata)
                parts.append((tensor.shape, tensor.stride(), tensor.dtype))
            else:
                return None
        return tuple(parts)

    def _is_plain(self, tensor: Any) -> bool:
        """Return whether `new` makes such a tensor from its sizes, strides and dtype."""
        if type(tensor) is not FakeTensor or any(
            vars(tensor).get(name) is not value and vars(tensor).get(name) != value
            for name, value in self._attributes.items()
        ):
            return False
        if tensor.layout is not torch.strided or tensor.requires_grad or tensor.is_neg() or tensor.is_conj():
            return False
        extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        nbytes = extent * tensor.itemsize if tensor.numel() else 0
        return bool(tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == nbytes)


def built_on_meta(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Return the model that `build` makes, without values if it can be built so."""
    try:
        with torch.device("meta"):
            return build()
    except Exception:  # noqa: BLE001  a user's code may read values
        return build()


class modules_on_meta(TorchFunctionMode):
    """Puts the tensors that modules make while they are built on meta; all others, such as inputs, have their
    values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _device_constructors() and kwargs.get("device") is None and _is_in_module():
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


def _is_in_module() -> bool:
    """Return whether a module is being built."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and isinstance(frame.f_locals.get(code.co_varnames[0]), torch.nn.Module):
            return True
        frame = frame.f_back
    return False
