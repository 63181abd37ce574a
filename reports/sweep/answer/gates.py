"""Verdicts of gates as a table that a person reads: what fails with its cells and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.shared.layout import WIDTH, Hanging, Part, page, strong
from results.records.cell import Run
from results.records.verdicts import FAIL, OPEN, PASS, Verdict

SHOWN = 4
"""Cells of a failing gate that the table names; csv and json have all."""

_MARKS = {PASS: "pass", FAIL: "FAIL", OPEN: "open"}


def name_of(run: Run) -> str:
    """A cell in a few words."""
    return f"{run.model} b{run.batch_size} {run.precision}{f' #{run.repeat + 1}' if run.repeat else ''}"


def to_text(verdicts: Sequence[Verdict], names: Mapping[str, str], width: int = WIDTH, colour: bool = False) -> str:
    """A sentence, then a line a gate, below a failing one its cells. names: cell id → what a person calls it."""
    column = max((len(each.gate) for each in verdicts), default=0)
    asked = max((len(str(each.asked)) for each in verdicts), default=0)
    parts: list[Part] = [strong(closing(verdicts)), ""]
    for verdict in verdicts:
        head = f"{verdict.gate:<{column}}  {_mark(verdict)}  {verdict.asked:>{asked}}"
        parts.append(Hanging(head, verdict.checks))
        parts += [f"      {line}" for line in _below(verdict, names)]
    return page(parts, width, colour)


def closing(verdicts: Sequence[Verdict]) -> str:
    """One sentence: how many gates, what became of them."""
    count = {name: sum(verdict.verdict == name for verdict in verdicts) for name in _MARKS}
    failing = ", ".join(verdict.gate for verdict in verdicts if verdict.verdict == FAIL)
    needed = ", ".join(verdict.gate for verdict in verdicts if verdict.verdict == OPEN and verdict.needed)
    text = f"{len(verdicts)} gates: {count[PASS]} passed, {count[FAIL]} failed, {count[OPEN]} open"
    more = (f"failed: {failing}" if failing else "", f"open, and needed to publish: {needed}" if needed else "")
    return "; ".join((text, *filter(None, more)))


def _mark(verdict: Verdict) -> str:
    return "OPEN" if verdict.verdict == OPEN and verdict.needed else _MARKS[verdict.verdict]


def _below(verdict: Verdict, names: Mapping[str, str]) -> list[str]:
    lines = []
    if verdict.verdict == FAIL:
        found = list(verdict.found.items())
        lines = [f"{_name(cell_id, names)}: {words}" for cell_id, words in found[:SHOWN]]
        lines += [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return [*lines, verdict.reason] if verdict.reason else lines


def _name(cell_id: str, names: Mapping[str, str]) -> str:
    return f"{names[cell_id]} ({cell_id})" if cell_id in names else cell_id
