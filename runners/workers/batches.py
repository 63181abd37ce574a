"""What the model of a cell is built with, and where its batches come from.

Sizes, inputs and what is changed of the model are known without torch (`hyper_of_cell`). Batches are random ones or
CIFAR-10's that lie on the device, or a DataLoader's.

With `--input-pipeline` a step takes its batch from torchvision's data set and PyTorch's DataLoader within its own time:
reading, resizing, normalising, collating and the way to the device, in the process that trains (a worker may start no
others). Otherwise all batches are there before the clock starts. torch is imported inside the functions, because the
parent imports the module that imports this one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.records.cell import Cell
from workloads.catalogue.catalogue import ENTRIES, hyper_of

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

    from workloads.catalogue.base import Batch, Workload


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


FEW_BATCHES, MORE_BATCHES = 2, 4
SMALL_BATCH_BYTES = 64 * 2**20
"""Below this a batch may stay in a cache from step to step, so more of them take turns."""


def images(data: str) -> int:
    """How many training images `cifar10:DIR` holds. A worker's task. Raises ValueError if they cannot be read."""
    from workloads.vision import cifar

    return len(cifar.dataset(_directory(data), 32))


class Batches:
    """The batches of one cell, of any size, in the cell's layout and on its device. They repeat with its seed."""

    def __init__(self, cell: Cell, workload: Workload, device: torch.device) -> None:
        self._cell = cell
        self._workload = workload
        self._device = device

    def some(self, size: int) -> list[Batch]:
        """A few batches that lie on the device; more than one, because real steps differ in their data."""
        made = self._random(size) if self._cell.data == "synthetic" else self._preloaded(size)
        return [in_layout(self._cell.layout, batch) for batch in made]

    def endless(self, size: int) -> Iterator[Batch]:
        """What one step after the other takes: batches that lie on the device, one after another, or the pipeline's."""
        if not self._cell.input_pipeline:
            return itertools.cycle(self.some(size))
        from workloads.vision import cifar

        return self._on_device(cifar.endless(self._images, size, self._generator()))

    def loader(self, size: int) -> DataLoader[Any]:
        """The pipeline itself: batches of (images, labels) that do not lie on the device yet."""
        from workloads.vision import cifar

        return cifar.loader(self._images, size, self._generator())

    def epoch(self, count: int, size: int) -> Iterator[Batch]:
        """The batches of one epoch of `count` items, the last one smaller if `size` does not divide it.

        From the pipeline each image comes once; of batches that lie on the device the whole ones take turns.
        """
        whole, rest = divmod(count, size)
        if not self._cell.input_pipeline:
            return itertools.chain(
                itertools.islice(itertools.cycle(self.some(size)), whole), self.some(rest)[:1] if rest else []
            )
        from workloads.vision import cifar

        return self._on_device(cifar.epoch(self._images, count, size, self._generator()))

    def _random(self, size: int) -> list[Batch]:
        import torch
        from torch.utils._pytree import tree_leaves

        generator = torch.Generator(self._device).manual_seed(self._cell.seed)
        workload = self._workload
        batches = [workload.batch(workload.hyper, size, self._device, generator)]
        leaves = tree_leaves((batches[0].inputs, batches[0].target))
        nbytes = sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
        count = MORE_BATCHES if nbytes < SMALL_BATCH_BYTES else FEW_BATCHES
        for _ in range(count - 1):
            batches.append(workload.batch(workload.hyper, size, self._device, generator))
        return batches

    def _preloaded(self, size: int) -> list[Batch]:
        from workloads.vision import cifar

        return cifar.preloaded(cifar.loader(self._images, size, self._generator()), FEW_BATCHES, self._device)

    @functools.cached_property
    def _images(self) -> Any:
        """The data set, read once. Raises ValueError if it cannot be read, or for a model of fewer classes."""
        from workloads.vision import cifar

        sizes = self._workload.hyper
        cifar.check_classes(sizes["num_classes"])
        return cifar.dataset(_directory(self._cell.data), sizes["image_size"])

    def _generator(self) -> torch.Generator:
        import torch

        return torch.Generator().manual_seed(self._cell.seed)

    def _on_device(self, pipeline: Iterator[Batch]) -> Iterator[Batch]:
        from workloads.vision import cifar

        for batch in pipeline:
            yield in_layout(self._cell.layout, cifar.to_device(batch, self._device))


def model_and_batch(
    workload: Workload, batch_size: int, device: torch.device, layout: str, seed: int = 0
) -> tuple[torch.nn.Module, Batch]:
    """A workload's model and a batch for it, of a seed, in a memory layout and on a device."""
    import torch

    torch.manual_seed(seed)
    model = workload.build(**workload.hyper).to(device)
    if layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    generator = torch.Generator(device).manual_seed(seed)
    return model, in_layout(layout, workload.batch(workload.hyper, batch_size, device, generator))


def in_layout(layout: str, batch: Batch) -> Batch:
    """The batch in a memory layout; only images (four dimensions) have one."""
    import torch
    from torch.utils._pytree import tree_map

    from workloads.catalogue.base import Batch

    if layout != "channels_last":
        return batch

    def last(value: Any) -> Any:
        is_images = isinstance(value, torch.Tensor) and value.dim() == 4
        return value.contiguous(memory_format=torch.channels_last) if is_images else value

    return Batch(tree_map(last, batch.inputs), batch.target)


def _directory(data: str) -> Path:
    return Path(data.partition(":")[2])
