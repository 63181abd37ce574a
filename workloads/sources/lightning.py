"""A LightningModule that has a `training_step`: what it trains is that step, on batches as its data loader gives them.

Outside of its own calls, calling the module runs `training_step(batch, 0)` and gives the loss. So forward pass and loss
are one, the paths of the modules stay, and counters see what the step calls. Inside of `training_step` the module is
called as ever. Lightning itself is not imported, and its Trainer is not run: hooks, callbacks, gradient clipping and
optimizers that are stepped by hand (`automatic_optimization = False`) are not part of what is measured.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import torch

from workloads.catalogue.base import Batch, mean_loss

BASE = "LightningModule"
"""The name of Lightning's class, in both of its packages."""


def has_training_step(model: torch.nn.Module) -> bool:
    """Whether it is a LightningModule with a training step of its own."""
    base = next((each for each in type(model).__mro__ if each.__name__ == BASE), None)
    return base is not None and getattr(type(model), "training_step", None) is not getattr(base, "training_step", None)


def stepping(model: torch.nn.Module, text: str) -> torch.nn.Module:
    """The module, which from now on runs its training step where it is called from outside. text: its name.

    Raises ValueError for one that steps its optimizers by hand.
    """
    if not getattr(model, "automatic_optimization", True):
        raise ValueError(
            f"{text} steps its optimizers by hand (automatic_optimization = False): give a module and NAME_loss"
        )
    if not isinstance(model.__dict__.get("forward"), _Step):
        model.forward = _Step(model, text)
    return model


class _Step:
    """`forward` of such a module: from outside its training step, inside of it what the class says."""

    def __init__(self, model: Any, text: str) -> None:
        self._model, self._text, self._inside = model, text, False

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if self._inside:
            return type(self._model).forward(self._model, *inputs, **named)
        self._inside = True
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*self.trainer.*")  # self.log outside of a Trainer
                found = self._model.training_step(inputs[0] if len(inputs) == 1 else inputs, 0)
        finally:
            self._inside = False
        loss = found.get("loss") if isinstance(found, dict) else found
        if not isinstance(loss, torch.Tensor):
            raise ValueError(f"{self._text}: expected a loss from training_step, got {type(loss).__name__}")
        return loss


def as_batch(made: Any) -> Batch:
    """A batch of the data loader's as what the module is called with: one argument."""
    if isinstance(made, Batch):
        return made
    if isinstance(made, tuple) and made and isinstance(made[-1], dict):  # as --input gives them: by place, by name
        *places, named = made
        made = named if not places else places[0] if len(places) == 1 and not named else tuple(places)
    return Batch((made,), None)


def loss_of_step(output: Any, _target: Any) -> torch.Tensor:
    """The loss that the training step gave."""
    return output if isinstance(output, torch.Tensor) and output.dim() == 0 else mean_loss(output)


class OwnOptimizer:
    """`configure_optimizers` of the module that was built last, for `--optimizer own`."""

    def __init__(self) -> None:
        self.model: Any = None

    def __call__(self, _parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Raises ValueError for several optimizers, or none."""
        made = self.model.configure_optimizers()
        if isinstance(made, tuple) and len(made) == 2:
            made = made[0]
        if isinstance(made, dict):
            made = made.get("optimizer")
        if isinstance(made, (list, tuple)) and len(made) == 1:
            made = made[0]
        if not isinstance(made, torch.optim.Optimizer):
            raise ValueError(f"expected one optimizer from configure_optimizers, got {type(made).__name__}")
        return made
