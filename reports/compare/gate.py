"""May B replace A? Conditions on two runs, cell by cell; what is counted apart from what is timed.

* **Exact**: FLOP, bytes, launches and memory come from the table of the traced step, which has no noise: any excess
  beyond the limit is one. FLOP is of convolutions and products (and of recomputation, if any); bytes are read and
  written by unfused operators; launches are calls of operators that move data, each one kernel or more on a GPU; memory
  is the most that the step's ledger has alive. A meter's loop has FLOP alone: model FLOP of its mean step.
* **Timed**: `slower` is met where the whole interval of B ÷ A is above the limit, not met where it is below, else
  undecided. The interval is that of the comparison, at the alarm rate divided by the cells; where it is of blocks, what
  processes differ by (the margin) is added at both ends.
* **Trains**: a cell that A measured and B did not fails the gate, whatever was asked.

Nothing is left out in silence: a cell of one run alone, one without a table or without an interval, gets a row that
says so. Not claimed: that a change that passes is no slower on another machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from analysis.footprint.step.live_bytes import peak_bytes
from analysis.operators import registry
from analysis.operators.traffic import lacks_sizes
from analysis.stats.comparison import ALARM_RATIO, resolution
from reports.compare.cells import Group, groups
from results.errors import Inconsistent
from results.records.cell import Run
from results.records.comparisons import MET, NOT_COMPARED, NOT_MET, ONLY_A, ONLY_B, UNDECIDED, Comparison, GateCheck
from results.records.vocabulary import LOOP, MEASURED
from results.store.reading import RunData
from results.store.store import read_operations

TIMED = "slower"
EXACT = ("flop", "bytes", "launches", "memory")
CONDITIONS = (TIMED, *EXACT)
TRAINS = "trains"
"""A condition that is always there."""

MATCHED = "matched"
"""Of a cell that one run alone has."""


@dataclass(frozen=True)
class Condition:
    """What fails the gate: B has more than the limit of this. limit_ratio: 0.02 for 2 %."""

    name: str
    limit_ratio: float

    @property
    def text(self) -> str:
        return f"{self.name} by more than {100 * self.limit_ratio:g} %" if self.name == TIMED else self._more

    @property
    def _more(self) -> str:
        what = {"flop": "FLOP"}.get(self.name, self.name)
        return f"more {what}" if self.limit_ratio == 0 else f"{100 * self.limit_ratio:g} % more {what}"


@dataclass(frozen=True)
class StepCount:
    """The exact quantities of a cell's step, by condition. reason: why there are none; partial: condition → why it is
    not there, where calls of the step have none of it."""

    values: Mapping[str, int]
    reason: str = ""
    partial: Mapping[str, str] = field(default_factory=dict)

    def lacking(self, condition: str) -> str:
        """Why a condition has no value; "" where it has one."""
        return "" if condition in self.values else self.partial.get(condition, self.reason)


def judge(
    a: RunData, b: RunData, rows: Sequence[Comparison], asked: Sequence[Condition], across: Collection[str] = ()
) -> list[GateCheck]:
    """A row for each condition and cell, in the order of the cells. rows: of `compare_runs` on the same."""
    mine, others = ({group.cells: group for group in groups(data, across).values()} for data in (a, b))
    matched = sum(row.verdict not in (ONLY_A, ONLY_B) for row in rows)
    found: list[GateCheck] = []
    for row in rows:
        if row.verdict in (ONLY_A, ONLY_B):
            found.append(_check(row, MATCHED, 0.0, NOT_COMPARED, reason=f"{row.verdict}: {row.reason}"))
            continue
        first, second = mine[row.cells_a], others[row.cells_b]
        if first.times and not second.times:
            found.append(_check(row, TRAINS, 0.0, MET, reason=_failure(second.runs)))
        counted = _step_count(a, first), _step_count(b, second)
        for each in asked:
            if each.name == TIMED:
                found.append(_slower(row, each, first, second, ALARM_RATIO / matched))
            else:
                found.append(_more(row, each, *counted))
    return found


def _check(row: Comparison, condition: str, limit_ratio: float, outcome: str, **more: object) -> GateCheck:
    of_cell = {name: getattr(row, name) for name in ("model", "batch_size", "precision", "variant")}
    return GateCheck(**of_cell, condition=condition, limit_ratio=limit_ratio, outcome=outcome, **more)  # type: ignore[arg-type]


def _failure(runs: Sequence[Run]) -> str:
    failed = next((run for run in runs if run.status not in MEASURED), runs[0])
    return f"B was not measured: {failed.status}" + (f": {failed.reason}" if failed.reason else "")


def _slower(row: Comparison, asked: Condition, a: Group, b: Group, alarm_ratio: float) -> GateCheck:
    """Whether B's step is slower by more than the limit."""
    if row.ratio is None:
        return _check(row, asked.name, asked.limit_ratio, NOT_COMPARED, reason=row.reason)
    least = resolution(row.error_ratio, row.degrees or 0.0, alarm_ratio)
    sides = [name for name, group in (("A", a), ("B", b)) if any(run.status == "not_converged" for run in group.runs)]
    notes = [row.reason, f"{' and '.join(sides)} did not converge" if sides else ""]
    ends, outcome = None, UNDECIDED
    if least is not None:
        beyond = (1 + least) * (1 + (row.margin_ratio or 0.0 if row.basis == "blocks" else 0.0))
        ends, limit = (row.ratio / beyond, row.ratio * beyond), 1 + asked.limit_ratio
        outcome = MET if ends[0] > limit else NOT_MET if ends[1] < limit else UNDECIDED
        if outcome == UNDECIDED and row.basis == "blocks":
            notes.append("one process on a side: sweep --repeat 5 measures in more processes")
    return _check(
        row,
        asked.name,
        asked.limit_ratio,
        outcome,
        value_a=row.time_a_s,
        value_b=row.time_b_s,
        ratio=row.ratio,
        low_ratio=None if ends is None else ends[0],
        high_ratio=None if ends is None else ends[1],
        basis=row.basis,
        reason="; ".join(filter(None, notes)),
    )


