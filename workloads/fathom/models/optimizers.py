"""What Fathom does to gradients before an optimizer's step, as part of that step."""

from __future__ import annotations

from typing import Any

import torch

Optimizer = torch.optim.Optimizer


def with_clipped_gradients(optimizer: Optimizer, norm: float) -> Optimizer:
    """The optimizer, whose gradients are first scaled down to `norm` together."""

    def clip(_optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        torch.nn.utils.clip_grad_norm_(_parameters(optimizer), norm)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def clipped_with_noise(optimizer: Optimizer, norm: float, deviation: float) -> Optimizer:
    """The optimizer, whose gradients are first scaled down to `norm` each, and have normal noise added.

    A row without a gradient, as that of padding is, gets no noise either.
    """

    @torch.no_grad()
    def prepare(_optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        for parameter in _parameters(optimizer):
            if parameter.grad is not None:
                torch.nn.utils.clip_grad_norm_(parameter, norm)
                seen = (parameter.grad != 0).any(dim=-1, keepdim=True)
                parameter.grad.add_(torch.randn_like(parameter.grad) * seen, alpha=deviation)

    optimizer.register_step_pre_hook(prepare)
    return optimizer


def _parameters(optimizer: Optimizer) -> list[torch.nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
