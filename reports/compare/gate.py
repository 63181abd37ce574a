"""May B replace A? Conditions on two runs, cell by cell; what is counted apart from what is timed.

* **Exact**: FLOP, bytes, launches and memory come from the table of the traced step, which has no noise: any excess
  beyond the limit is one. FLOP is of convolutions and products (and of recomputation, if any); bytes are read and
  written by unfused operators; launches are calls of operators that move data, each one kernel or more on a GPU; memory
  is the most that the step's ledger has alive. A meter's loop has FLOP alone: model FLOP of its mean step.
* **Timed**: `slower` is met where the whole interval of B ÷ A is above the limit, not met where it is below, else
  undecided. The interval is that of the comparison, at the alarm rate divided by the cells; where it is of blocks, what
  processes differ by (the margin) is added at both ends.
* **Trains**: a cell that A measured and B did not fails the gate, whatever was asked.

The answer is shown on a terminal and as a comment on a pull request: the verdict first, then what it rests on. Exact
quantities that are equal in every cell are one line; each other row is shown with its numbers.
"""

import html
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from analysis.footprint.live_bytes import peak_bytes
from analysis.operators import registry
from analysis.operators.traffic import lacks_sizes
from analysis.stats.comparison import ALARM_RATIO, resolution
from reports.compare.cells import Group, groups
from reports.compare.page import Side
from reports.shared.layout import WIDTH, Column, Part, TextTable, page, strong
from reports.shared.numbers import DASH, listed, percent, si, si_time
from results.errors import Inconsistent
from results.records.answers import MET, NOT_COMPARED, NOT_MET, ONLY_A, ONLY_B, UNDECIDED, Comparison, GateCheck
from results.records.cell import Run
from results.records.rows import LOOP, MEASURED
from results.store.reading import RunData
from results.store.store import read_operations

TIMED = "slower"
EXACT = ("flop", "bytes", "launches", "memory")
CONDITIONS = (TIMED, *EXACT)
TRAINS = "trains"
"""A condition that is always there."""

MATCHED = "matched"
"""The condition of a cell that only one run has."""


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
            failed = next((run for run in second.runs if run.status not in MEASURED), second.runs[0])
            reason = ": ".join(filter(None, (f"B was not measured: {failed.status}", failed.reason)))
            found.append(_check(row, TRAINS, 0.0, MET, reason=reason))
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


PASSES, FAILS = "passes", "fails"

SHOWN = 3
"""Cells that a reason names."""

_COLUMNS = (
    Column("cell", right=False, wraps=True),
    Column("asked", right=False),
    Column("A", right=True, rank=2),
    Column("B", right=True, rank=1),
    Column("B ÷ A", right=True),
    Column("interval", right=True),
    Column("is", right=False),
)
HEADS = tuple(column.name for column in _COLUMNS)

_UNITS = {"flop": "FLOP", "bytes": "B", "memory": "B"}
_NAMES = {"flop": "FLOP"}
_OUTCOMES = {MET: "MET", NOT_MET: "not met", UNDECIDED: "undecided", NOT_COMPARED: "not compared"}
_BASES = {
    "sessions": "Step times are relative to the ceiling timed beside them; sessions and hours scatter.",
    "processes": "A and B were timed one after the other, in several processes each: drift between them is in no "
    "interval.",
    "blocks": "A and B were timed one after the other, in one process on a side: what processes differ by (the margin) "
    "is added to the interval.",
}


def fails(checks: Sequence[GateCheck], undecided_fails: bool) -> bool:
    """Whether the gate fails."""
    return any(check.outcome == MET for check in checks) or (
        undecided_fails and any(check.outcome in (UNDECIDED, NOT_COMPARED) for check in checks)
    )


def verdict_sentence(checks: Sequence[GateCheck], asked: Sequence[Condition], undecided_fails: bool) -> str:
    """What the gate says, and why, in one sentence."""
    answer = FAILS if fails(checks, undecided_fails) else PASSES
    cells = len({_cell(check) for check in checks})
    of_all = f"of {cells} cell{'s' * (cells != 1)}"
    texts = {TRAINS: "not trained any more"} | {each.name: each.text for each in asked}
    reasons = []
    for outcome, words in ((MET, "{}"), (UNDECIDED, "undecided whether {}")):
        for name, text in texts.items():
            if count := sum(check.outcome == outcome for check in checks if check.condition == name):
                reasons.append(f"{words.format(text)} in {count} {of_all}")
    if lacking := len({_cell(check) for check in checks if check.outcome == NOT_COMPARED}):
        reasons.append(f"not all could be compared in {lacking} {of_all}")
    none = f"in none {of_all}: {', '.join(each.text for each in asked)}"
    return f"The gate {answer}: {'; '.join(reasons) or none}."


def gate_text(
    checks: Sequence[GateCheck],
    asked: Sequence[Condition],
    sides: tuple[Side, Side],
    undecided_fails: bool,
    width: int = WIDTH,
    colour: bool = False,
) -> str:
    """For a terminal, in lines of at most `width` letters."""
    parts: list[Part] = [strong(verdict_sentence(checks, asked, undecided_fails)), ""]
    parts += [f"{side.letter}: {side.path}" for side in sides]
    if singles := _single_rows(checks):
        styles = ["bold" if check.outcome == MET else "" for check in singles]
        parts += ["", TextTable(_COLUMNS, [_cells(check) for check in singles], styles=styles), *_reasons(singles)]
    return page([*parts, "", *_closing(checks)], width, colour)


