"""The step of the gate's live comparisons: two products of 256, about a millisecond on one idle processor."""

from __future__ import annotations

import torch


def build() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
