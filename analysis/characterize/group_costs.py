"""What the operations of each group do in a training step: exact FLOP and bytes, beside the time that they take.

Counted by the operation table of the step (`analysis/operators/registry.py`), timed under the profiler. Bytes are the
unfused sum over operations, so that their rate is what operations asked for, not what memory gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.characterize.fathom_groups import FATHOM, OPERATIONS, STEP, UNCLASSIFIED, Grouping, group_of, type_of
from analysis.characterize.summary import ok
from analysis.operators.traffic import UNSIZED
from results.records.characterization import Characterization, OperationCost


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


def group_costs(data: Characterization, grouping: Grouping = FATHOM) -> list[GroupCost]:
    """FLOP, bytes and time by group, of every training mix whose operations were counted. All optimizer work is F."""
    found = []
    for each in ok(data, "mix"):
        if each.mode != "training":
            continue
        rows = [row for row in data.costs if row.recording == each.recording]
        for group in (*OPERATIONS, UNCLASSIFIED):
            mine = [
                row
                for row in rows
                if group_of(row.name, STEP if row.phase == "optimizer" else "", (), grouping).group == group
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


@dataclass(frozen=True)
class Density:
    """FLOP against bytes of one operation type in a training step. share_ratio: of the time of all calls that were
    timed; None of a type with a call that was not.

    flop: None of a type that has no formula.
    """

    workload: str
    name: str
    group: str
    calls: int
    flop: int | None
    bytes: int
    share_ratio: float | None


def densities(data: Characterization, grouping: Grouping = FATHOM) -> list[Density]:
    """Densities of every training mix whose operations were counted, the types that take longest first."""
    found = []
    for each in ok(data, "mix"):
        if each.mode == "training":
            found += _densities(each.workload, [row for row in data.costs if row.recording == each.recording], grouping)
    return found


def _densities(workload: str, rows: list[OperationCost], grouping: Grouping) -> list[Density]:
    by_type: dict[tuple[str, str], list[OperationCost]] = {}
    for row in rows:
        scope = STEP if row.phase == "optimizer" else ""
        key = (type_of(row.name, scope), group_of(row.name, scope, (), grouping).group)
        by_type.setdefault(key, []).append(row)
    total_s = sum(row.time_s or 0.0 for row in rows)
    made = [
        Density(
            workload,
            name,
            group,
            sum(row.calls for row in mine),
            sum(row.model_flop + row.other_flop for row in mine) if all(row.kind for row in mine) else None,
            sum(row.read_bytes + row.written_bytes for row in mine),
            sum(row.time_s or 0.0 for row in mine) / total_s if total_s and not any(map(untimed_calls, mine)) else None,
        )
        for (name, group), mine in by_type.items()
    ]
    return sorted(made, key=lambda each: (-(each.share_ratio or 0.0), each.name))
