"""The record of a gate: what a published run was asked, and what came of it.

Answers of `python -m runners.report DIR --check`, never kept in a run: they can be had again from its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from results.records.fields import Json
from results.records.rows import Record

PASS, FAIL, OPEN = "pass", "fail", "open"


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """One gate. open: the run has nothing to compare with."""

    gate: str
    checks: str  # what it asks, in words
    verdict: str  # pass, fail, open
    asked: int = 0  # cells (or parts of the run) that had data for it
    cell_ids: tuple[str, ...] = ()  # of a fail the cells that fail, of a pass those that were asked
    found: Json = field(default_factory=dict)  # cell id ("run": the whole run) → what was found there, with its numbers
    reason: str = ""  # of an open gate: what is missing; of cells left out: why
    needed: bool = False  # whether a published run of this kind of device must be asked


def stands(verdict: Verdict) -> bool:
    """Whether a run may be published by this gate: it passes, or is open and not needed."""
    return verdict.verdict == PASS or (verdict.verdict == OPEN and not verdict.needed)
