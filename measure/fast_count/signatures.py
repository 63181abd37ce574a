"""Calls of operators by their signatures: what tells one from another, and how to make again what one returned.

A signature holds sizes, strides and dtypes of tensors and all other arguments, so that equal ones return equal outputs
on meta, but for values. Tensors of another device have none: such a call is put on meta first.
"""

from __future__ import annotations

from typing import Any

import torch

from measure.dispatch.schemas import tensors_in
from measure.fast_count.meta_outputs import META

_INT = {int}


class NotMeta(Exception):
    """A tensor of another device is among the arguments."""


def key_of(values: Any) -> tuple[Any, ...]:
    """What tells one call's signature from another's. Raises NotMeta."""
    parts: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            if not value.is_meta:
                raise NotMeta
            parts += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, (list, tuple)):
            parts.append(tuple(value) if set(map(type, value)) == _INT else key_of(value))
        else:
            parts += (value, value.__class__)
    return tuple(parts)


def how_made(out: Any) -> Any:
    """How to make such an output again; None if it is anything but new meta tensors."""
    if isinstance(out, torch.Tensor):
        return (out.shape, out.stride(), out.dtype) if out.is_meta and out.layout is torch.strided else None
    if not isinstance(out, (tuple, list)):
        return None
    parts = [how_made(part) for part in out]
    return None if None in parts else (type(out), parts)


def make(how: Any) -> Any:
    """An output, by how it was made."""
    if len(how) == 3:
        return torch.empty_strided(how[0], how[1], dtype=how[2], device=META)
    kind, parts = how
    return kind([make(part) for part in parts])


def join_devices(func: Any, args: Any, kwargs: Any) -> Any:
    """A call with tensors of another device: on meta if any other is; a copy to a device stays on meta."""
    if any(tensor.is_meta for tensor in tensors_in((*args, *kwargs.values()))):
        args, kwargs = on_meta(args), on_meta(kwargs)
    return func(*args, **kwargs)


def on_meta(values: Any) -> Any:
    """The same arguments, by their sizes."""
    if isinstance(values, torch.Tensor):
        if values.is_meta:
            return values
        return torch.empty_strided(values.shape, values.stride(), dtype=values.dtype, device=META)
    if isinstance(values, dict):
        return {name: on_meta(value) for name, value in values.items()}
    return type(values)(on_meta(value) for value in values) if isinstance(values, (list, tuple)) else values
