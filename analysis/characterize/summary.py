"""What recordings of workloads say together: their mixes, likeness, training against inference, cost.

Every function takes the rows of a characterization and gives frozen answers; none knows a file or a device. Times of
steps are medians over the steps that count (`analysis/characterize/operation_mix.py`), without the profiler wherever
that was timed.

What the operations of each group do in a training step: exact FLOP and bytes, beside the time that they take.

Counted by the operation table of the step (`analysis/operators/registry.py`), timed under the profiler. Bytes are the
unfused sum over operations, so that their rate is what operations asked for, not what memory gave.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.characterize.fathom_groups import OPERATIONS, STEP, UNCLASSIFIED, group_of
from analysis.characterize.operation_mix import Merge, Mix, centroid_linkage, labels, mix, step_s, steps_of, vectors
from analysis.characterize.stationarity import Stationarity, stationarity
from analysis.operators.traffic import UNSIZED
from results.records.characterization import PLAIN, Characterization, OperationCost, WorkloadRecording


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
    return [each for each in data.recordings if each.status == "ok" and each.why in whys]


def mixes(data: Characterization) -> list[Mix]:
    """The mix of every recording that has one, labelled by what sets it apart."""
    recordings = ok(data, "mix")
    names = labels(recordings)
    found = (mix(data, each, names[each.recording]) for each in recordings)
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
    found = []
    for each in ok(data, "mix"):
        if each.mode != "training":
            continue
        rows = [row for row in data.costs if row.recording == each.recording]
        for group in (*OPERATIONS, UNCLASSIFIED):
            mine = [
                row for row in rows if group_of(row.name, STEP if row.phase == "optimizer" else "", ()).group == group
            ]
            if mine:
                found.append(_group_cost(each.workload, group, mine))
    return found


def _group_cost(workload: str, group: str, rows: Sequence[OperationCost]) -> GroupCost:
    """The sum over a group's rows; without FLOP if one of them is of an operation that has no formula."""
    times = [row.time_s for row in rows if row.time_s is not None]
    model, other = sum(row.model_flop for row in rows), sum(row.other_flop for row in rows)
    unknown, untimed = sum(row.calls for row in rows if not row.kind), sum(map(untimed_calls, rows))
    return GroupCost(
        workload=workload,
        group=group,
        calls=sum(row.calls for row in rows),
        model_flop=None if unknown else model,
        other_flop=None if unknown else other,
        bytes=sum(row.read_bytes + row.written_bytes for row in rows),
        time_s=None if untimed else sum(times),
        flop_by_unit=_by_unit(rows),
        at_least_flop=model + other,
        unknown_calls=unknown,
        at_least_time_s=sum(times) if times else None,
        untimed_calls=untimed,
        unsized_calls=sum(row.calls for row in rows if row.name.removesuffix("_backward") in UNSIZED),
    )


def untimed_calls(row: OperationCost) -> int:
    """How many of its calls have no time; all of them where the row has none."""
    return row.calls if row.time_s is None else row.untimed_calls


def _by_unit(rows: Sequence[OperationCost]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        if row.model_flop:
            found[row.unit] = found.get(row.unit, 0) + row.model_flop
    return found
