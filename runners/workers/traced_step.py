"""Traces a training step on fake tensors at any batch size, and finds the largest batch that fits into memory.

`trace_batch` takes `StepOptions` and a batch size, and returns a `Trace`. Fake tensors take no memory and need no
device. A step that fake tensors cannot run is traced on real tensors, if its batch is small. `fit` takes a function
from a batch size to its `Trace`, and a number of bytes; it returns a `BatchFit`. `fitting` takes `StepOptions` instead
of the function, and also counts the batches that a sweep keeps on the device. `check` takes `StepOptions`, a batch size
and a real device; it returns the predicted and the observed bytes of a step. torch is imported inside the functions.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from analysis.footprint.device_memory import allowance, replay, tensors_peak
from analysis.footprint.largest_batch import BatchFit, largest_batch, reserved_fits
from analysis.footprint.live_bytes import BEFORE, footprint
from results.errors import Unavailable, plain_message
from runners.cli.exits import Mistake, as_mistake
from runners.cli.model_options import NONE
from runners.workers.any_model import FEW_BATCHES, LARGEST_REAL, MORE_BATCHES, SMALL_BATCH_BYTES, get, in_layout

if TYPE_CHECKING:
    from measure.operations.fake_mode import FakeMode
    from measure.operations.tracer import StepParts, Trace


ACCUMULATED = 2
"""Maximum number of accumulated batches that are traced: all later ones equal the second."""


@dataclass(frozen=True)
class StepOptions:
    """Options of a step. hyper: arguments of the function that builds the model, without the model's name. device: the
    kind of device whose behaviour is traced. On "cuda" optimizers work on all parameters at once, and autocast and
    dropout save the tensors that they save there. accumulate: batches per step of the optimizer."""

    model: str
    precision: str = "fp32"
    optimizer: str = "sgd"
    device: str = "cuda"
    accumulate: int = 1
    layout: str = "channels_first"
    hyper: Mapping[str, Any] = field(default_factory=dict)


def trace_batch(options: StepOptions, batch_size: int) -> Trace:
    """Return the trace of the step at a batch size. Raises Unavailable, ValueError or whatever else the model raises
    there."""
    from measure.operations.fake_mode import fake_mode, quiet_logs

    with contextlib.redirect_stdout(sys.stderr), quiet_logs():  # what a model prints: stdout has the answer
        try:
            return traced(options, batch_size, fake_mode())[1]
        except Unavailable as fault:
            if batch_size > LARGEST_REAL:
                raise Unavailable(
                    f"expected a batch of {LARGEST_REAL} at most, for a step on real tensors: {fault}"
                ) from fault
            trace = traced(options, batch_size, None)[1]
            reason = f"{plain_message(str(fault))}: the step was run on real tensors"
            return replace(trace, notes=(reason, *trace.notes))


def traced(options: StepOptions, batch_size: int, mode: FakeMode | None) -> tuple[StepParts, Trace]:
    """Return the step on fake tensors of a mode, or on real ones, and its trace."""
    from measure.operations.tracer import trace_step

    built = parts(options, batch_size, mode)
    with contextlib.nullcontext() if mode is None else rules(options.device):
        trace = trace_step(
            built.step,
            model=built.model,
            optimizer=built.optimizer,
            inputs=built.inputs,
            mode=mode,
            steps_before=int(mode is None),
        )
    return built, trace


def rules(device: str) -> contextlib.AbstractContextManager[None]:
    """Return the context of a device's rules of dispatch, where they differ from a CPU's."""
    from measure.operations.control_flow import cuda_rules

    return cuda_rules() if device == "cuda" else contextlib.nullcontext()


def parts(options: StepOptions, batch_size: int, mode: FakeMode | None, device: str = "cpu") -> StepParts:
    """Return the step. mode: that of its fake tensors, whose optimizer has its state; None: real tensors on
    `device`."""
    import torch

    from measure.operations.fake_mode import to_fake
    from measure.operations.tracer import StepParts
    from workloads.step import GradientStep, TrainingStep, create_state, optimizer_of

    policy, device_type, is_whole = PRECISIONS[options.precision], device.partition(":")[0], options.optimizer != NONE
    workload = get(options.model, **options.hyper)
    with torch.random.fork_rng(devices=[]), torch.device(device if mode is None else "meta"):
        torch.manual_seed(0)
        model = workload.build(**workload.hyper).train()
    if options.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    if mode is not None:
        to_fake(model, mode)
    trained = _trained(model, options)
    with contextlib.nullcontext() if mode is None else mode:
        optimizer = optimizer_of(options.optimizer if is_whole else "sgd-plain", workload, trained)
        for group in optimizer.param_groups if options.device == "cuda" else ():
            if "foreach" in group:
                group["foreach"] = True
        if is_whole and mode is not None:
            create_state(optimizer, trained)
        generator = torch.Generator(device).manual_seed(0) if mode is None else None
        batch = in_layout(options.layout, workload.batch(workload.hyper, batch_size, torch.device(device), generator))
        step: Any = TrainingStep(
            model,
            workload.loss,
            optimizer,
            [batch],
            device_type,
            autocast=getattr(torch, policy.autocast) if policy.autocast else None,
            scaler=torch.amp.GradScaler(device_type) if policy.scaler else None,
            accumulate=min(options.accumulate, ACCUMULATED),
        )
    inputs = (batch.inputs, batch.target)
    return StepParts(step, model, optimizer, inputs) if is_whole else StepParts(GradientStep(step), model, None, inputs)


def _trained(model: Any, options: StepOptions) -> list[Any]:
    """Return the model's parameters that are trained. Raises ValueError if there is none."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        frozen = f"; --frozen {','.join(options.hyper['frozen'])} has all" if options.hyper.get("frozen") else ""
        raise ValueError(f"expected a parameter that is trained, got none{frozen}")
    return parameters


