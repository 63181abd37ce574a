"""Families of workloads that are written here: what each is made of, and the workload that this makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from workloads.catalogue.base import Batch, Workload
from workloads.catalogue.catalogue import reason_not_trainable
from workloads.catalogue.entries import Entry
from workloads.text import tokens
from workloads.training.meta import without_values


@dataclass(frozen=True)
class Family:
    """What a workload is made of. model(**hyper) → module; the others are as in `Workload`."""

    model: Callable[..., torch.nn.Module]
    batch: Callable[[Mapping[str, int], int, torch.device, torch.Generator | None], Batch] = tokens.next_tokens
    loss: Callable[[Any, Any], torch.Tensor] = tokens.token_loss
    items: Callable[[Mapping[str, int], int], int] = tokens.tokens_of
    item: str = "token"
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] | None = None


def family_workload(name: str, family: Family, known: Entry, sizes: Mapping[str, int]) -> Workload:
    """The workload of a family at these sizes. Raises ValueError, one line, for sizes that do not go together."""
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
    """The model in training mode with random weights, on the current default device; without weights on meta."""
    with without_values():
        return family.model(**hyper).train()
