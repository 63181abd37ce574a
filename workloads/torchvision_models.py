"""Makes workloads of torchvision's models, on random data and with the losses of their training, and CIFAR-10 batches.

`get` takes a name and sizes, and returns a `Workload`; `cifar_batches` returns batches of real images. Nothing is
downloaded: every model starts from random weights. The losses are those of torchvision's reference training scripts.
They include auxiliary outputs, because the FLOP of these belong to the step. ResNet-18 to 152 can have another `width`,
the channels of the first stage (64 is torchvision's own). Images are standard normal, labels uniform, boxes valid. They
are never zeros: a multiplier fed with zeros draws less power and clocks higher than in training. Not claimed: that
anything is learned.
"""

import itertools
import pickle
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10
from torchvision.models import get_model
from torchvision.models.regnet import BlockParams
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.transforms import Compose, Normalize, Resize, ToTensor

from workloads.catalogue.base import Batch, Workload
from workloads.catalogue.catalogue import entry, hyper_of, reason_not_trainable
from workloads.catalogue.model_names import check_cifar

GOOGLENET_AUXILIARY = 0.3
"""Weight of each auxiliary classifier: Szegedy et al. 2014, arXiv:1409.4842, section 5."""

INCEPTION_AUXILIARY = 0.4
"""Weight of the auxiliary classifier: TensorFlow slim's inception_v3 and PyTorch's fine-tuning tutorial. The paper
(arXiv:1512.00567) gives none."""

SEGMENTATION_AUXILIARY = 0.5
"""Weight of the auxiliary head: torchvision, references/segmentation/train.py."""

FLOW_DECAY = 0.8
"""Weight of each of RAFT's predictions ÷ weight of the next one: Teed and Deng 2020, arXiv:2003.12039, section 3.3."""

KEYPOINTS = 17
"""Keypoints of a person in COCO."""


def _batch(
    name: str, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """Draw size × 3 × S × S images, or × 3 × T × S × S clips, and a label for each, or for each pixel.

    For optical flow, draw two images for each sample, and the flow between them, size × 2 × S × S. For detection, draw
    a list of images and a list of the objects in each: torchvision's detectors take both and return losses.
    """
    task, side = entry(name).task, hyper["image_size"]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, generator=generator)

    if task == "detection":
        images = [normal(3, side, side) for _ in range(size)]
        return Batch((images, [_objects(name, hyper, device, generator) for _ in range(size)]), None)
    if task == "flow":
        pair = (normal(size, 3, side, side), normal(size, 3, side, side))
        return Batch(pair, normal(size, 2, side, side))
    frames = (hyper["frames"],) if task == "video" else ()
    samples = normal(size, 3, *frames, side, side)
    labelled = (size, side, side) if task == "segmentation" else (size,)
    return Batch((samples,), torch.randint(hyper["num_classes"], labelled, device=device, generator=generator))


def _objects(
    name: str, hyper: Mapping[str, int], device: torch.device, generator: torch.Generator | None
) -> dict[str, torch.Tensor]:
    """Return boxes of a tenth to a half of the image, wholly inside it; label 0 is the background's."""
    side, count = hyper["image_size"], hyper["boxes"]
    uniform = partial(torch.rand, device=device, generator=generator)
    integers = partial(torch.randint, device=device, generator=generator)
    corner = uniform(count, 2) * 0.5 * side
    extent = (0.1 + 0.4 * uniform(count, 2)) * side
    objects = {"boxes": torch.cat([corner, corner + extent], dim=1)}
    objects["labels"] = integers(1, hyper["num_classes"], (count,))
    if name.startswith("keypointrcnn"):
        points = corner[:, None, :] + uniform(count, KEYPOINTS, 2) * extent[:, None, :]
        objects["keypoints"] = torch.cat([points, torch.ones(count, KEYPOINTS, 1, device=device)], dim=2)
    if name.startswith("maskrcnn"):
        objects["masks"] = integers(0, 2, (count, side, side)).to(torch.uint8)
    return objects


def classification_loss(output: Any, target: Any) -> torch.Tensor:
    """Return cross entropy of size × classes logits."""
    return cross_entropy(output, target)


def googlenet_loss(output: Any, target: Any) -> torch.Tensor:
    """Return cross entropy of the classifier and, lighter, of both auxiliary ones."""
    auxiliary = cross_entropy(output.aux_logits1, target) + cross_entropy(output.aux_logits2, target)
    return cross_entropy(output.logits, target) + GOOGLENET_AUXILIARY * auxiliary


def inception_loss(output: Any, target: Any) -> torch.Tensor:
    """Return cross entropy of the classifier and, lighter, of the auxiliary one."""
    return cross_entropy(output.logits, target) + INCEPTION_AUXILIARY * cross_entropy(output.aux_logits, target)


