"""timm's models as workloads: built with random weights, at the input size of their own configuration.

timm is optional (requirements-models.txt). Nothing is downloaded; a tag behind a dot (`.augreg_in1k`) names published
weights and changes the input size alone. The loss is cross entropy of uniform labels, or the mean of the
features of a model without classes: nothing is learned.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from workloads.any_model import building, draw
from workloads.catalogue.base import Batch, Workload, mean_loss
from workloads.catalogue.catalogue import with_sizes
from workloads.catalogue.model_names import Shape, Spec, nearest, require


def get(spec: Spec, shapes: Sequence[Shape] = (), /, **hyper: int) -> Workload:
    """The workload of timm:NAME. hyper: image_size (height and width) and num_classes, in place of the model's own.

    shapes: one image's, in place of both. Raises ValueError for a name that timm does not have, Unavailable without
    timm.
    """
    require("timm")
    config = _configuration(spec)
    own = tuple(config.input_size)
    sizes = {"image_size": own[-1]} | ({"num_classes": config.num_classes} if config.num_classes else {})
    if shapes:
        if len(shapes) != 1 or len(shapes[0].sizes) != 3 or shapes[0].dtype != "float32" or shapes[0].name:
            raise ValueError(f"{spec.text} takes one image, such as --input 3x224x224")
        own = shapes[0].sizes
        sizes.pop("image_size")
    return Workload(
        name=spec.text,
        task="classification",
        hyper=with_sizes(spec.text, sizes, hyper),
        build=partial(_build, spec.target, own, config),
        batch=partial(_batch, own),
        loss=cross_entropy if config.num_classes else mean_loss,
        item="image",
        source=f"timm; {spec.target}",
    )


def _configuration(spec: Spec) -> Any:
    """What timm says of the model, its input size among it. Raises ValueError with the nearest name or tag."""
    import timm

    name, _, tag = spec.target.partition(".")
    if not timm.is_model(name):
        known = [*timm.list_models(), *timm.list_models(include_tags=True)]
        raise ValueError(f"timm has no {spec.target!r}{nearest(spec.target, known)}")
    try:
        config = timm.get_pretrained_cfg(spec.target)
    except RuntimeError as fault:
        tags = timm.list_models(f"{name}.*", include_tags=True)
        raise ValueError(f"timm's {name} has no tag {tag!r}{nearest(spec.target, tags)}") from fault
    return config or timm.models.PretrainedCfg()


def _sized(own: tuple[int, ...], hyper: Mapping[str, int]) -> tuple[int, ...]:
    """Channels, height and width: square, where a size is given."""
    return (own[0], hyper["image_size"], hyper["image_size"]) if "image_size" in hyper else own


def _build(name: str, own: tuple[int, ...], config: Any, **hyper: int) -> torch.nn.Module:
    """In training mode, on the current default device. Raises ValueError for a size that it cannot be built for.

    The architecture is given the input size where it depends on it and the size is not the one it is configured for.
    """
    import timm

    options: dict[str, Any] = {"pretrained": False}
    size = _sized(own, hyper)
    if "num_classes" in hyper:
        options["num_classes"] = hyper["num_classes"]
    if config.fixed_input_size and size[1:] != tuple(config.input_size)[1:]:
        options["img_size"] = size[1:]
    what = f"timm:{name} for images of {'x'.join(map(str, size))}"
    with building(what), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that timm has renamed
        return timm.create_model(name, **options).train().to(torch.get_default_device())


def _batch(
    own: tuple[int, ...],
    hyper: Mapping[str, int],
    size: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> Batch:
    images = draw(Shape(_sized(own, hyper)), size, device, generator)
    labels = Shape((), "int64", hyper.get("num_classes", 1))
    return Batch((images,), draw(labels, size, device, generator))
