"""The largest batch of a step that fits into a memory: traces at the batches that `analysis.largest_batch` asks for.

What has to fit is the highest moment's live bytes and the workspaces that are known before. What the margin is for is
not counted: the device's context, cuDNN's workspaces, the rounding of blocks and what the allocator cannot use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from analysis.footprint import footprint
from analysis.largest_batch import Fit, largest_batch
from analysis.workspaces import allowance
from runners.exits import Mistake

if TYPE_CHECKING:
    from runners.footprint_steps import Traced

LEAST = (1, 2)
"""The smallest batches that are tried: batch normalisation of single values needs two."""


def fit(step_at: Callable[[int], Traced], memory_bytes: int, margin_ratio: float, device: str, name: str = "") -> Fit:
    """The largest batch whose step leaves `margin_ratio` of a memory free. Raises what `step_at` does.

    name: of the device, which decides the workspaces.
    """
    known = capability(name)

    def need(batch_size: int) -> list[int]:
        step = step_at(batch_size)
        beside = sum(each.nbytes for each in allowance(step.operations, device, known))
        return [live + beside for live in footprint(step.operations, step.storages).total_bytes]

    return largest_batch(need, int(memory_bytes * (1 - margin_ratio)), _least(step_at))


def capability(name: str) -> str | None:
    """The compute capability of a device of the table of peaks; None for any other."""
    from analysis.peaks import lookup

    known = lookup(name) if name else None
    return known.compute_capability if known else None


def _least(step_at: Callable[[int], Traced]) -> int:
    """The smallest batch that the step takes."""
    for batch_size in LEAST[:-1]:
        try:
            step_at(batch_size)
        except Mistake:
            continue
        return batch_size
    return LEAST[-1]
