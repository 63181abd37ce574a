"""CIFAR-10 as batches: `--data cifar10:DIR`, read by torchvision, resized to the model's image size.

The headline measurement trains on batches that lie on the device before the clock starts (`preloaded`); `endless` and
`epoch` are the input pipeline itself, for the mode that times it. Nothing is downloaded. Whether DIR holds the
published data is torchvision's checksum test, which stays in force.
"""

import itertools
import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.utils.data import DataLoader, Subset
from torchvision.datasets import CIFAR10
from torchvision.transforms import Compose, Normalize, Resize, ToTensor

from workloads.catalogue.base import Batch
from workloads.catalogue.files import CLASSES, check

Images: TypeAlias = CIFAR10 | Subset[Any]

MEAN = (0.4914, 0.4822, 0.4465)
STANDARD_DEVIATION = (0.2470, 0.2435, 0.2616)
"""Means and deviations of the 50,000 training images' red, green and blue, on a scale of 0 to 1."""


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


def check_classes(num_classes: int) -> None:
    """Raises ValueError, one line, for a model of fewer classes than CIFAR-10 has."""
    if num_classes < CLASSES:
        raise ValueError(f"CIFAR-10 has {CLASSES} classes, the model {num_classes}: pass --size num_classes={CLASSES}")


def loader(
    images: Images, batch_size: int, generator: torch.Generator, drop_last: bool = True, workers: int = 0
) -> DataLoader[Any]:
    """The input pipeline: shuffled by `generator` (a CPU generator), batches of (images, labels).

    drop_last: leave out the last, partial batch. Raises ValueError if there are fewer images than one batch holds.
    """
    if len(images) < batch_size:
        raise ValueError(f"a batch of {batch_size} is larger than the epoch: CIFAR-10 here has {len(images)} images")
    return DataLoader(
        images, batch_size=batch_size, shuffle=True, drop_last=drop_last, num_workers=workers, generator=generator
    )


def endless(images: CIFAR10, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
    """Whole batches from the pipeline, epoch after epoch, each made when it is asked for. Raises as `loader`."""
    pipeline = loader(images, batch_size, generator)
    return (_batch(pair) for _ in itertools.count() for pair in pipeline)


def epoch(images: CIFAR10, count: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
    """One epoch of the first `count` images, each of them once, in the order that `generator` decides.

    The last batch holds what is left. Raises ValueError if there are fewer images.
    """
    if count > len(images):
        raise ValueError(f"an epoch of {count} images is more than CIFAR-10 here has, {len(images)}")
    pipeline = loader(Subset(images, range(count)), batch_size, generator, drop_last=False)
    return (_batch(pair) for pair in pipeline)


def preloaded(pipeline: Iterable[Sequence[torch.Tensor]], count: int, device: torch.device) -> list[Batch]:
    """The first `count` batches, on the device; fewer if the epoch is shorter."""
    return [to_device(_batch(pair), device) for pair in itertools.islice(iter(pipeline), count)]


def to_device(batch: Batch, device: torch.device) -> Batch:
    """A batch of images and labels, on the device."""
    (images,) = batch.inputs
    return Batch((images.to(device),), batch.target.to(device))


def _batch(pair: Sequence[torch.Tensor]) -> Batch:
    images, labels = pair
    return Batch((images,), labels)


def _where(directory: Path, kind: type[CIFAR10]) -> str:
    return f"--data cifar10:{directory}: expected CIFAR-10 in {directory / kind.base_folder}/"
