"""Small models that the reproductions of several counters share. Nothing here counts; weights are as torch sets them.

All are of sizes that a person multiplies in the head: `linear(2, 10, 10)` is 2 rows of 10 features to 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Does(nn.Module):
    """A module whose forward pass is function(self, x), and whose attributes are `parts`."""

    def __init__(self, function: Callable[[Any, Any], Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


class Parent(nn.Module):
    """Holds a child and calls it once."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: Any) -> Any:
        return self.child(x)


class Subclass(nn.Linear):
    """A linear layer by another name."""


class Failing(nn.Module):
    """Runs its layer, then raises."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        raise RuntimeError(f"after {self.layer(x).shape}")


def weight(*shape: int) -> nn.Parameter:
    """A parameter of ones."""
    return nn.Parameter(torch.ones(*shape))


def under_two_parents() -> nn.Module:
    """One linear layer, 16 → 16 without a bias, held by two modules that each call it once."""
    layer = nn.Linear(16, 16, bias=False)
    return nn.Sequential(Parent(layer), Parent(layer))


def frozen_attention() -> nn.Module:
    """Self-attention of width 64 in 4 heads; frozen and in eval mode, so that torch takes its fused path."""
    attention = nn.MultiheadAttention(64, 4, batch_first=True)
    model = Does(lambda m, x: m.attention(x, x, x, need_weights=False)[0], attention=attention)
    return model.eval().requires_grad_(False)


TOKENS = (2, 8, 64)
"""Input of `frozen_attention`: 16 rows of 64. Projections 4 · 16 · 64 · 64 = 262,144 multiply-adds; Q Kᵀ and P V
2 · 2 · 8 · 8 · 64 = 16,384; together 278,528."""
