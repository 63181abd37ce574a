"""`python -m runners.ceiling`: what can this device really do in products, convolutions, copies and launches?

A ceiling is the highest rate measured on this device. A worker process times one kernel after another within a time
budget (`measure/ceiling/machine.py`). The parent process imports no torch, prints `Ceiling` rows, and writes
ceilings.csv with `--out`. Kernels that a profile needs come first, then copies in memory and launches, the wider sweep,
and copies within caches. A small budget thus loses the least. Exit codes: 0 memory, launches and every unit except fp8
have a number; 1 some have none, or a worker died; 2 the caller's mistake; 3 a file could not be written; 130 Ctrl-C,
after the rows measured by then were reported. `torchrun --nproc-per-node N -m runners.ceiling --collectives` times
collectives in a worker of each rank, and the first rank prints their rates.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.ceilings import CollectiveRate, best
from analysis.devices.precisions import PRECISIONS
from measure.ceiling.trials import CACHE, ESSENTIAL, FP8, SPENT, Move, Trial, titled
from reports.shared.layout import to_csv
from results.records.cell import Ceiling
from results.store.layout import CEILINGS, read_table
from runners.cli import output
from runners.cli.arguments import number
from runners.cli.exits import FAILED, INTERRUPTED, Mistake, exit_code, guarded
from runners.cli.model_options import Options, parser_of
from runners.cli.output import say, show_answer, show_transient, write_file
from runners.report import show_rows
from runners.workers import devices
from runners.workers.devices import ProbeResult, rank_process
from runners.workers.pool import Stopwatch, Worker, WorkerFault, prepare

if TYPE_CHECKING:
    from reports.ceiling import CeilingAnswer


BUDGET_S = 120.0
DIED = ("crashed", "timeout", "device_error", "invalid")
"""Statuses of rows that fail the command."""

OTHERS = "other processes may be why calls are slower than the fastest"

NO_CPU = "--threads: expected a CPU, whose threads it sets, got {device}"

EPILOG = "What each number means and how it is taken: docs/ceilings.md."


OPTIONS: Options = {
    "precisions": {"help": f"{', '.join(PRECISIONS)} (all that the device has)"},
    "device": {},
    "budget": {"type": number(float, 0.1), "default": BUDGET_S, "help": f"seconds of timing ({BUDGET_S:g})"},
    "threads": {"help": "torch's threads on a CPU, one number after another (torch's own)"},
    "--collectives": {
        "action": "store_true",
        "help": "instead: collectives between the ranks of torchrun, over sizes (docs/cluster.md)",
    },
    "out": {"help": "write ceilings.csv here"},
    "format": {"help": "table, csv or json (table)"},
}

DESCRIPTION = "What can this device really do: products, convolutions, copies, launches?"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = parser_of("ceiling", DESCRIPTION, {"": OPTIONS}, EPILOG).parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    """Do everything after parsing. Raises Mistake, StoreFault, KeyboardInterrupt."""
    if options.collectives:
        return run_collectives(options)
    devices.check_name(options.device)
    if options.device.startswith("cuda") and options.threads:
        raise Mistake(NO_CPU.format(device=options.device))
    if options.out is not None:
        output.make_directory(options.out)
    prepare()
    worker = Worker("ceiling")
    try:
        answer, interrupted = _search(worker, options)
    finally:
        worker.stop()
    show(answer, options.format)
    if options.out is not None:
        write_file(options.out / CEILINGS, to_csv(answer.rows, Ceiling))
        say(f"written to {options.out}")
    return INTERRUPTED if interrupted else failed(answer)


def show(answer: CeilingAnswer, form: str) -> None:
    """Print the answer on stdout."""
    from reports.ceiling import document, to_text

    show_answer(
        form,
        lambda width, colour: to_text(answer, width, colour),
        lambda: document(answer),
        lambda: to_csv(answer.rows, Ceiling),
    )


def failed(seen: CeilingAnswer) -> int:
    """Return 0; 1 if a worker died, or if a unit (except fp8), memory or launches have no number, or an
    impossible one."""
    from analysis.roofline import bandwidth, launch_cost

    for threads in seen.threads:
        rows = seen.of(threads)
        lacking = any(best(rows, unit) is None for unit in {row.unit for row in rows if row.unit not in ("", FP8)})
        if lacking or bandwidth(rows) is None or launch_cost(rows, seen.device) is None:
            return FAILED
    return FAILED if any(row.status in DIED for row in seen.rows) or not seen.rows or seen.refused else 0


def _search(worker: Any, options: argparse.Namespace) -> tuple[CeilingAnswer, bool]:
    """Search for the ceilings; return them, and whether Ctrl-C ended it."""
    from reports.ceiling import CeilingAnswer

    probed = devices.probed_device(worker, options.device)
    precisions, threads = _precisions(options, probed), _threads(options, probed)
    blank = Ceiling(session="", device=probed.device, precision="", unit="", operation="", shape="")
    rows: list[Ceiling] = []
    interrupted = False
    try:
        rows.extend(search(worker, replace(blank, device_name=probed.name), precisions, threads, options.budget))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        show_transient("")
    if interrupted and not rows:
        raise KeyboardInterrupt
    notes = ["interrupted: rows that were not tried are missing"] if interrupted else []
    notes += devices.busy(probed.device, probed.environment, OTHERS)
    facts = {name: probed.environment.get(name) for name in ("torch", "driver", "load_1min", "cpu_usable")}
    return CeilingAnswer(
        device=probed.device,
        device_name=probed.name,
        rows=tuple(rows),
        multiprocessors=probed.properties.get("multiprocessors"),
        environment={**facts, "clock_hz": probed.properties.get("clock_hz")},
        notes=tuple(notes),
    ), interrupted


def _precisions(options: argparse.Namespace, probed: ProbeResult) -> tuple[str, ...]:
    """Return the requested precisions, or all that the device has. Raises Mistake for one that it lacks."""
    usable = tuple(name for name in PRECISIONS if name not in probed.refused)
    for name in options.precisions or ():
        if name in probed.refused:
            raise Mistake(f"--precisions: {probed.refused[name]}; expected of {', '.join(usable)}, got {name}")
    return options.precisions or usable


def _threads(options: argparse.Namespace, probed: ProbeResult) -> tuple[int | None, ...]:
    """Return numbers of torch's threads: those of the option, or its own; None on a GPU."""
    if probed.device.startswith("cpu"):
        return options.threads or (probed.properties.get("threads"),)
    if options.threads:
        raise Mistake(NO_CPU.format(device=probed.device))
    return (None,)


