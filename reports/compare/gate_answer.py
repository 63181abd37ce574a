"""A gate's answer for a terminal and as a comment on a pull request: the verdict first, then what it rests on.

Exact quantities that are equal in every cell are one line; each other row is shown with its numbers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence

from reports.compare.gate import EXACT, MATCHED, TIMED, TRAINS, Condition
from reports.compare.page import Side
from reports.shared.layout import WIDTH, Column, Part, TextTable, page, strong
from reports.shared.numbers import DASH, percent, si, si_time
from results.records.comparisons import MET, NOT_COMPARED, NOT_MET, UNDECIDED, GateCheck

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
    listed = ", ".join(each.text for each in asked)
    return f"The gate {answer}: {'; '.join(reasons) or f'in none {of_all}: {listed}'}."


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
    """The rows that are shown one by one, gravest first: all but exact quantities that are equal."""
    order = (MET, UNDECIDED, NOT_COMPARED, NOT_MET)
    shown = [check for check in checks if not (check.condition in EXACT and check.value_a == check.value_b is not None)]
    return sorted(shown, key=lambda check: (order.index(check.outcome), check.condition != TIMED))


def _reasons(checks: Sequence[GateCheck]) -> list[str]:
    """Each reason once, with the cells that have it."""
    cells: dict[str, dict[str, None]] = {}
    for check in checks:
        if check.reason:
            cells.setdefault(check.reason, {})[_cell(check)] = None
    return [f"{_listed(list(names))}: {reason}" for reason, names in cells.items()]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


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
