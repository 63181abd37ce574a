"""Decides whether run B may replace run A: `judge` takes both and returns a `GateCheck` per condition and cell.

The gate fails if a condition is met. Exact conditions compare counts of the traced step, which have no noise; any
excess beyond the limit meets them. They are FLOP (of products, with recomputation), bytes (of unfused operators),
launches (calls that move data) and peak memory. A meter's loop has only the model FLOP of its mean step. `slower` is
met if the whole interval of B ÷ A is above the limit. It is not met if the whole interval is below, else it is
undecided. The interval has the comparison's alarm rate divided by the number of cells. If blocks are the sample, the
margin by which processes differ widens it. A cell that A measured and B failed to measure fails the gate.
"""

import html
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from analysis.footprint.live_bytes import peak_bytes
from analysis.operators import registry
from analysis.operators.traffic import lacks_sizes
from analysis.stats.comparison import ALARM_RATIO, resolution
from reports.compare.cells import RepeatGroup, cell_name, groups
from reports.compare.page import ComparedRun
from reports.shared.layout import WIDTH, Part, TableColumn, TextTable, documents, page, strong
from reports.shared.numbers import DASH, percent, si, si_time
from results.errors import Inconsistent
from results.records.answers import MET, NOT_COMPARED, NOT_MET, ONLY_IN_ONE, UNDECIDED, Comparison, GateCheck
from results.records.cell import LOOP, MEASURED
from results.store.reading import RunData, read_operations
from results.text_files import listed

TIMED = "slower"
EXACT = ("flop", "bytes", "launches", "memory")
TRAINS = "trains"
"""The condition that B failed to measure a cell that A measured. It always applies."""

MATCHED = "matched"
"""The condition in the row of a cell that only one run has, which is not compared."""

Quantities = Mapping[str, int | str]
"""Condition of EXACT → its amount in a cell's step, or the text of why it is unknown."""


@dataclass(frozen=True)
class Condition:
    """One condition under which the gate fails: B exceeds A by more than the limit. limit_ratio: 0.02 for 2 %."""

    name: str
    limit_ratio: float

    @property
    def text(self) -> str:
        more = f"{100 * self.limit_ratio:g} %"
        if self.name == TIMED:
            return f"{self.name} by more than {more}"
        return f"{f'{more} ' if self.limit_ratio else ''}more {_NAMES.get(self.name, self.name)}"


def judge(
    a: RunData, b: RunData, rows: Sequence[Comparison], conditions: Sequence[Condition], across: Collection[str] = ()
) -> list[GateCheck]:
    """Return a row for each condition and cell, in the order of the cells. rows: what `compare_runs` returned for both
    runs."""
    groups_a, groups_b = ({group.cells: group for group in groups(data, across).values()} for data in (a, b))
    alarm_ratio = ALARM_RATIO / max(1, sum(row.verdict not in ONLY_IN_ONE for row in rows))
    checks: list[GateCheck] = []
    for row in rows:
        if row.verdict in ONLY_IN_ONE:
            checks.append(_check(row, Condition(MATCHED, 0.0), NOT_COMPARED, reason=f"{row.verdict}: {row.reason}"))
            continue
        first, second = groups_a[row.cells_a], groups_b[row.cells_b]
        if first.times and not second.times:
            failed = next((run for run in second.runs if run.status not in MEASURED), second.runs[0])
            reason = ": ".join(filter(None, (f"B was not measured: {failed.status}", failed.reason)))
            checks.append(_check(row, Condition(TRAINS, 0.0), MET, reason=reason))
        counted = _quantities(a, first), _quantities(b, second)
        for condition in conditions:
            if condition.name == TIMED:
                checks.append(_slower(row, condition, first, second, alarm_ratio))
            else:
                checks.append(_more(row, condition, *counted))
    return checks


def _check(row: Comparison, condition: Condition, outcome: str, **more: object) -> GateCheck:
    of_cell = {name: getattr(row, name) for name in ("model", "batch_size", "precision", "variant")}
    return GateCheck(
        **of_cell, condition=condition.name, limit_ratio=condition.limit_ratio, outcome=outcome, **more  # type: ignore[arg-type]
    )  # fmt: skip


