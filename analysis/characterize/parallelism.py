"""Shows how each operation type's time depends on threads and batch (Fathom's Figure 6), and fits Amdahl's law to it.

`parallelism` takes a characterization and returns times by number of threads; `over_batch` returns operation mixes by
batch size. Types are timed under the profiler, whole steps without it. Amdahl's law (AFIPS 1967) is T(n) = serial +
parallel ÷ n for n threads. `amdahl` fits this law by weighted least squares to the median steps. The result has the
serial share with a 95 % interval, and Karp's and Flatt's serial share (Commun. ACM 33, 1990) for each n. A share below
0 is a speed-up above n; a share above 1 is a slow-down. In simulations with eight steps or more at each n, 93 to 96 %
of the intervals held the true share. With five steps at three values of n, 87 % did. Not claimed: that the law holds,
which `lack_of_fit` tests, or anything for more threads than processors.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.characterize.operation_mix import Mix, mix, steps_of, type_table
from analysis.characterize.summary import ok
from analysis.stats.summary import MAD_TO_SIGMA, t_quantile
from results.records.characterization import PLAIN, PROFILED, Characterization, WorkloadRecording

LEAST_TYPES_RATIO = 0.01
"""Smallest share of the time of all operation types for which a type is fitted by itself."""


@dataclass(frozen=True)
class Scaling:
    """The time of an operation type in a step, by number of threads.

    name: the type, or "step" for the whole step without a profiler. times_s: threads → median time. law: None where no
    law could be fitted.
    """

    workload: str
    name: str
    group: str
    times_s: Mapping[int, float]
    law: Amdahl | None


def parallelism(data: Characterization) -> list[Scaling]:
    """Return times by threads: those of the whole step, then those of its operation types, the longest first.

    A type needs at least `LEAST_TYPES_RATIO` of the time of all types.
    """
    by_threads = _by_field(ok(data, "mix", "threads"), "threads")
    return [scaling for group in by_threads for scaling in _scalings(data, group)]


def _by_field(recordings: Iterable[WorkloadRecording], field: str) -> list[dict[int, WorkloadRecording]]:
    """Group recordings that differ only in this field: value → recording, for groups of two values or more."""
    groups: dict[tuple[object, ...], dict[int, WorkloadRecording]] = defaultdict(dict)
    for recording in recordings:
        value = getattr(recording, field)
        if value is not None:
            groups[recording.workload, recording.mode, recording.device].setdefault(value, recording)
    return [group for group in groups.values() if len(group) > 1]


def _scalings(data: Characterization, by_threads: Mapping[int, WorkloadRecording]) -> list[Scaling]:
    workload = next(iter(by_threads.values())).workload
    whole = {n: [step.time_s for step in steps_of(data, r.recording, PLAIN)] for n, r in by_threads.items()}
    scalings = [_scaling(workload, "step", "", whole)]
    series: dict[int, pd.DataFrame] = {}
    for count, recording in by_threads.items():
        steps = [step.step for step in steps_of(data, recording.recording, PROFILED)]
        series[count] = type_table(data, recording.recording, steps)["time_s"]
    middles = series[min(series)].median(axis=1).sort_values(ascending=False, kind="stable")
    for key in middles.index[middles >= LEAST_TYPES_RATIO * middles.sum()]:
        times = {count: list(table.loc[key]) for count, table in series.items() if key in table.index}
        scalings.append(_scaling(workload, key[0], key[1], times))
    return scalings


def _scaling(workload: str, name: str, group: str, times_s: Mapping[int, Sequence[float]]) -> Scaling:
    known = {count: times for count, times in sorted(times_s.items()) if times}
    return Scaling(workload, name, group, {n: statistics.median(times) for n, times in known.items()}, amdahl(known))


def over_batch(data: Characterization) -> list[tuple[WorkloadRecording, Mix]]:
    """Return the mixes of each workload by batch size, the smallest first, where it has more than one."""
    sizes = [group[size] for group in _by_field(ok(data, "mix", "batch"), "batch_size") for size in sorted(group)]
    mixes = ((recording, mix(data, recording)) for recording in sizes)
    return [(recording, shares) for recording, shares in mixes if shares is not None]


_Covariance = tuple[float, float, float]
"""Variance of the serial time, their covariance, variance of the parallel time."""

_LEAST_SPREAD_RATIO = 1e-9
"""Least spread ÷ median in the weights, because times that a clock cannot distinguish have a spread of 0."""


@dataclass(frozen=True)
class Amdahl:
    """A fit. serial_s, parallel_s: at one thread. serial_ratio: serial ÷ both, with its interval.

    speed_up: median time at the fewest threads ÷ that at the most. lack_of_fit: largest distance of a median from the
    line ÷ the median's standard error. karp_flatt: threads → serial share from the times at these and at one thread;
    empty where one thread was not timed.
    """

    serial_s: float
    parallel_s: float
    serial_ratio: float
    serial_low: float | None
    serial_high: float | None
    speed_up: float
    lack_of_fit: float
    karp_flatt: Mapping[int, float]

    def time_s(self, threads: int) -> float:
        """Return the time that the law predicts."""
        return self.serial_s + self.parallel_s / threads


def amdahl(times_s: Mapping[int, Sequence[float]]) -> Amdahl | None:
    """Return the law fitted to threads → times of steps. None for fewer than two numbers of threads or fewer than two
    steps at one of them, for a median of 0, and where the fitted time of one thread is not above 0."""
    if len(times_s) < 2 or min(map(len, times_s.values())) < 2:
        return None
    middles = {count: statistics.median(times_s[count]) for count in sorted(times_s)}
    if min(middles.values()) <= 0:
        return None
    errors = {count: _error(times_s[count], middles[count]) for count in middles}
    serial, slope, covariance = _line(middles, errors)
    if serial + slope <= 0:
        return None
    low, high = _fieller(serial, slope, covariance, sum(map(len, times_s.values())) - 2)
    return Amdahl(
        serial_s=serial,
        parallel_s=slope,
        serial_ratio=serial / (serial + slope),
        serial_low=low,
        serial_high=high,
        speed_up=middles[min(middles)] / middles[max(middles)],
        lack_of_fit=max(abs(middles[count] - serial - slope / count) / errors[count] for count in middles),
        karp_flatt={n: karp_flatt(middles[1] / middles[n], n) for n in middles if 1 in middles and n > 1},
    )


def karp_flatt(speed_up: float, threads: int) -> float:
    """Return the serial share that a speed-up over one thread shows."""
    return (1 / speed_up - 1 / threads) / (1 - 1 / threads)


def _error(times_s: Sequence[float], middle_s: float) -> float:
    """Return the standard error of a median of k times: 1.2533 σ/√k (Kenney and Keeping), σ from the median absolute
    deviation × k ÷ (k - 0.8) (Croux and Rousseeuw 1992)."""
    count = len(times_s)
    deviation = statistics.median(abs(time - middle_s) for time in times_s)
    sigma = MAD_TO_SIGMA * deviation * count / (count - 0.8)
    return math.sqrt(math.pi / 2) * max(sigma, _LEAST_SPREAD_RATIO * middle_s) / math.sqrt(count)


def _line(middles: Mapping[int, float], errors: Mapping[int, float]) -> tuple[float, float, _Covariance]:
    """Return the weighted least squares of times over 1 ÷ threads: (intercept, slope, their covariances).

    Uses sums about the mean: `np.polyfit` inverts a matrix that is singular where one error is a millionth of another.
    """
    weight = {count: errors[count] ** -2 for count in middles}
    total = sum(weight.values())
    x = sum(weight[count] / count for count in middles) / total
    y = sum(weight[count] * middles[count] for count in middles) / total
    across = sum(weight[count] * (1 / count - x) ** 2 for count in middles)
    slope = sum(weight[count] * (1 / count - x) * (middles[count] - y) for count in middles) / across
    return y - slope * x, slope, (1 / total + x * x / across, -x / across, 1 / across)


def _fieller(serial: float, slope: float, covariance: _Covariance, degrees: int) -> tuple[float | None, float | None]:
    """Return Fieller's 95 % interval (J. R. Stat. Soc. B 16, 1954) of serial ÷ (serial + slope); (None, None) where it
    is unbounded. degrees: of freedom of Student's t."""
    of_serial, cross, of_slope = covariance
    whole = serial + slope
    of_whole, shared = of_serial + 2 * cross + of_slope, of_serial + cross
    t2 = t_quantile(max(1, degrees)) ** 2
    a = whole * whole - t2 * of_whole
    b = serial * whole - t2 * shared
    root = b * b - a * (serial * serial - t2 * of_serial)
    if a <= 0 or root < 0:
        return None, None
    return (b - math.sqrt(root)) / a, (b + math.sqrt(root)) / a
