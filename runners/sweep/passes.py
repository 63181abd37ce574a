"""The other passes of a cell after its own step: each of its works timed, then profiled, on the same model.

one: forward, loss and backward of one sample, without the optimizer. batch: the cell's own step, whose time is there.
last: a training step of the epoch's last, smaller batch. epoch: whole batches and the last one; run from end to end
where that is expected to be short enough, in segments, so that its time has an interval.

Whatever keeps a work from being measured or profiled costs that work alone (`WorkFindings.unprofiled` says why), but
for an error that breaks the device's context, after which nothing would be true: that one is raised. No time here is
taken inside a profiler but those that say so (`part` profiled), and none after one: what CUPTI leaves in a process
slows its later launches (pytorch/pytorch#146604: training by 10 to 20 %), and detaching it may end the process
(pytorch/kineto#1169).
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from analysis.utilization.work_times import images_of
from measure.profile.recording import profile_step
from measure.timing.blocks import blocks_in_order, measure_blocks, measure_stretch, warm_up
from measure.timing.clocks import Clock
from measure.timing.disturbance import WARNING
from measure.timing.profiler_ranges import Ranges
from measure.timing.stopping import Protocol
from results.errors import Unavailable
from results.records.cell import Cell
from runners.sweep.findings import WorkFindings, WorkRecording
from runners.workers.any_model import Batches
from runners.workers.pool import classify
from workloads.step import GradientStep, TrainingStep

SEGMENTS = 10
"""How many parts a real epoch is timed in, at most."""

Step = Callable[..., Any]


@dataclass(frozen=True)
class MeasuredCell:
    """A cell that has just been measured.

    model: never compiled. step: of the cell's own batch; its model may be. step_s: its time. began_s: the host time
    from which `protocol.limit_s` counts. times_s, unprofiled: what the passes so far have found, by work.
    """

    cell: Cell
    model: Any
    step: TrainingStep
    batches: Batches
    clock: Clock
    protocol: Protocol
    step_s: float
    began_s: float
    times_s: dict[str, float] = field(default_factory=dict)
    unprofiled: dict[str, str] = field(default_factory=dict)

    @property
    def ranges(self) -> Ranges:
        """What marks its steps and works for a profiler around it."""
        return Ranges(enabled=self.cell.device.startswith("cuda"))


def run(subject: MeasuredCell, work: str, profiled: bool) -> WorkFindings:
    """One task of `plan.tasks`; a work that could not be timed is not profiled."""
    findings = WorkFindings()
    if work in subject.unprofiled:
        return findings
    try:
        with subject.ranges.around(name_of(subject.cell, work)):
            _run(subject, work, profiled, findings)
    except Exception as fault:  # the edge of a pass: the cell's own step was measured before it
        reason = classify(fault)
        if reason.status == "device_error":  # it breaks the device's context
            raise
        findings.unprofiled[work] = reason.reason
    if findings.unprofiled:  # what a step that ran out of memory held: its exception, whose frames hold it, is gone
        gc.collect()
        if subject.cell.device.startswith("cuda"):
            torch.cuda.empty_cache()
    subject.unprofiled.update(findings.unprofiled)
    return findings


def _run(subject: MeasuredCell, work: str, profiled: bool, findings: WorkFindings) -> None:
    if work == "epoch":
        _run_epoch(subject, findings)
        return
    make = steps(subject, work)
    if profiled:
        _profile(subject, work, make(subject.model), findings)
    else:
        subject.times_s[work] = _time(subject, work, make(subject.step.model), findings)


def steps(subject: MeasuredCell, work: str) -> Callable[[Any], Step]:
    """For a model, compiled or not, the step of a work on it. Both take the same batches; `batch` has the cell's."""
    own = work == "batch"
    batches = subject.step.batches if own else subject.batches.endless(images_of(subject.cell, work))
    training = subject.step.on(batches)
    if work == "one":
        return lambda model: GradientStep(training.on(batches, model))
    return lambda model: training.on(batches, model)


def _time(subject: MeasuredCell, work: str, step: Step, findings: WorkFindings) -> float:
    """Warm up and measure as the cell's own step was, by shorter rules; a step's time."""
    protocol = subject.protocol.for_pass()
    ranged = subject.ranges.step(step)
    warm = warm_up(ranged, subject.clock, protocol)
    timing = measure_blocks(ranged, subject.clock, protocol, warm.step_s)
    blocks = blocks_in_order(warm, timing)
    findings.blocks += [replace(block, work=work) for block in blocks]
    if timing.reason:
        findings.warnings.append(f"{work}: {timing.reason}")
    if warm.suspended or timing.suspended:
        findings.warnings.append(WARNING)
    return timing.summary.mean


def _profile(subject: MeasuredCell, work: str, step: Step, findings: WorkFindings) -> None:
    """Record the operations of one step, and how long it takes while it is recorded."""
    profile = profile_step(
        step,
        subject.model,
        subject.clock,
        pass_name=work,
        cuda=subject.cell.device.startswith("cuda"),
        most_s=subject.protocol.profile_cap_s,
        export=subject.cell.profile == "kineto",
    )
    findings.operations += profile.operations
    findings.blocks += [] if subject.cell.compile else profile.blocks
    findings.warnings += [f"profile: {work}: {note}" for note in profile.notes]
    findings.profiled.append(work)
    if profile.recording:
        findings.recordings[work] = WorkRecording(profile.recording)
    if subject.cell.compile:
        findings.warnings.append("profile: recorded in eager mode, which the time is not of")


def _run_epoch(subject: MeasuredCell, findings: WorkFindings) -> None:
    """A whole epoch from end to end, unless it would take too long. Raises Unavailable if it has no time at all."""
    cell = subject.cell
    whole, rest = divmod(cell.epoch_images, cell.batch_size)
    if rest and "last" not in subject.times_s:
        raise Unavailable(f"the time of its last batch of {rest} is not known: {subject.unprofiled['last']}")
    expected_s = whole * subject.step_s + (subject.times_s["last"] if rest else 0.0)
    left_s = subject.protocol.limit_s - (subject.clock.wall_s() - subject.began_s)
    if expected_s >= min(subject.protocol.epoch_cap_s, left_s):
        return
    step = subject.step.on(subject.batches.epoch(cell.epoch_images, cell.batch_size))
    ranged = subject.ranges.step(step)
    findings.blocks += measure_stretch(ranged, subject.clock, segments(whole, rest > 0), "epoch")


def segments(whole: int, partial: bool) -> list[int]:
    """Steps of each segment of an epoch: whole batches shared out evenly, the partial one at the end of the last."""
    count = max(1, min(SEGMENTS, whole))
    lengths = [whole // count + (index < whole % count) for index in range(count)]
    lengths[-1] += partial
    return lengths


def name_of(cell: Cell, work: str = "") -> str:
    """What the range around a cell is called, or the one around a work of it."""
    return " ".join(filter(None, (cell.model, str(cell.batch_size), cell.precision, cell.cell_id, work)))
