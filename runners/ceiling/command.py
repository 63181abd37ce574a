"""`python -m runners.ceiling`: what can this device really do in products, convolutions, copies and launches?

A worker times one kernel after another within a budget; the parent imports no torch and keeps every row that came.
Exit codes: 0 every unit, memory and launches have a number; 1 some have none, or a worker died; 2 the caller's mistake;
3 a file could not be written; 130 Ctrl-C, after the rows measured by then were reported.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from runners.cli.arguments import SHORT_PRECISIONS, Parser, add_format, counts, names, number
from runners.cli.exits import FAILED, INTERRUPTED, Mistake, guarded
from runners.cli.output import say, show_answer
from runners.cli.progress import passing
from runners.workers import devices

if TYPE_CHECKING:
    from reports.ceiling.text import CeilingAnswer
    from runners.workers.devices import ProbeResult

BUDGET_S = 120.0
DIED = ("crashed", "timeout", "device_error", "invalid")
"""Statuses of rows that fail the command."""

OTHERS = "what is below the fastest calls is others' work"

NO_CPU = "--threads: expected of a CPU only, got it for {device}"

EPILOG = "What each number means and how it is taken: docs/ceilings.md."


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(arguments)
    return guarded(lambda: _run(options), options.debug)


def _run(options: argparse.Namespace) -> int:
    """Everything after parsing. Raises Mistake, StoreFault, KeyboardInterrupt."""
    from runners.ceiling import output as ceiling_output
    from runners.cli import output
    from runners.workers.pool import Worker, prepare

    if options.collectives:
        from runners.ceiling import collectives

        return collectives.run(options)
    devices.check_name(options.device)
    if options.device.startswith("cuda") and options.threads:
        raise Mistake(NO_CPU.format(device=options.device))
    if options.out is not None:
        output.make(options.out)
    prepare()
    worker = Worker("ceiling", quiet=not options.debug)
    try:
        probed = devices.probed_device(worker, options.device)
        precisions = _precisions(options, probed)
        threads = _threads(options, probed)
        seen, interrupted = _search(worker, options, probed, precisions, threads)
    finally:
        worker.stop()
    _show(seen, options.format)
    if options.out is not None:
        ceiling_output.write(seen, options.out)
        say(f"written to {options.out}")
    return INTERRUPTED if interrupted else failed(seen)


def failed(seen: CeilingAnswer) -> int:
    """0, or 1 where a worker died or a unit but fp8, memory or launches have no number, or one that cannot be."""
    from analysis.devices.ceilings import best
    from analysis.profile.machine import bandwidth, launch_cost
    from measure.ceiling.trials import FP8

    for threads in seen.threads:
        mine = seen.of(threads)
        lacking = any(best(mine, unit) is None for unit in {row.unit for row in mine if row.unit not in ("", FP8)})
        if lacking or bandwidth(mine) is None or launch_cost(mine, seen.device) is None:
            return FAILED
    return FAILED if any(row.status in DIED for row in seen.rows) or not seen.rows or seen.refused else 0


def _search(
    worker: Any,
    options: argparse.Namespace,
    probed: ProbeResult,
    precisions: Sequence[str],
    threads: Sequence[int | None],
) -> tuple[CeilingAnswer, bool]:
    """What was found, and whether Ctrl-C ended it."""
    from reports.ceiling.text import CeilingAnswer
    from runners.ceiling.search import Search

    host = probed.environment.host
    search = Search(worker, probed.device, probed.name, passing)
    interrupted = False
    try:
        search.run(precisions, threads, options.budget)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        passing("")
    if interrupted and not search.rows:
        raise KeyboardInterrupt
    notes = ["interrupted: rows that were not tried are missing"] if interrupted else []
    notes += devices.busy(probed.device, host, OTHERS)
    return CeilingAnswer(
        device=probed.device,
        device_name=search.device_name,
        rows=tuple(search.rows),
        multiprocessors=probed.properties.multiprocessors,
        environment={
            "torch": probed.environment.torch.torch,
            "driver": host.driver,
            "load_1min": host.load_1min,
            "cpu_usable": host.cpu_usable,
            "clock_hz": probed.properties.clock_hz,
        },
        notes=tuple(notes),
    ), interrupted


def _precisions(options: argparse.Namespace, probed: ProbeResult) -> tuple[str, ...]:
    """Those asked for, or all that the device has. Raises Mistake for one that it lacks."""
    usable = tuple(name for name in PRECISIONS if name not in probed.refused)
    for name in options.precisions or ():
        if name in probed.refused:
            raise Mistake(f"--precisions: {probed.refused[name]}; expected of {', '.join(usable)}, got {name}")
    return options.precisions or usable


def _threads(options: argparse.Namespace, probed: ProbeResult) -> tuple[int | None, ...]:
    """Of torch: those asked for, or as many as it takes by itself; None on a device that has no such number."""
    if probed.device.startswith("cpu"):
        return options.threads or (probed.properties.threads,)
    if options.threads:
        raise Mistake(NO_CPU.format(device=probed.device))
    return (None,)


def _show(seen: CeilingAnswer, form: str) -> None:
    """Data on stdout."""
    from reports.ceiling.text import document, to_text
    from reports.sweep.table import to_csv
    from results.records.samples import Ceiling

    show_answer(
        form,
        lambda width, colour: to_text(seen, width, colour),
        lambda: document(seen),
        lambda: to_csv(seen.rows, Ceiling),
    )


def _parser() -> Parser:
    parser = Parser(
        prog="python -m runners.ceiling",
        description="What can this device really do: products, convolutions, copies, launches?",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--precisions",
        type=names("precision", list(PRECISIONS), SHORT_PRECISIONS),
        help=f"{', '.join(PRECISIONS)} (all it has)",
    )
    parser.add_argument("--device", default="auto", help="auto, cuda, cuda:1 or cpu (auto)")
    parser.add_argument(
        "--budget", type=number(float, 0.1), default=BUDGET_S, metavar="S", help=f"seconds of timing ({BUDGET_S:g})"
    )
    parser.add_argument("--threads", type=counts, metavar="N,N", help="of torch on a CPU, one after another (its own)")
    parser.add_argument(
        "--collectives",
        action="store_true",
        help="instead: collectives between the ranks of torchrun, over sizes (docs/cluster.md)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write ceilings.csv and the pictures here")
    add_format(parser, "table, csv or json (table)")
    parser.add_argument("--debug", action="store_true", help="show what the worker prints")
    return parser
