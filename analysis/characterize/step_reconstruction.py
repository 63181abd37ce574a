"""A step put together from its operations timed alone, against the step as it was recorded; by group.

Fathom's tools' "direct reconstruction": the sum over the distinct calls of how often × how long alone. A ratio below 1
says that operations take longer in the step than alone (caches that others emptied, the profiler's own time), above 1
that alone they lack what the step has warmed for them. Calls that only give views are left out of both.

What more threads, and larger batches, do to each operation type: absolute times, and Amdahl's law through them.

Fathom's Figure 6, from the recorded rows of a characterization: on a CPU over the threads of an operation, on a device
over the batch. Times of types are those under the profiler, of the whole step those without it.

Amdahl's law says how much of a time does not shrink with more threads.
T(n) = serial + parallel ÷ n (Amdahl, AFIPS 1967) is a straight line in 1/n: serial is where it meets 0, and the serial
share is serial ÷ (serial + parallel), of the time at one thread. The line is fitted by least squares through the
counts' median steps, which a step that others slowed down does not move. Each is weighted by one over the square of its
error: 1.2533 σ/√k for a median of k normal values (Kenney and Keeping), σ from the median absolute deviation, × k ÷
(k - 0.8) for few (Croux and Rousseeuw 1992). The share's 95 % interval is Fieller's (J. R. Stat. Soc. B 16, 1954) for
the ratio of the two, with Student's t of all steps less two degrees of freedom. An interval that his method leaves open
is unknown. Beside it the serial share that each count alone gives with one thread: Karp and Flatt, Commun. ACM 33,
1990, e = (1/speed-up - 1/n) ÷ (1 - 1/n).

A share below 0 is a speed-up above n (more cache), one above 1 a slow-down; both are reported as they are. Not claimed:
that the law holds. `lack_of_fit` is the largest distance of a count's median from the line, in its errors: 0 with
two counts, which any line fits. Seen in simulation: intervals hold the truth 93 to 96 times in 100 from eight steps a
count on, and 87 times with five steps at three counts. More threads than processors measure something else.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.characterize.fathom_groups import OPERATIONS, STEP, UNCLASSIFIED, group_of, type_of
from analysis.characterize.operation_mix import Mix, mix, step_s, steps_of
from analysis.characterize.summary import ok
from analysis.operators.registry import kind_of
from analysis.stats.summary import MAD_TO_SIGMA, t_quantile
from results.records.characterization import PLAIN, PROFILED, AloneTime, Characterization, WorkloadRecording


@dataclass(frozen=True)
class Reconstructed:
    """One group of one recording ("": of what has none), or all of them ("all").

    untimed: calls that could not be run alone. alone_s: None where there are such calls; at_least_alone_s is the sum of
    the others. recorded_s: None without a profiled step. step_ratio: alone_s ÷ the whole step without the profiler, of
    "all".
    """

    workload: str
    mode: str
    group: str
    calls: int
    kinds: int  # distinct calls
    alone_s: float | None
    recorded_s: float | None
    untimed: int
    step_ratio: float | None = None
    at_least_alone_s: float = 0.0

    @property
    def ratio(self) -> float | None:
        return None if self.alone_s is None or not self.recorded_s else self.alone_s / self.recorded_s


def reconstructed(data: Characterization) -> list[Reconstructed]:
    """By group, then all together, of every recording whose operations were timed alone."""
    found = []
    for each in ok(data, "mix"):
        rows = [row for row in data.alone if row.recording == each.recording]
        if rows:
            recorded = _recorded_times(data, each)
            parts = [
                _part(each, group, [row for row in rows if _group(row.name, row.phase) == group], recorded)
                for group in (*OPERATIONS, UNCLASSIFIED)
            ]
            found += [part for part in parts if part.calls]
            found.append(_whole(each, parts, step_s(data, each.recording)))
    return found


def _group(name: str, phase: str) -> str:
    return group_of(name, STEP if phase == "optimizer" else "", ()).group


def _recorded_times(data: Characterization, recording: WorkloadRecording) -> dict[str, float]:
    """Group → median time a profiled step of its operations, without views; nothing without a profiled step."""
    steps = [step.step for step in steps_of(data, recording.recording, PROFILED)]
    if not steps:
        return {}
    sums: dict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(steps, 0.0))
    for row in data.times:
        if (
            row.recording == recording.recording
            and row.step in steps
            and kind_of(row.name.replace("::", ".")) != "view"
        ):
            sums[group_of(row.name, row.scope, row.tags).group][row.step] += row.time_s
    return dict.fromkeys((*OPERATIONS, UNCLASSIFIED), 0.0) | {
        group: statistics.median(cells.values()) for group, cells in sums.items()
    }


def _part(recording: WorkloadRecording, group: str, rows: list[AloneTime], recorded: dict[str, float]) -> Reconstructed:
    known_s = sum(row.calls * row.time_s for row in rows if row.time_s is not None)
    untimed = sum(row.calls for row in rows if row.time_s is None)
    return Reconstructed(
        workload=recording.workload,
        mode=recording.mode,
        group=group,
        calls=sum(row.calls for row in rows),
        kinds=len(rows),
        alone_s=None if untimed else known_s,
        recorded_s=recorded.get(group),
        untimed=untimed,
        at_least_alone_s=known_s,
    )


def _whole(recording: WorkloadRecording, parts: list[Reconstructed], step: float | None) -> Reconstructed:
    known_s, untimed = sum(part.at_least_alone_s for part in parts), sum(part.untimed for part in parts)
    recorded = [part.recorded_s for part in parts if part.calls and part.recorded_s is not None]
    return Reconstructed(
        workload=recording.workload,
        mode=recording.mode,
        group="all",
        calls=sum(part.calls for part in parts),
        kinds=sum(part.kinds for part in parts),
        alone_s=None if untimed else known_s,
        recorded_s=sum(recorded) if recorded else None,
        untimed=untimed,
        step_ratio=None if untimed or not step else known_s / step,
        at_least_alone_s=known_s,
    )


LEAST_TYPES_RATIO = 0.01
"""Share of the step below which an operation type has no parallelism of its own."""


@dataclass(frozen=True)
class Scaling:
    """An operation type's time a step over threads. times_s: threads → median. law: None where it could not be fitted.

    name: of the type; "step": of the whole step without a profiler.
    """

    workload: str
    name: str
    group: str
    times_s: Mapping[int, float]
    law: Amdahl | None


def parallelism(data: Characterization) -> list[Scaling]:
    """Over threads: the whole step, then each type of at least `LEAST_TYPES_RATIO` of it, the longest first."""
    found: list[Scaling] = []
    for group in _over(ok(data, "mix", "threads"), "threads"):
        if len(group) > 1:
            found += _scalings(data, group)
    return found


def _over(recordings: Iterable[WorkloadRecording], field: str) -> list[dict[int, WorkloadRecording]]:
    """Recordings that differ in one field alone, by its value; the mix and what was recorded for this field."""
    found: dict[tuple[object, ...], dict[int, WorkloadRecording]] = defaultdict(dict)
    for each in recordings:
        key = (each.workload, each.mode, each.device)
        value = getattr(each, field)
        if value is not None:
            found[key].setdefault(value, each)
    return list(found.values())


def _scalings(data: Characterization, by_threads: Mapping[int, WorkloadRecording]) -> list[Scaling]:
    workload = next(iter(by_threads.values())).workload
    whole = {
        count: [step.time_s for step in steps_of(data, each.recording, PLAIN)] for count, each in by_threads.items()
    }
    found = [_scaling(workload, "step", "", whole)]
    series = {count: type_series(data, each) for count, each in by_threads.items()}
    first = series[min(series)]
    medians = {key: statistics.median(times) for key, times in first.items()}
    for key in sorted(medians, key=lambda key: -medians[key]):
        if medians[key] >= LEAST_TYPES_RATIO * sum(medians.values()):
            times = {count: each[key] for count, each in series.items() if key in each}
            found.append(_scaling(workload, *key, times))
    return found


def _scaling(workload: str, name: str, group: str, times_s: Mapping[int, Sequence[float]]) -> Scaling:
    known = {count: times for count, times in sorted(times_s.items()) if times}
    fitted = amdahl(known) if len(known) > 1 and min(map(len, known.values())) > 1 else None
    return Scaling(workload, name, group, {count: statistics.median(times) for count, times in known.items()}, fitted)


def type_series(data: Characterization, recording: WorkloadRecording) -> dict[tuple[str, str], list[float]]:
    """(operation type, group) → its time in each profiled step that counts, in order; 0 where it was not called."""
    numbers = [step.step for step in steps_of(data, recording.recording, PROFILED)]
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in data.times:
        if row.recording == recording.recording and row.step in numbers:
            key = (
                type_of(row.name, row.scope, row.optimizer),
                group_of(row.name, row.scope, row.tags).group,
            )
            found[key][row.step] = found[key].get(row.step, 0.0) + row.time_s
    return {key: [cells.get(number, 0.0) for number in numbers] for key, cells in found.items()}


def over_batch(data: Characterization) -> list[tuple[WorkloadRecording, Mix]]:
    """The mixes of one workload over its batch sizes, the smallest first; of workloads with more than one."""
    found = []
    for by_size in _over(ok(data, "mix", "batch"), "batch_size"):
        if len(by_size) > 1:
            for size in sorted(by_size):
                made = mix(data, by_size[size], "")
                if made is not None:
                    found.append((by_size[size], made))
    return found


_LEAST_SPREAD_RATIO = 1e-9
"""Least spread ÷ a count's median: times that a clock cannot distinguish have a spread, too, for the weights."""