def _more(row: Comparison, asked: Condition, a: StepCount, b: StepCount) -> GateCheck:
    """Whether B has more of a quantity that is counted."""
    reasons = {name: side.lacking(asked.name) for name, side in (("A", a), ("B", b)) if asked.name not in side.values}
    lacking = [f"{name}: {reason}" for name, reason in reasons.items()]
    if lacking:
        return _check(row, asked.name, asked.limit_ratio, NOT_COMPARED, reason="; ".join(lacking))
    mine, other = a.values[asked.name], b.values[asked.name]
    met = other > mine * (1 + asked.limit_ratio) if asked.limit_ratio else other > mine
    return _check(
        row,
        asked.name,
        asked.limit_ratio,
        MET if met else NOT_MET,
        value_a=float(mine),
        value_b=float(other),
        ratio=other / mine if mine else None,
        basis="exact",
    )


def _step_count(data: RunData, group: Group) -> StepCount:
    """What the traced step of a cell has; of its repeats the first that was traced, as all are equal."""
    run = next((run for run in group.runs if run.trace_id), None)
    if run is None:
        loop = next((run for run in group.runs if run.data == LOOP), None)
        return StepCount({}, "no table of the step (--methods exact)") if loop is None else _loop_count(loop)
    try:
        return counted_step(data, run.trace_id)
    except (ValueError, Inconsistent, OSError) as fault:
        return StepCount({}, " ".join(str(fault).split()))


def _loop_count(loop: Run) -> StepCount:
    """What a meter has counted of its loop: model FLOP of the mean step."""
    if not loop.executed:
        return StepCount({}, "a training loop has no table of the step, and calls of this one have no count")
    return StepCount({"flop": sum(loop.executed.values())}, "a training loop has no table of the step: FLOP alone")


def counted_step(data: RunData, trace_id: str) -> StepCount:
    """What a traced step has of each condition, where all of its calls have it: one without a formula has no FLOP, and
    one whose workspace has no known size no bytes. Raises ValueError or Inconsistent for a table that cannot be read.
    """
    operations, storages = read_operations(data.path, trace_id)
    costs = [registry.cost(operation) for operation in operations]
    partial: dict[str, str] = {}
    if unknown := registry.not_understood(operations):
        names = ", ".join(f"{name} × {calls}" for name, calls in sorted(unknown.items()))
        partial["flop"] = f"{names} have no formula"
    if unsized := sorted({operation.name for operation in operations if lacks_sizes(operation)}):
        partial |= dict.fromkeys(("bytes", "memory"), f"{', '.join(unsized)} keeps a workspace of no known size")
    values = {
        "flop": sum(int(cost.model_flop) for cost in costs),
        "bytes": sum(int(cost.moved_bytes) for cost in costs),
        "launches": sum(bool(cost.moved_bytes) for cost in costs),
        "memory": int(peak_bytes(operations, storages)),
    }
    return StepCount({name: value for name, value in values.items() if name not in partial}, partial=partial)
