"""Which models a sweep takes: those of the catalogue and every other form of docs/models.md, and what builds each.

Torch-free. A catalogue workload is built by its own factory with all of its sizes, as long as its inputs are its own;
any other model by `runners.workers.any_model:get`, with what was asked for. Names and files are checked here; whether a
model can be built is asked of a process of its own (`buildable`) before anything is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from results.errors import Unavailable
from results.records.cell import Cell
from runners.cli.arguments import choice_error
from runners.cli.model_options import add_changes
from workloads.catalogue.catalogue import ENTRIES, factory
from workloads.catalogue.entries import Entry
from workloads.catalogue.files import model_digest
from workloads.catalogue.model_names import CODE, Spec, check, parse_shapes

CHANGED = (
    "{model}: its file is not the one that this run measured ({before} then, {now} now): start a new run with --out"
)


class HasModels(Protocol):
    """What a sweep was asked for, as far as its models go: a `runners.sweep.plan.Grid`."""

    @property
    def models(self) -> tuple[str, ...]: ...

    @property
    def digests(self) -> Mapping[str, str]: ...


def catalogue_entry(model: str) -> Entry | None:
    """What the catalogue knows of a model; None for any other form."""
    return ENTRIES.get(model)


def add_inputs(group: argparse._ArgumentGroup) -> None:
    """The options that say what is fed to a model, with the names that all commands give them."""
    group.add_argument(
        "--input", dest="inputs", metavar="SHAPE", help="shape of one sample, such as 3x224x224 (docs/models.md)"
    )
    group.add_argument(
        "--batch",
        dest="batch_maker",
        metavar="WHAT",
        help="FILE:FUNCTION that makes batches",
    )
    add_changes(group, None)


def check_model(model: str, inputs: str, batch_maker: str) -> None:
    """Raises ValueError, one line, for a model or an input that cannot be what it says."""
    try:
        spec = _spec_of(model)
        if batch_maker and spec.form in CODE:
            check(batch_maker)
        elif batch_maker:
            raise ValueError(f"--batch: {model} makes its own batches; it goes with file.py:function")
        if inputs:
            parse_shapes(inputs)
    except Unavailable as fault:
        raise ValueError(str(fault)) from fault


def _spec_of(model: str) -> Spec:
    """What a model's name says. Raises ValueError, for a plain name with those of the catalogue."""
    try:
        return check(model)
    except ValueError as fault:
        if model.isidentifier():
            raise ValueError(choice_error("model", model, ENTRIES)) from fault
        raise


def digests(models: Iterable[str]) -> dict[str, str]:
    """Model → the checksum of its files, of those that have any. Raises ValueError for a file that cannot be read."""
    try:
        found = {model: model_digest(model) for model in models if model not in ENTRIES}
    except OSError as fault:
        raise ValueError(f"--models: {fault}") from fault
    return {model: digest for model, digest in found.items() if digest}


def check_unchanged(grid: HasModels, earlier: Sequence[HasModels]) -> None:
    """Raises ValueError where a file was changed since cells of this run were measured with it."""
    now = digests(dict.fromkeys(model for each in earlier for model in each.models)) | dict(grid.digests)
    for before in earlier:
        for model, digest in before.digests.items():
            if now.get(model, "") != digest:
                raise ValueError(CHANGED.format(model=model, before=digest, now=now.get(model) or "gone"))


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
