"""`python -m runners.report A B --fail-if slower:2%,flop:0`: may run B replace run A? Exit code 5 where it may not.

Reads both runs and writes nothing but its answer. What each condition means: `reports/compare/gate.py`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from runners.cli.arguments import choice_error, share
from runners.cli.exits import GATE
from runners.cli.output import show_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.compare.gate import Condition
    from reports.compare.page import Side
    from results.records.comparisons import GateCheck

NAMES = ("slower", "flop", "bytes", "launches", "memory")
"""Of conditions: `reports.compare.CONDITIONS`, which takes longer to import than a mistake may."""


def parse_conditions(text: str) -> tuple[tuple[str, float], ...]:
    """A `type=`: "slower:2%,flop:0" as names with their limits, as ratios."""
    found: list[tuple[str, float]] = []
    for part in text.split(","):
        name, colon, limit = (word.strip() for word in part.partition(":"))
        if name not in NAMES:
            raise argparse.ArgumentTypeError(choice_error("condition", name, NAMES))
        if not colon or not limit:
            raise argparse.ArgumentTypeError(f"expected {name}:LIMIT, as in {name}:2%, got {part.strip()!r}")
        if name in dict(found):
            raise argparse.ArgumentTypeError(f"expected {name} once, got it twice")
        try:
            found.append((name, share(limit)))
        except argparse.ArgumentTypeError as fault:
            raise argparse.ArgumentTypeError(f"{name}: {fault}") from fault
    return tuple(found)


def show_gate(
    checks: Sequence[GateCheck], asked: Sequence[Condition], sides: tuple[Side, Side], form: str, undecided: str
) -> int:
    """Prints the answer; 5 if the gate fails, else 0."""
    from reports.compare.gate import fails, gate_markdown, gate_summary, gate_text
    from reports.sweep.table import documents, to_csv
    from results.records.comparisons import GateCheck

    strict = undecided == "fail"
    if form == "markdown":
        print(gate_markdown(checks, asked, sides, strict), end="")
    else:
        show_answer(
            form,
            lambda width, colour: gate_text(checks, asked, sides, strict, width, colour),
            lambda: {**gate_summary(checks, asked, strict), "checks": documents(checks)},
            lambda: to_csv(checks, GateCheck),
        )
    return GATE if fails(checks, strict) else 0
