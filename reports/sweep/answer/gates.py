"""Verdicts of gates as a table that a person reads: at most 100 columns, what fails with its cells and numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from reports.shared import WIDTH
from reports.shared.columns import columns
from results.records import FAIL, OPEN, PASS, Run, Verdict

SHOWN = 4
"""Cells of a failing gate that the table names; csv and json have all."""

_MARKS = {PASS: "pass", FAIL: "FAIL", OPEN: "open"}


def name_of(run: Run) -> str:
    """A cell in a few words."""
    return f"{run.model} b{run.batch_size} {run.precision}{f' #{run.repeat + 1}' if run.repeat else ''}"


def to_text(verdicts: Sequence[Verdict], names: Mapping[str, str]) -> str:
    """The table: a line a gate, below a failing one its cells. names: cell id → what a person calls it."""
    heads = columns([[v.gate, _mark(v), str(v.asked)] for v in verdicts], left={0, 1})
    indent = max(map(len, heads), default=0)
    lines = []
    for head, verdict in zip(heads, verdicts, strict=True):
        lines += _wrapped(head.ljust(indent) + "  ", verdict.checks)
        lines += [line for told in _below(verdict, names) for line in _wrapped(" " * 6, told)]
    return "\n".join([*lines, "", closing(verdicts)]) + "\n"


def closing(verdicts: Sequence[Verdict]) -> str:
    """One sentence: how many gates, what became of them."""
    count = {name: sum(verdict.verdict == name for verdict in verdicts) for name in _MARKS}
    failing = ", ".join(verdict.gate for verdict in verdicts if verdict.verdict == FAIL)
    needed = ", ".join(verdict.gate for verdict in verdicts if verdict.verdict == OPEN and verdict.needed)
    said = f"{len(verdicts)} gates: {count[PASS]} passed, {count[FAIL]} failed, {count[OPEN]} open"
    more = (f"failed: {failing}" if failing else "", f"open, and needed to publish: {needed}" if needed else "")
    return "; ".join((said, *filter(None, more)))


def _mark(verdict: Verdict) -> str:
    return "OPEN" if verdict.verdict == OPEN and verdict.needed else _MARKS[verdict.verdict]


def _below(verdict: Verdict, names: Mapping[str, str]) -> list[str]:
    told = []
    if verdict.verdict == FAIL:
        found = list(verdict.found.items())
        told = [f"{_name(cell_id, names)}: {words}" for cell_id, words in found[:SHOWN]]
        told += [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return [*told, verdict.reason] if verdict.reason else told


def _name(cell_id: str, names: Mapping[str, str]) -> str:
    return f"{names[cell_id]} ({cell_id})" if cell_id in names else cell_id


def _wrapped(head: str, words: str) -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)) or [head.rstrip()]
