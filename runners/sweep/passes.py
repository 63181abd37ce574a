"""Times and profiles the other passes of a cell after its own step, on the same model; returns `PassFindings`.

`measure_pass` takes a cell's id and a pass: `one`, `batch`, `last` or `epoch`. `one` is forward, loss and backward of
one sample. `batch` is the cell's own step, whose time is known. `last` is a training step of the epoch's last, smaller
batch. `epoch` is run from end to end, in segments, if it is short enough. A fault costs only its pass. An error that
breaks the device's context is raised, as no later result can be trusted. Only times of part "profiled" are taken under
a profiler, and no time is taken after that. What CUPTI leaves in a process slows the process's later launches
(pytorch/pytorch#146604: training by 10 to 20 %). Detaching CUPTI may end the process (pytorch/kineto#1169).
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
from runners.sweep.findings import PassFindings, PassRecording
from runners.sweep.plan import tasks
from runners.workers.any_model import Batches
from runners.workers.pool import classify
from workloads.step import GradientStep, TrainingStep

SEGMENTS = 10
"""Maximum number of segments in which a real epoch is timed."""

Step = Callable[..., Any]


@dataclass(frozen=True)
class MeasuredCell:
    """A cell that has just been measured.

    model: never compiled. step: the training step of the cell's own batch, whose model may be compiled. step_s: the
    time of that step. began_s: the host time from which `protocol.limit_s` counts. times_s, unprofiled: results of the
    passes so far.
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
        """The ranges around its steps and passes, for a profiler."""
        return Ranges(enabled=self.cell.device.startswith("cuda"))


LEFT: list[MeasuredCell] = []
"""What this process measured last, for its other passes: one at most."""


def measure_pass(cell_id: str, pass_name: str, profiled: bool) -> PassFindings:
    """Run a task (`plan.tasks`) of the cell that this process measured last. The last task forgets the cell. Raises
    ValueError for another cell."""
    if [subject.cell.cell_id for subject in LEFT] != [cell_id]:
        raise ValueError(f"expected the cell that was measured last, got {cell_id}")
    try:
        return run(LEFT[0], pass_name, profiled)
    finally:
        if (pass_name, profiled) == tasks(LEFT[0].protocol.passes)[-1]:
            LEFT.clear()


def run(subject: MeasuredCell, pass_name: str, profiled: bool) -> PassFindings:
    """Run one task of `tasks`; a pass that could not be timed is not profiled."""
    findings = PassFindings()
    if pass_name in subject.unprofiled:
        return findings
    try:
        with subject.ranges.around(name_of(subject.cell, pass_name)):
            _run(subject, pass_name, profiled, findings)
    except Exception as fault:  # the edge of a pass: the cell's own step was measured before it
        reason = classify(fault)
        if reason.status == "device_error":  # it breaks the device's context
            raise
        findings.unprofiled[pass_name] = reason.reason
    if findings.unprofiled:  # what a step that ran out of memory held: its exception, whose frames hold it, is gone
        gc.collect()
        if subject.cell.device.startswith("cuda"):
            torch.cuda.empty_cache()
    subject.unprofiled.update(findings.unprofiled)
    return findings


def _run(subject: MeasuredCell, pass_name: str, profiled: bool, findings: PassFindings) -> None:
    if pass_name == "epoch":
        _run_epoch(subject, findings)
        return
    make = steps(subject, pass_name)
    if profiled:
        _profile(subject, pass_name, make(subject.model), findings)
    else:
        subject.times_s[pass_name] = _time(subject, pass_name, make(subject.step.model), findings)


def steps(subject: MeasuredCell, pass_name: str) -> Callable[[Any], Step]:
    """Return a function from a model, compiled or not, to the step of a pass on it. All its steps take the same
    batches; those of the pass `batch` are the cell's own."""
    own = pass_name == "batch"
    batches = subject.step.batches if own else subject.batches.endless(images_of(subject.cell, pass_name))
    training = subject.step.on(batches)
    if pass_name == "one":
        return lambda model: GradientStep(training.on(batches, model))
    return lambda model: training.on(batches, model)


def _time(subject: MeasuredCell, pass_name: str, step: Step, findings: PassFindings) -> float:
    """Warm up and measure like the cell's own step, by shorter rules; return a step's time."""
    protocol = subject.protocol.for_pass()
    ranged = subject.ranges.step(step)
    warm = warm_up(ranged, subject.clock, protocol)
    timing = measure_blocks(ranged, subject.clock, protocol, warm.step_s)
    blocks = blocks_in_order(warm, timing)
    findings.blocks += [replace(block, work=pass_name) for block in blocks]
    if timing.reason:
        findings.warnings.append(f"{pass_name}: {timing.reason}")
    if warm.suspended or timing.suspended:
        findings.warnings.append(WARNING)
    return timing.summary.mean


def _profile(subject: MeasuredCell, pass_name: str, step: Step, findings: PassFindings) -> None:
    """Record the operations of one step, and its time while it is recorded."""
    profile = profile_step(
        step,
        subject.model,
        subject.clock,
        pass_name=pass_name,
        cuda=subject.cell.device.startswith("cuda"),
        most_s=subject.protocol.profile_cap_s,
        export=subject.cell.profile == "kineto",
    )
    findings.operations += profile.operations
    findings.blocks += [] if subject.cell.compile else profile.blocks
    findings.warnings += [f"profile: {pass_name}: {note}" for note in profile.notes]
    findings.profiled.append(pass_name)
    if profile.recording:
        findings.recordings[pass_name] = PassRecording(profile.recording)
    if subject.cell.compile:
        findings.warnings.append("profile: recorded in eager mode, which the time is not of")


def _run_epoch(subject: MeasuredCell, findings: PassFindings) -> None:
    """Run a whole epoch from end to end, unless it would take too long. Raises Unavailable if it has no time at all."""
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
    """Return the steps of each segment of an epoch: whole batches in equal parts, the partial one at the end of the
    last."""
    count = max(1, min(SEGMENTS, whole))
    lengths = [whole // count + (index < whole % count) for index in range(count)]
    lengths[-1] += partial
    return lengths


def name_of(cell: Cell, pass_name: str = "") -> str:
    """Return the name of the range around a cell, or around a pass of it."""
    return " ".join(filter(None, (cell.model, str(cell.batch_size), cell.precision, cell.cell_id, pass_name)))
