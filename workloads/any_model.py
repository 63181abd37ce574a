"""Any model as a workload, by what a person types: `get("timm:vit_small_patch16_224")`, `get("net.py:build")`.

The one factory behind every command that takes models. It reads the form (`workloads/catalogue/model_names.py`) and
hands on to the module for that form; it knows no architecture itself. `docs/models.md` tells the forms, inputs and
errors.
"""

import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from results.errors import Unavailable
from results.process import free_bytes
from workloads.building import draw
from workloads.catalogue.base import Batch, Workload, mean_loss
from workloads.catalogue.catalogue import entry, factory
from workloads.catalogue.model_names import Shape, Spec, check, parse, parse_shapes

__all__ = ["check", "get"]

FIXED_SIZES = {"classification": 3, "segmentation": 3, "video": 4}
"""Task of a torchvision model → dimensions of one of its samples: 3 × S × S, or 3 × T × S × S."""


OWN_INPUTS = ("detection", "language", "translation", "speech", "embedding")
"""Tasks whose models take more than one tensor, or whole numbers below a bound of their own."""


SOURCES = {
    "timm": "workloads.timm_models",
    "hf": "workloads.transformers_models",
    "file": "workloads.user_models",
    "module": "workloads.user_models",
}
"""Form of a name → the module whose `get` makes its workload, loaded when asked for."""


def get(spec: str, /, *, input: str = "", batch: str = "", **hyper: int) -> Workload:  # noqa: A002  as the option is named
    """The workload of any model. input: shapes as `--input` takes them; batch: "file.py:function" that makes batches.

    hyper: sizes that the model has: image_size, num_classes, hidden, … of the catalogue, seq of transformers, the
    whole-number parameters of a function.
    Raises ValueError (the caller's mistake) or Unavailable (not installed, or would be downloaded), each one line.
    """
    known = check(spec)
    shapes = parse_shapes(input) if input else ()
    if batch and known.form not in ("file", "module"):
        raise ValueError(f"{spec}: a function that makes batches goes with one that makes the model; got {batch}")
    if known.form == "catalogue":
        workload = _catalogue(known, shapes, hyper)
    else:
        getter: Callable[..., Workload] = importlib.import_module(SOURCES[known.form]).get
        workload = getter(known, shapes, *([parse(batch)] if batch else []), **hyper)
    if known.form in ("file", "module"):
        return workload
    return replace(workload, build=partial(_checked, spec, workload.build))


def _checked(text: str, build: Callable[..., torch.nn.Module], **hyper: int) -> torch.nn.Module:
    """The model. Raises Unavailable if its weights, counted without any, are more than memory holds."""
    available = free_bytes()
    if available is None or torch.get_default_device().type == "meta":
        return build(**hyper)
    needed = 0
    with contextlib.suppress(Exception), torch.device("meta"):  # what cannot be built there is not known beforehand
        needed = 2 * sum(parameter.nbytes for parameter in build(**hyper).parameters())
    if needed > available:
        raise Unavailable(
            f"{text}: weights and gradients are {needed / 1e9:.1f} GB, and {available / 1e9:.1f} GB are free: "
            "make it smaller (fewer layers)"
        )
    return build(**hyper)


def _catalogue(spec: Spec, shapes: Sequence[Shape], hyper: Mapping[str, int]) -> Workload:
    name, task = spec.target, entry(spec.target).task
    module, _, function = factory(name).partition(":")
    getter: Callable[..., Workload] = getattr(importlib.import_module(module), function)
    sizes = _sizes_of(shapes, task)
    if not shapes or sizes:
        return getter(name, **{**hyper, **sizes})
    if task in OWN_INPUTS or any(shape.name for shape in shapes):
        raise ValueError(f"{name} takes its own inputs: leave --input out and say its sizes, as in {_sized(name)}")
    return replace(getter(name, **hyper), batch=partial(_draw_inputs, tuple(shapes)), loss=mean_loss)


def _sized(name: str) -> str:
    """The options of the first sizes of a workload."""
    first = dict(list(entry(name).hyper.items())[:2])
    return f"--size {','.join(f'{size}={value}' for size, value in first.items())}"


def _sizes_of(shapes: Sequence[Shape], task: str) -> dict[str, int]:
    """The sizes that say the same as one input of three channels and equal sides; none for any other input."""
    if len(shapes) != 1 or len(shapes[0].sizes) != FIXED_SIZES.get(task) or shapes[0].dtype != "float32":
        return {}
    channels, *frames, height, width = shapes[0].sizes
    if channels != 3 or height != width or shapes[0].name:
        return {}
    return {"image_size": height} | ({"frames": frames[0]} if frames else {})


def _draw_inputs(
    shapes: Sequence[Shape],
    hyper: Mapping[str, int],
    size: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> Batch:
    return Batch(tuple(draw(shape, size, device, generator) for shape in shapes), None)
