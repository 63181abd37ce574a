"""CIFAR-10 as batches: `--data cifar10:DIR`, read by torchvision, resized to the model's image size.

The headline measurement trains on batches that lie on the device before the clock starts, so this module gives those;
`loader` is the input pipeline itself. Nothing is downloaded. Whether DIR holds the published data is torchvision's
checksum test, which stays in force.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10
from torchvision.transforms import Compose, Normalize, Resize, ToTensor

from workloads.base import Batch
from workloads.cifar_files import check

CLASSES = 10

MEAN = (0.4914, 0.4822, 0.4465)
STANDARD_DEVIATION = (0.2470, 0.2435, 0.2616)
"""Of the 50,000 training images' red, green and blue, on a scale of 0 to 1."""


def dataset(directory: Path, image_size: int, kind: type[CIFAR10] = CIFAR10) -> CIFAR10:
    """The training images, each 3 × image_size × image_size, normalised.

    kind: a subclass may name other files and checksums of the same format. Raises ValueError, one line, for a
    directory that cannot be read, lacks a file, or holds one that is not what its checksum says.
    """
    files = tuple(name for name, _ in (*kind.train_list, *kind.test_list)) + (kind.meta["filename"],)
    check(directory, files)
    steps = Compose([Resize((image_size, image_size)), ToTensor(), Normalize(MEAN, STANDARD_DEVIATION)])
    try:
        return kind(root=str(directory), train=True, transform=steps, download=False)
    except RuntimeError as fault:  # torchvision's word for a checksum that differs
        raise ValueError(f"{_where(directory, kind)}: a file differs from its published checksum") from fault
    except (OSError, pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError) as fault:
        raise ValueError(f"{_where(directory, kind)}: {type(fault).__name__}: {fault}") from fault


def loader(
    images: CIFAR10, batch_size: int, generator: torch.Generator, drop_last: bool = True, workers: int = 0
) -> DataLoader[Any]:
    """The input pipeline: shuffled by `generator` (a CPU generator), batches of (images, labels).

    drop_last: leave out the last, partial batch. Raises ValueError if there are fewer images than one batch holds.
    """
    if len(images) < batch_size:
        raise ValueError(f"a batch of {batch_size} is larger than the epoch: CIFAR-10 here has {len(images)} images")
    return DataLoader(
        images, batch_size=batch_size, shuffle=True, drop_last=drop_last, num_workers=workers, generator=generator
    )


def preloaded(pipeline: Iterable[Sequence[torch.Tensor]], count: int, device: torch.device) -> list[Batch]:
    """The first `count` batches, on the device; fewer if the epoch is shorter."""
    return [
        Batch((images.to(device),), labels.to(device)) for images, labels in itertools.islice(iter(pipeline), count)
    ]


def batches(
    directory: Path,
    image_size: int,
    num_classes: int,
    batch_size: int,
    count: int,
    device: torch.device,
    generator: torch.Generator,
) -> list[Batch]:
    """`count` batches of CIFAR-10 on the device. Raises ValueError as above, or for a model of fewer classes."""
    if num_classes < CLASSES:
        raise ValueError(f"CIFAR-10 has {CLASSES} classes, the model {num_classes}: pass --num-classes {CLASSES}")
    return preloaded(loader(dataset(directory, image_size), batch_size, generator), count, device)


def _where(directory: Path, kind: type[CIFAR10]) -> str:
    return f"--data cifar10:{directory}: expected CIFAR-10 in {directory / kind.base_folder}/"
