"""Profiles or records a step of any model, as tasks of workers of `runners.profile` and `runners.characterize`.

`profile` takes the command's options and returns a `StepProfile`. `record` takes a `WorkloadRecording` that is to be
made, and returns a `Characterization`. `pool.Worker` calls both by name, because this module imports torch and the
parent must not. Arguments and results can be pickled. An exception becomes the command's line or the recording's row.
"""

import resource
import statistics
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from analysis.characterize.operation_mix import inner_steps
from analysis.devices.precisions import PRECISIONS
from measure.device import apply_precision
from measure.operations.tracer import Trace
from measure.profile import recording as step_recording
from measure.profile.model_step import ModelStep, naming_faults, traced
from measure.profile.operation_times import type_rows
from measure.profile.step_profile import profile_step, table_of
from results.records.answers import StepOperation, StepProfile
from results.records.characterization import (
    PLAIN,
    PROFILED,
    WARM_UP,
    Characterization,
    OperationTypeCost,
    RecordedStep,
    WorkloadRecording,
)
from runners.cli.model_options import NONE, hyper_of
from runners.workers.any_model import get, model_and_batch
from workloads.catalogue.base import Workload
from workloads.step import optimizer_of


def profile(options: Namespace, device: str) -> StepProfile:
    """Return the profile for the options of `runners.profile`.

    Raises ValueError where the model cannot be built or fails, Unavailable where nothing can be recorded.
    """
    workload = get(options.model, **hyper_of(options))
    step = _step(workload, device, options, options.mode)
    step_profile = profile_step(
        step.model,
        step.args,
        target=step.target,
        loss=step.loss,
        optimizer=step.optimizer,
        mode=options.mode,
        precision=options.precision,
        warm_up=options.warm_up,
        steps=options.steps,
        compare_steps=options.compare_steps,
        ignore_modules=options.ignore_modules,
        name=options.model,
    )
    return replace(step_profile, batch_size=options.batch_size)  # which sizes of inputs do not say for every model


def record(request: WorkloadRecording, hyper: Mapping[str, Any], steps: int, singly: bool = False) -> Characterization:
    """Return the rows of one recording. hyper: sizes of the workload; singly: whether its operations are also timed one
    by one.

    Raises ValueError where the workload cannot be built or fails.
    """
    device, policy = torch.device(request.device), PRECISIONS[request.precision]
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    if device.type != "cpu" or request.precision != "fp32":
        apply_precision.supported(policy, device)
    workload = get(request.workload, **hyper)
    step = _step(workload, request.device, request, "train" if request.mode == "training" else "forward", request.seed)
    with apply_precision.session(policy, device), naming_faults(step.model):
        trace = traced(step) if request.why == "mix" else None
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        recorded = step_recording.record(
            step, request.device, warm_up=2, plain=steps, profiled=steps, before=step.forget
        )
        rows = type_rows(recorded.profile, request.recording, cuda=device.type == "cuda")
        costs = [] if trace is None else [*_costs(request, recorded.profile, trace, step.model, _usual(rows.steps))]
        operation_times = step_recording.time_operations(step, request.device, request.recording) if singly else []
    done = replace(
        request,
        hyper=dict(workload.hyper),
        task=workload.task,
        parameters=sum(parameter.numel() for parameter in step.model.parameters()),
        peak_memory_bytes=_peak_bytes(device),
        notes=request.notes if trace is None else (*request.notes, *trace.notes),
    )
    unprofiled = [
        RecordedStep(recording=request.recording, part=part, step=step_index, time_s=time_s)
        for part, times_s in ((WARM_UP, recorded.warm_up), (PLAIN, recorded.plain))
        for step_index, time_s in enumerate(times_s)
    ]
    return replace(
        rows,
        recordings=(done,),
        steps=(*unprofiled, *rows.steps),
        costs=tuple(costs),
        alone_times=tuple(operation_times),
    )


def _step(workload: Workload, device: str, request: Any, mode: str, seed: int = 0) -> ModelStep:
    """Return the step of a workload's model. request: has its batch size, layout, optimizer and precision."""
    kind = torch.device(device)
    model, batch = model_and_batch(workload, request.batch_size, kind, request.layout, seed)
    training = mode == "train"
    model.train(training)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    trains = training and parameters and request.optimizer != NONE
    optimizer = optimizer_of(request.optimizer, workload, parameters) if trains else None
    inputs = batch.inputs[:1] if workload.task == "detection" and not training else batch.inputs
    loss = workload.loss if batch.target is not None else lambda output: workload.loss(output, None)
    return ModelStep(model, inputs, {}, batch.target, loss, optimizer, mode, PRECISIONS[request.precision], kind.type)


def _usual(steps: Sequence[RecordedStep]) -> list[int]:
    """Return the positions of the profiled steps that are joined with the exact operations: the three nearest to the
    median length, so that a disturbed step does not count."""
    inner = inner_steps([step for step in steps if step.part == PROFILED])
    middle = statistics.median(step.time_s for step in inner)
    nearest = sorted(inner, key=lambda step: (abs(step.time_s - middle), step.step))
    return sorted(step.step for step in nearest[:3])


def _costs(
    request: WorkloadRecording, recorded: Any, trace: Trace, model: torch.nn.Module, joined: Sequence[int]
) -> Iterator[OperationTypeCost]:
    """Yield the operations of a step, summed over equal name, phase and module; their times are those of the steps
    `joined`."""
    described = StepProfile(
        model=request.workload, batch_size=request.batch_size, device=request.device, precision=request.precision
    )
    groups: dict[tuple[str, str, str, str, str], list[StepOperation]] = defaultdict(list)
    for row in table_of(recorded, trace, model, described, only=joined).operations:
        groups[row.name, row.kind if row.understood else "", row.phase, row.module, row.unit].append(row)
    for (name, kind, phase, module, unit), rows in groups.items():
        times_s = [row.time_s for row in rows if row.time_s is not None]
        yield OperationTypeCost(
            recording=request.recording,
            name=name,
            kind=kind,
            phase=phase,
            module=module,
            unit=unit,
            calls=len(rows),
            model_flop=sum(row.at_least_flop for row in rows),
            other_flop=sum(row.other_flop or 0 for row in rows),
            read_bytes=sum(row.read_bytes for row in rows),
            written_bytes=sum(row.written_bytes for row in rows),
            time_s=sum(times_s) if times_s else None,
            untimed_calls=len(rows) - len(times_s),
        )


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(kib if sys.platform == "darwin" else kib * 1024)
