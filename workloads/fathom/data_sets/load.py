"""The real data sets of Fathom's workloads, from a directory that you have: bAbI, WMT, TIMIT, MNIST, ImageNet, Atari.

Nothing is downloaded. Each loader gives one epoch of whole batches on the CPU, in the order of the files and without
shuffling, and raises ValueError, one line, for what is missing, torn, or of another form. `docs/workloads.md` says what
a directory holds.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import torch
from torch.utils._pytree import tree_map_only

from workloads.catalogue.base import Batch, Workload
from workloads.catalogue.fathom_sizes import base

Loader = Callable[[Path, Workload, int], Iterator[Batch]]

LOADERS: Mapping[str, str] = {
    "seq2seq": "workloads.fathom.data_sets.text:wmt",
    "memnet": "workloads.fathom.data_sets.text:babi",
    "fathom-speech": "workloads.fathom.data_sets.speech:timit",
    "autoenc": "workloads.fathom.data_sets.images:mnist",
    "deepq": "workloads.fathom.data_sets.images:atari",
    **dict.fromkeys(("residual", "fathom-vgg", "fathom-alexnet", "vit"), "workloads.fathom.data_sets.images:imagenet"),
}
"""Model → the loader of its data set, loaded when asked for."""


def batches(workload: Workload, directory: Path, size: int, device: torch.device) -> Iterator[Batch]:
    """Batches of the real data on the device, epoch after epoch, each made when it is asked for.

    Raises ValueError at once for a workload without a loader or a directory that is none, and at the first batch for
    files that cannot be read, or fewer samples than a batch has.
    """
    if base(workload.name) not in LOADERS:
        raise ValueError(f"{workload.name} has no real data set; those that have: {', '.join(LOADERS)}")
    if not directory.is_dir():
        raise ValueError(f"{workload.name}: expected a directory with its data set, got {directory}")
    module, _, function = LOADERS[base(workload.name)].partition(":")
    loader: Loader = getattr(importlib.import_module(module), function)
    return _endless(loader, workload, directory, size, device)


def _endless(loader: Loader, workload: Workload, directory: Path, size: int, device: torch.device) -> Iterator[Batch]:
    while True:
        found = False
        for batch in loader(directory, workload, size):
            found = True
            yield Batch(*tree_map_only(torch.Tensor, lambda value: value.to(device), (batch.inputs, batch.target)))
        if not found:
            raise ValueError(f"{directory}: a batch of {size} is larger than the data of {workload.name} there")


def sliced(inputs: tuple[torch.Tensor, ...], target: object, size: int) -> Iterator[Batch]:
    """Whole batches of samples that are all in memory, in order; the last, partial one is left out."""
    for start in range(0, len(inputs[0]) - size + 1, size):
        rows = partial(_rows, slice(start, start + size))
        yield Batch(*tree_map_only(torch.Tensor, rows, (inputs, target)))


def _rows(part: slice, value: torch.Tensor) -> torch.Tensor:
    return value[part]
