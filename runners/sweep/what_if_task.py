"""What a worker does for `--what-if`: times one change of one cell's training step beside the unchanged step.

Each change has a process of its own, so that one that fails costs its row alone; both steps of a pair run in it.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from results.records import Cell, ChangeTrial

if TYPE_CHECKING:
    from measure.what_if import TrialParts


def change_rows(cell: Cell, change: str, quick: bool) -> list[ChangeTrial]:
    """Rows of the step as it is and of the changed one. Raises Unavailable where the change does not apply."""
    from measure.device import device_facts
    from measure.timing import Protocol
    from measure.what_if import try_change

    if change.partition("=")[0] == "workers":
        _may_have_children()
    protocol = Protocol.for_device(cell.device, quick, cell.target_ci_ratio).for_pass()
    of_cell: dict[str, Any] = {name: getattr(cell, name) for name in ("model", "batch_size", "precision", "device")}
    name = str(device_facts(cell.device).name or "")
    return [replace(row, device_name=name, **of_cell) for row in try_change(parts_of(cell), change, protocol)]


def parts_of(cell: Cell) -> TrialParts:
    """The cell's training step: of a batch that lies on the device, or with --input-pipeline of a DataLoader's."""
    import torch

    from measure.what_if import TrialParts
    from runners.sweep.cell import prepare
    from runners.workers import in_layout
    from workloads.catalogue import Batch

    made = prepare(cell)
    if cell.compile:
        made.step.model = torch.compile(made.model, dynamic=False)

    def step(model: Any, optimizer: Any, batch: Any) -> None:
        inputs, target = batch
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)  # of a loader: images and labels
        one = copy.copy(made.step)
        one.model, one.optimizer = model, optimizer
        one.batches = itertools.repeat(in_layout(cell.layout, Batch(inputs, target)))
        one()

    def batch_of(size: int) -> Any:
        batch = made.batches.some(size)[0]
        return batch.inputs, batch.target

    loader = made.batches.loader(cell.batch_size) if cell.input_pipeline else None
    batch = None if loader is not None else (made.few[0].inputs, made.few[0].target)
    return TrialParts(step, made.step.model, made.optimizer, batch, loader, batch_of)


def _may_have_children() -> None:
    """Lets this process start a loader's workers: a daemonic process may not. They are in its session, and end with
    it."""
    import multiprocessing

    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
