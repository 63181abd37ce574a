"""MNIST for `autoenc` and ImageNet for the networks of images, by torchvision's readers; Atari's frames for `deepq`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from workloads.catalogue.base import Batch, Workload
from workloads.fathom.data.catch_game import FRAMES
from workloads.fathom.data_sets.load import sliced

BACKGROUND = 1001
"""Classes of Fathom's networks, of which the first stands for none of ImageNet's 1,000."""

MEAN, STANDARD_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's red, green and blue, on a scale of 0 to 1."""

NAMES = ("frames", "actions", "rewards", "terminals")
GREY = (0.299, 0.587, 0.114)
TALL, CROPPED = 110 / 84, 18 / 84
"""Of a frame that is as wide as the network's: its height, and the rows that are left out above."""


def mnist(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Training images as rows of pixels, each pixel of mean 0 and variance 1 over the images."""
    from torchvision.datasets import MNIST

    try:
        images = MNIST(str(directory), train=True, download=False).data.flatten(1).float()
    except (RuntimeError, OSError, ValueError, AssertionError, KeyError, EOFError) as fault:
        cause = " ".join(str(fault).split())[:120]
        raise ValueError(f"{directory}: expected MNIST/raw/train-images-idx3-ubyte and its labels: {cause}") from fault
    if images.shape[1] != workload.hyper["pixels"]:
        raise ValueError(
            f"{directory}: images of {images.shape[1]} pixels, the workload has {workload.hyper['pixels']}"
        )
    deviation = images.std(dim=0, unbiased=False)
    images = (images - images.mean(dim=0)) / torch.where(deviation > 0, deviation, 1.0)
    return sliced((images,), images, size)


def imagenet(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Images of a directory for each class, resized and cropped to the workload's side; read when asked for."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import CenterCrop, Compose, Normalize, Resize, ToTensor

    side, classes = workload.hyper["image_size"], workload.hyper["num_classes"]
    steps = Compose([Resize(side), CenterCrop(side), ToTensor(), Normalize(MEAN, STANDARD_DEVIATION)])
    root = directory / "train" if (directory / "train").is_dir() else directory
    try:
        images = ImageFolder(str(root), transform=steps)
    except OSError as fault:
        raise ValueError(f"{root}: expected a directory of images for each class: {fault}") from fault
    first = 1 if classes == BACKGROUND else 0
    if len(images.classes) + first > classes:
        raise ValueError(f"{root}: {len(images.classes)} classes of images, the workload has {classes - first}")
    for start in range(0, len(images) - size + 1, size):
        read = [_read(images, place) for place in range(start, start + size)]
        yield Batch((torch.stack([image for image, _ in read]),), torch.tensor([first + label for _, label in read]))


def _read(images: Any, place: int) -> tuple[torch.Tensor, int]:
    try:
        image, label = images[place]
    except (OSError, SyntaxError, ValueError) as fault:  # Pillow's words for what is torn
        raise ValueError(
            f"{images.samples[place][0]}: expected an image: {' '.join(str(fault).split())[:120]}"
        ) from fault
    return image, label


def atari(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Transitions of a recorded game, the newest of four frames first, rewards by their sign; none spans two games."""
    path, side = directory / "frames.npz", workload.hyper["image_size"]
    held = _arrays(path)
    if int(held["actions"].max()) >= workload.hyper["actions"]:
        raise ValueError(f"{path}: action {int(held['actions'].max())}, the workload has {workload.hyper['actions']}")
    frames, ended = preprocessed(held["frames"], side), held["terminals"].bool()
    last = [t for t in range(FRAMES - 1, len(frames) - 1) if not ended[t - FRAMES + 1 : t].any()]
    if not last:
        raise ValueError(f"{path}: expected {FRAMES + 1} frames of one game in a row, got fewer")
    at = torch.tensor(last).unsqueeze(1) - torch.arange(FRAMES)
    inputs = (
        frames[at], held["actions"][at[:, 0]].long(), held["rewards"][at[:, 0]].float().sign(),
        frames[at + 1], ended[at[:, 0]].float(),
    )  # fmt: skip
    return sliced(inputs, None, size)


def preprocessed(frames: torch.Tensor, side: int) -> torch.Tensor:
    """N × 210 × 160 × 3 of 0 to 255 → N × side × side of 0 to 1: grey, smaller, the score above and below cut off."""
    grey = (frames.float() @ torch.tensor(GREY) / 255).unsqueeze(1)
    small = functional.interpolate(grey, (round(TALL * side), side), mode="area").squeeze(1)
    top = round(CROPPED * side)
    return small[:, top : top + side]


def _arrays(path: Path) -> Mapping[str, torch.Tensor]:
    """The arrays of a recording. Raises ValueError for a file that is missing, torn, or lacks one."""
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:  # a torn file is closed, too
            found = {name: torch.from_numpy(held[name]) for name in NAMES}
    except FileNotFoundError as fault:
        raise ValueError(f"{path.parent}: expected frames.npz with {', '.join(NAMES)}; there is none") from fault
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as fault:
        cause = " ".join(str(fault).split())[:120]
        raise ValueError(f"{path}: expected arrays {', '.join(NAMES)}: {cause}") from fault
    if found["frames"].dim() != 4 or found["frames"].shape[3] != 3 or len({len(each) for each in found.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(each.shape)}" for name, each in found.items())
        raise ValueError(f"{path}: expected N frames of 210 × 160 × 3 and N of each other array, got {shapes}")
    return found
