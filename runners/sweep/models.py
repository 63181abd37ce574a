"""Which models a sweep takes, what builds each, and what counters give for them in one session.

Torch-free. A catalogue workload is built by its own factory with all of its sizes, as long as its inputs are its own;
any other model by `runners.workers.any_model:get`, with what was asked for. Names and files are checked here; whether a
model can be built is asked of a process of its own (`buildable`) before anything is measured.

Each workload is counted at the batches that cells ask for, and no batch twice. Each counter runs in a process of its
own; batches that are too large to count are computed by the law of the batch.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from results.errors import Unavailable
from results.records.cell import Cell
from results.records.counts import FlopCount
from results.records.rows import digest
from runners.cli.arguments import choice_error
from runners.cli.exits import as_mistake
from runners.workers.any_model import hyper_of_cell
from workloads.catalogue.catalogue import ENTRIES, factory
from workloads.catalogue.model_names import CODE, check, model_digest, parse_shapes


def check_model(model: str, inputs: str, batch_maker: str) -> None:
    """Raises ValueError, one line, for a model or an input that cannot be what it says."""
    with as_mistake(Unavailable):
        try:
            spec = check(model)
        except ValueError as fault:
            if model.isidentifier():
                raise ValueError(choice_error("model", model, ENTRIES)) from fault
            raise
        if batch_maker and spec.form in CODE:
            check(batch_maker)
        elif batch_maker:
            raise ValueError(f"--batch: {model} makes its own batches; it goes with file.py:function")
        if inputs:
            parse_shapes(inputs)


def digests(models: Iterable[str]) -> dict[str, str]:
    """Model → the checksum of its files, of those that have any. Raises ValueError for a file that cannot be read."""
    with as_mistake(OSError, about="--models: "):
        checksums = {model: model_digest(model) for model in models if model not in ENTRIES}
    return {model: digest for model, digest in checksums.items() if digest}


def is_own(cell: Cell) -> bool:
    """Whether a catalogue workload's own factory builds it: nothing of it is changed but its sizes."""
    return cell.model in ENTRIES and not (cell.inputs or cell.frozen or cell.checkpoint)


def factory_of(cell: Cell) -> str:
    """ "module:function" that builds the cell's workload from its name and `hyper`."""
    return factory(cell.model) if is_own(cell) else "runners.workers.any_model:get"


def buildable(model: str, sizes: Mapping[str, Any]) -> None:
    """A worker's task: builds the model once. Raises ValueError or Unavailable, one line, where that fails, and
    ValueError for a model without a parameter that is trained."""
    import torch

    from runners.workers.any_model import get

    workload = get(model, **sizes)
    with torch.device("meta" if model.startswith(("timm:", "hf:")) else "cpu"):
        built = workload.build(**workload.hyper)
    if not any(parameter.requires_grad for parameter in built.parameters()):
        what = (
            "--frozen leaves no parameter to train"
            if sizes.get("frozen")
            else "it has no parameter that needs a gradient"
        )
        raise ValueError(f"{model} cannot be trained: {what}")


TIMEOUT_S = 300.0
"""Limit of one counter and workload, all its batches together."""


class Counts:
    """The counters' rows of a session, kept from one cell for the next of its workload."""

    def __init__(self) -> None:
        self._rows: dict[str, list[FlopCount]] = {}  # by counter and workload
        self._counted: dict[str, set[int]] = {}  # counter and workload → its batches

    def of(self, cell: Cell) -> list[FlopCount]:
        """The counters' rows at small batches and at the cell's own; no workload is counted twice."""
        from measure.counters.isolation import batches_to_count, count_isolated, extrapolate

        rows: list[FlopCount] = []
        sizes, own = hyper_of_cell(cell), (1, 2) if cell.quick else batches_to_count(cell.batch_size)
        for counter in cell.counters:
            key = digest([counter, cell.model, sizes])
            before = self._counted.setdefault(key, set())
            if batches := sorted(set(own) - before):
                new_rows = count_isolated(counter, cell.model, sizes, batches, TIMEOUT_S, factory=factory_of(cell))
                self._rows.setdefault(key, []).extend(new_rows)
                before.update(batches)
            counted = [row for row in self._rows[key] if row.batch_size in own]
            rows += counted
            if all(row.batch_size != cell.batch_size for row in counted):
                rows += extrapolate(counted, cell.batch_size)
        return rows