PLAN_TIMEOUT_S = 300.0


def search(
    worker: Any, blank: Ceiling, precisions: Sequence[str], threads: Sequence[int | None], budget_s: float
) -> Iterator[Ceiling]:
    """Yield rows in the order tried; a row that the worker could not measure has the reason. blank: the fields that all
    rows share. budget_s: seconds of timing, which begin after planning."""
    jobs: list[tuple[int, Ceiling, Trial | Move | str]] = []
    for count in threads:
        base = replace(blank, threads=count)
        for name in precisions:
            row, policy = replace(base, precision=name), PRECISIONS[name]
            show_transient(f"planning {name}")
            plan = worker.call("measure.ceiling.machine:plan", row, timeout_s=PLAN_TIMEOUT_S)
            if isinstance(plan, WorkerFault):
                kinds = (titled(row, Trial(kind, (0, 0, 0)), policy) for kind in ("matmul", "convolution"))
                yield from (_failed(replace(kind, shape=""), plan) for kind in kinds)
                continue
            jobs += [(2 if i >= ESSENTIAL else 0, titled(row, trial, policy), trial) for i, trial in enumerate(plan)]
        others = worker.call("measure.ceiling.machine:copies_and_views", blank.device, timeout_s=PLAN_TIMEOUT_S)
        if isinstance(others, WorkerFault):
            yield from (_failed(replace(base, operation=operation), others) for operation in ("copy", "call"))
            continue
        jobs += [(1, replace(base, operation=view), view) for view in others[1]]
        for move in others[0]:
            row = replace(base, operation=move.operation, shape=move.shape, family=move.family)
            jobs.append((3 if move.family == CACHE else 1, row, move))
    watch = Stopwatch()
    for i, (_, row, subject) in enumerate(sorted(jobs, key=lambda job: job[0])):
        share_s = (budget_s - watch.elapsed_s) / (len(jobs) - i)
        of_threads = f", {row.threads} threads" if row.threads else ""
        title = " ".join(f"{row.precision} {row.operation} {row.shape}".split())
        show_transient(f"{i + 1} of {len(jobs)}: {title}{of_threads}")
        answer: Any = WorkerFault("unavailable", SPENT)
        if share_s > 0:
            limit_s = 10 * share_s + PLAN_TIMEOUT_S
            answer = worker.call("measure.ceiling.machine:timed", row, subject, share_s, timeout_s=limit_s)
        yield _failed(row, answer) if isinstance(answer, WorkerFault) else answer


