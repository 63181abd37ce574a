"""What recordings of workloads say together: their mixes, likeness, training against inference, cost.

Every function takes the rows of a characterization and gives frozen answers; none knows a file or a device. Times of
steps are medians over the steps that count (`analysis/characterize/operation_mix.py`), without the profiler wherever
that was timed.

What the operations of each group do in a training step: exact FLOP and bytes, beside the time that they take.

Counted by the operation table of the step (`analysis/operators/registry.py`), timed under the profiler. Bytes are the
unfused sum over operations, so that their rate is what operations asked for, not what memory gave.

A step put together from its operations timed alone, by group: Fathom's tools' "direct reconstruction", the sum over the
distinct calls of how often × how long alone. A ratio to the recorded step below 1 says that operations take longer in
the step than alone (caches that others emptied, the profiler's own time), above 1 that alone they lack what the step
has warmed for them. Calls that only give views are left out of both.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.characterize.fathom_groups import OPERATIONS, STEP, UNCLASSIFIED, group_of
from analysis.characterize.operation_mix import (
    Merge,
    Mix,
    centroid_linkage,
    labels,
    mix,
    step_s,
    steps_of,
    type_table,
    vectors,
)
from analysis.characterize.stationarity import Stationarity, stationarity
from analysis.operators.traffic import UNSIZED
from results.records.characterization import (
    PLAIN,
    PROFILED,
    AloneTime,
    Characterization,
    OperationCost,
    WorkloadRecording,
)


@dataclass(frozen=True)
class Against:
    """A workload's step in one mode on one device. ratio: ÷ its training step on the CPU, None without one."""

    workload: str
    mode: str
    device: str
    step_s: float
    ratio: float | None


def ok(data: Characterization, *whys: str) -> list[WorkloadRecording]:
    """The recordings that were made, for these reasons."""
    return [recording for recording in data.recordings if recording.status == "ok" and recording.why in whys]


def mixes(data: Characterization) -> list[Mix]:
    """The mix of every recording that has one, labelled by what sets it apart."""
    recordings = ok(data, "mix")
    names = labels(recordings)
    shares = (mix(data, recording, names[recording.recording]) for recording in recordings)
    return [share for share in shares if share is not None]


def comparable_mixes(mixes: Sequence[Mix]) -> list[Mix]:
    """The mixes that stand for their workloads: training on the device of the first, else inference there."""
    if not mixes:
        return []
    mode = "training" if any(mix.recording.mode == "training" for mix in mixes) else "inference"
    device = mixes[0].recording.device
    chosen = [mix for mix in mixes if (mix.recording.mode, mix.recording.device) == (mode, device)]
    names = labels([mix.recording for mix in chosen])
    return [replace(mix, label=names[mix.recording.recording]) for mix in chosen]


def linkage(mixes: Sequence[Mix]) -> list[Merge]:
    """The clusters of workloads by operation types, of those mixes that have any."""
    return centroid_linkage({label: vector for label, vector in vectors(mixes).items() if any(vector)})


def training_against_inference(data: Characterization) -> list[Against]:
    """Each mode on each device, Fathom's Figure 5: CPU training is 1."""
    steps = [(recording, step_s(data, recording.recording)) for recording in ok(data, "mix")]
    cpu = {
        r.workload: time_s for r, time_s in steps if (r.mode, r.device) == ("training", "cpu") and time_s is not None
    }
    return [
        Against(r.workload, r.mode, r.device, time_s, time_s / cpu[r.workload] if cpu.get(r.workload) else None)
        for r, time_s in steps
        if time_s is not None
    ]


def steadiness(data: Characterization) -> list[tuple[WorkloadRecording, Stationarity]]:
    """How steady the plain steps of every mix are; in order of time, those that count."""
    times = [(r, [step.time_s for step in steps_of(data, r.recording, PLAIN)]) for r in ok(data, "mix")]
    return [(recording, stationarity(times_s)) for recording, times_s in times if times_s]


