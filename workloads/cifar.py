"""CIFAR-10 as batches: `--data cifar10:DIR`, read by torchvision, resized to the model's image size.

Batches lie on the device before the clock starts (`preloaded`). Nothing is downloaded. Whether DIR holds the published
data is torchvision's checksum test, which stays in force.
"""

import itertools
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10
from torchvision.transforms import Compose, Normalize, Resize, ToTensor

from workloads.catalogue.base import Batch
from workloads.catalogue.model_names import CLASSES, check_cifar

MEAN = (0.4914, 0.4822, 0.4465)
STANDARD_DEVIATION = (0.2470, 0.2435, 0.2616)
"""Means and deviations of the 50,000 training images' red, green and blue, on a scale of 0 to 1."""


def dataset(directory: Path, image_size: int, kind: type[CIFAR10] = CIFAR10) -> CIFAR10:
    """The training images, each 3 × image_size × image_size, normalised.

    kind: a subclass may name other files and checksums of the same format. Raises ValueError, one line, for a
    directory that cannot be read, lacks a file, or holds one that is not what its checksum says.
    """
    files = tuple(name for name, _ in (*kind.train_list, *kind.test_list)) + (kind.meta["filename"],)
    check_cifar(directory, files)
    steps = Compose([Resize((image_size, image_size)), ToTensor(), Normalize(MEAN, STANDARD_DEVIATION)])
    try:
        return kind(root=str(directory), train=True, transform=steps, download=False)
    except RuntimeError as fault:  # torchvision's word for a checksum that differs
        raise ValueError(f"{_where(directory, kind)}: a file differs from its published checksum") from fault
    except (OSError, pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError) as fault:
        raise ValueError(f"{_where(directory, kind)}: {type(fault).__name__}: {fault}") from fault


def check_classes(num_classes: int) -> None:
    """Raises ValueError, one line, for a model of fewer classes than CIFAR-10 has."""
    if num_classes < CLASSES:
        raise ValueError(f"CIFAR-10 has {CLASSES} classes, the model {num_classes}: pass --size num_classes={CLASSES}")


def loader(images: CIFAR10, batch_size: int, generator: torch.Generator) -> DataLoader[Any]:
    """Whole batches of (images, labels), shuffled by `generator` (a CPU generator).

    Raises ValueError if there are fewer images than one batch holds.
    """
    if len(images) < batch_size:
        raise ValueError(f"a batch of {batch_size} is larger than the epoch: CIFAR-10 here has {len(images)} images")
    return DataLoader(images, batch_size=batch_size, shuffle=True, drop_last=True, generator=generator)


def preloaded(pipeline: Iterable[Sequence[torch.Tensor]], count: int, device: torch.device) -> list[Batch]:
    """The first `count` batches, on the device; fewer if the epoch is shorter."""
    return [
        Batch((images.to(device),), labels.to(device)) for images, labels in itertools.islice(iter(pipeline), count)
    ]


def _where(directory: Path, kind: type[CIFAR10]) -> str:
    return f"--data cifar10:{directory}: expected CIFAR-10 in {directory / kind.base_folder}/"