def _failed(blank: Ceiling, fault: WorkerFault) -> Ceiling:
    return replace(blank, status=fault.status, reason=fault.reason)


SIZES = tuple(4 << (10 + 2 * step) for step in range(8))
"""Bytes of a buffer: 4 KiB, 16 KiB, … 64 MiB."""

FILE = "collective_rates.csv"
COLLECTIVES_S, COLLECTIVE_S = 600.0, 120.0


def run_collectives(options: argparse.Namespace) -> int:
    """Do everything after parsing; the first rank prints the rows, which are the same on all ranks. Raises Mistake,
    StoreFault."""
    process = rank_process(os.environ)
    if process is None:
        raise Mistake(
            "--collectives: expected to be started as torchrun --nproc-per-node N -m runners.ceiling --collectives, "
            "got a single process"
        )
    if options.precisions or options.threads:
        raise Mistake("--collectives: cannot be combined with --precisions or --threads, as it moves float32")
    if options.out is not None and not process.rank:
        output.make_directory(options.out)  # before the minutes of timing
    from measure.parallel.real_group import GroupMember  # which imports torch
    from reports.ceiling import collectives_text

    prepare()
    worker = Worker("ceiling")
    try:
        kind = devices.probed_device(worker, options.device).device.partition(":")[0]
        member = GroupMember(
            process.rank,
            process.world,
            process.device(kind),
            process.address,
            "flopledger/ceiling",
            COLLECTIVE_S,
            process.is_single_host,
        )
        show_transient(f"timing collectives between {process.world} ranks")
        rows: list[CollectiveRate] | WorkerFault = worker.call(
            "measure.parallel.real_group:collective_rates", member, SIZES, timeout_s=COLLECTIVES_S
        )
    finally:
        worker.stop()
        show_transient("")
    if isinstance(rows, WorkerFault):
        if not process.rank:
            say(f"error: {rows.status}: {rows.reason}")
        return FAILED
    if process.rank:
        return 0
    show_rows(options.format, lambda width, colour: collectives_text(rows, width, colour), rows, CollectiveRate)
    if options.out is not None:
        write_file(options.out / FILE, to_csv(rows, CollectiveRate))
        say(f"written: {options.out / FILE}")
    return FAILED if any(row.status != "ok" for row in rows) else 0


def read_ceilings(path: Path) -> list[Ceiling]:
    """Return the rows of a ceilings.csv, of this command or of a sweep. Raises ValueError for any other file, and for
    one that cannot be read."""
    try:
        return read_table(path, Ceiling)
    except OSError as fault:
        raise ValueError(f"{path} could not be read: {fault.strerror or fault}") from fault
    except ValueError as fault:
        raise ValueError(f"{path} is no ceilings.csv: {fault}") from fault


if __name__ == "__main__":
    sys.exit(exit_code(main))
