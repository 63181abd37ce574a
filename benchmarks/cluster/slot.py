"""A slot that measures nothing: its rows are made up, as many as a cell on a CPU has, and come at once."""

import socket
import time

from measure.device.environment import DeviceProperties, Environment
from results.records.cell import Run
from results.records.counts import FlopCount
from results.records.samples import Sample
from runners.sweep.findings import CellResult, Order, SlotFacts, SlotSettings
from runners.workers.devices import ProbeResult

BLOCKS, COUNTS = 20, 12
"""Rows of samples.csv and flop_counts.csv for each cell."""


class EmptySlot:
    """As Ray makes a slot, by its name."""

    def __init__(self, settings: SlotSettings) -> None:
        self.settings = settings

    def place(self) -> SlotFacts:
        probed = ProbeResult(device="cpu", environment=Environment(), properties=DeviceProperties(name="none"))
        return SlotFacts(socket.gethostname(), probed, {}, time.time())

    def measure(self, order: Order) -> CellResult:
        cell_id, number = order.cell.cell_id, order.attempt
        run = Run(
            **vars(order.cell),
            cell_id=cell_id,
            attempt=number,
            sitting=order.sitting,
            status="ok",
            duration_s=1.0,
            window_start_s=0.0,
            window_end_s=1.0,
        )
        samples = [
            Sample(
                cell_id=cell_id, attempt=number, index=i, part="measure", steps=10, start_s=i / 7, wall_s=0.1 + i / 70
            )
            for i in range(BLOCKS)
        ]
        counts = [
            FlopCount(
                cell_id=cell_id,
                attempt=number,
                counter="fvcore",
                workload=order.cell.model,
                batch_size=order.cell.batch_size,
                phase="forward",
                operator=f"operator{i}",
                flop=10**9 + i,
            )
            for i in range(COUNTS)
        ]
        return CellResult(run, {"samples.csv": samples, "flop_counts.csv": counts})

    def close(self) -> None:
        """Nothing was opened."""
