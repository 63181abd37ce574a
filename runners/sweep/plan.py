"""Turns options into cells: `cells` takes a `Grid` and returns its cells in the order of measuring.

A cell is one combination of workload, batch size and precision. A cell appears once; the seed decides its position
within its repeat. `least_s` and `planned_s` return how long cells take at least: the time of the protocol, and a margin
for the rest. The rest is counting, a first step that searches algorithms, and the start of a fresh process.
`reason_against` returns why a cell will not train. This module imports no torch.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from analysis.counters import COUNTERS
from analysis.parallel.rank_grid import RankGrid, parse_plan
from results.errors import Unavailable
from results.records.cell import Cell, Common
from runners.cli.arguments import choice_error
from runners.cli.exits import as_mistake
from runners.workers.any_model import hyper_of_cell
from workloads.catalogue.catalogue import ENTRIES, IMAGES, OPTIMIZERS, OWN, reason_not_trainable
from workloads.catalogue.model_names import CLASSES, CODE, model_digest, parse_shapes
from workloads.catalogue.model_names import check as check_spec

METHODS = ("theory", "one", "batch", "epoch", "exact")
"""Methods of counting, in the order in which they are shown. one, batch and epoch: from a profile."""

VARIED = ("layout", "compile", "optimizer")
"""Fields of a grid with a list of values; manifests of older versions have one value."""


@dataclass(frozen=True, kw_only=True)
class Grid(Common):
    """The request of a sweep. It is kept in the manifest, from which `--resume` plans the same cells again.

    batch_sizes: none for each model's own, or, with `auto`, for those that fit. repeat: number of repeats.
    """

    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    precisions: tuple[str, ...]
    device: str
    layout: tuple[str, ...] = ("channels_first",)
    compile: tuple[bool, ...] = (False,)
    optimizer: tuple[str, ...] = ("sgd",)
    repeat: int = 1
    peak_tflops: float | None = field(default=None)  # no part of a cell: it changes no measurement
    auto: Mapping[str, Any] = field(
        default_factory=dict
    )  # memory_bytes, margin_ratio, steps: "MODEL PRECISION" → batches, the largest that fits, at_most by live bytes
    parallel: tuple[str, ...] = ()  # plans; none: one device
    scaling: str = "strong"  # weak: batch sizes are of each replica
    digests: Mapping[str, str] = field(default_factory=dict)  # of models that lie in files

    def as_json(self) -> dict[str, Any]:
        """Return field → value, as the manifest keeps it."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def batches_of(self, model: str, precision: str) -> Sequence[int]:
        """Return the batch sizes of a model in a precision: those found to fit (`auto`), else the requested ones, else
        the model's own. Raises ValueError for a model without a size of its own."""
        if self.auto:
            return tuple(self.auto["steps"][auto_key(model, precision)]["batches"])
        entry = ENTRIES.get(model)
        own = entry.batch_size if entry is not None else 0
        if not self.batch_sizes and not own:
            raise ValueError(f"--batch-sizes: expected sizes, as {model} has none of its own")
        return self.batch_sizes or (own,)

    @property
    def largest_batch(self) -> int:
        """The largest batch of all cells."""
        return max(
            size for model in self.models for precision in self.precisions for size in self.batches_of(model, precision)
        )

    @classmethod
    def from_json(cls, options: Mapping[str, Any]) -> Grid:
        """Return the grid of a manifest's options; options unknown to this version are left out. Raises ValueError."""
        known = {f.name for f in fields(cls)}
        values = with_tuples({name: value for name, value in options.items() if name in known})
        single = {name: (values[name],) for name in VARIED if not isinstance(values.get(name, ()), tuple)}
        with as_mistake(TypeError, about="expected the options of a sweep in the manifest: "):
            return cls(**{**values, **single})


def check_model(model: str, inputs: str, batch_maker: str) -> None:
    """Raise ValueError, one line, for an invalid model or input."""
    with as_mistake(Unavailable):
        try:
            spec = check_spec(model)
        except ValueError as fault:
            if model.isidentifier():
                raise ValueError(choice_error("model", model, ENTRIES)) from fault
            raise
        if batch_maker and spec.form in CODE:
            check_spec(batch_maker)
        elif batch_maker:
            raise ValueError(f"--batch: expected a model of the form file.py:function with it, got {model}")
        if inputs:
            parse_shapes(inputs)


