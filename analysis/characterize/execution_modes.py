"""A training step run other ways (seeds and processes, precisions, layouts, compiled), each against that of the mix."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.characterize.operation_mix import steps_of
from analysis.characterize.summary import ok
from analysis.stats.summary import summarise
from results.records.characterization import PLAIN, Characterization, WorkloadRecording


@dataclass(frozen=True)
class Way:
    """A training step run another way than in the mix. ratio: its mean ÷ the mix's, with a 95 % interval of that."""

    workload: str
    way: str
    step_s: float
    ratio: float | None
    low: float | None
    high: float | None
    energy_j: float | None  # of a step


def ways(data: Characterization) -> list[Way]:
    """Every repeat and switch against the mix of the same workload, mode and device."""
    found = []
    mix_of = {(each.workload, each.mode, each.device): each for each in reversed(ok(data, "mix"))}
    for each in ok(data, "repeat", "switch"):
        times = [step.time_s for step in steps_of(data, each.recording, PLAIN)]
        base = mix_of.get((each.workload, each.mode, each.device))
        before = [] if base is None else [step.time_s for step in steps_of(data, base.recording, PLAIN)]
        if times:
            ratio, low, high = ratio_of_means(times, before) if before else (None, None, None)
            energy_j = step_energy_j(data, each)
            found.append(
                Way(each.workload, _differing(each, base), statistics.median(times), ratio, low, high, energy_j)
            )
    return found


def step_energy_j(data: Characterization, recording: WorkloadRecording) -> float | None:
    """The device's energy of a plain step, the mean over all of them; None where no counter was read."""
    steps = sum(1 for step in data.steps if step.recording == recording.recording and step.part == PLAIN)
    return None if recording.energy_j is None or not steps else recording.energy_j / steps


def _differing(recording: WorkloadRecording, base: WorkloadRecording | None) -> str:
    if recording.why == "repeat" or base is None:
        return f"seed {recording.seed}"
    names = ("precision", "layout", "execution")
    return ", ".join(str(getattr(recording, name)) for name in names if getattr(recording, name) != getattr(base, name))


def ratio_of_means(times: Sequence[float], base: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean of times ÷ mean of base, with a 95 % interval: the difference of logarithms of the two means, each with the
    error that `analysis/stats/summary.py` gives it, added in quadrature. None: one of them is a single step."""
    above, below = summarise(times), summarise(base)
    ratio = above.mean / below.mean
    if above.half_width_ratio is None or below.half_width_ratio is None:
        return ratio, None, None
    width = math.hypot(above.half_width_ratio, below.half_width_ratio)
    return ratio, ratio * math.exp(-width), ratio * math.exp(width)
