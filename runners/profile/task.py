"""What `runners.profile` asks of its worker: build the model, its batch and optimizer, and profile steps of it.

A task that `launch.Worker` calls by name: picklable in, picklable out, and any exception becomes the command's line.
torch is imported inside, because the parent imports this module for its types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from results.records.step_profile import StepProfile

if TYPE_CHECKING:
    import torch

    from workloads.catalogue.base import Batch, Workload

DETECTION = "detection"

NONE = "none"
"""In an optimizer's place: gradients alone."""


@dataclass(frozen=True)
class ProfileRequest:
    """What is to be profiled. hyper: what the factory takes beside the model. optimizer: "none": gradients alone."""

    model: str
    batch_size: int
    device: str
    precision: str = "fp32"
    mode: str = "train"
    optimizer: str = "sgd"
    layout: str = "channels_first"
    steps: int = 5
    warm_up: int = 2
    compare_steps: int = 4
    ignored: tuple[str, ...] = ()
    hyper: Mapping[str, Any] = field(default_factory=dict)


def profile(request: ProfileRequest) -> StepProfile:
    """Raises ValueError where the model cannot be built or fails, Unavailable where nothing can be recorded."""
    import torch

    from measure.profile.step_profile import profile_step
    from runners.workers.any_model import get
    from workloads.training.step import optimizer_of

    workload = get(request.model, **request.hyper)
    training = request.mode == "train"
    device = torch.device(request.device)
    model, batch = _built(workload, request, device)
    model.train(training)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    steps_it = training and parameters and request.optimizer != NONE
    optimizer = optimizer_of(request.optimizer, workload, parameters) if steps_it else None
    inputs = batch.inputs[:1] if workload.task == DETECTION and not training else batch.inputs
    found = profile_step(
        model,
        inputs,
        target=batch.target,
        loss=workload.loss if batch.target is not None else lambda output: workload.loss(output, None),
        optimizer=optimizer,
        mode=request.mode,
        precision=request.precision,
        warm_up=request.warm_up,
        steps=request.steps,
        compare_steps=request.compare_steps,
        ignore_modules=request.ignored,
        name=request.model,
    )
    return replace(found, batch_size=request.batch_size)  # which sizes of inputs do not say for every model


def _built(workload: Workload, request: ProfileRequest, device: torch.device) -> tuple[torch.nn.Module, Batch]:
    import torch

    from runners.workers.batches import in_layout

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = workload.build(**workload.hyper).to(device)
    if request.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    generator = torch.Generator(device).manual_seed(0)
    batch = workload.batch(workload.hyper, request.batch_size, device, generator)
    return model, in_layout(request.layout, batch)
