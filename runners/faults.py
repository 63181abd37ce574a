"""`python -m runners.faults`: which known faults of counters does the installed version of each still have?

Runs the reproductions of the catalogue, each counter in a process of its own, and compares what they give with what the
catalogue says (`docs/counter-faults.md`, which `--write` makes). It measures nothing and needs no GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.shared import WIDTH, Hanging, Part, page, strong, table_of
from runners.cli import FAILED, Parser, add_format, exit_code, guarded, names, number, say, show_page, writing

if TYPE_CHECKING:
    from measure.counters.faults.catalogue import Fault, Outcome

DESCRIPTION = "Which known faults of counters does the installed version of each still have? Needs no GPU."
EPILOG = "What each fault is, with the right values derived: docs/counter-faults.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: all was run, or there was nothing to run; 1: a reproduction gave nothing; 2: the caller's
    mistake; 3: the page could not be written."""
    from measure.counters.faults.catalogue import COUNTERS

    options = _parser(tuple(COUNTERS)).parse_args(arguments)
    return guarded(lambda: _run(options) if options.write is None else _write(options.write))


def _run(options: Any) -> int:
    """Runs what was asked for and prints it; the exit code."""
    from measure.counters.faults.catalogue import COUNTERS, faults_of, run

    outcomes: list[Outcome] = []
    faults: dict[tuple[str, str], Fault] = {}
    for counter in options.counters or COUNTERS:
        faults |= {(counter, fault.name): fault for fault in faults_of(counter)}
        outcomes += run(counter, each_s=options.timeout)
    rows = [_row(outcome, faults[outcome.counter, outcome.name]) for outcome in outcomes]
    _show(rows, options.format, options.detail)
    return FAILED if any(row["status"] == "timeout" for row in rows) else 0


def _row(outcome: Outcome, fault: Fault) -> dict[str, Any]:
    """What is printed of one fault."""
    return {
        "counter": outcome.counter,
        "version": outcome.version,
        "fault": outcome.name,
        "status": outcome.status,
        "found": outcome.found,
        "seen": fault.seen,
        "right": fault.right,
        "kind": fault.kind,
        "cause": fault.cause,
        "what": fault.what,
        "detail": outcome.detail,
    }


def _show(rows: Sequence[Mapping[str, Any]], form: str, detail: bool) -> None:
    import json

    from reports.shared import csv_of

    if form == "json":
        print(json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False))
    elif form == "csv":
        sys.stdout.write(csv_of(rows))
    else:
        show_page(lambda width, colour: _table(rows, detail, width, colour))


def _table(rows: Sequence[Mapping[str, Any]], detail: bool, width: int = WIDTH, colour: bool = False) -> str:
    """How many are there; a line for each counter; then one for each fault, or for each that is not as the catalogue
    has it."""
    from measure.counters.faults.catalogue import STATUSES, value

    there = sum(row["status"] == "there" for row in rows)
    table = [["counter", "version", *STATUSES]]
    for counter in dict.fromkeys(row["counter"] for row in rows):
        mine = [row for row in rows if row["counter"] == counter]
        counts = (str(sum(row["status"] == status for row in mine) or "–") for status in STATUSES)
        table.append([counter, mine[0]["version"] or "–", *counts])
    parts: list[Part] = [strong(f"{there} of {len(rows)} known faults are there in what is installed here."), ""]
    parts += [table_of(table, words=(0, 1), wraps=(1,), keep=len(table[0])), ""]
    for row in rows:
        if detail or row["status"] in ("mended", "other", "timeout"):
            gives = "" if str(row["found"]).startswith("raises") else "gives "
            found = f"{gives}{value(row['found'])}, right {value(row['right'])}"
            gave = "" if row["status"] in ("unavailable", "timeout") else f" ({found})"
            parts.append(f"{row['status']} {row['counter']}.{row['fault']}: {row['what']}{gave}")
    parts += ["", *(Hanging(f"{status}:", words, 13) for status, words in STATUSES.items())]
    return page(parts, width, colour)


def _write(path: Path) -> int:
    """Makes the page, in a directory that is there; runs nothing. Raises StoreFault."""
    from measure.counters.faults.catalogue.page import page

    with writing(path):
        path.write_text(page(), encoding="utf-8")
    say(f"written: {path}")
    return 0


def _parser(counters: Sequence[str]) -> Parser:
    parser = Parser(prog="python -m runners.faults", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "--counters", type=names("counter", counters), metavar="NAMES", help="comma-separated (default: all)"
    )
    add_format(parser)
    parser.add_argument("--detail", action="store_true", help="in the table, list those that are still there, too")
    parser.add_argument(
        "--timeout", type=number(float, 0.1), default=30.0, metavar="S", help="limit of each fault in s (default: 30)"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="make docs/counter-faults.md; nothing is run")
    return parser


if __name__ == "__main__":
    sys.exit(exit_code(main))
