"""Fathom's `fathom-alexnet`: as coded the one that fits on one device, as in the paper the one of two.

As coded (the channels of Krizhevsky 2014, arXiv:1404.5997, with normalisation over neighbouring channels, without
dropout, SAME padding of the first convolution): 1.43 GFLOP an image. As in the paper (Krizhevsky et al. 2012,
ImageNet classification with deep convolutional neural networks): more channels, the second, fourth and fifth
convolutions in two groups, and half of the values dropped. TensorFlow pads the odd pixel after the image; here it
stands on both sides, which changes no size.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from workloads.fathom.data.images import CHANNELS, begin

FEATURES = 64
"""Values of each hidden layer, in widths: 4,096 of 64."""


class AlexNet(nn.Module):
    """As coded: images, batch × 3 × S × S → logits, batch × num_classes."""

    def __init__(self, image_size: int, num_classes: int, width: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(CHANNELS, width, 11, stride=4, padding=4), nn.ReLU(), nn.MaxPool2d(3, 2), _neighbours(),
            nn.Conv2d(width, 3 * width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2), _neighbours(),
            nn.Conv2d(3 * width, 6 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(6 * width, 4 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        features = FEATURES * width
        self.classifier = nn.Sequential(
            nn.Linear(4 * width * _side(image_size) ** 2, features), nn.ReLU(),
            nn.Linear(features, features), nn.ReLU(),
            nn.Linear(features, num_classes),
        )  # fmt: skip
        self.apply(begin)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.convolutions(images).flatten(1))
        return logits


class AlexNet2012(AlexNet):
    """As in the paper: its first convolution begins at 55 × 55 of an image of 224."""

    def __init__(self, image_size: int, num_classes: int, width: int) -> None:
        nn.Module.__init__(self)
        wide = width // 2
        self.convolutions = nn.Sequential(
            nn.Conv2d(CHANNELS, 3 * wide, 11, stride=4, padding=2), nn.ReLU(), _neighbours(5, 1e-4, 2.0),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(3 * wide, 8 * wide, 5, padding=2, groups=2), nn.ReLU(), _neighbours(5, 1e-4, 2.0),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(8 * wide, 12 * wide, 3, padding=1), nn.ReLU(),
            nn.Conv2d(12 * wide, 12 * wide, 3, padding=1, groups=2), nn.ReLU(),
            nn.Conv2d(12 * wide, 8 * wide, 3, padding=1, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        features = FEATURES * width
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(8 * wide * _side(image_size) ** 2, features), nn.ReLU(),
            nn.Dropout(), nn.Linear(features, features), nn.ReLU(),
            nn.Linear(features, num_classes),
        )  # fmt: skip
        self.apply(begin)


def _neighbours(channels: int = 9, alpha: float = 1e-3, bias: float = 1.0) -> nn.Module:
    """Values divided by a power of what their neighbouring channels hold. alpha: for all of these channels together."""
    return nn.LocalResponseNorm(channels, alpha=alpha, beta=0.75, k=bias)


def _side(image_size: int) -> int:
    """Pixels a side after the last pool, of an image whose side is a multiple of 32: 224, 56, 27, 13, 6."""
    return image_size // 32 - 1


def adam(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """As coded: Adam of rate 0.001."""
    return torch.optim.Adam(parameters, lr=1e-3)


def sgd(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """As in the paper of 2012: SGD of rate 0.01, momentum 0.9, weight decay 0.0005."""
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=5e-4)
