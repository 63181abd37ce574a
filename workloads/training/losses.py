"""A loss for any model: the mean of each floating-point output that has a gradient, added up.

It learns nothing. It reaches everything that a training loss could reach, so that the backward pass is whole; its own
operations are a few per output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch


def tensors(output: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested lists, tuples, mappings and dataclasses; other objects (a cache of keys and values) hold
    none."""
    if isinstance(output, torch.Tensor):
        yield output
        return
    parts: Iterable[Any] = ()
    if hasattr(output, "values"):
        parts = output.values()
    elif isinstance(output, (list, tuple)):
        parts = output
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        parts = [getattr(output, field.name, None) for field in dataclasses.fields(output)]
    for part in parts:
        yield from tensors(part)


def mean_loss(output: Any, target: Any = None) -> torch.Tensor:
    """Scalar. Raises ValueError if no output has a gradient: there is nothing to train then."""
    means = [tensor.float().mean() for tensor in tensors(output) if tensor.requires_grad and not tensor.is_complex()]
    if not means:
        what = "a tensor" if isinstance(output, torch.Tensor) else type(output).__name__
        raise ValueError(f"expected an output that depends on a parameter; got {what} without any")
    return torch.stack(means).sum()
