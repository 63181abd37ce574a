"""Defines the suites of the sweep (`SUITES`): models that are measured together, with sizes, counters and stages.

`--suite NAME` measures the models of the entry NAME of `SUITES`. Facts about each model are in `catalogue.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.catalogue import entries


@dataclass(frozen=True)
class Suite:
    """Models that are measured together, with the sizes that belong to the comparison; None means each model's own.

    every_counter: whether the suite compares all counters, too. own: whether each model has the batch size and the
    optimizer of its source. stages: parts that are measured one after the other, each as fields of a sweep's grid;
    without stages all models are measured at once.
    """

    models: tuple[str, ...]
    num_classes: int | None = None
    image_size: int | None = None
    every_counter: bool = False
    own: bool = False
    stages: tuple[Mapping[str, Any], ...] = ()


_POST = (
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg11",
    "vgg13",
    "vgg16",
    "vgg19",
    "wide_resnet50_2",
    "alexnet",
    "mobilenet_v2",
    "efficientnet_b0",
)

_COUNTED = "alexnet"
"""The model for which gates need three batch sizes and a third party's counter."""


def _stages(precision: str, images: int, sequences: int, but: str = "") -> tuple[Mapping[str, Any], ...]:
    """Return two stages: the models of images at a batch size, then GPT-2 at another. but: a model that is left out."""
    shared = {"precisions": (precision,), "methods": ("exact",)}
    models = tuple(name for name in (*_POST, "vit_b_16") if name != but)
    return (
        {**shared, "models": models, "layout": ("channels_last",), "num_classes": 10, "batch_sizes": (images,)},
        {**shared, "models": ("gpt",), "batch_sizes": (sequences,)},
    )


def _gpu_stages() -> Iterator[Mapping[str, Any]]:
    first, of_sequences = _stages("amp-bf16", 256, 16, but=_COUNTED)
    counted = {"models": (_COUNTED,), "batch_sizes": (256, 64, 1)}
    yield from (first, of_sequences)
    yield {**first, **counted, "methods": ("theory", "exact"), "counters": ("flop_counter_mode",)}
    yield from _stages("fp32", 256, 16)
    yield from _stages("tf32", 256, 16)
    yield from _stages("amp-bf16", 64, 4, but=_COUNTED)
    yield from _stages("amp-bf16", 1024, 64)
    yield from _stages("amp-bf16", 1, 1, but=_COUNTED)
    yield {**first, "models": ("mobilenet_v2", "efficientnet_b0"), "compile": (True,)}


SUITES = {
    "post2021": Suite(models=_POST, num_classes=10, image_size=224, every_counter=True),
    "gpu": Suite(models=(*_POST, "vit_b_16", "gpt"), stages=tuple(_gpu_stages())),
    "fathom": Suite(models=entries.FATHOM, own=True),
    "fathom-small": Suite(models=tuple(name + entries.SMALL for name in entries.FATHOM), own=True),
}
"""post2021: the models of Hobbhahn's post on utilization, trained on CIFAR-10 resized to 224 × 224. gpu: these models,
ViT-B/16 and GPT-2, the most important stages first, so that a few minutes already measure every model. fathom: Fathom's
eight workloads as coded; fathom-small: the same at sizes for a CPU."""