_OF_A_MEDIAN = math.sqrt(math.pi / 2)
"""The error of a median ÷ that of the mean, of many normal values."""


@dataclass(frozen=True)
class Amdahl:
    """A fit. serial_s, parallel_s: at one thread. serial_ratio: serial ÷ both, with its interval.

    speed_up: median time at the fewest threads ÷ that at the most. karp_flatt: threads → serial share from one thread
    and these alone; empty where one thread was not timed.
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
        """What the law gives."""
        return self.serial_s + self.parallel_s / threads


def amdahl(times_s: Mapping[int, Sequence[float]]) -> Amdahl | None:
    """The law fitted to threads → times of steps; None for times of no length.

    Raises ValueError below two counts, or without at least two steps at each.
    """
    if len(times_s) < 2 or min(map(len, times_s.values())) < 2 or min(times_s) < 1:
        samples = {count: len(times) for count, times in times_s.items()}
        raise ValueError(f"expected two thread counts at least, and two steps at each, got steps by threads {samples}")
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
        karp_flatt={
            count: karp_flatt(middles[1] / middles[count], count) for count in middles if 1 in middles and count > 1
        },
    )


def karp_flatt(speed_up: float, threads: int) -> float:
    """The serial share that a speed-up over one thread shows. Raises ValueError for one thread or no speed."""
    if threads < 2 or not speed_up > 0:
        raise ValueError(f"expected two threads at least and a speed-up above 0, got {threads} and {speed_up}")
    return (1 / speed_up - 1 / threads) / (1 - 1 / threads)


def _error(times_s: Sequence[float], middle_s: float) -> float:
    """Standard error of the median."""
    count = len(times_s)
    deviation = statistics.median(abs(time - middle_s) for time in times_s)
    sigma = MAD_TO_SIGMA * deviation * count / (count - 0.8)
    return _OF_A_MEDIAN * max(sigma, _LEAST_SPREAD_RATIO * middle_s) / math.sqrt(count)


_Covariance = tuple[float, float, float]
"""Variance of the serial time, their covariance, variance of the parallel time."""


def _line(middles: Mapping[int, float], errors: Mapping[int, float]) -> tuple[float, float, _Covariance]:
    """Weighted least squares of times over 1 ÷ threads: (at 0, slope, their covariances)."""
    weight = {count: errors[count] ** -2 for count in middles}
    total = sum(weight.values())
    x = sum(weight[count] / count for count in middles) / total
    y = sum(weight[count] * middles[count] for count in middles) / total
    across = sum(weight[count] * (1 / count - x) ** 2 for count in middles)
    slope = sum(weight[count] * (1 / count - x) * (middles[count] - y) for count in middles) / across
    return y - slope * x, slope, (1 / total + x * x / across, -x / across, 1 / across)


def _fieller(serial: float, slope: float, covariance: _Covariance, degrees: int) -> tuple[float | None, float | None]:
    """The 95 % interval of serial ÷ (serial + slope): all shares that t cannot tell from it; None, None: it is open."""
    of_serial, both, of_slope = covariance
    whole = serial + slope
    of_whole, shared = of_serial + 2 * both + of_slope, of_serial + both
    t2 = t_quantile(max(1, degrees)) ** 2
    a = whole * whole - t2 * of_whole
    b = serial * whole - t2 * shared
    c = serial * serial - t2 * of_serial
    root = b * b - a * c
    if a <= 0 or root < 0:
        return None, None
    return (b - math.sqrt(root)) / a, (b + math.sqrt(root)) / a
