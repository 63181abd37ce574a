"""What a profiler may leave behind in torch and on a model."""

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

PLACES = (torch, F, torch.Tensor, nn.Module, torch.linalg, torch.special, torch.optim.Optimizer, torch.utils.checkpoint)


def functions() -> dict[tuple[int, str], int]:
    """The identity of every function that a profiler could replace; classes' own as they stand in the class."""
    return {
        (number, name): id(inspect.getattr_static(place, name))
        for number, place in enumerate(PLACES)
        for name in dir(place)
        if callable(getattr(place, name, None))
    }


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(5, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def state(model: nn.Module) -> tuple[Any, ...]:
    hooks = [
        (name, len(held))
        for module in model.modules()
        for name, held in vars(module).items()
        if name.endswith("hooks") and name != "_is_full_backward_hook"
    ]
    everywhere = [
        len(held)
        for name, held in vars(torch.nn.modules.module).items()
        if name.startswith("_global_") and hasattr(held, "__len__")
    ]
    return (
        hooks, everywhere, [module.training for module in model.modules()], [id(p) for p in model.parameters()],
        [p.detach().clone().tolist() for p in model.parameters()], [b.clone().tolist() for b in model.buffers()],
        [None if p.grad is None else p.grad.tolist() for p in model.parameters()], torch.get_rng_state().tolist(),
        torch.is_grad_enabled(), torch.get_num_threads(), torch._C._autograd._profiler_enabled(),
    )  # fmt: skip
