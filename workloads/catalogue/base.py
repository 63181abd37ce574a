"""What a workload is: a model, a batch, a loss, and how many items one batch holds; and a loss for any model.

A workload is one frozen value; everything it needs at another size is in `hyper`, so that the same workload can be
built, counted, and derived as a formula at any point. Nothing here measures.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from results.records.counts import instances


@dataclass(frozen=True)
class Batch:
    """One batch on a device: `model(*inputs)` is the forward pass, `target` is what the loss compares it with."""

    inputs: tuple[Any, ...]
    target: Any


@dataclass(frozen=True)
class Workload:
    """One thing to train.

    hyper: name → int, each usable as a symbol. build(**hyper) → module in training mode, on the current default device.
    batch(hyper, size, device, generator) → Batch of random data, never zeros. loss(output, target) → scalar.
    items(hyper, size) → how many `item`s a batch holds. source: where architecture and defaults are defined.
    optimizer(parameters) → the one that it is trained with there; None: it brings none of its own.
    Inference is the same module in evaluation mode, on the same inputs, without gradients.
    """

    name: str
    task: str
    hyper: Mapping[str, int]
    build: Callable[..., torch.nn.Module]
    batch: Callable[[Mapping[str, int], int, torch.device, torch.Generator | None], Batch]
    loss: Callable[[Any, Any], torch.Tensor]
    items: Callable[[Mapping[str, int], int], int] = lambda _hyper, size: size
    item: str = "sample"
    source: str = ""
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] | None = None


def tensors(output: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested lists, tuples, mappings and dataclasses."""
    return instances(output, torch.Tensor)


def mean_loss(output: Any, target: Any = None) -> torch.Tensor:
    """Scalar. Raises ValueError if no output has a gradient: there is nothing to train then."""
    means = [tensor.float().mean() for tensor in tensors(output) if tensor.requires_grad and not tensor.is_complex()]
    if not means:
        what = "a tensor" if isinstance(output, torch.Tensor) else type(output).__name__
        raise ValueError(f"expected an output that depends on a parameter; got {what} without any")
    return torch.stack(means).sum()
