"""Times one sample, one batch, the last batch and an epoch, without and with a profiler: a `WorkTime` row per pass.

`work_times` takes a `Run` and its `Sample`s. An epoch has three times. `time_s` is the full batch's mean × their number
n + the last batch's mean. Its half width is √((n · h)² + l²) with the means' half widths h and l. (The full batch's
error is the same in each of the n batches.) `profiled_time_s` is the same sum of steps timed under torch.profiler.
`real_time_s` is the sum over the segments of an epoch run from end to end. Its half width is h · √(M · S) for M of its
S steps in segments of full batches. Intervals are on a logarithmic scale (`analysis.stats.summary`). `agrees` means
only that two 95 % intervals overlap. Not claimed: that an epoch from disk takes as long (see `--data`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.stats.summary import log_interval
from analysis.utilization.step_times import block_means_s, block_summary
from results.records.answers import WorkTime
from results.records.cell import MEASURED, PASSES, Cell, Parameters, Run, Sample, identity, non_default
from results.records.rows import columns_of, to_text

PASSES_OF_METHODS = {"one": ("one",), "batch": ("batch",), "epoch": ("batch", "last", "epoch")}
"""Method → the passes whose time it needs."""

_NO_VARIANT = {"model", "batch_size", "precision", "device", "paired_ceiling"}


@dataclass(frozen=True)
class Mean:
    """A mean time, seconds, and its 95 % interval on a logarithmic scale.

    half_s: half of the interval mean ± half_s, None for a single block; errors of parts add up in it.
    """

    mean_s: float
    half_s: float | None = None

    @property
    def low_s(self) -> float | None:
        return None if self.half_s is None else log_interval(self.mean_s, self.half_s)[0]

    @property
    def high_s(self) -> float | None:
        return None if self.half_s is None else log_interval(self.mean_s, self.half_s)[1]


def passes_of(run: Parameters) -> tuple[str, ...]:
    """Return the passes that a run's methods need, in the order of PASSES. `last` is absent if all batches are full;
    `batch` if none is and the method batch is not measured."""
    wanted = {pass_name for method in run.methods for pass_name in PASSES_OF_METHODS.get(method, ())}
    full, last = epoch_of(run)
    absent = {"last"} if not last else set()
    absent |= {"batch"} if not full and "batch" not in run.methods else set()
    return tuple(pass_name for pass_name in PASSES if pass_name in wanted - absent)


def epoch_of(run: Parameters) -> tuple[int, int]:
    """Return (number of full batches, images of the last, smaller one or 0) of the run's epoch."""
    return divmod(run.epoch_images, run.batch_size)


def epoch_parts(run: Parameters) -> dict[str, int]:
    """Return pass → how often an epoch has it: its full batches, and the last, smaller one if there is one."""
    full, last = epoch_of(run)
    return {pass_name: times for pass_name, times in (("batch", full), ("last", int(last > 0))) if times}


def images_of(run: Parameters, pass_name: str) -> int:
    """Return the number of images of a pass."""
    sizes = {"one": 1, "batch": run.batch_size, "last": run.epoch_images % run.batch_size, "epoch": run.epoch_images}
    return sizes[pass_name]


def variant(run: Run) -> str:
    """Return the other parameters that identify a cell and are not the defaults ("layout=channels_last"), besides
    model, batch size, precision and device; "" if there are none."""
    columns, other = columns_of(Cell), non_default(run, Cell)
    other = {name: other[name] for name in other if name not in _NO_VARIANT and not columns[name].is_request}
    other |= other.pop("hyper", {})
    return ", ".join(f"{name}={to_text(value)}" for name, value in other.items())


def work_times(run: Run, samples: Sequence[Sample]) -> list[WorkTime]:
    """Return a row for each pass that the run's methods need; one without a time has the reason.

    samples: of this attempt only. Those of the passes `one` and `last` name it; the batch's are the cell's own steps.
    """
    wanted = passes_of(run)
    if not wanted:
        return []
    blocks = [s for s in samples if s.steps > 0 and not s.phase and s.part in ("measure", "profiled")]
    if any(block.device_s is None for block in blocks):  # one clock for all
        blocks = [replace(block, device_s=None) for block in blocks]
    plain = _times_by_pass(run, [s for s in blocks if s.part == "measure"])
    profiled = _times_by_pass(run, [s for s in blocks if s.part == "profiled"])
    real = _real_epoch(run, [s for s in blocks if s.part == "measure" and s.work == "epoch"])
    return [
        _row(run, pass_name, plain.get(pass_name), profiled.get(pass_name), real if pass_name == "epoch" else None)
        for pass_name in wanted
    ]


def _times_by_pass(run: Run, blocks: Sequence[Sample]) -> dict[str, Mean]:
    """Return pass → its mean, where it has blocks; the epoch's from its full and its last batch, if it has those."""
    means = {}
    for pass_name in ("one", "batch", "last"):
        if own := [block for block in blocks if (block.work or "batch") == pass_name]:
            means[pass_name] = _mean(own, run.interval_rule)
    epoch = _epoch(run, means)
    return means if epoch is None else {**means, "epoch": epoch}


