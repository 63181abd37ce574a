"""Building on meta: a model has sizes there and no values, so nothing is computed that would only set values.

Inside `without_values` the functions of `torch.nn.init`, and the methods of a tensor that draw values, return a
tensor of the meta device as it is, and what they would refuse they do not refuse. Tensors of other devices are
initialised as ever, in other threads too. Random numbers are drawn as without it: for meta tensors, none. One model
is built so at a time in a process: the next one waits. Code that took a function of torch.nn.init by its name before
(`from torch.nn.init import normal_`) keeps its own.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

INITIALISERS = (
    "uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "eye_", "dirac_", "xavier_uniform_",
    "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "sparse_",
)  # fmt: skip
"""Functions of torch.nn.init that set the values of their first argument and return it."""

DRAWS = ("normal_", "uniform_", "erfinv_", "clamp_")
"""Methods of a tensor with which initialisers of other libraries set values (timm's own truncated normal)."""

_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def without_values(reading: Sequence[tuple[type, str]] = ()) -> Iterator[None]:
    """See the module; without effect where the default device is another one than meta.

    reading: class methods (class, name) that read values of tensors which they make: those are made on the CPU.
    """
    if torch.get_default_device().type != "meta":
        yield
        return
    with _one_at_a_time, contextlib.ExitStack() as undo:
        for name in INITIALISERS:
            undo.enter_context(_exchanged(torch.nn.init, name, _skip_meta(getattr(torch.nn.init, name))))
        for name in DRAWS:
            undo.enter_context(_added(torch.Tensor, name, _skip_meta(getattr(torch.Tensor, name))))
        for owner, name in reading:
            undo.enter_context(_exchanged(owner, name, classmethod(_with_values(vars(owner)[name].__func__))))
        yield


@contextlib.contextmanager
def _exchanged(where: Any, name: str, instead: Any) -> Iterator[None]:
    original = vars(where)[name]
    setattr(where, name, instead)
    try:
        yield
    finally:
        setattr(where, name, original)


@contextlib.contextmanager
def _added(where: type, name: str, instead: Any) -> Iterator[None]:
    """An attribute in place of one that the class inherits."""
    setattr(where, name, instead)
    try:
        yield
    finally:
        delattr(where, name)


def _skip_meta(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def initialise(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return tensor if tensor.is_meta else original(tensor, *args, **kwargs)

    return initialise


def _with_values(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(*args: Any, **kwargs: Any) -> Any:
        with torch.device("cpu"):
            return original(*args, **kwargs)

    return read
