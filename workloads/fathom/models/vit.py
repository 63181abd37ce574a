"""`vit`: torchvision's vision transformer in the form of Fathom's workloads.

Source: Dosovitskiy et al. 2021, arXiv:2010.11929. Not Fathom's, which is of 2016. At its own sizes it is ViT-B/16; its
feed-forward layers are four times as wide.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torchvision.models import VisionTransformer


def model(image_size: int, num_classes: int, patch: int, d_model: int, layers: int, heads: int) -> torch.nn.Module:
    """Images, batch × 3 × S × S → logits, batch × num_classes."""
    made: torch.nn.Module = VisionTransformer(
        image_size, patch, layers, heads, d_model, 4 * d_model, num_classes=num_classes
    )
    return made


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW of rate 0.001, weight decay 0.1."""
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)
