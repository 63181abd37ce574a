"""What more threads, and larger batches, do to each operation type: absolute times, and Amdahl's law through them.

Fathom's Figure 6, from the recorded rows of a characterization: on a CPU over the threads of an operation, on a device
over the batch. Times of types are those under the profiler, of the whole step those without it.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.characterize.amdahl import Amdahl, amdahl
from analysis.characterize.fathom_groups import FATHOM, Grouping, group_of, type_of
from analysis.characterize.operation_mix import Mix, mix, steps_of
from analysis.characterize.summary import ok
from results.records.characterization import PLAIN, PROFILED, Characterization, Recording

LEAST_TYPES_RATIO = 0.01
"""Of the step: operation types below this are not told apart in parallelism."""


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


def parallelism(data: Characterization, grouping: Grouping = FATHOM) -> list[Scaling]:
    """Over threads: the whole step, then each type of at least `LEAST_TYPES_RATIO` of it, the longest first."""
    found: list[Scaling] = []
    for group in _over(ok(data, "mix", "threads"), "threads"):
        if len(group) > 1:
            found += _scalings(data, group, grouping)
    return found


def _over(recordings: Iterable[Recording], field: str) -> list[dict[int, Recording]]:
    """Recordings that differ in one field alone, by its value; the mix and what was recorded for this field."""
    found: dict[tuple[object, ...], dict[int, Recording]] = defaultdict(dict)
    for each in recordings:
        key = (each.workload, each.mode, each.device)
        value = getattr(each, field)
        if value is not None:
            found[key].setdefault(value, each)
    return list(found.values())


def _scalings(data: Characterization, by_threads: Mapping[int, Recording], grouping: Grouping) -> list[Scaling]:
    workload = next(iter(by_threads.values())).workload
    whole = {
        count: [step.time_s for step in steps_of(data, each.recording, PLAIN)] for count, each in by_threads.items()
    }
    found = [_scaling(workload, "step", "", whole)]
    series = {count: type_series(data, each, grouping) for count, each in by_threads.items()}
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


def type_series(
    data: Characterization, recording: Recording, grouping: Grouping = FATHOM
) -> dict[tuple[str, str], list[float]]:
    """(operation type, group) → its time in each profiled step that counts, in order; 0 where it was not called."""
    numbers = [step.step for step in steps_of(data, recording.recording, PROFILED)]
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in data.times:
        if row.recording == recording.recording and row.step in numbers:
            key = (
                type_of(row.name, row.scope, row.optimizer),
                group_of(row.name, row.scope, row.tags, grouping).group,
            )
            found[key][row.step] = found[key].get(row.step, 0.0) + row.time_s
    return {key: [cells.get(number, 0.0) for number in numbers] for key, cells in found.items()}


def over_batch(data: Characterization, grouping: Grouping = FATHOM) -> list[tuple[Recording, Mix]]:
    """The mixes of one workload over its batch sizes, the smallest first; of workloads with more than one."""
    found = []
    for by_size in _over(ok(data, "mix", "batch"), "batch_size"):
        if len(by_size) > 1:
            for size in sorted(by_size):
                made = mix(data, by_size[size], "", grouping)
                if made is not None:
                    found.append((by_size[size], made))
    return found