@dataclass(frozen=True)
class GroupCost:
    """What a group's operations do in a step of training. group: "" of what has none.

    time_s: mean over the joined steps; None where calls have no time (`untimed_calls`); at_least_time_s is that of the
    others. model_flop, other_flop: None where calls of the group have no formula (`unknown_calls`); at_least_flop is
    then that of the others, both sorts together. bytes: at least, where calls write what has no known size
    (`unsized_calls`).
    """

    workload: str
    group: str
    calls: int
    model_flop: int | None
    other_flop: int | None
    bytes: int
    time_s: float | None
    flop_by_unit: Mapping[str, int]  # model FLOP of the calls that have a formula
    at_least_flop: int = 0
    unknown_calls: int = 0
    at_least_time_s: float | None = None
    untimed_calls: int = 0
    unsized_calls: int = 0

    @property
    def flop(self) -> int | None:
        return None if self.model_flop is None or self.other_flop is None else self.model_flop + self.other_flop

    @property
    def flop_per_byte(self) -> float | None:
        return None if self.flop is None or not self.bytes or self.unsized_calls else self.flop / self.bytes

    @property
    def flop_per_s(self) -> float | None:
        return None if self.flop is None or not self.time_s else self.flop / self.time_s

    def utilization_ratio(self, peaks: Mapping[str, float]) -> float | None:
        """Time that its products would take at their units' peaks (FLOP/s) ÷ the time they took; None without all."""
        if not self.time_s or not self.model_flop or any(unit not in peaks for unit in self.flop_by_unit):
            return None
        return sum(flop / peaks[unit] for unit, flop in self.flop_by_unit.items()) / self.time_s

    @property
    def bytes_per_s(self) -> float | None:
        return self.bytes / self.time_s if self.time_s and not self.unsized_calls else None


def group_costs(data: Characterization) -> list[GroupCost]:
    """FLOP, bytes and time by group, of every training mix whose operations were counted. All optimizer work is F."""
    costs = []
    for recording in ok(data, "mix"):
        groups: dict[str, list[OperationCost]] = {group: [] for group in (*OPERATIONS, UNCLASSIFIED)}
        for row in data.costs:
            if row.recording == recording.recording and recording.mode == "training":
                groups[group_of(row.name, STEP if row.phase == "optimizer" else "")].append(row)
        costs += [_group_cost(recording.workload, group, rows) for group, rows in groups.items() if rows]
    return costs


def _group_cost(workload: str, group: str, rows: Sequence[OperationCost]) -> GroupCost:
    """The sum over a group's rows; without FLOP if one of them is of an operation that has no formula."""
    times = [row.time_s for row in rows if row.time_s is not None]
    model, other = sum(row.model_flop for row in rows), sum(row.other_flop for row in rows)
    unknown = sum(row.calls for row in rows if not row.kind)
    untimed = sum(row.calls if row.time_s is None else row.untimed_calls for row in rows)
    by_unit: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.model_flop:
            by_unit[row.unit] += row.model_flop
    return GroupCost(
        workload=workload,
        group=group,
        calls=sum(row.calls for row in rows),
        model_flop=None if unknown else model,
        other_flop=None if unknown else other,
        bytes=sum(row.read_bytes + row.written_bytes for row in rows),
        time_s=None if untimed else sum(times),
        flop_by_unit=dict(by_unit),
        at_least_flop=model + other,
        unknown_calls=unknown,
        at_least_time_s=sum(times) if times else None,
        untimed_calls=untimed,
        unsized_calls=sum(row.calls for row in rows if row.name.removesuffix("_backward") in UNSIZED),
    )


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
    parts = []
    for recording in ok(data, "mix"):
        groups: dict[str, list[AloneTime]] = {group: [] for group in (*OPERATIONS, UNCLASSIFIED)}
        for row in data.alone:
            if row.recording == recording.recording:
                groups[group_of(row.name, STEP if row.phase == "optimizer" else "")].append(row)
        groups = {group: rows for group, rows in groups.items() if rows}
        steps = [step.step for step in steps_of(data, recording.recording, PROFILED)]
        times = type_table(data, recording.recording, steps, views=False)["time_s"].groupby("group").sum()
        middles = dict(zip(times.index, times.median(axis=1).tolist(), strict=True))
        recorded_s = {group: middles.get(group, 0.0) if steps else None for group in groups}
        parts += [_reconstructed(recording, group, rows, recorded_s[group]) for group, rows in groups.items()]
        if groups:
            rows = [row for rows in groups.values() for row in rows]
            whole = _reconstructed(recording, "all", rows, sum(filter(None, recorded_s.values())) if steps else None)
            step = step_s(data, recording.recording)
            ratio = whole.alone_s / step if step and whole.alone_s is not None else None
            parts.append(replace(whole, step_ratio=ratio))
    return parts


def _reconstructed(
    recording: WorkloadRecording, group: str, rows: Sequence[AloneTime], recorded_s: float | None
) -> Reconstructed:
    known_s = sum(row.calls * row.time_s for row in rows if row.time_s is not None)
    untimed = sum(row.calls for row in rows if row.time_s is None)
    return Reconstructed(
        workload=recording.workload,
        mode=recording.mode,
        group=group,
        calls=sum(row.calls for row in rows),
        kinds=len(rows),
        alone_s=None if untimed else known_s,
        recorded_s=recorded_s,
        untimed=untimed,
        at_least_alone_s=known_s,
    )
