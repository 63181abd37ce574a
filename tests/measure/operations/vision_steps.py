"""Training steps of torchvision's models."""

from collections.abc import Callable

import torch

from measure.operations.fake_mode import FakeMode, to_fake
from measure.operations.tracer import StepParts
from workloads import torchvision_models as vision_models
from workloads.step import OPTIMIZERS, TrainingStep


def parts(
    name: str, batch_size: int, real_size: int | None = None, **hyper: int
) -> Callable[[FakeMode | None], StepParts]:
    """A training step of a model; on real tensors with images of `real_size`."""

    def build(mode: FakeMode | None) -> StepParts:
        torch.manual_seed(0)
        smaller = {"image_size": real_size} if mode is None and real_size is not None else {}
        workload = vision_models.get(name, **hyper, **smaller)
        with torch.device("cpu" if mode is None else "meta"):
            model = workload.build(**workload.hyper)
        if mode is None:
            batch = workload.batch(workload.hyper, batch_size, torch.device("cpu"), None)
        else:
            to_fake(model, mode)
            with mode:
                batch = workload.batch(workload.hyper, batch_size, torch.device("cpu"), None)
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        step = TrainingStep(model, workload.loss, optimizer, [batch], "cpu")
        return StepParts(step, model, optimizer, (batch.inputs, batch.target))

    return build
