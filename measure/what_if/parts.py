"""The parts of a training step that a change replaces, copied so that two steps train beside each other."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from results import Unavailable, one_line

StepFunction = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class TrialParts:
    """A step that may be repeated: step(model, optimizer, batch).

    batch: on the model's device. loader: where each step takes its batch from instead, within its own time; it is put
    on the device then. batch_of: makes a batch of another size; None: samples are repeated or left out. around: a
    context for each step. allocates: whether the step asks torch's allocator for its memory.
    """

    step: StepFunction
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: Any
    loader: torch.utils.data.DataLoader[Any] | None = None
    batch_of: Callable[[int], Any] | None = None
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    allocates: bool = True

    @property
    def device(self) -> torch.device:
        """Where the model's parameters lie; the CPU for a model without any."""
        held = next(self.model.parameters(), None)
        return torch.device("cpu") if held is None else held.device

    @property
    def samples(self) -> int:
        """Of a batch: the first dimension of its first tensor that has one. Raises ValueError for none."""
        if self.loader is not None and self.loader.batch_size:
            return self.loader.batch_size
        return samples_of(self.batch)

    def copied(self) -> TrialParts:
        """The same step on a copy of the model and of its optimizer. Raises Unavailable where there is no copy."""
        try:
            model, optimizer = copy.deepcopy((self.model, self.optimizer))
        except Exception as fault:
            words = one_line(str(fault), 200)
            raise Unavailable(f"the model cannot be copied: {type(fault).__name__}: {words}") from fault
        return replace(self, model=model, optimizer=optimizer)

    def ready(self) -> Callable[[], None]:
        """A call that trains one step."""
        take = self._endless().__next__ if self.loader is not None else lambda: self.batch
        step, model, optimizer, around = self.step, self.model, self.optimizer, self.around

        def run() -> None:
            with around():
                step(model, optimizer, take())

        return run

    def _endless(self) -> Iterator[Any]:
        assert self.loader is not None
        device, pinned = self.device, self.loader.pin_memory
        while True:
            count = 0
            for batch in self.loader:
                count += 1
                yield on_device(batch, device, pinned)
            if not count:
                raise ValueError("expected a loader of at least one batch, got one of none")


def on_device(batch: Any, device: torch.device, non_blocking: bool = False) -> Any:
    """The batch with every tensor on a device."""
    return tree_map(lambda each: each.to(device, non_blocking=non_blocking) if _is_tensor(each) else each, batch)


def samples_of(batch: Any) -> int:
    """Raises ValueError for a batch without a tensor that has a first dimension."""
    for each in tree_leaves(batch):
        if _is_tensor(each) and each.dim():
            return int(each.shape[0])
    raise ValueError(f"expected a batch with a tensor, got {type(batch).__name__} without one")


def resized(batch: Any, size: int) -> Any:
    """The batch with so many samples, its own again and again, in every tensor that has one value a sample."""
    before = samples_of(batch)

    def fit(value: Any) -> Any:
        if not _is_tensor(value) or not value.dim() or value.shape[0] != before:
            return value
        return value[torch.arange(size, device=value.device) % before].clone()

    return tree_map(fit, batch)


def held_bytes(parts: TrialParts) -> int:
    """Bytes of weights, buffers, gradients, optimizer state and batch, each storage once."""
    tensors = [*parts.model.parameters(), *parts.model.buffers()]
    tensors += [each.grad for each in parts.model.parameters() if each.grad is not None]
    held = tree_leaves([tensors, [dict(state) for state in parts.optimizer.state.values()]])
    held += tree_leaves(parts.batch) if parts.loader is None else []
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in held if _is_tensor(each)}
    return sum(storages.values())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
