"""What Fathom's workloads of images share: images that show their label, the loss, and how weights begin.

An image is normal noise with a grating whose direction and width say its label, so that learning can be seen on images
that were never seen before. Nothing here resembles photographs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from workloads.catalogue.base import Batch

__all__ = ["batch", "begin", "cross_entropy", "images_of"]

CHANNELS = 3


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """size × 3 × S × S images, and their labels below num_classes."""
    side = hyper["image_size"]
    labels = torch.randint(hyper["num_classes"], (size,), device=device, generator=generator)
    noise = torch.randn(size, CHANNELS, side, side, device=device, generator=generator)
    at = torch.arange(side, device=device) / side
    across, down = 1 + labels % 32, labels // 32  # waves of a grating; 1,001 labels need 32 × 32 of them
    waves = across.view(-1, 1, 1) * at + down.view(-1, 1, 1) * at.unsqueeze(1)
    return Batch((noise + torch.cos(2 * torch.pi * waves).unsqueeze(1),), labels)


def images_of(_hyper: Mapping[str, int], size: int) -> int:
    """How many images a batch holds."""
    return size


def begin(module: nn.Module) -> None:
    """Weights through which values neither grow nor fade (He et al. 2015, arXiv:1502.01852), biases of 0; for
    `Module.apply`. Fathom's own, some of deviation 1, do not train."""
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
