"""A step put together from its operations timed alone, against the step as it was recorded; by group.

Fathom's tools' "direct reconstruction": the sum over the distinct calls of how often × how long alone. A ratio below 1
says that operations take longer in the step than alone (caches that others emptied, the profiler's own time), above 1
that alone they lack what the step has warmed for them. Calls that only give views are left out of both.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from analysis.characterize.fathom_groups import FATHOM, OPERATIONS, STEP, Grouping, group_of
from analysis.characterize.operation_mix import step_s, steps_of
from analysis.characterize.summary import ok
from analysis.operators.registry import kind_of
from results.records.characterization import PROFILED, AloneTime, Characterization, Recording


@dataclass(frozen=True)
class Reconstructed:
    """One group of one recording, or all of them ("all"). untimed: calls that could not be run alone.

    step_ratio: alone_s ÷ the whole step without the profiler, of "all".
    """

    workload: str
    mode: str
    group: str
    calls: int
    kinds: int  # distinct calls
    alone_s: float
    recorded_s: float
    untimed: int
    step_ratio: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.alone_s / self.recorded_s if self.recorded_s else None


def reconstructed(data: Characterization, grouping: Grouping = FATHOM) -> list[Reconstructed]:
    """By group, then all together, of every recording whose operations were timed alone."""
    found = []
    for each in ok(data, "mix"):
        rows = [row for row in data.alone if row.recording == each.recording]
        if rows:
            recorded = _recorded(data, each, grouping)
            parts = [
                _part(each, group, [row for row in rows if _group(row.name, row.phase, grouping) == group], recorded)
                for group in OPERATIONS
            ]
            found += [part for part in parts if part.calls]
            found.append(_whole(each, parts, step_s(data, each.recording)))
    return found


def _group(name: str, phase: str, grouping: Grouping) -> str:
    return group_of(name, STEP if phase == "optimizer" else "", (), grouping).group


def _recorded(data: Characterization, recording: Recording, grouping: Grouping) -> dict[str, float]:
    """Group → median time a profiled step of its operations, without views."""
    steps = [step.step for step in steps_of(data, recording.recording, PROFILED)]
    sums: dict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(steps, 0.0))
    for row in data.times:
        if (
            row.recording == recording.recording
            and row.step in steps
            and kind_of(row.name.replace("::", ".")) != "view"
        ):
            sums[group_of(row.name, row.scope, row.tags, grouping).group][row.step] += row.time_s
    return {group: statistics.median(cells.values()) for group, cells in sums.items()}


def _part(recording: Recording, group: str, rows: list[AloneTime], recorded: dict[str, float]) -> Reconstructed:
    return Reconstructed(
        workload=recording.workload,
        mode=recording.mode,
        group=group,
        calls=sum(row.calls for row in rows),
        kinds=len(rows),
        alone_s=sum(row.calls * row.time_s for row in rows if row.time_s is not None),
        recorded_s=recorded.get(group, 0.0),
        untimed=sum(row.calls for row in rows if row.time_s is None),
    )


def _whole(recording: Recording, parts: list[Reconstructed], step: float | None) -> Reconstructed:
    alone_s = sum(part.alone_s for part in parts)
    return Reconstructed(
        workload=recording.workload,
        mode=recording.mode,
        group="all",
        calls=sum(part.calls for part in parts),
        kinds=sum(part.kinds for part in parts),
        alone_s=alone_s,
        recorded_s=sum(part.recorded_s for part in parts if part.calls),
        untimed=sum(part.untimed for part in parts),
        step_ratio=alone_s / step if step else None,
    )
