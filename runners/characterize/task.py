"""What `runners.characterize` asks of its worker: build a workload, run it one way, give back the rows of it.

A task that `pool.Worker` calls by name: picklable in, picklable out, and any exception becomes the recording's row.
The parent never imports this module, which imports torch.
"""

import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from analysis.characterize.operation_mix import inner_steps
from analysis.devices.precisions import PRECISIONS
from analysis.footprint.live_bytes import footprint
from measure.device import apply_precision
from measure.device.telemetry import open_device
from measure.operations.tracer import trace_step
from measure.profile import step_kinds
from measure.profile.operation_times import tags_of, typed_steps
from measure.profile.step_kinds import (
    ModelStep,
    RecordedSteps,
    StepTiming,
    naming_faults,
    time_operations,
    traced_on_fakes,
)
from measure.profile.step_profile import StepDescription, table_of
from results.errors import Unavailable
from results.records.characterization import (
    PLAIN,
    PROFILED,
    WARM_UP,
    AloneTime,
    CallTime,
    Characterization,
    OperationCost,
    OperationTime,
    RecordedStep,
    WorkloadRecording,
)
from runners.characterize.plan import OWN, RecordingRequest
from runners.profile.task import DETECTION
from runners.workers.any_model import get, model_and_batch
from workloads.catalogue.base import Batch, Workload
from workloads.training.step import OPTIMIZERS

JOINED_STEPS = 3
"""Profiled steps whose calls are joined with the exact operations, for the time beside each cost: of the kept ones
those nearest to the median length, so that a step that somebody else's work slowed down does not count."""


def record(request: RecordingRequest) -> Characterization:
    """The rows of one recording. Raises ValueError where the workload cannot be built or fails."""
    asked = request.recording
    device = torch.device(asked.device)
    if asked.threads is not None:
        torch.set_num_threads(asked.threads)
    policy = PRECISIONS[asked.precision]
    if device.type != "cpu" or asked.precision != "fp32":
        apply_precision.supported(policy, device)
    start_s = time.monotonic()
    workload, model, batch = _built(request, device)
    step = _step(workload, model, batch, request, policy)
    built_s = time.monotonic() - start_s
    with apply_precision.session(policy, device), naming_faults(model):
        traced, live_bytes, why = _trace_step(step) if request.costs else (None, None, "")
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        found = step_kinds.record(
            step,
            asked.device,
            warm_up=request.warm_up,
            plain=request.plain,
            profiled=request.profiled,
            before=step.forget,
            energy_j=_energy_of(asked.device),
        )
        rows = _rows(asked.recording, found, device.type == "cuda")
        costs: tuple[OperationCost, ...] = ()
        if traced is not None and request.profiled:
            costs = _costs(asked, found, traced, model, _usual(rows.steps))
        single = _lone_times(asked, step) if request.alone else ()
    done = replace(
        asked,
        hyper=dict(workload.hyper),
        task=workload.task,
        parameters=sum(each.numel() for each in model.parameters()),
        build_s=built_s,
        peak_memory_bytes=_peak_bytes(device),
        live_bytes=live_bytes,
        energy_j=found.energy_j,
        notes=(*asked.notes, *filter(None, [why])),
    )
    return replace(rows, recordings=(done,), costs=costs, alone=single)


def _built(request: RecordingRequest, device: torch.device) -> tuple[Workload, torch.nn.Module, Batch]:

    asked = request.recording
    workload = get(asked.workload, **request.hyper)
    model, batch = model_and_batch(workload, asked.batch_size, device, asked.layout, asked.seed)
    model.train(asked.mode == "training")
    return workload, model, batch


def _step(
    workload: Workload, model: torch.nn.Module, batch: Batch, request: RecordingRequest, policy: Any
) -> ModelStep:

    asked = request.recording
    training = asked.mode == "training"
    parameters = [each for each in model.parameters() if each.requires_grad]
    made = workload.optimizer if asked.optimizer == OWN else OPTIMIZERS.get(asked.optimizer)
    optimizer = made(parameters) if training and parameters and made is not None else None
    inputs = batch.inputs[:1] if workload.task == DETECTION and not training else batch.inputs
    loss = workload.loss if batch.target is not None else lambda output: workload.loss(output, None)
    mode = "train" if training else "forward"
    return ModelStep(model, inputs, {}, batch.target, loss, optimizer, mode, policy, asked.device.partition(":")[0])


