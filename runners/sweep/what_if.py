"""`python -m runners.sweep --what-if`: what would make these training steps faster, tried here?

One change after another is timed in blocks interleaved with those of the cell's step as it is, in a worker of its own;
the parent ranks and prints them, and imports no torch. Nothing is kept in a run directory. Exit codes: those of the
sweep; a change that does not apply is a row, and no failure.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from results.records import CHANGE_NAMES, ChangeTrial, change_named, ranked_changes
from runners.cli import FAILED, INTERRUPTED, answering, passing, say, show_page

if TYPE_CHECKING:
    from results.records import Cell

TASK = "runners.sweep.what_if_task:change_rows"

WITHOUT = ("resume", "out", "time_budget", "profile", "methods", "epoch_images", "counters", "convention", "repeat")
"""Options of a run that is kept: they say nothing of changes."""

FAILURES = ("crashed", "device_error", "timeout", "invalid", "out_of_memory")


def changes(text: str) -> tuple[str, ...]:
    """A `type=`: names of changes separated by commas, or "all"."""
    if text == "all":
        return CHANGE_NAMES
    asked = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    try:
        for each in asked:
            change_named(each)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault
    return asked


def check_exclusive_options(options: argparse.Namespace) -> None:
    """Raises ValueError for an option beside --what-if that belongs to a run that is kept."""
    given = [name for name in WITHOUT if getattr(options, name, None) is not None]
    if given:
        option = "--" + given[0].replace("_", "-")
        raise ValueError(f"{option}: not with --what-if, which prints what it tried and keeps no run")
    if options.retry_failed or options.retry_unconverged or options.retry_ceilings:
        raise ValueError("--retry-failed, --retry-unconverged, --retry-ceilings: not with --what-if")


def run(cells: Sequence[Cell], options: argparse.Namespace) -> int:
    """Try every change on every cell, and print them. The exit code."""
    rows: list[list[ChangeTrial]] = []
    interrupted = False
    for cell in cells:
        rows.append([])
        try:
            for found in rows_by_change(cell, options):
                rows[-1] += found
        except KeyboardInterrupt:
            interrupted = True
            break
    passing("")
    from reports.sweep.answer import to_csv, to_json, what_if_text

    every = [row for of_cell in rows for row in ranked_changes(of_cell)]
    shown = {"json": lambda: to_json(every), "csv": lambda: to_csv(every, ChangeTrial)}
    with answering("--what-if keeps nothing"):
        if options.format in shown:
            print(shown[options.format](), end="")
        else:
            show_page(lambda width, colour: what_if_text(every, width, colour))
    if interrupted:
        say("stopped; what was tried is shown")
        return INTERRUPTED
    return FAILED if any(row.status in FAILURES for row in every) else 0


def rows_by_change(cell: Cell, options: argparse.Namespace) -> Iterator[list[ChangeTrial]]:
    """The rows of each change of a cell, as they come."""
    from runners.workers import Worker, WorkerFault

    for number, change in enumerate(options.what_if, 1):
        passing(f"{cell.model} {cell.batch_size} {cell.precision}: {change} ({number} of {len(options.what_if)})")
        worker = Worker("what-if", quiet=not options.debug)
        try:
            answer: Any = worker.call(TASK, cell, change, bool(options.quick), timeout_s=options.cell_timeout)
        finally:
            worker.stop()
        if isinstance(answer, WorkerFault):
            answer = [
                ChangeTrial(
                    change=change,
                    status=answer.status,
                    reason=answer.reason,
                    device=cell.device,
                    model=cell.model,
                    batch_size=cell.batch_size,
                    precision=cell.precision,
                )
            ]
        yield answer
