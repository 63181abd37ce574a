"""What recordings of workloads say together: their mixes, likeness, training against inference, other ways, cost.

Every function takes the rows of a characterization and gives frozen answers; none knows a file or a device. Times of
steps are medians over the steps that count (`analysis/characterize/operation_mix.py`), without the profiler wherever
that was timed. `ways` compares a training step run other ways (seeds and processes, precisions, layouts, compiled) with
that of the mix.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.characterize.fathom_groups import FATHOM, Grouping
from analysis.characterize.operation_mix import Mix, labels, mix, step_s, steps_of, vectors
from analysis.characterize.similarity import Merge, centroid_linkage
from analysis.characterize.stationarity import Stationarity, stationarity
from analysis.stats.summary import summarise
from results.records.characterization import PLAIN, Characterization, WorkloadRecording


@dataclass(frozen=True)
class Against:
    """A workload's step in one mode on one device. ratio: ÷ its training step on the CPU, None without one."""

    workload: str
    mode: str
    device: str
    step_s: float
    ratio: float | None


@dataclass(frozen=True)
class Launching:
    """How a step is cut up. between_ratio: of it in which no operation ran; launch_s: an operation's mean time.

    launch_s, small_ratio: None of a step without a launch.
    """

    workload: str
    launches: float
    step_s: float
    launch_s: float | None
    between_ratio: float
    small_ratio: float | None  # of the launches: those of types whose mean time is below SMALL_S


SMALL_S = 10e-6
"""About what it costs to start a kernel and to see it end: an operation below is hardly worth its launch."""


def ok(data: Characterization, *whys: str) -> list[WorkloadRecording]:
    """The recordings that were made, for these reasons."""
    return [each for each in data.recordings if each.status == "ok" and each.why in whys]


def mixes(data: Characterization, grouping: Grouping = FATHOM) -> list[Mix]:
    """The mix of every recording that has one, labelled by what sets it apart."""
    recordings = ok(data, "mix")
    names = labels(recordings)
    found = (mix(data, each, names[each.recording], grouping) for each in recordings)
    return [each for each in found if each is not None]


def comparable_mixes(mixes: Sequence[Mix]) -> list[Mix]:
    """The mixes that stand for their workloads: training on the device of the first, else inference there."""
    if not mixes:
        return []
    modes = {each.recording.mode for each in mixes}
    mode = "training" if "training" in modes else "inference"
    device = mixes[0].recording.device
    chosen = [each for each in mixes if (each.recording.mode, each.recording.device) == (mode, device)]
    names = labels([each.recording for each in chosen])
    return [replace(each, label=names[each.recording.recording]) for each in chosen]


def linkage(mixes: Sequence[Mix]) -> list[Merge]:
    """The clusters of workloads by operation types, of those mixes that have any."""
    alike = {label: vector for label, vector in vectors(mixes).items() if any(vector)}
    return centroid_linkage(alike)


def training_against_inference(data: Characterization) -> list[Against]:
    """Each mode on each device, Fathom's Figure 5: CPU training is 1."""
    recordings = [(each, step_s(data, each.recording)) for each in ok(data, "mix")]
    of_cpu = {
        each.workload: time_s
        for each, time_s in recordings
        if each.mode == "training" and each.device == "cpu" and time_s is not None
    }
    found = []
    for each, time_s in recordings:
        if time_s is not None:
            base = of_cpu.get(each.workload)
            found.append(Against(each.workload, each.mode, each.device, time_s, time_s / base if base else None))
    return found


def steadiness(data: Characterization) -> list[tuple[WorkloadRecording, Stationarity]]:
    """How steady the plain steps of every mix are; in order of time, those that count."""
    found = []
    for each in ok(data, "mix"):
        times = [step.time_s for step in steps_of(data, each.recording, PLAIN)]
        if times:
            found.append((each, stationarity(times)))
    return found


def launching(mixes: Sequence[Mix]) -> list[Launching]:
    """Kernel launches of each mix, on a CPU calls that would be some, and what of the step lies between."""
    rows = []
    for each in mixes:
        launches = sum(one.launches for one in each.operations)
        busy_s = sum(one.time_s for one in each.operations)
        small = sum(one.launches for one in each.operations if one.launches and one.time_s / one.launches < SMALL_S)
        rows.append(
            Launching(
                workload=each.label,
                launches=launches,
                step_s=each.profiled_s,
                launch_s=busy_s / launches if launches else None,
                between_ratio=each.groups["H"].ratio,
                small_ratio=small / launches if launches else None,
            )
        )
    return rows


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