def _trace_step(step: ModelStep) -> tuple[Any, int | None, str]:
    """The exact operations of the step, the most bytes that live at once, and what there is to say of them."""
    trace, why = traced_on_fakes(step) if step.device_type == "cpu" else (None, "")
    if trace is None:
        inputs = (step.args, step.kwargs, step.target)
        before = int(step.optimizer is not None)
        trace = trace_step(step, model=step.model, optimizer=step.optimizer, inputs=inputs, steps_before=before)
    try:
        live = footprint(trace.operations, trace.storages)
        live_bytes = live.peak_bytes
        if live_bytes is None:
            lacking = f"{len(live.unknown)} storages have no known size"
            more = f"live bytes: {lacking}, the others have at least {live.at_least_bytes:,} B"
            why = f"{why}; {more}".strip("; ")
    except ValueError as fault:
        live_bytes, why = None, f"{why}; live bytes: {fault}".strip("; ")
    return trace, live_bytes, why


def _rows(number: int, found: RecordedSteps, cuda: bool) -> Characterization:

    steps = [*_plain(number, WARM_UP, found.warm_up), *_plain(number, PLAIN, found.plain)]
    times = []
    typed = typed_steps(found.profile, cuda=cuda) if found.profile is not None else []
    for place, step in enumerate(typed):
        steps.append(
            RecordedStep(
                recording=number,
                part=PROFILED,
                step=place,
                time_s=step.step_s,
                cpu_s=found.profiled_cpu_s[place],
                operations_s=step.operations_s,
                calls=sum(step.calls.values()),
                launches=sum(step.launches.values()),
            )
        )
        times += [
            OperationTime(
                recording=number,
                step=place,
                **vars(each),
                tags=tags_of(each.name),
                calls=step.calls.get(each, 0),
                launches=step.launches.get(each, 0),
                time_s=own_s,
            )
            for each, own_s in step.own_s.items()
        ]
    calls = sorted(typed[len(typed) // 2].each) if typed else []
    of_calls = (CallTime(recording=number, name=one.name, scope=one.scope, time_s=own_s) for one, own_s in calls)
    return Characterization(steps=tuple(steps), times=tuple(times), calls=tuple(of_calls))


def _plain(number: int, part: str, timed: tuple[StepTiming, ...]) -> Iterator[RecordedStep]:
    for place, each in enumerate(timed):
        yield RecordedStep(recording=number, part=part, step=place, time_s=each.time_s, cpu_s=each.cpu_s)


def _usual(steps: Sequence[RecordedStep]) -> list[int]:
    """The places of the profiled steps that are joined with the exact operations."""
    mine = inner_steps([step for step in steps if step.part == PROFILED])
    middle = statistics.median(step.time_s for step in mine)
    nearest = sorted(mine, key=lambda step: (abs(step.time_s - middle), step.step))
    return sorted(step.step for step in nearest[:JOINED_STEPS])


def _costs(
    asked: WorkloadRecording, recorded: RecordedSteps, trace: Any, model: torch.nn.Module, joined: Sequence[int]
) -> tuple[OperationCost, ...]:
    """The operations of a step, those of one name, phase and module together; their times from the steps `joined`."""
    description = StepDescription(asked.workload, asked.batch_size, asked.device, asked.precision)
    profile = table_of(recorded.profile, trace, model, description, only=joined)
    classes = _classes(model)
    sums: dict[tuple[str, str, str, str, str], OperationCost] = {}
    for row in profile.operations:
        kind = row.kind if row.understood else ""
        key = (row.name, kind, row.phase, row.module, row.unit)
        total = sums.get(key) or OperationCost(
            recording=asked.recording,
            name=row.name,
            kind=kind,
            phase=row.phase,
            module=row.module,
            classes=classes.get(row.module, ""),
            unit=row.unit,
        )
        sums[key] = replace(
            total,
            calls=total.calls + 1,
            model_flop=total.model_flop + row.at_least_flop,
            other_flop=total.other_flop + (row.other_flop or 0),
            read_bytes=total.read_bytes + row.read_bytes,
            written_bytes=total.written_bytes + row.written_bytes,
            time_s=total.time_s if row.time_s is None else row.time_s + (total.time_s or 0.0),
            untimed_calls=total.untimed_calls + (row.time_s is None),
        )
    return tuple(sums.values())


def _classes(model: torch.nn.Module) -> dict[str, str]:
    """Path of a module → the classes around it, from the model's own down."""
    types = {path: type(module).__name__ for path, module in model.named_modules(remove_duplicate=False)}
    found = {}
    for path in types:
        parts = path.split(".") if path else []
        above = ["", *(".".join(parts[: count + 1]) for count in range(len(parts)))]
        found[path] = "/".join(types[each] for each in above)
    return found


def _lone_times(asked: WorkloadRecording, step: ModelStep) -> tuple[AloneTime, ...]:

    return tuple(AloneTime(recording=asked.recording, **vars(each)) for each in time_operations(step, asked.device))


def _energy_of(device: str) -> Any:
    """A reader of the device's energy counter in J; one of None where there is none."""
    try:
        counter = open_device(device)
    except Unavailable:
        return lambda: None
    return lambda: counter.poll().energy_j


def _peak_bytes(device: torch.device) -> int:

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(kib if sys.platform == "darwin" else kib * 1024)
