"""torchvision's models as workloads: built with their own initialisation, fed random data, trained with their own loss.

Nothing is downloaded: every model starts from random weights. The losses are those of torchvision's reference
training scripts, auxiliary outputs included, because their FLOP belong to the step. It does not claim that anything
is learned: images are normal noise and labels uniform.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torchvision.models import get_model
from torchvision.models.regnet import BlockParams

from workloads.catalogue.base import Batch, Workload
from workloads.catalogue.catalogue import entry, hyper_of, reason_not_trainable
from workloads.training.meta import without_values
from workloads.vision import data, wide_resnet

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
        if hyper.get("width", wide_resnet.WIDTH) != wide_resnet.WIDTH:
            made: torch.nn.Module = wide_resnet.ResNetOfWidth(name, hyper["width"], hyper["num_classes"])
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
