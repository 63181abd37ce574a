"""Models of published measurements that no name of the catalogue means, for
`analysis/footprint/step/published_memory.csv`.

    python -m runners.footprint benchmarks.pages.published_models:deit --batch-size 2

Each function gives a workload of another's step as its source describes it; sizes are whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch

from workloads.catalogue.base import Batch, Workload
from workloads.sources.any_model import get

HEADS = {192: 3, 384: 6, 768: 12}
"""Width of a DeiT → its heads."""


def vit_l_16_bf16(num_classes: int = 10, image_size: int = 224) -> Workload:
    """torchvision's ViT-L/16, all of it in bfloat16, and so its images."""
    whole = get("vit_l_16", num_classes=num_classes, image_size=image_size)
    return replace(whole, build=partial(_halved, whole), batch=partial(_halves, whole))


def deit(width: int = 384, image_size: int = 224) -> Workload:
    """timm's ViT of DeiT's sizes (192: tiny, 384: small, 768: base), with a tenth of its paths dropped."""
    images = get("timm:vit_small_patch16_224")
    return replace(images, hyper={"width": width, "image_size": image_size}, build=_deit)


def _halved(whole: Workload, **hyper: int) -> torch.nn.Module:
    return whole.build(**hyper).to(torch.bfloat16)


def _halves(
    whole: Workload, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    batch = whole.batch(hyper, size, device, generator)
    return Batch(tuple(each.to(torch.bfloat16) for each in batch.inputs), batch.target)


def _deit(width: int, image_size: int) -> torch.nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=image_size, embed_dim=width, num_heads=HEADS[width], depth=12, drop_path_rate=0.1, num_classes=1000
    )