def digests(models: Iterable[str]) -> dict[str, str]:
    """Return model → the checksum of its files, for models that have files. Raises ValueError for a file that cannot be
    read."""
    with as_mistake(OSError, about="--models: "):
        checksums = {model: model_digest(model) for model in models if model not in ENTRIES}
    return {model: digest for model, digest in checksums.items() if digest}


def with_tuples(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return values of fields from JSON, its lists as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def auto_key(model: str, precision: str) -> str:
    """Return the key of a model and a precision in `Grid.auto`."""
    return f"{model} {precision}"


def cells(grid: Grid) -> list[Cell]:
    """Return every cell of the grid, once, in the order of measuring.

    Repeats come one after the other, each in a random order of its own, so that drift of the machine spreads over all
    cells and all variants of a step.
    """
    ordered: dict[str, Cell] = {}
    for repeat in range(grid.repeat):
        points = [
            replace(
                cell_of(grid, model, global_batch(plan, size, grid.scaling), precision, repeat, plan),
                layout=layout,
                compile=compiled,
                optimizer=optimizer,
            )
            for precision in grid.precisions
            for model in grid.models
            for size in grid.batches_of(model, precision)
            for plan in grid.parallel or ("",)
            for layout, compiled, optimizer in itertools.product(grid.layout, grid.compile, grid.optimizer)
        ]
        random.Random(f"{grid.seed}/{repeat}").shuffle(points)
        for cell in points:
            ordered.setdefault(cell.cell_id, cell)
    return list(ordered.values())


def global_batch(plan: str, size: int, scaling: str) -> int:
    """Return the samples of all ranks together in a step. Raises ValueError for a number that replicas or micro-batches
    cannot share."""
    grid = parse_plan(plan) if plan else RankGrid()
    parts = grid.microbatches * (grid.dp if scaling == "strong" else 1)
    if size % parts:
        near = max(parts, round(size / parts) * parts)
        raise ValueError(f"--batch-sizes: expected multiples of {parts} with {plan}, got {size}; nearest {near}")
    return size * grid.dp if scaling == "weak" else size


def cell_of(grid: Grid, model: str, batch_size: int, precision: str, repeat: int = 0, plan: str = "") -> Cell:
    """Return one point of the grid, with its first layout, compile setting and optimizer."""
    of_all = {f.name: getattr(grid, f.name) for f in fields(Common)}
    return Cell(
        **of_all
        | {
            "model": model,
            "batch_size": batch_size,
            "device": grid.device,
            "precision": precision,
            "layout": grid.layout[0],
            "compile": grid.compile[0],
            "optimizer": grid.optimizer[0],
            "methods": tuple(method for method in METHODS if method in grid.methods),
            "counters": tuple(name for name in COUNTERS if name in grid.counters) if "theory" in grid.methods else (),
            "repeat": repeat,
            "epoch_images": grid.epoch_images if "epoch" in grid.methods else Cell.epoch_images,
            "model_digest": grid.digests.get(model, ""),
            "parallel": plan,
        }
    )


def worker_key(cell: Cell) -> tuple[Any, ...]:
    """Return the key that cells share if one process measures them."""
    return (
        cell.device, cell.precision, cell.compile, cell.deterministic, cell.cudnn_benchmark, cell.malloc, cell.repeat
    )  # fmt: skip


def tasks(passes: Sequence[str]) -> list[tuple[str, bool]]:
    """Return the order of (pass, whether it is profiled): timed passes come first, and an epoch after its last batch,
    whose time decides whether to run it."""
    timed = [(name, False) for name in passes if name != "batch"]
    return timed + [(name, True) for name in passes if name != "epoch"]


def reason_against(cell: Cell) -> str:
    """Return why this cell is known not to train, in one line; "" if no reason is known."""
    entry = ENTRIES.get(cell.model)
    if cell.data != "synthetic" and (entry is None or entry.task not in IMAGES or cell.inputs):
        what = f"is a {entry.task} workload" if entry is not None and not cell.inputs else "brings inputs of its own"
        return f"{cell.model} {what}; CIFAR-10 has images and one label each"
    if entry is None:
        return ""
    return reason_not_trainable(cell.model, hyper_of_cell(cell), cell.batch_size) or ""


def check(grid: Grid) -> None:
    """Raise ValueError, one line, for a size or an optimizer that a model does not have, for fewer classes than the
    images have, or for an epoch below one batch."""
    precision = grid.precisions[0] if grid.precisions else "fp32"
    for model in grid.models:
        cell = cell_of(grid, model, grid.batches_of(model, precision)[0], precision, 0)
        entry = ENTRIES.get(cell.model)
        if entry is None:  # its optimizer and sizes are known when it is built
            continue
        if OWN in grid.optimizer and not entry.optimizer:
            raise ValueError(f"--optimizer: {cell.model} has none of its own; expected {', '.join(OPTIMIZERS)}")
        classes = hyper_of_cell(cell).get("num_classes", CLASSES)
        if grid.data != "synthetic" and entry.task in IMAGES and classes < CLASSES:
            raise ValueError(f"--size: expected num_classes of at least {CLASSES}, those of CIFAR-10, got {classes}")
    largest = grid.largest_batch
    if "epoch" in grid.methods and grid.epoch_images < largest:
        raise ValueError(f"--epoch-images: expected at least {largest}, one largest batch, got {grid.epoch_images}")


def check_unchanged(grid: Grid, earlier: Sequence[Grid]) -> None:
    """Raise ValueError where a file was changed since cells of this run were measured with it."""
    now = digests(dict.fromkeys(model for past in earlier for model in past.models)) | dict(grid.digests)
    for before in earlier:
        for model, checksum in before.digests.items():
            if now.get(model, "") != checksum:
                states = f"{checksum} then, {now.get(model) or 'gone'} now"
                raise ValueError(
                    f"{model}: its file is not the one that this run measured ({states}): start a new run with --out"
                )


def check_images(grid: Grid, images: int) -> None:
    """Raise ValueError, one line, for a batch or an epoch of more images than the data set has."""
    epoch = grid.epoch_images if "epoch" in grid.methods else 0
    most = f"expected at most {images}, the images of {grid.data}, got"
    raise_for(
        {
            f"--batch-sizes: {most} {grid.largest_batch}": grid.largest_batch > images,
            f"--epoch-images: {most} {epoch}": epoch > images,
        }
    )


def raise_for(faults: Mapping[str, object]) -> None:
    """Raise ValueError with the first text whose value is true."""
    for text, holds in faults.items():
        if holds:
            raise ValueError(text)


CEILING_BUDGET_S = {"cpu": 8.0, "cuda": 6.0}
QUICK_CEILING_S = 2.5

SPARE_RATIO = 1.2
"""Factor on the time expected for the next cell."""


def ceiling_key(cell: Cell) -> tuple[str, str, str]:
    """Return device, precision, allocator: each has a ceiling of its own in a session."""
    return cell.device, cell.precision, cell.malloc


def planned_s(cells: Sequence[Cell]) -> float:
    """Return the least time that these cells take, one after the other."""
    trained = [cell for cell in cells if not reason_against(cell)]
    first = {ceiling_key(cell): cell for cell in reversed(trained)}
    return sum(least_s(cell, ceiling_known=first[ceiling_key(cell)] is not cell) for cell in trained)


def protocol_s(cell: Cell, ceiling_known: bool = False) -> float:
    """Return the least seconds of a cell's protocol: timing it, and the ceiling before the first of a precision."""
    from analysis.utilization.work_times import passes_of
    from measure.timing.stopping import Protocol

    timing_s = Protocol.for_device(cell.device, cell.quick, cell.target_ci_ratio, passes=passes_of(cell)).least_s
    return timing_s if ceiling_known else timing_s + ceiling_budget_s(cell)


def least_s(cell: Cell, ceiling_known: bool = False) -> float:
    """Return seconds that a cell takes if everything goes well."""
    return SPARE_RATIO * protocol_s(cell, ceiling_known)


def ceiling_budget_s(cell: Cell) -> float:
    """Return seconds for finding the device's ceiling before the first cell of a precision."""
    return QUICK_CEILING_S if cell.quick else CEILING_BUDGET_S[cell.device.partition(":")[0]]
