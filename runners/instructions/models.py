"""A training step of a catalogue model that is small enough for valgrind: forward, loss and backward of two samples.

The optimizer's step is not in it. Images have the fewest pixels that the model takes, classes are ten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from results import Unavailable

if TYPE_CHECKING:
    from results.records import Operation

MAKER = "runners.instructions.models:make"

BATCH_SIZE, CLASSES = 2, 10
IMAGE_SIZES = (32, 64, 96, 128, 224, 299)


def sizes_of(name: str) -> dict[str, int]:
    """The smallest sizes that a model trains with. Raises Unavailable where none is known."""
    from workloads.catalogue import entry, hyper_of, reason_not_trainable

    chosen: dict[str, int] = {"num_classes": CLASSES} if "num_classes" in entry(name).hyper else {}
    if "image_size" not in entry(name).hyper:
        return hyper_of(name, **chosen)
    for size in IMAGE_SIZES:
        hyper = hyper_of(name, image_size=size, **chosen)
        if reason_not_trainable(name, hyper, BATCH_SIZE) is None:
            return hyper
    raise Unavailable(f"{name} trains with none of the image sizes {', '.join(map(str, IMAGE_SIZES))}")


def model_and_step(name: str) -> tuple[Any, Callable[..., Any]]:
    """(the model, its step without the optimizer, which may be told of its phases), on the CPU, from one seed."""
    import importlib

    import torch

    from workloads.catalogue import factory
    from workloads.training import TrainingStep, optimizer_of

    module, _, function = factory(name).partition(":")
    workload = getattr(importlib.import_module(module), function)(name, **sizes_of(name))
    torch.manual_seed(0)
    model = workload.build(**workload.hyper)
    batch = workload.batch(workload.hyper, BATCH_SIZE, torch.device("cpu"), None)
    optimizer = optimizer_of("sgd-plain", workload, model.parameters())
    return model, TrainingStep(model, workload.loss, optimizer, [batch], "cpu").gradients


def make(name: str) -> Callable[[], Any]:
    """The step as a call without arguments, as `measure.instructions.count_calls` asks for it."""
    return model_and_step(name)[1]


def operations_of(name: str) -> tuple[Operation, ...]:
    """The ATen calls of the same step, with their sizes."""
    from measure.operations import trace_step

    model, step = model_and_step(name)
    return tuple(trace_step(step, model=model, steps_before=0).operations)
