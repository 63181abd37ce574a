"""Fathom's `residual`: as coded a bottleneck network that never gets smaller, as in the paper ResNet-34.

As coded: a stem to a quarter of the image's side, then four stages of three blocks, all of that side and without batch
normalisation; a block has three ReLUs, and none after the sum. 42 layers have weights, and an image takes 4.4 times the
FLOP of ResNet-34 (He et al. 2015, arXiv:1512.03385), which is what the paper describes.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from workloads.fathom.data.images import CHANNELS
from workloads.vision.wide_resnet import ResNetOfWidth

BLOCKS = 3
DEVIATION = 0.02
STAGES = (2, 4, 8, 16)
"""Channels of each stage, in widths of the stem; those inside a block are a quarter."""


class Block(nn.Module):
    """x → x + three convolutions of x, of 1, 3 and 1, each with its ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // 4
        self.branch = nn.Sequential(
            nn.Conv2d(channels, inner, 1), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, padding=1), nn.ReLU(),
            nn.Conv2d(inner, channels, 1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        branch: torch.Tensor = self.branch(images)
        return images + branch


class Residual(nn.Module):
    """As coded: images, batch × 3 × S × S → logits, batch × num_classes. Products of 1 × 1 that widen have no bias."""

    def __init__(self, image_size: int, num_classes: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(CHANNELS, width, 7, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)
        )
        layers: list[nn.Module] = []
        channels = width
        for stage in STAGES:
            layers += [nn.Conv2d(channels, stage * width, 1, bias=False)]
            channels = stage * width
            layers += [Block(channels) for _ in range(BLOCKS)]
        self.stages = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes, bias=False)
        self.apply(_begin)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.stages(self.stem(images)).mean(dim=(2, 3)))
        return logits


def _begin(module: nn.Module) -> None:
    """Small weights, as coded, so that branches add little to begin with; for `Module.apply`."""
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.trunc_normal_(module.weight, std=DEVIATION, a=-2 * DEVIATION, b=2 * DEVIATION)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def resnet34(image_size: int, num_classes: int, width: int) -> nn.Module:
    """As in the paper: torchvision's at a width of 64."""
    return ResNetOfWidth("resnet34", width, num_classes)


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Adam of rate 0.01."""
    return torch.optim.Adam(parameters, lr=1e-2)
