"""Builds the model of a command or a sweep's cell, with layers frozen or checkpointed on request, and its batches.

A cell is one combination of workload, batch size and precision. `get` takes a model's name and returns its `Workload`;
counters and recordings both use `get`. `hyper_of_cell` returns, without torch, the arguments with which a cell's model
is built. `Batches` takes a cell and returns random batches or CIFAR-10's. The batches are on the device before anything
is timed. torch is imported inside the functions.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.records.cell import Cell
from results.records.counts import FlopCount
from workloads.catalogue.catalogue import ENTRIES, factory, hyper_of
from workloads.catalogue.model_names import CLASSES

if TYPE_CHECKING:
    import torch

    from workloads.catalogue.base import Batch, Workload


FACTORY, TRAINER, EXACT_COUNTER = (
    "runners.workers.any_model:get",
    "runners.sweep.cell:training",
    "runners.workers.any_model:exact_counter",
)
"""Functions by which a child process makes a workload, trains a cell and counts exactly: "module:function"."""

EXACT, OWN = "exact", "flopledger"
"""The exact count's name in options, and its name in the registry of counters."""

LARGEST_REAL = 2
"""Largest batch that is traced on real tensors, where fake ones cannot run the step. A larger batch would take the
memory of a real step."""


def get(
    spec: str,
    /,
    *,
    input: str = "",  # noqa: A002  as the option is named
    batch: str = "",
    frozen: Sequence[str] = (),
    checkpoint: Sequence[str] = (),
    **hyper: int,
) -> Workload:
    """Return the workload of any model. frozen: patterns of parameters that are not trained; checkpoint: patterns of
    modules whose forward pass is recomputed in the backward pass. The workload's `build` raises ValueError for a
    pattern without a match."""
    from workloads import any_model

    workload = any_model.get(spec, input=input, batch=batch, **hyper)
    if not frozen and not checkpoint:
        return workload
    return replace(workload, build=partial(_customized, workload.build, tuple(frozen), tuple(checkpoint)))


def _customized(
    build: Callable[..., torch.nn.Module], frozen: Sequence[str], checkpoint: Sequence[str], **hyper: int
) -> torch.nn.Module:
    from torch.utils.checkpoint import checkpoint as rerun

    model = build(**hyper)
    parameters, modules = dict(model.named_parameters()), dict(model.named_modules())
    for pattern in frozen:
        for name in _matching("frozen", pattern, parameters, "parameter"):
            parameters[name].requires_grad_(False)
    inner = {name: module for name, module in modules.items() if name}
    wanted = {name for pattern in checkpoint for name in _matching("checkpoint", pattern, inner, "module")}
    for module in _outermost(inner, wanted):
        module.forward = partial(rerun, module.forward, use_reentrant=False)
    return model


def _outermost(modules: Mapping[str, torch.nn.Module], wanted: set[str]) -> list[torch.nn.Module]:
    """Return the wanted modules that are inside of no other wanted one, so that nothing is recomputed twice. A list of
    modules, which has no forward pass, stands for its items. modules: by name, parents first."""
    from torch.nn import Module

    outermost, inside = [], set()
    for name, module in modules.items():
        if name.rpartition(".")[0] in inside:
            inside.add(name)
        elif name in wanted and type(module).forward is Module.forward:
            wanted = wanted | {f"{name}.{child}" for child, _ in module.named_children()}
        elif name in wanted:
            inside.add(name)
            outermost.append(module)
    return outermost


def _matching(option: str, pattern: str, names: dict[str, Any], what: str) -> list[str]:
    from results.text_files import nearest

    inside = f"{pattern}.*" if what == "parameter" else pattern
    matching = fnmatch.filter(names, pattern) or fnmatch.filter(names, inside)
    if not matching:
        begins = {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)}
        near = nearest(pattern.rstrip(".*"), sorted(begins), 1)
        raise ValueError(f"--{option}: no {what} matches {pattern!r}" + (f", nearest {near[0]}" if near else ""))
    return matching


