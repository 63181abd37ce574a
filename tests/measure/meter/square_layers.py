"""The model of most tests of the meter: square linear layers, whose passes have FLOP that are counted in layers."""

from __future__ import annotations

import torch

WIDTH, BATCH = 32, 4
LAYER = 2 * BATCH * WIDTH * WIDTH
"""FLOP of one pass through one layer of WIDTH × WIDTH for BATCH samples."""


def net(layers: int = 3) -> torch.nn.Sequential:
    """So many layers, one after the other."""
    return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)])


def samples(batch: int = BATCH) -> torch.Tensor:
    """Inputs of shape (batch, WIDTH)."""
    return torch.randn(batch, WIDTH)