def _slower(row: Comparison, condition: Condition, a: RepeatGroup, b: RepeatGroup, alarm_ratio: float) -> GateCheck:
    """Return the check whether B's step is slower by more than the limit."""
    if row.ratio is None:
        return _check(row, condition, NOT_COMPARED, reason=row.reason)
    sides = [name for name, group in (("A", a), ("B", b)) if any(run.status == "not_converged" for run in group.runs)]
    notes = [row.reason, f"{' and '.join(sides)} did not converge" if sides else ""]
    low = high = None
    outcome = UNDECIDED
    if (least := resolution(row.error_ratio, row.degrees or 0.0, alarm_ratio)) is not None:
        beyond = (1 + least) * (1 + (row.margin_ratio or 0.0 if row.basis == "blocks" else 0.0))
        low, high, limit = row.ratio / beyond, row.ratio * beyond, 1 + condition.limit_ratio
        outcome = MET if low > limit else NOT_MET if high < limit else UNDECIDED
        if outcome == UNDECIDED and row.basis == "blocks":
            notes.append("one process on a side: sweep --repeat 5 measures in more processes")
    values = {"value_a": row.time_a_s, "value_b": row.time_b_s, "low_ratio": low, "high_ratio": high}
    reason = "; ".join(filter(None, notes))
    return _check(row, condition, outcome, **values, ratio=row.ratio, basis=row.basis, reason=reason)


def _more(row: Comparison, condition: Condition, a: Quantities, b: Quantities) -> GateCheck:
    """Return the check whether B exceeds A in a counted quantity."""
    values = a[condition.name], b[condition.name]
    if lacking := [f"{side}: {value}" for side, value in zip("AB", values, strict=True) if isinstance(value, str)]:
        return _check(row, condition, NOT_COMPARED, reason="; ".join(lacking))
    of_a, of_b = map(int, values)
    met = of_b > of_a * (1 + condition.limit_ratio) if condition.limit_ratio else of_b > of_a
    numbers = {"value_a": float(of_a), "value_b": float(of_b), "ratio": of_b / of_a if of_a else None}
    return _check(row, condition, MET if met else NOT_MET, **numbers, basis="exact")


def _quantities(data: RunData, group: RepeatGroup) -> Quantities:
    """Return the exact quantities of a cell's traced step: of the first repeat that was traced, as all are equal."""
    loop = next((run for run in group.runs if run.data == LOOP), None)
    run = next((run for run in group.runs if run.trace_id), None)
    if run is not None:
        try:
            return counted_step(data, run.trace_id)
        except (ValueError, Inconsistent, OSError) as fault:
            return dict.fromkeys(EXACT, " ".join(str(fault).split()))
    if loop is None:
        return dict.fromkeys(EXACT, "no table of the step (--methods exact)")
    if not loop.executed:
        reason = "a training loop has no table of the step, and calls of this one have no count"
        return dict.fromkeys(EXACT, reason)
    lacking = dict.fromkeys(EXACT, "a training loop has no table of the step: FLOP alone")
    return {**lacking, "flop": sum(loop.executed.values())}


def counted_step(data: RunData, trace_id: str) -> Quantities:
    """Return a traced step's amount for each condition, if all of its calls have it: a call without a formula has no
    FLOP, and one whose workspace has no known size no bytes. Both runs are counted by the present rules. Raises
    ValueError or Inconsistent for a table that cannot be read."""
    table, storages = read_operations(data.path, trace_id)
    operations = [*map(registry.by_present_rules, table)]
    costs = [registry.cost(operation) for operation in operations]
    quantities: dict[str, int | str] = {
        "flop": sum(int(cost.model_flop) for cost in costs),
        "bytes": sum(int(cost.moved_bytes) for cost in costs),
        "launches": sum(bool(cost.moved_bytes) for cost in costs),
        "memory": int(peak_bytes(operations, storages)),
    }
    if unknown := registry.unsupported(operations):
        names = ", ".join(f"{name} × {calls}" for name, calls in sorted(unknown.items()))
        quantities["flop"] = f"{names} have no formula"
    if unsized := sorted({operation.name for operation in operations if lacks_sizes(operation)}):
        quantities |= dict.fromkeys(("bytes", "memory"), f"{', '.join(unsized)} keeps a workspace of no known size")
    return quantities


