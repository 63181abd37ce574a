"""Makes one step of any workload: training, gradients without an optimizer's step, or inference.

`TrainingStep`, `ScheduledStep` (a schedule of several ranks), `GradientStep` and `InferenceStep` take a model and
batches. Each call runs one step, or a part of it: zero_grad, forward, loss, backward, optimizer step. A step calls
`mark` with the name of each phase as it begins. The listener behind `mark` may be NVTX ranges, the operation tracer or
the clock of the phase split. A step reads no clock and synchronises nothing.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from workloads.catalogue.base import Batch, Workload, mean_loss
from workloads.catalogue.catalogue import OWN

Mark = Callable[[str], None]

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=1e-4),
    "sgd-plain": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
}
"""Names in `workloads/catalogue/catalogue.py:OPTIMIZERS`; a test compares the two."""


def optimizer_of(name: str, workload: Workload, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Return an optimizer by its name: one of OPTIMIZERS, or "own", the workload's.

    Raises ValueError, one line, for "own" where the workload has no optimizer.
    """
    if name != OWN:
        return OPTIMIZERS[name](parameters)
    if workload.optimizer is None:
        raise ValueError(f"{workload.name} has no optimizer: expected {', '.join(OPTIMIZERS)}, got {OWN!r}")
    return workload.optimizer(parameters)


def create_state(optimizer: torch.optim.Optimizer, trained: Sequence[Any]) -> None:
    """Give an optimizer of fake tensors the state that it has after its first step."""
    for parameter in trained:
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def noop(phase: str) -> None:
    """Ignore the phase: the mark of a step without listeners."""


class TrainingStep:
    """Trains one step on the next of its batches when called.

    Calls `mark` with "forward", "loss", "backward", "optimizer" and "end" as each begins. zero_grad comes before
    "forward", as in most training loops, and sets gradients to None. autocast: dtype of `torch.autocast`, or None.
    scaler: for fp16, on the device of the model. accumulate: number of batches whose gradients are summed before the
    optimizer's step; the last output lives until the next one exists.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        loss: Callable[[Any, Any], torch.Tensor],
        optimizer: torch.optim.Optimizer,
        batches: Sequence[Batch],
        device_type: str,
        autocast: torch.dtype | None = None,
        scaler: torch.amp.GradScaler | None = None,
        accumulate: int = 1,
    ) -> None:
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.batches: Iterator[Batch] = itertools.cycle(batches)
        self.device_type = device_type
        self.autocast = autocast
        self.scaler = scaler
        self.accumulate = accumulate
        self.last_loss: torch.Tensor | None = None

    def __call__(self, mark: Mark = noop) -> None:
        _output, loss = self.gradients(mark)  # the output lives as long as in other training loops
        mark("optimizer")
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        mark("end")
        self.last_loss = loss.detach()

    def gradients(self, mark: Mark = noop) -> tuple[Any, torch.Tensor]:
        """Run all but the optimizer's step: gradients to None, forward, loss, backward. Returns output and loss."""
        batch = next(self.batches)
        self.optimizer.zero_grad(set_to_none=True)
        output_and_loss = self._gradients_of(batch, mark)
        for _ in range(self.accumulate - 1):
            batch = next(self.batches)
            output_and_loss = self._gradients_of(batch, mark)
        return output_and_loss

    def _gradients_of(self, batch: Batch, mark: Mark) -> tuple[Any, torch.Tensor]:
        """Run forward, loss, backward of one batch. Returns output and loss."""
        with _precision(self.device_type, self.autocast):
            mark("forward")
            output = self.model(*batch.inputs)
            mark("loss")
            loss = self.loss(output, batch.target)
            if self.accumulate > 1:
                loss = loss / self.accumulate
        mark("backward")
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return output, loss

    def on(self, batches: Iterator[Batch], model: Callable[..., Any] | None = None) -> TrainingStep:
        """Return a step that trains on these batches; it raises StopIteration after the last one. model: called in
        place of `self.model`, such as its compiled form."""
        other = copy.copy(self)
        other.batches = batches
        other.model = self.model if model is None else model
        return other


class ScheduledStep(TrainingStep):
    """A training step whose forward pass, loss and backward pass follow a schedule of several ranks.

    Calls `mark` with "forward", "optimizer" and "end", because forward and backward passes of different samples
    alternate. run: runs these passes for a batch (inputs, target), adds up gradients, and returns the loss, or None
    where this rank has none; then `last_loss` is None.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Any], Any], torch.Tensor | None],
        optimizer: torch.optim.Optimizer,
        batches: Sequence[Batch],
        device_type: str,
    ) -> None:
        super().__init__(run, mean_loss, optimizer, batches, device_type)  # the schedule has the loss

    def __call__(self, mark: Mark = noop) -> None:
        batch = next(self.batches)
        self.optimizer.zero_grad(set_to_none=True)
        mark("forward")
        self.last_loss = self.model(batch.inputs, batch.target)
        mark("optimizer")
        self.optimizer.step()
        mark("end")


class GradientStep:
    """Runs one training step's forward, loss and backward when called, without the optimizer's step.

    Calls `mark` with "forward", "loss", "backward" and "end". No weight changes, but buffers that a forward pass
    updates do, such as the running means of batch normalisation.
    """

    def __init__(self, training: TrainingStep) -> None:
        self._training = training

    def __call__(self, mark: Mark = noop) -> None:
        self._training.gradients(mark)
        mark("end")


class InferenceStep:
    """Runs the model in evaluation mode on the next of its batches when called, without gradients and without loss.

    Calls `mark` with "forward" and "end". The model stays in evaluation mode.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        batches: Sequence[Batch],
        device_type: str,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.model = model.eval()
        self.batches: Iterator[Batch] = itertools.cycle(batches)
        self.device_type = device_type
        self.autocast = autocast
        self.last_output: Any = None

    @torch.no_grad()
    def __call__(self, mark: Mark = noop) -> None:
        batch = next(self.batches)
        with _precision(self.device_type, self.autocast):
            mark("forward")
            self.last_output = self.model(*batch.inputs)
        mark("end")


def _precision(device_type: str, autocast: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
    if autocast is None:
        return contextlib.nullcontext()
    return torch.autocast(device_type, dtype=autocast)
