"""How much memory does a step of this model need, and what fills it? From Python in one call.

`python -m runners.footprint` asks the same, with allocators and the largest batch. Not claimed: workspaces and
fragmentation, which are the device's (`docs/footprint.md`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from analysis.footprint import live_bytes
from analysis.footprint.live_bytes import Footprint
from measure.step.step_trace import Optimizer, step_trace


def footprint(
    model: torch.nn.Module,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: Optimizer | None = None,
    loss_of: Callable[[Any], Any] | None = None,
) -> Footprint:
    """Bytes alive at each operation of one eager step, by what they are for. Arguments and errors as `count`.

    >>> import torch, flopledger
    >>> found = flopledger.footprint(torch.nn.Linear(8, 4), torch.randn(2, 8))
    >>> found.by_category["weight"]  # 8 × 4 + 4 numbers of 4 bytes
    144
    """
    trace = step_trace(model, inputs, kwargs, optimizer, loss_of)
    return live_bytes.footprint(trace.operations, trace.storages)