SHOWN = 3
"""Maximum number of cells that a reason names."""

_COLUMNS = (
    TableColumn("cell", right=False, wraps=True),
    TableColumn("condition", right=False),
    TableColumn("A", right=True, rank=2),
    TableColumn("B", right=True, rank=1),
    TableColumn("B ÷ A", right=True),
    TableColumn("interval", right=True),
    TableColumn("outcome", right=False),
)

_UNITS = {"flop": "FLOP", "bytes": "B", "memory": "B"}
_NAMES = {"flop": "FLOP"}
_OUTCOMES = {MET: "MET", NOT_MET: "not met", UNDECIDED: "undecided", NOT_COMPARED: "not compared"}
_BASES = {
    "sessions": "Step times are relative to the ceiling timed beside them; the interval includes how sessions and "
    "hours scatter.",
    "processes": "A and B were timed one after the other, in several processes each: drift between them is in no "
    "interval.",
    "blocks": "A and B were timed one after the other, in one process on a side: the interval is wider by the margin, "
    "as processes differ.",
}


@dataclass(frozen=True)
class GateAnswer:
    """The answer of a gate. undecided_fails: whether it fails if a condition is undecided, or nothing was compared."""

    checks: Sequence[GateCheck]
    conditions: Sequence[Condition]
    sides: tuple[ComparedRun, ComparedRun]
    undecided_fails: bool = False

    def cells(self, *outcomes: str) -> int:
        """Return how many cells have a condition with one of these outcomes."""
        return len({_cell(check) for check in self.checks if check.outcome in outcomes})

    @property
    def fails(self) -> bool:
        return bool(self.cells(MET, *((UNDECIDED, NOT_COMPARED) if self.undecided_fails else ())))

    @property
    def sentence(self) -> str:
        """The verdict, with its reason."""
        cells = self.cells(*_OUTCOMES)
        of_all = f"of {cells} cell{'s' * (cells != 1)}"
        texts = {TRAINS: "not trained any more"} | {condition.name: condition.text for condition in self.conditions}
        reasons = []
        for outcome, template in ((MET, "{}"), (UNDECIDED, "undecided whether {}")):
            for name, text in texts.items():
                if count := sum((check.outcome, check.condition) == (outcome, name) for check in self.checks):
                    reasons.append(f"{template.format(text)} in {count} {of_all}")
        if lacking := self.cells(NOT_COMPARED):
            reasons.append(f"not all could be compared in {lacking} {of_all}")
        none = f"in none {of_all}: {', '.join(condition.text for condition in self.conditions)}"
        return f"The gate {'fails' if self.fails else 'passes'}: {'; '.join(reasons) or none}."

    @property
    def shown(self) -> list[GateCheck]:
        """The rows that are shown one by one, the worst first: all but exact quantities that are equal."""
        order = (MET, UNDECIDED, NOT_COMPARED, NOT_MET)
        rows = [check for check in self.checks if not _is_equal(check)]
        return sorted(rows, key=lambda check: (order.index(check.outcome), check.condition != TIMED))

    @property
    def reasons(self) -> list[str]:
        """Each reason once, with the cells that have it."""
        cells: dict[str, dict[str, None]] = {}
        for check in self.shown:
            if check.reason:
                cells.setdefault(check.reason, {})[_cell(check)] = None
        return [f"{listed(list(names), SHOWN)}: {reason}" for reason, names in cells.items()]

    @property
    def closing(self) -> list[str]:
        """A line on equal exact quantities, and on what the times rest."""
        equal = [check.condition for check in self.checks if _is_equal(check)]
        names = [_NAMES.get(name, name) for name in EXACT if name in equal]
        count = max(map(equal.count, equal), default=0)
        lines = [f"Equal to the last digit: {', '.join(names)} ({count} cell{'s' * (count != 1)})."] if names else []
        bases = dict.fromkeys(check.basis for check in self.checks if check.condition == TIMED)
        return [*lines, *(_BASES[basis] for basis in bases if basis in _BASES)]


