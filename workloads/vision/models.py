"""torchvision's models as workloads: built with their own initialisation, fed random data, trained with their own loss.

Nothing is downloaded: every model starts from random weights. The losses are those of torchvision's reference
training scripts, auxiliary outputs included, because their FLOP belong to the step. It does not claim that anything
is learned: images are normal noise and labels uniform.

ResNet-18 to 152 can have another `width`, the channels of the first stage: torchvision's blocks and forward pass, each
stage with twice the channels of the one before, and a bottleneck's output four times its stage's. At 64 the model is
torchvision's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import nn
from torchvision.models import get_model
from torchvision.models.regnet import BlockParams
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from workloads.catalogue.base import Batch, Workload
from workloads.catalogue.catalogue import entry, hyper_of, reason_not_trainable
from workloads.training.building import without_values
from workloads.vision import data

WIDTH = 64

Block = type[BasicBlock] | type[Bottleneck]

BLOCKS: dict[str, tuple[Block, tuple[int, int, int, int]]] = {
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
    "resnet101": (Bottleneck, (3, 4, 23, 3)),
    "resnet152": (Bottleneck, (3, 8, 36, 3)),
}
"""Name → its block, and how many of them each stage has."""


class ResNetOfWidth(ResNet):  # type: ignore[misc]  # torchvision has no types
    """torchvision's ResNet, built with `width` channels where its own constructor has 64."""

    def __init__(self, name: str, width: int, num_classes: int) -> None:
        nn.Module.__init__(self)  # in place of ResNet's, whose widths are literals
        block, counts = BLOCKS[name]
        self._norm_layer = nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = width, 1, 1, WIDTH  # what _make_layer reads
        self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        for stage, count in enumerate(counts):
            layer = self._make_layer(block, width << stage, count, stride=2 if stage else 1)
            self.add_module(f"layer{stage + 1}", layer)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear((width << 3) * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


__all__ = ["build", "get", "reason_not_trainable"]

ITEMS = {
    "classification": "image",
    "segmentation": "image",
    "detection": "image",
    "video": "clip",
    "flow": "image pair",
}

_LOSSES = {
    "classification": data.classification_loss,
    "segmentation": data.segmentation_loss,
    "detection": data.detection_loss,
    "video": data.classification_loss,
    "flow": data.flow_loss,
}

_OWN_LOSSES = {"googlenet": data.googlenet_loss, "inception_v3": data.inception_loss}

_READING = ((BlockParams, "from_init_params"),)
"""RegNets compute the widths of their blocks with tensors, and read them."""


def get(name: str, /, **hyper: int) -> Workload:
    """The workload of one torchvision model, at its own sizes or at those in `hyper`.

    hyper: image_size, num_classes, frames (video), boxes (detection), width (ResNet-18 to 152). Raises ValueError for
    an unknown name or size, or for sizes at which the model is known not to train in any batch.
    """
    known = entry(name)
    if known.task not in ITEMS:
        raise ValueError(f"{name} is a {known.task} workload, none of torchvision's")
    sizes = hyper_of(name, **hyper)
    reason = reason_not_trainable(name, sizes, batch_size=2)
    if reason is not None:
        raise ValueError(reason)
    return Workload(
        name=name,
        task=known.task,
        hyper=sizes,
        build=partial(build, name),
        batch=partial(_batch, name),
        loss=_OWN_LOSSES.get(name, _LOSSES[known.task]),
        items=_items,
        item=ITEMS[known.task],
        source=known.source,
    )


def build(name: str, /, **hyper: int) -> torch.nn.Module:
    """The model in training mode with random weights, on the current default device; without weights on meta."""
    with without_values(reading=_READING):
        if hyper.get("width", WIDTH) != WIDTH:
            made: torch.nn.Module = ResNetOfWidth(name, hyper["width"], hyper["num_classes"])
        else:
            made = get_model(name, **_options(name, hyper))
        return made.train()


def _options(name: str, hyper: Mapping[str, int]) -> dict[str, object]:
    """Arguments of torchvision's builder. Every task and family that takes one of its own is a line here."""
    task, size = entry(name).task, hyper["image_size"]
    options: dict[str, object] = {"weights": None}
    if "num_classes" in hyper:
        options["num_classes"] = hyper["num_classes"]
    if task in ("segmentation", "detection"):
        options["weights_backbone"] = None
    if task == "segmentation" and not name.startswith("lraspp"):
        options["aux_loss"] = True
    if task == "detection" and not entry(name).fixed:
        options |= {"min_size": size, "max_size": size}
    if name in _OWN_LOSSES:
        options |= {"aux_logits": True, "init_weights": True}
    if name.startswith("vit_"):
        options["image_size"] = size
    if name.startswith("maxvit_"):
        options["input_size"] = (size, size)
    return options


def _batch(
    name: str, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    return data.BATCHES[entry(name).task](name, hyper, size, device, generator)


def _items(hyper: Mapping[str, int], size: int) -> int:
    """One item a sample: an image, a clip, a pair of images."""
    return size
