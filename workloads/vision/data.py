"""Random batches and training losses of the vision tasks.

Images are standard normal, labels uniform, boxes valid: never zeros, because a multiplier fed with zeros draws less
power and clocks higher than training does. Nothing here resembles photographs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from workloads.catalogue.base import Batch

GOOGLENET_AUXILIARY = 0.3
"""Weight of each auxiliary classifier: Szegedy et al. 2014, arXiv:1409.4842, section 5."""

INCEPTION_AUXILIARY = 0.4
"""Weight of the auxiliary classifier: TensorFlow slim's inception_v3 and PyTorch's fine-tuning tutorial. The paper
(arXiv:1512.00567) gives none."""

SEGMENTATION_AUXILIARY = 0.5
"""Weight of the auxiliary head: torchvision, references/segmentation/train.py."""

FLOW_DECAY = 0.8
"""Each earlier of RAFT's predictions weighs this much less: Teed and Deng 2020, arXiv:2003.12039, section 3.3."""

KEYPOINTS = 17
"""Keypoints of a person in COCO."""

Maker = Callable[[str, Mapping[str, int], int, torch.device, "torch.Generator | None"], Batch]


class Draw:
    """Random tensors of one device and one generator."""

    def __init__(self, device: torch.device, generator: torch.Generator | None) -> None:
        self.device, self.generator = device, generator

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal float32."""
        return torch.randn(*shape, device=self.device, generator=self.generator)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform float32 in [0, 1)."""
        return torch.rand(*shape, device=self.device, generator=self.generator)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Uniform int64 in [low, high)."""
        return torch.randint(low, high, shape, device=self.device, generator=self.generator)


def image_batch(
    name: str, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """size × 3 × S × S images, one label each."""
    draw, side = Draw(device, generator), hyper["image_size"]
    return Batch((draw.normal(size, 3, side, side),), draw.integers(0, hyper["num_classes"], size))


def clip_batch(
    name: str, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """size × 3 × T × S × S clips, one label each."""
    draw, side = Draw(device, generator), hyper["image_size"]
    clips = draw.normal(size, 3, hyper["frames"], side, side)
    return Batch((clips,), draw.integers(0, hyper["num_classes"], size))


def pixel_batch(
    name: str, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """size × 3 × S × S images, a label for each pixel."""
    draw, side = Draw(device, generator), hyper["image_size"]
    return Batch((draw.normal(size, 3, side, side),), draw.integers(0, hyper["num_classes"], size, side, side))


def flow_batch(
    name: str, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """Two images of size × 3 × S × S, and the flow between them, size × 2 × S × S pixels."""
    draw, side = Draw(device, generator), hyper["image_size"]
    pair = (draw.normal(size, 3, side, side), draw.normal(size, 3, side, side))
    return Batch(pair, draw.normal(size, 2, side, side))


def box_batch(
    name: str, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """A list of 3 × S × S images and a list of what is in each: torchvision's detectors take both and give losses."""
    draw, side = Draw(device, generator), hyper["image_size"]
    images = [draw.normal(3, side, side) for _ in range(size)]
    return Batch((images, [_objects(name, hyper, draw) for _ in range(size)]), None)


def _objects(name: str, hyper: Mapping[str, int], draw: Draw) -> dict[str, torch.Tensor]:
    """Boxes of a tenth to a half of the image, wholly inside it; label 0 is the background's."""
    side, count = hyper["image_size"], hyper["boxes"]
    corner = draw.uniform(count, 2) * 0.5 * side
    extent = (0.1 + 0.4 * draw.uniform(count, 2)) * side
    objects = {"boxes": torch.cat([corner, corner + extent], dim=1)}
    objects["labels"] = draw.integers(1, hyper["num_classes"], count)
    if name.startswith("keypointrcnn"):
        points = corner[:, None, :] + draw.uniform(count, KEYPOINTS, 2) * extent[:, None, :]
        visible = torch.ones(count, KEYPOINTS, 1, device=draw.device)
        objects["keypoints"] = torch.cat([points, visible], dim=2)
    if name.startswith("maskrcnn"):
        objects["masks"] = draw.integers(0, 2, count, side, side).to(torch.uint8)
    return objects


BATCHES: Mapping[str, Maker] = {
    "classification": image_batch,
    "segmentation": pixel_batch,
    "detection": box_batch,
    "video": clip_batch,
    "flow": flow_batch,
}
"""Task → how its batches are made."""


def classification_loss(output: Any, target: Any) -> torch.Tensor:
    """Cross entropy of size × classes logits."""
    return cross_entropy(output, target)


def googlenet_loss(output: Any, target: Any) -> torch.Tensor:
    """Cross entropy of the classifier and, lighter, of both auxiliary ones."""
    auxiliary = cross_entropy(output.aux_logits1, target) + cross_entropy(output.aux_logits2, target)
    return cross_entropy(output.logits, target) + GOOGLENET_AUXILIARY * auxiliary


def inception_loss(output: Any, target: Any) -> torch.Tensor:
    """Cross entropy of the classifier and, lighter, of the auxiliary one."""
    return cross_entropy(output.logits, target) + INCEPTION_AUXILIARY * cross_entropy(output.aux_logits, target)


def segmentation_loss(output: Any, target: Any) -> torch.Tensor:
    """Cross entropy of each pixel, and of the auxiliary head's where the model has one."""
    loss = cross_entropy(output["out"], target)
    if "aux" not in output:
        return loss
    return loss + SEGMENTATION_AUXILIARY * cross_entropy(output["aux"], target)


def detection_loss(output: Any, target: Any) -> torch.Tensor:
    """The sum of the losses that the model itself gives in training mode."""
    losses = list(output.values())
    return torch.stack(losses).sum()


def flow_loss(output: Any, target: Any) -> torch.Tensor:
    """Mean distance of every successive prediction, the last weighing 1 and each before it FLOW_DECAY of the next."""
    last = len(output) - 1
    terms = [FLOW_DECAY ** (last - i) * (prediction - target).abs().mean() for i, prediction in enumerate(output)]
    return torch.stack(terms).sum()
