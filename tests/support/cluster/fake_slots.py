"""Slots that measure nothing: their rows are made up, and they are lost, full, slow or wrong as they are told."""

import os
import resource
import socket
import tempfile
import time
from typing import Any

from results.records.cell import Run
from runners.sweep.findings import CellResult, Order, SlotFacts, SlotSettings
from runners.workers.devices import ProbeResult
from tests.support.made_up.made_up_runs import flop_count, samples

SETTINGS = SlotSettings("cpu", 60.0, "1.0")

FULL = "FLOPLEDGER_TEST_FULL"
"""Set on a node whose disk takes nothing."""

CELL_S = "FLOPLEDGER_TEST_CELL_S"
"""How long a cell takes on a node."""


def place(host: str = "", name: str = "A CPU") -> SlotFacts:
    probed = ProbeResult(device="cpu", properties={"name": name})
    return SlotFacts(host or socket.gethostname(), probed, {})


def result(order: Order, status: str = "ok", **fields: Any) -> CellResult:
    """Rows that tell the cell and the attempt."""
    cell_id = order.cell.cell_id
    run = Run(
        **vars(order.cell),
        cell_id=cell_id,
        attempt=order.attempt,
        session=order.session,
        status=status,
        started_at=order.began_at,
        duration_s=0.25,
        window_start_s=1.0,
        window_end_s=2.0,
        **fields,
    )
    rows = {
        "samples.csv": samples(cell_id, order.attempt),
        "flop_counts.csv": [flop_count(cell_id, order.attempt, flop=2, native_value=1, native_unit="mac")],
    }
    return CellResult(run, rows)


class MadeUpSlot:
    """A slot as Ray makes one, by its name."""

    def __init__(self, settings: SlotSettings) -> None:
        self.settings = settings

    def slot_facts(self) -> SlotFacts:
        return place()

    def attempt(self, order: Order) -> CellResult:
        time.sleep(float(os.environ.get(CELL_S, "0")))
        if os.environ.get(FULL):
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
            try:
                with tempfile.TemporaryFile() as file:
                    file.write(b"0" * 4096)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return result(order)

    def close(self) -> None:
        pass