LEAST = (1, 2, 4, 8, 16, 32, 64)
"""The smallest batches to try. For example, batch normalisation of single values needs a batch of two."""


def fit(
    step_at: Callable[[int], Trace],
    memory_bytes: int,
    margin_ratio: float,
    device: str,
    name: str = "",
    resident_bytes: Callable[[Trace], int] = lambda _step: 0,
    least: int | None = None,
) -> BatchFit:
    """Return the largest batch whose step leaves `margin_ratio` of a memory free. Raises what `step_at` raises.

    name: of the device, which decides the workspaces. resident_bytes: that lie there throughout. least: the smallest
    batch to try; None: the smallest that the step takes.
    """
    known, least = capability(name), _least(step_at) if least is None else least

    def reserved(batch_size: int) -> int:
        step = step_at(batch_size)
        live = moments(step, device, known, resident_bytes)
        if device != "cuda":
            return max(live)
        peak = footprint(step.operations, step.storages)
        segments = replay(peak.ledger).reserved_bytes
        return segments + live[0] - peak.total_bytes[0]

    at_most = largest_batch(
        lambda batch_size: moments(step_at(batch_size), device, known, resident_bytes),
        int(memory_bytes * (1 - margin_ratio)),
        least,
    )
    return reserved_fits(at_most, reserved, least)


def moments(
    step: Trace,
    device: str,
    known: str | None,
    resident_bytes: Callable[[Trace], int] = lambda _step: 0,
) -> list[int]:
    """Return the bytes at each moment of a step, including those that stay on the device throughout. known: the
    device's compute capability."""
    more = resident_bytes(step) + sum(workspace.nbytes for workspace in allowance(step.operations, device, known))
    return [here + more for here in footprint(step.operations, step.storages).total_bytes]


def fitting(options: StepOptions, memory_bytes: int, margin_ratio: float, name: str) -> BatchFit:
    """Find the largest and the smallest batch of a model in a precision, for a sweep.

    A worker's task. A sweep's cell has more batches than one lying on the device: two, or four small ones.
    """
    steps: dict[int, Trace] = {}

    def step_at(batch_size: int) -> Trace:
        if batch_size not in steps:
            with as_mistake(ValueError):
                steps[batch_size] = trace_batch(options, batch_size)
        return steps[batch_size]

    return fit(step_at, memory_bytes, margin_ratio, options.device, name, _resident_bytes)


def _resident_bytes(step: Trace) -> int:
    """Return bytes of the batches that lie on the device with the one in use."""
    batch_bytes = sum(s.nbytes or 0 for s in step.storages if s.role == "input" and s.born_index == BEFORE)
    return batch_bytes * (FEW_BATCHES - 1) + min(batch_bytes, SMALL_BATCH_BYTES) * (MORE_BATCHES - FEW_BATCHES)


def capability(name: str | None) -> str | None:
    """Return the compute capability of a device of the table of peaks; None for any other."""
    from analysis.devices.peaks import lookup

    known = lookup(name) if name else None
    return known.compute_capability if known else None


def _least(step_at: Callable[[int], Trace]) -> int:
    """Return the smallest of LEAST that the step takes. Raises its error for 2 if it takes none."""
    faults: list[Mistake] = []
    for batch_size in LEAST:
        try:
            step_at(batch_size)
        except Mistake as fault:
            faults.append(fault)
            continue
        return batch_size
    raise faults[1]


def check(options: StepOptions, batch_size: int, device: str) -> tuple[int, int]:
    """Return the predicted and the observed bytes. Raises what the step raises."""
    from measure.profile.allocations import on_cpu, on_cuda

    step = trace_batch(options, batch_size)
    predicted = footprint(step.operations, step.storages).at_least_bytes
    make = partial(parts, options, batch_size, None, device)
    if device == "cpu":
        return predicted, on_cpu(make, {operation.name for operation in step.operations}).tensors_bytes
    return predicted, tensors_peak(*on_cuda(make, device))
