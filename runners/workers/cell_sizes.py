"""What builds the model of a cell, beside its name: sizes, inputs, and what is changed of it. Torch-free."""

from __future__ import annotations

from typing import Any

from results.records.cell import Cell
from workloads.catalogue.catalogue import ENTRIES, hyper_of


def hyper_of_cell(cell: Cell) -> dict[str, Any]:
    """What builds the cell's workload beside its name: all sizes of a catalogue workload, of any other model those that
    were asked for and what it is fed. Raises ValueError for a size that a catalogue workload does not have."""
    if cell.model in ENTRIES:
        sizes: dict[str, Any] = hyper_of(
            cell.model, image_size=cell.image_size, num_classes=cell.num_classes, **cell.hyper
        )
        return {**sizes, **{name: words for name, words in _changes(cell).items() if name != "batch"}}
    own = {"image_size": cell.image_size, "num_classes": cell.num_classes}
    return {**{name: size for name, size in own.items() if size is not None}, **cell.hyper, **_changes(cell)}


def _changes(cell: Cell) -> dict[str, Any]:
    """What was asked for that is no size: inputs, batches, parameters that are frozen, modules calculated again."""
    words = {
        "input": cell.inputs,
        "batch": cell.batch_maker,
        "frozen": list(cell.frozen),
        "checkpoint": list(cell.checkpoint),
    }
    return {name: value for name, value in words.items() if value}
