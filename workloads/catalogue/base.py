"""Defines a `Workload` (a model, its batches, its loss), and a `Family`, from which workloads are made.

Every command that builds a model takes it as a `Workload`. All sizes of a workload are in `hyper`, so that the workload
can be built, counted, and derived as a formula at any sizes. `family_workload` takes a `Family`, facts and sizes, and
returns a `Workload`. A family trains on tokens by default. A token is a random integer below the vocabulary size, and
the target is the next token. These tokens are neither padded nor masked. Nothing is measured here.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from results.records.calls import instances
from workloads.catalogue.catalogue import reason_not_trainable
from workloads.catalogue.entries import CatalogueEntry


@dataclass(frozen=True)
class Batch:
    """One batch on a device: `model(*inputs)` is the forward pass, `target` is what the loss compares it with."""

    inputs: tuple[Any, ...]
    target: Any


@dataclass(frozen=True)
class Workload:
    """A model with what its training step needs.

    hyper: name → size, each usable as a symbol. build(**hyper) → module in training mode, on the current default
    device. batch(hyper, size, device, generator) → Batch of random data. loss(output, target) → scalar. items(hyper,
    size) → number of `item`s in a batch. source: where architecture and defaults are defined. optimizer(parameters) →
    the optimizer that the source uses; None if it names none. Inference is the same module in evaluation mode, on the
    same inputs, without gradients.
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
    """Return all tensors in nested lists, tuples, mappings and dataclasses."""
    return instances(output, torch.Tensor)


def mean_loss(output: Any, target: Any = None) -> torch.Tensor:
    """Return the sum of the means of all real outputs with a gradient. Raises ValueError if there is none, and so
    nothing to train."""
    means = [tensor.float().mean() for tensor in tensors(output) if tensor.requires_grad and not tensor.is_complex()]
    if not means:
        what = "a tensor" if isinstance(output, torch.Tensor) else type(output).__name__
        raise ValueError(f"expected an output that depends on a parameter; got {what} without any")
    return torch.stack(means).sum()


# --- tokens, and families of networks on them -------------------------------------------------------------------------


IGNORED = -100
"""A label that the loss ignores."""


def draw(sizes: tuple[int, ...], vocab: int, device: torch.device, generator: torch.Generator | None) -> torch.Tensor:
    """Return uniform random tokens, int64."""
    return torch.randint(vocab, sizes, device=device, generator=generator)


def log_uniform(
    sizes: tuple[int, ...], vocab: int, device: torch.device, generator: torch.Generator | None
) -> torch.Tensor:
    """Return random tokens, int64, whose frequency decreases with their number, as that of words in a text (Zipf).

    Token w has the probability ln((w + 2) / (w + 1)) / ln(vocab + 1), as in TensorFlow's log-uniform sampler.
    """
    uniform = torch.rand(sizes, device=device, generator=generator)
    return (torch.exp(uniform * math.log(vocab + 1)).long() - 1).clamp(0, vocab - 1)


def log_expected(words: torch.Tensor, vocab: int, count: int) -> torch.Tensor:
    """Return the logarithm of each word's expected number among `count` log-uniform draws."""
    share = torch.log((words + 2.0) / (words + 1.0)) / math.log(vocab + 1)
    return torch.log(share * count)


def next_tokens(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Draw inputs: size × seq tokens; target: the token after each."""
    drawn = draw((size, hyper["seq"] + 1), hyper["vocab"], device, generator)
    return Batch((drawn[:, :-1].clone(),), drawn[:, 1:].clone())


def token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return mean cross entropy. logits: … × vocab; labels: …, without those that are IGNORED."""
    return cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)


@dataclass(frozen=True)
class Family:
    """The parts of a workload. model(**hyper) → module; the others are as in `Workload`."""

    model: Callable[..., torch.nn.Module]
    batch: Callable[[Mapping[str, int], int, torch.device, torch.Generator | None], Batch] = next_tokens
    loss: Callable[[Any, Any], torch.Tensor] = token_loss
    items: Callable[[Mapping[str, int], int], int] = lambda hyper, size: size * hyper["seq"]
    item: str = "token"
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] | None = None


def family_workload(name: str, family: Family, known: CatalogueEntry, sizes: Mapping[str, int]) -> Workload:
    """Return the workload of a family at these sizes. Raises ValueError, one line, for sizes that do not go
    together."""
    reason = reason_not_trainable(name, sizes, batch_size=2)
    if reason is not None:
        raise ValueError(reason)
    return Workload(
        name=name,
        task=known.task,
        hyper=sizes,
        build=partial(build, family),
        batch=family.batch,
        loss=family.loss,
        items=family.items,
        item=family.item,
        source=known.source,
        optimizer=family.optimizer,
    )


def build(family: Family, /, **hyper: int) -> torch.nn.Module:
    """Return the model in training mode with random weights, on the current default device; without weights on meta."""
    return family.model(**hyper).train()