def gate_markdown(
    checks: Sequence[GateCheck], asked: Sequence[Condition], sides: tuple[Side, Side], undecided_fails: bool
) -> str:
    """For a comment on a pull request."""
    sentence = verdict_sentence(checks, asked, undecided_fails)
    lines = [f"### {_mark(checks, undecided_fails)} {markdown_text(sentence)}", ""]
    if singles := _single_rows(checks):
        lines += [f"| {' | '.join(HEADS)} |", "| --- | --- | ---: | ---: | ---: | :---: | --- |"]
        for check in singles:
            texts = [markdown_text(text) for text in _cells(check)]
            lines.append(f"| {' | '.join([*texts[:-1], f'**{texts[-1]}**' if check.outcome == MET else texts[-1]])} |")
        lines.append("")
    reasons = [f"* {markdown_text(reason)}" for reason in _reasons(singles)]
    lines += [*reasons, ""] if reasons else []
    lines += ["<details><summary>What this rests on</summary>", ""]
    lines += [f"* {side.letter}: {markdown_text(side.line)}" for side in sides]
    lines += [*(f"* {markdown_text(each)}" for each in _closing(checks)), "", "</details>"]
    return "\n".join(lines) + "\n"


def _mark(checks: Sequence[GateCheck], undecided_fails: bool) -> str:
    """What a reader sees first: a gate that passes because nothing was decided is no success."""
    if fails(checks, undecided_fails):
        return "❌"
    return "⚠️" if any(check.outcome in (UNDECIDED, NOT_COMPARED) for check in checks) else "✅"


def markdown_text(text: str) -> str:
    """A text that is shown as it is: no markup, link or mention comes of it, whatever the names hold."""
    return re.sub(r"([\\`*_\[\]|#~@])", r"\\\1", html.escape(" ".join(text.split()), quote=False)).removeprefix("\\")


def gate_summary(
    checks: Sequence[GateCheck], asked: Sequence[Condition], undecided_fails: bool
) -> Mapping[str, object]:
    """What a program wants to know beside the rows."""
    answer = FAILS if fails(checks, undecided_fails) else PASSES
    return {"gate": answer, "sentence": verdict_sentence(checks, asked, undecided_fails)}


def _single_rows(checks: Sequence[GateCheck]) -> list[GateCheck]:
    """The rows that are shown one by one, the worst first: all but exact quantities that are equal."""
    order = (MET, UNDECIDED, NOT_COMPARED, NOT_MET)
    shown = [check for check in checks if not (check.condition in EXACT and check.value_a == check.value_b is not None)]
    return sorted(shown, key=lambda check: (order.index(check.outcome), check.condition != TIMED))


def _reasons(checks: Sequence[GateCheck]) -> list[str]:
    """Each reason once, with the cells that have it."""
    cells: dict[str, dict[str, None]] = {}
    for check in checks:
        if check.reason:
            cells.setdefault(check.reason, {})[_cell(check)] = None
    return [f"{listed(list(names), SHOWN)}: {reason}" for reason, names in cells.items()]


def _closing(checks: Sequence[GateCheck]) -> list[str]:
    """Equal exact quantities, and what the times rest on."""
    equal = {
        name: [check for check in checks if check.condition == name and check.value_a == check.value_b is not None]
        for name in EXACT
    }
    named = [_NAMES.get(name, name) for name, found in equal.items() if found]
    count = max((len(found) for found in equal.values()), default=0)
    lines = [f"Equal to the last digit: {', '.join(named)} ({count} cell{'s' * (count != 1)})."] if named else []
    bases = dict.fromkeys(check.basis for check in checks if check.condition == TIMED)
    return [*lines, *(_BASES[basis] for basis in bases if basis in _BASES)]


def _cell(check: GateCheck) -> str:
    beside = f" ({check.variant})" if check.variant else ""
    return f"{check.model} b{check.batch_size} {check.precision}{beside}"


def _condition(check: GateCheck) -> str:
    name = _NAMES.get(check.condition, check.condition)
    return name if check.condition in (TRAINS, MATCHED) else f"{name} > {100 * check.limit_ratio:g} %"


def _cells(check: GateCheck) -> list[str]:
    """The texts of a row under HEADS."""
    interval = DASH
    if check.low_ratio is not None and check.high_ratio is not None:
        interval = f"{_end(check.low_ratio)} to {_end(check.high_ratio)}"
    ratio = DASH if check.ratio is None else _change(check.ratio)
    values = [_value(check.condition, value) for value in (check.value_a, check.value_b)]
    return [_cell(check), _condition(check), *values, ratio, interval, _OUTCOMES[check.outcome]]


def _value(condition: str, value: float | None) -> str:
    if value is None:
        return DASH
    if condition == TIMED:
        return si_time(value)
    return si(value, _UNITS[condition]) if condition in _UNITS else f"{value:,.0f}"


def _end(ratio: float) -> str:
    """An end of an interval: of a few scattered pairs it may be millions, which nobody reads."""
    if 0.01 <= ratio <= 100:
        return _change(ratio)
    return "< −99 %" if ratio < 1 else "> +9900 %"


def _change(ratio: float) -> str:
    """A ratio as a change: 1.034 → "+3.4 %"; small ones to a tenth of a per cent."""
    change = ratio - 1
    if abs(change) < 1e-12:
        return "0 %"
    size = f"{100 * abs(change):.1f} %" if abs(change) < 0.1 and abs(change) >= 0.001 else percent(abs(change))
    return f"{'+' if change > 0 else '−'}{size}"
