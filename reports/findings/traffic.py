"""What a cell's operations move beside what it reaches: FLOP for each byte, and the bound of the memory's bandwidth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.operators import registry
from analysis.profile import fused
from analysis.utilization import count_table
from reports.findings.data import Published, bandwidth, common_settings, largest_batch
from reports.findings.shared import OPEN, cells, share, table
from reports.shared import digits, percent, si
from results.records import Operation, Run, Utilization
from results.store import read_operations


@dataclass(frozen=True)
class Traffic:
    """One cell beside the bytes of its operations. grouped_ratio: share of grouped convolutions in forward FLOP; the
    two intensities: FLOP for each byte with nothing fused, and with ideal fusion; attainable_ratio: over the peak, at
    the published bandwidth, by ideal fusion; None where none is published. products_ratio: of a profiled step's time.
    """

    run: Run
    row: Utilization
    grouped_ratio: float
    unfused_flop_per_byte: float
    fused_flop_per_byte: float
    unfused_bytes_per_s: float
    attainable_ratio: float | None
    products_ratio: float | None

    @property
    def used_ratio(self) -> float:
        """Its utilization."""
        return self.row.utilization_ratio or 0.0


def traffic(run: Published, size: int | None = None) -> list[Traffic]:
    """Each model of a run in its commonest setting, the lowest utilization first. size: the batch, by default the
    largest that the most models have."""
    cells_alike = common_settings(run.measured_cells)
    size = size or largest_batch(cells_alike)
    known = bandwidth(run.path.parent, run.device_name)
    found: list[Traffic | None] = []
    for cell in (cell for cell in cells_alike if cell.batch_size == size and cell.trace_id):
        row = run.headline(cell)
        if row is not None:
            found.append(_traffic(run, cell, row, known[0] if known else None))
    return sorted((each for each in found if each is not None), key=lambda each: each.used_ratio)


def _traffic(run: Published, cell: Run, row: Utilization, bytes_per_s: float | None) -> Traffic | None:
    """None for a step of which a part has no formula or no size."""
    table, storages = read_operations(run.path, cell.trace_id)
    counted = count_table(table)
    if counted.flop_per_byte is None:
        return None
    forward = [(o, registry.model_flop(o)) for o in table if o.phase in ("forward", "loss")]
    grouped = sum(flop for o, flop in forward if int(o.attributes.get("groups") or 1) > 1)
    moved = counted.read_bytes + counted.written_bytes
    groups = fused(table, storages)
    times = {work.cell_id: work.profiled_time_s for work in run.work_times if work.work == "batch"}
    products = [product.time_s for product in run.products(cell.cell_id, "batch")]
    products_s = sum(time_s for time_s in products if time_s is not None) if all(products) else None
    profiled_s = times.get(cell.cell_id)
    return Traffic(
        run=cell,
        row=row,
        grouped_ratio=grouped / sum(flop for _, flop in forward),
        unfused_flop_per_byte=counted.model_flop / moved,
        fused_flop_per_byte=counted.model_flop / sum(size for _, size in groups),
        unfused_bytes_per_s=moved / (row.time_s or math.inf),
        attainable_ratio=attainable(table, groups, row.peak_flop_per_s, bytes_per_s),
        products_ratio=products_s / profiled_s if profiled_s and products_s else None,
    )


def attainable(
    table: Sequence[Operation],
    groups: Sequence[tuple[int | None, int]],
    peak_flop_per_s: float | None,
    bytes_per_s: float | None,
) -> float | None:
    """Model FLOP ÷ peak over the sum, group by group, of the longer of its FLOP ÷ peak and its bytes ÷ bandwidth."""
    if not peak_flop_per_s or not bytes_per_s:
        return None
    flop: dict[int, int] = {}
    moved: dict[int, int] = {}
    for operation, (leader, size) in zip(table, groups, strict=True):
        if leader is not None:
            flop[leader] = flop.get(leader, 0) + registry.model_flop(operation)
            moved[leader] = moved.get(leader, 0) + size
    least_s = sum(max(flop[each] / peak_flop_per_s, moved[each] / bytes_per_s) for each in flop)
    return sum(flop.values()) / peak_flop_per_s / least_s if least_s else None


def traffic_table(run: Published, traffic: Sequence[Traffic]) -> str:
    first = ("model", "cell", "used %, 95 %", "FLOP/B unfused", "FLOP/B ideal fusion", "B/s unfused", "grouped")
    heads = (*first, "products' share of time", "attainable %")
    rows = [
        (
            t.run.model,
            cells([t.run.cell_id]),
            share(t.row),
            digits(t.unfused_flop_per_byte),
            digits(t.fused_flop_per_byte),
            si(t.unfused_bytes_per_s, "B/s"),
            percent(t.grouped_ratio) if t.grouped_ratio else "0",
            "–" if t.products_ratio is None else percent(t.products_ratio),
            OPEN if t.attainable_ratio is None else digits(100 * t.attainable_ratio),
        )
        for t in traffic
    ]
    peak = traffic[0].row
    words = (
        f"{run.name}, batch {traffic[0].run.batch_size}, over the {peak.denominator} ({peak.peak_source}). Unfused "
        "bytes are an estimate (each operation's tensors once), no bound; ideal fusion is what a perfect compiler "
        "would leave. *Products' share* is of a step under the profiler. Cells without an upper end, or with a far "
        "one, did not converge."
    )
    return f"{words}\n\n{table(heads, rows)}"
