"""Nets whose parallel steps are known by hand, and a step of a real rank: one of several processes over gloo.

The real step is watched by torch.profiler, below our dispatch mode and DTensor: sizes of the products that kernels got,
and sizes of what gloo was handed.
"""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn


def weighted_mean(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A loss in which each output counts otherwise, so that one in the wrong place shows."""
    return (output * target).mean()


def whole(gradient: Any) -> torch.Tensor:
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def distance(found: torch.Tensor, expected: Any) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


FUNCTIONAL_GATHER = "_c10d_functional::all_gather_into_tensor"

BLOCK_PLAN = {"layers.*.up": "colwise", "layers.*.down": "rowwise"}


class Block(nn.Module):
    """x + down(relu(up(x))), the width times two between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


class BlockNet(nn.Module):
    """First 8 → width, blocks, head width → 3."""

    def __init__(self, width: int = 16, depth: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def profiled(step: Callable[[], object], file: Path) -> None:
    """Write what torch.profiler sees of a step: name and sizes of each call that is in no call of the same name."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as seen:
        step()
    own = [event for event in seen.events() if event.name not in _names_below(event)]
    file.write_text(json.dumps([(event.name, event.input_shapes) for event in own]))


def _names_below(event: Any) -> set[str]:
    """Of all events inside of this one: a product of DTensors has the local product inside."""
    return {name for child in event.cpu_children for name in (child.name, *_names_below(child))}


def executed_flop(rows: list[Any]) -> int:
    """Model FLOP of the products that kernels ran: 2 · m · k · n, in a batch of products as often."""
    total = 0
    for name, shapes in rows:
        if name in ("aten::mm", "aten::addmm", "aten::bmm"):
            left, right = shapes[1:3] if name == "aten::addmm" else shapes[:2]
            total += 2 * math.prod(left) * right[-1]
    return total


def executed_messages(rows: list[Any]) -> dict[tuple[str, str], int]:
    """(kind, "calls" or "bytes") → how many, of four bytes a number. gloo scatters sums by an all-reduce of its own of
    as many bytes, which is not the step's; of a functional gather the profiler has what one of two ranks gives."""
    kinds = {"c10d::_allgather_base_": "all_gather", "c10d::_reduce_scatter_base_": "reduce_scatter"}
    kinds |= {"gloo:send": "send", "gloo:recv": "receive", "c10d::alltoall_base_": "all_to_all"}
    kinds |= {"gloo:all_reduce": "all_reduce", FUNCTIONAL_GATHER: "all_gather"}
    found: Counter[tuple[str, str]] = Counter()
    for name, shapes in rows:
        if name in kinds:
            found[kinds[name], "calls"] += 1
            ranks = 2 if name == FUNCTIONAL_GATHER else 1
            found[kinds[name], "bytes"] += 4 * ranks * max(math.prod(shape) for shape in shapes if shape)
    for what in ("calls", "bytes"):
        found["all_reduce", what] -= found["reduce_scatter", what]
    return {key: many for key, many in found.items() if many}