def _mean(blocks: Sequence[Sample], rule: str) -> Mean:
    summary = block_summary(blocks, rule)
    width = summary.half_width_ratio
    return Mean(summary.mean, None if width is None else width * summary.mean)


def _epoch(run: Run, means: Mapping[str, Mean]) -> Mean | None:
    """Return the full batch's mean × number of batches + the last batch's mean; None if a mean that it needs is
    missing."""
    parts = [(count, means.get(pass_name)) for pass_name, count in epoch_parts(run).items()]
    known = [(count, mean) for count, mean in parts if mean is not None]
    if not known or len(known) < len(parts):
        return None
    halves = [count * mean.half_s for count, mean in known if mean.half_s is not None]
    half_s = math.hypot(*halves) if len(halves) == len(known) else None
    return Mean(sum(count * mean.mean_s for count, mean in known), half_s)


def _real_epoch(run: Run, segments: Sequence[Sample]) -> Mean | None:
    """Sum an epoch's segments, as the module's docstring says. None for an incomplete epoch."""
    full, last = epoch_of(run)
    steps = full + bool(last)
    ordered = sorted(segments, key=lambda segment: segment.index)
    if not ordered or sum(segment.steps for segment in ordered) != steps:
        return None
    total_s = sum(mean_s * segment.steps for mean_s, segment in zip(block_means_s(ordered), ordered, strict=True))
    even = ordered[:-1] if last else ordered
    half_s = _mean(even, run.interval_rule).half_s if even else None
    inside = sum(segment.steps for segment in even)
    return Mean(total_s, None if half_s is None else half_s * math.sqrt(inside * steps))


def _row(run: Run, pass_name: str, plain: Mean | None, profiled: Mean | None, real: Mean | None) -> WorkTime:
    row = identity(run, WorkTime) | {"work": pass_name, "variant": variant(run)}
    status, reason = _standing(run, pass_name, plain, profiled)
    row |= {"status": status, "reason": reason}
    if run.status not in MEASURED or plain is None:
        return WorkTime(**row)
    row |= {"items": images_of(run, pass_name), "steps": sum(epoch_parts(run).values()) if pass_name == "epoch" else 1}
    for prefix, mean in (("", plain), ("profiled_", profiled), ("real_", real)):
        if mean is not None:
            row |= {f"{prefix}time_s": mean.mean_s, f"{prefix}low_s": mean.low_s, f"{prefix}high_s": mean.high_s}
    row |= {"overhead_ratio": profiled.mean_s / plain.mean_s - 1} if profiled is not None else {}
    ends = [end for mean in (plain, real) if mean for end in (mean.low_s, mean.high_s) if end is not None]
    if len(ends) == 4:
        row |= {"agrees": ends[0] <= ends[3] and ends[2] <= ends[1]}
    return WorkTime(**row)


def _standing(run: Run, pass_name: str, plain: Mean | None, profiled: Mean | None) -> tuple[str, str]:
    """Return status and reason of a row: a failed cell's own; `unavailable` without a time; else whether it
    converged."""
    if run.status not in MEASURED:
        return run.status, run.reason
    if plain is None:
        needs = "its full or its last batch" if pass_name == "epoch" and epoch_of(run)[1] else pass_name
        return "unavailable", _why_not(run, pass_name) or f"no measured block of {needs}"
    unrun = (
        f"not run from end to end: {run.unprofiled[pass_name]}"
        if pass_name == "epoch" and pass_name in run.unprofiled
        else ""
    )
    if wide := _wide(run, pass_name):
        return "not_converged", "; ".join(filter(None, (wide, unrun)))
    if profiled is None:
        return "ok", f"note: no profiled time: {_why_not(run, pass_name) or 'no step was timed'}"
    return "ok", f"note: {unrun}" if unrun else ""


def _wide(run: Run, pass_name: str) -> str:
    """Return why a pass's time did not converge; "" if it did. The reason is the run's for the batch, and in the run's
    warnings for other passes."""
    if pass_name == "epoch":
        return "; ".join(f"{part}: {why}" for part in epoch_parts(run) if (why := _wide(run, part)))
    if pass_name == "batch" and run.status != "ok":
        return run.reason or run.status
    start = "step_time: " if pass_name == "batch" else f"{pass_name}: "
    return next((mark.removeprefix(start) for mark in run.warnings if mark.startswith(start)), "")


def _why_not(run: Run, pass_name: str) -> str:
    """Return what the run says about a pass; for an epoch, also about its batches."""
    parts = ("epoch", "batch", "last") if pass_name == "epoch" else (pass_name,)
    return next((str(run.unprofiled[part]) for part in parts if run.unprofiled.get(part)), "")