def segmentation_loss(output: Any, target: Any) -> torch.Tensor:
    """Return cross entropy of each pixel, and of the auxiliary head's where the model has one."""
    loss = cross_entropy(output["out"], target)
    if "aux" not in output:
        return loss
    return loss + SEGMENTATION_AUXILIARY * cross_entropy(output["aux"], target)


def detection_loss(output: Any, target: Any) -> torch.Tensor:
    """Return the sum of the losses that the model returns in training mode."""
    losses = list(output.values())
    return torch.stack(losses).sum()


def flow_loss(output: Any, target: Any) -> torch.Tensor:
    """Return the weighted sum of all predictions' mean distances. The last has weight 1, each other FLOW_DECAY × the
    next one's."""
    last = len(output) - 1
    terms = [FLOW_DECAY ** (last - i) * (prediction - target).abs().mean() for i, prediction in enumerate(output)]
    return torch.stack(terms).sum()


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
    """torchvision's ResNet with `width` channels where torchvision's constructor has 64.

    It has torchvision's blocks and forward pass, each stage with twice the channels of the one before, and a
    bottleneck's output four times its stage's.
    """

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


ITEMS = {
    "classification": "image",
    "segmentation": "image",
    "detection": "image",
    "video": "clip",
    "flow": "image pair",
}

_LOSSES = {
    "classification": classification_loss,
    "segmentation": segmentation_loss,
    "detection": detection_loss,
    "video": classification_loss,
    "flow": flow_loss,
}

_OWN_LOSSES = {"googlenet": googlenet_loss, "inception_v3": inception_loss}


def get(name: str, /, **hyper: int) -> Workload:
    """Return the workload of one torchvision model, at its default sizes but for those in `hyper`.

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
        item=ITEMS[known.task],
        source=known.source,
    )


def build(name: str, /, **hyper: int) -> torch.nn.Module:
    """Return the model in training mode with random weights, on the current default device; without weights on meta."""
    if hyper.get("width", WIDTH) != WIDTH:
        return ResNetOfWidth(name, hyper["width"], hyper["num_classes"]).train()  # type: ignore[no-any-return]
    widths = BlockParams.from_init_params

    def widths_on_cpu(*arguments: Any, **named: Any) -> Any:
        with torch.device("cpu"):
            return widths(*arguments, **named)

    with mock.patch.object(BlockParams, "from_init_params", widths_on_cpu):  # RegNets read the values computed there
        return get_model(name, **_options(name, hyper)).train()  # type: ignore[no-any-return]


def _options(name: str, hyper: Mapping[str, int]) -> dict[str, object]:
    """Return the arguments of torchvision's builder."""
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


CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_DEVIATION = (0.2470, 0.2435, 0.2616)
"""Means and deviations of CIFAR-10's 50,000 training images' red, green and blue, on a scale of 0 to 1."""


def cifar_images(directory: Path, image_size: int, kind: type[CIFAR10] = CIFAR10) -> CIFAR10:
    """Return CIFAR-10's training images, each 3 × image_size × image_size, normalised. Nothing is downloaded.

    kind: a subclass may name other files and checksums of the same format. Raises ValueError, one line, for a
    directory that cannot be read, lacks a file, or holds a file whose checksum differs from the published one.
    """
    check_cifar(directory, tuple(name for name, _ in (*kind.train_list, *kind.test_list)) + (kind.meta["filename"],))
    where = f"--data cifar10:{directory}: expected CIFAR-10 in {directory / kind.base_folder}/"
    steps = Compose([Resize((image_size, image_size)), ToTensor(), Normalize(CIFAR_MEAN, CIFAR_DEVIATION)])
    try:
        return kind(root=str(directory), train=True, transform=steps, download=False)
    except RuntimeError as fault:  # torchvision's word for a checksum that differs
        raise ValueError(f"{where}: a file differs from its published checksum") from fault
    except (OSError, pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError) as fault:
        raise ValueError(f"{where}: {type(fault).__name__}: {fault}") from fault


def cifar_batches(images: CIFAR10, size: int, seed: int, count: int, device: torch.device) -> list[Batch]:
    """Return the first `count` whole batches of an epoch that the seed shuffles, on the device; fewer if it is shorter.

    Raises ValueError if there are fewer images than in one batch.
    """
    if len(images) < size:
        raise ValueError(f"a batch of {size} is larger than the epoch: CIFAR-10 here has {len(images)} images")
    generator = torch.Generator().manual_seed(seed)
    pipeline = DataLoader(images, batch_size=size, shuffle=True, drop_last=True, generator=generator)
    return [Batch((drawn.to(device),), labels.to(device)) for drawn, labels in itertools.islice(pipeline, count)]
