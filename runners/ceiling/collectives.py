"""`torchrun --nproc-per-node N -m runners.ceiling --collectives`: how fast are collectives between these ranks?

Every rank times them in a worker of its own; the first one prints. Exit codes as the command's.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runners.cli import output
from runners.cli.exits import FAILED, Mistake
from runners.cli.output import put, say
from runners.cli.progress import passing
from runners.report.derived import show_rows
from runners.workers import devices
from runners.workers.devices import Place, place_of
from runners.workers.pool import Worker, prepare
from runners.workers.worker import WorkerFault

if TYPE_CHECKING:
    from analysis.parallel.link_use import CollectiveRate

SIZES = tuple(4 << (10 + 2 * step) for step in range(8))
"""Bytes of a buffer: 4 KiB, 16 KiB, … 64 MiB."""

FILE = "collective_rates.csv"
PREFIX = "flopledger/ceiling"
TIMEOUT_S, COLLECTIVE_S = 600.0, 120.0


def run(options: argparse.Namespace) -> int:
    """Everything after parsing. Raises Mistake, StoreFault."""
    place = place_of(os.environ)
    if place is None:
        raise Mistake(
            "--collectives: expected to be started as torchrun --nproc-per-node N -m runners.ceiling --collectives, "
            "got a single process"
        )
    if options.precisions or options.threads:
        raise Mistake("--precisions, --threads: not with --collectives, which moves float32")
    if options.out is not None and not place.rank:
        output.make(options.out)  # before the minutes of timing
    prepare()
    worker = Worker("ceiling", quiet=not options.debug)
    try:
        rows = _rows(worker, options.device, place)
    finally:
        worker.stop()
        passing("")
    if place.rank:
        return FAILED if isinstance(rows, WorkerFault) else 0
    if isinstance(rows, WorkerFault):
        say(f"error: {rows.status}: {rows.reason}")
        return FAILED
    _show(rows, options)
    return FAILED if any(row.status != "ok" for row in rows) else 0


def _rows(worker: Worker, asked: str, place: Place) -> list[CollectiveRate] | WorkerFault:
    """The rows of this rank's worker, which are those of all."""
    from measure.parallel.fake_group import GroupMember

    kind = devices.probed_device(worker, asked).device.partition(":")[0]
    member = GroupMember(
        place.rank, place.world, place.device(kind), place.address, PREFIX, COLLECTIVE_S, place.is_alone
    )
    passing(f"timing collectives between {place.world} ranks")
    found: list[CollectiveRate] | WorkerFault = worker.call(
        "runners.ceiling.tasks:collectives", member, SIZES, timeout_s=TIMEOUT_S
    )
    return found


def _show(rows: Sequence[CollectiveRate], options: argparse.Namespace) -> None:
    """Data on stdout; with --out a file, too. Raises StoreFault."""
    from analysis.parallel.link_use import CollectiveRate
    from reports.ceiling.text import collectives_text
    from reports.sweep.table import to_csv

    show_rows(options.format, lambda width, colour: collectives_text(rows, width, colour), rows, CollectiveRate)
    if options.out is not None:
        put(options.out / FILE, to_csv(rows, CollectiveRate))
        say(f"written: {options.out / FILE}")