def exact_counter(
    model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int
) -> list[FlopCount]:
    """Return the count of a training step as a counter among others: forward, backward and recomputation.

    Raises Unavailable for a model that fake tensors cannot run.
    """
    from analysis.operators.attention_conventions import attention_flop
    from measure.step import count_of, step_trace

    trace = step_trace(model, inputs, None, None, None, train=True)
    count = count_of(trace)
    blank = FlopCount(
        counter="exact",
        workload=workload,
        batch_size=batch_size,
        phase="forward",
        native_unit="flop",
        not_understood=count.not_understood,
        reason="; ".join(trace.notes),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
    flops = {"forward": count.forward_flop, "backward": count.backward_flop, "recompute": count.recompute_flop}
    attention = attention_flop(trace.operations)
    return [
        replace(blank, phase=phase, native_value=flop, flop=flop, attention=attention.as_row(phase, flop))
        for phase, flop in flops.items()
    ]


def hyper_of_cell(cell: Cell) -> dict[str, Any]:
    """Return the arguments that build a cell's workload: all sizes of a catalogue workload, or any other model's
    requested sizes and inputs. Raises ValueError for a size that a catalogue workload does not have."""
    if cell.model in ENTRIES:
        sizes: dict[str, Any] = hyper_of(
            cell.model, image_size=cell.image_size, num_classes=cell.num_classes, **cell.hyper
        )
        return {**sizes, **{name: value for name, value in _changes(cell).items() if name != "batch"}}
    own = {"image_size": cell.image_size, "num_classes": cell.num_classes}
    return {**{name: size for name, size in own.items() if size is not None}, **cell.hyper, **_changes(cell)}


def _changes(cell: Cell) -> dict[str, Any]:
    """Return the options that are not sizes: inputs, batches, frozen parameters, recomputed modules."""
    changes = {
        "input": cell.inputs,
        "batch": cell.batch_maker,
        "frozen": list(cell.frozen),
        "checkpoint": list(cell.checkpoint),
    }
    return {name: value for name, value in changes.items() if value}


def is_own(cell: Cell) -> bool:
    """Return whether a catalogue workload's own factory builds it: only its sizes are changed."""
    return cell.model in ENTRIES and not (cell.inputs or cell.frozen or cell.checkpoint)


def factory_of(cell: Cell) -> str:
    """Return "module:function" that builds the cell's workload from its name and `hyper`."""
    return factory(cell.model) if is_own(cell) else FACTORY


def buildable(model: str, sizes: Mapping[str, Any]) -> None:
    """Build the model once, as a worker's task. Raises ValueError or Unavailable, one line, if that fails, and
    ValueError for a model without a trained parameter."""
    import torch

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


FEW_BATCHES, MORE_BATCHES = 2, 4
SMALL_BATCH_BYTES = 64 * 2**20
"""Below this size a batch may stay in a cache from step to step, so more batches take turns."""


def images(data: str) -> int:
    """Return how many training images `cifar10:DIR` holds. A worker's task. Raises ValueError if they cannot be
    read."""
    from workloads import torchvision_models

    return len(torchvision_models.cifar_images(Path(data.removeprefix("cifar10:")), 32))


class Batches:
    """The batches of one cell, of any size, in the cell's layout and on its device. They are the same for the same
    seed."""

    def __init__(self, cell: Cell, workload: Workload, device: torch.device) -> None:
        self._cell = cell
        self._workload = workload
        self._device = device

    def some(self, size: int) -> list[Batch]:
        """Return a few batches that lie on the device: more than one, because real steps differ in their data."""
        batches = self._random(size) if self._cell.data == "synthetic" else self._preloaded(size)
        return [in_layout(self._cell.layout, batch) for batch in batches]

    def endless(self, size: int) -> Iterator[Batch]:
        """Yield the batches of `some` again and again."""
        return itertools.cycle(self.some(size))

    def epoch(self, count: int, size: int) -> Iterator[Batch]:
        """Yield the batches of one epoch of `count` items: whole ones, which take turns, then a smaller last one."""
        whole, rest = divmod(count, size)
        return itertools.chain(itertools.islice(self.endless(size), whole), self.some(rest)[:1] if rest else [])

    def _random(self, size: int) -> list[Batch]:
        import torch
        from torch.utils._pytree import tree_leaves

        generator = torch.Generator(self._device).manual_seed(self._cell.seed)
        workload = self._workload
        batches = [workload.batch(workload.hyper, size, self._device, generator)]
        leaves = tree_leaves((batches[0].inputs, batches[0].target))
        nbytes = sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
        count = MORE_BATCHES if nbytes < SMALL_BATCH_BYTES else FEW_BATCHES
        more = (workload.batch(workload.hyper, size, self._device, generator) for _ in range(count - 1))
        return [*batches, *more]

    def _preloaded(self, size: int) -> list[Batch]:
        """Load the data set. Raises ValueError for data that cannot be read, or for a model of fewer classes."""
        from workloads import torchvision_models

        sizes, seed = self._workload.hyper, self._cell.seed
        if sizes["num_classes"] < CLASSES:
            text = f"the model {sizes['num_classes']}: pass --size num_classes={CLASSES}"
            raise ValueError(f"CIFAR-10 has {CLASSES} classes, {text}")
        directory = Path(self._cell.data.removeprefix("cifar10:"))
        images = torchvision_models.cifar_images(directory, sizes["image_size"])
        return torchvision_models.cifar_batches(images, size, seed, FEW_BATCHES, self._device)


def model_and_batch(
    workload: Workload, batch_size: int, device: torch.device, layout: str, seed: int = 0
) -> tuple[torch.nn.Module, Batch]:
    """Return a workload's model and a batch for it, both drawn with `seed`, on a device in a memory layout."""
    import torch

    torch.manual_seed(seed)
    model = workload.build(**workload.hyper).to(device)
    if layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    generator = torch.Generator(device).manual_seed(seed)
    return model, in_layout(layout, workload.batch(workload.hyper, batch_size, device, generator))


def in_layout(layout: str, batch: Batch) -> Batch:
    """Return the batch in a memory layout; only images (four dimensions) have one."""
    import torch
    from torch.utils._pytree import tree_map

    from workloads.catalogue.base import Batch

    if layout != "channels_last":
        return batch

    def last(value: Any) -> Any:
        is_images = isinstance(value, torch.Tensor) and value.dim() == 4
        return value.contiguous(memory_format=torch.channels_last) if is_images else value

    return Batch(tree_map(last, batch.inputs), batch.target)