def _is_equal(check: GateCheck) -> bool:
    return check.condition in EXACT and check.value_a == check.value_b is not None


def gate_text(answer: GateAnswer, width: int = WIDTH, colour: bool = False) -> str:
    """Format for a terminal, in lines of at most `width` letters."""
    parts: list[Part] = [strong(answer.sentence), "", *(f"{side.letter}: {side.path}" for side in answer.sides)]
    if rows := answer.shown:
        styles = ["bold" if check.outcome == MET else "" for check in rows]
        parts += ["", TextTable(_COLUMNS, [_texts(check) for check in rows], styles=styles), *answer.reasons]
    return page([*parts, "", *answer.closing], width, colour)


def gate_markdown(answer: GateAnswer) -> str:
    """Format for a comment on a pull request. A gate that passes because nothing was decided is not a success at first
    sight."""
    mark = "❌" if answer.fails else "⚠️" if answer.cells(UNDECIDED, NOT_COMPARED) else "✅"
    lines = [f"### {mark} {markdown_text(answer.sentence)}", ""]
    if rows := answer.shown:
        lines += [f"| {' | '.join(column.name for column in _COLUMNS)} |"]
        lines += ["| --- | --- | ---: | ---: | ---: | :---: | --- |"]
        for check in rows:
            *texts, outcome = map(markdown_text, _texts(check))
            lines.append(f"| {' | '.join([*texts, f'**{outcome}**' if check.outcome == MET else outcome])} |")
        lines.append("")
    reasons = [f"* {markdown_text(reason)}" for reason in answer.reasons]
    lines += [*reasons, ""] if reasons else []
    lines += ["<details><summary>What this rests on</summary>", ""]
    lines += [f"* {side.letter}: {markdown_text(side.line)}" for side in answer.sides]
    lines += [*(f"* {markdown_text(text)}" for text in answer.closing), "", "</details>"]
    return "\n".join(lines) + "\n"


def markdown_text(text: str) -> str:
    """Escape a text so that no markup, link or mention comes of it, whatever names it contains."""
    return re.sub(r"([\\`*_\[\]|#~@])", r"\\\1", html.escape(" ".join(text.split()), quote=False)).removeprefix("\\")


def document(answer: GateAnswer) -> dict[str, object]:
    """Return the answer as a JSON document."""
    verdict = "fails" if answer.fails else "passes"
    return {"gate": verdict, "sentence": answer.sentence, "checks": documents(answer.checks)}


def _cell(check: GateCheck) -> str:
    return cell_name(check) + (f" ({check.variant})" if check.variant else "")


def _texts(check: GateCheck) -> list[str]:
    """Return the texts of a row of the table."""
    name, interval = _NAMES.get(check.condition, check.condition), DASH
    if check.low_ratio is not None and check.high_ratio is not None:
        interval = f"{_end(check.low_ratio)} to {_end(check.high_ratio)}"
    ratio = DASH if check.ratio is None else _change(check.ratio)
    values = [_value(check.condition, value) for value in (check.value_a, check.value_b)]
    limit = "" if check.condition in (TRAINS, MATCHED) else f" > {100 * check.limit_ratio:g} %"
    return [_cell(check), f"{name}{limit}", *values, ratio, interval, _OUTCOMES[check.outcome]]


def _value(condition: str, value: float | None) -> str:
    if value is None:
        return DASH
    if condition == TIMED:
        return si_time(value)
    return si(value, _UNITS[condition]) if condition in _UNITS else f"{value:,.0f}"


def _end(ratio: float) -> str:
    """Write an end of an interval: with a few scattered pairs it may be millions, which is cut."""
    if 0.01 <= ratio <= 100:
        return _change(ratio)
    return "< −99 %" if ratio < 1 else "> +9900 %"


def _change(ratio: float) -> str:
    """Return a ratio as a change: 1.034 → "+3.4 %"; small ones to a tenth of a per cent."""
    change = ratio - 1
    if abs(change) < 1e-12:
        return "0 %"
    size = f"{100 * abs(change):.1f} %" if abs(change) < 0.1 and abs(change) >= 0.001 else percent(abs(change))
    return f"{'+' if change > 0 else '−'}{size}"
