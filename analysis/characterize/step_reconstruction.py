"""A step put together from its operations timed alone, against the step as it was recorded; by group.

Fathom's tools' "direct reconstruction": the sum over the distinct calls of how often × how long alone. A ratio below 1
says that operations take longer in the step than alone (caches that others emptied, the profiler's own time), above 1
that alone they lack what the step has warmed for them. Calls that only give views are left out of both.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from analysis.characterize.fathom_groups import FATHOM, OPERATIONS, STEP, UNCLASSIFIED, Grouping, group_of
from analysis.characterize.operation_mix import step_s, steps_of
from analysis.characterize.summary import ok
from analysis.operators.registry import kind_of
from results.records.characterization import PROFILED, AloneTime, Characterization, WorkloadRecording


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


def reconstructed(data: Characterization, grouping: Grouping = FATHOM) -> list[Reconstructed]:
    """By group, then all together, of every recording whose operations were timed alone."""
    found = []
    for each in ok(data, "mix"):
        rows = [row for row in data.alone if row.recording == each.recording]
        if rows:
            recorded = _recorded_times(data, each, grouping)
            parts = [
                _part(each, group, [row for row in rows if _group(row.name, row.phase, grouping) == group], recorded)
                for group in (*OPERATIONS, UNCLASSIFIED)
            ]
            found += [part for part in parts if part.calls]
            found.append(_whole(each, parts, step_s(data, each.recording)))
    return found


def _group(name: str, phase: str, grouping: Grouping) -> str:
    return group_of(name, STEP if phase == "optimizer" else "", (), grouping).group


def _recorded_times(data: Characterization, recording: WorkloadRecording, grouping: Grouping) -> dict[str, float]:
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
            sums[group_of(row.name, row.scope, row.tags, grouping).group][row.step] += row.time_s
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
