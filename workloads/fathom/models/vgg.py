"""Fathom's `fathom-vgg`: as coded VGG-16 with a ReLU on its logits, as in the paper VGG-19.

Source: Simonyan and Zisserman 2015, arXiv:1409.1556. Thirteen or sixteen convolutions of 3 × 3, a pool of 2 after each
of five blocks, three products. As coded a fifth of the values is dropped between these, in the paper of VGG a half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import torch
from torch import nn

from workloads.fathom.data.images import CHANNELS, begin

CHANNELS_OF_BLOCKS = (1, 2, 4, 8, 8)
"""In widths."""

FEATURES = 64
"""Values of each hidden layer, in widths: 4,096 of 64."""


class VGG(nn.Module):
    """Images, batch × 3 × S × S → logits, batch × num_classes. blocks: convolutions of each."""

    def __init__(
        self, image_size: int, num_classes: int, width: int, blocks: tuple[int, ...], dropped: float, clipped: bool
    ) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(*_layers(width, blocks))
        side, features = image_size >> len(blocks), FEATURES * width
        self.classifier = nn.Sequential(
            nn.Linear(CHANNELS_OF_BLOCKS[-1] * width * side**2, features), nn.ReLU(), nn.Dropout(dropped),
            nn.Linear(features, features), nn.ReLU(), nn.Dropout(dropped),
            nn.Linear(features, num_classes), *([nn.ReLU()] if clipped else []),
        )  # fmt: skip
        self.apply(begin)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.convolutions(images).flatten(1))
        return logits


def _layers(width: int, blocks: tuple[int, ...]) -> Iterator[nn.Module]:
    channels = CHANNELS
    for count, widths in zip(blocks, CHANNELS_OF_BLOCKS, strict=True):
        for _ in range(count):
            yield nn.Conv2d(channels, widths * width, 3, padding=1)
            yield nn.ReLU()
            channels = widths * width
        yield nn.MaxPool2d(2)


as_coded = partial(VGG, blocks=(2, 2, 3, 3, 3), dropped=0.2, clipped=True)
as_paper = partial(VGG, blocks=(2, 2, 4, 4, 4), dropped=0.5, clipped=False)


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Adam of rate 0.0001."""
    return torch.optim.Adam(parameters, lr=1e-4)
