"""A cell is divided by the ceiling of its own session, device and allocator."""

from __future__ import annotations

import pytest

from analysis.utilization.denominators import ceilings_of, datasheet, session_peaks
from results.records.cell import Run
from results.records.samples import Ceiling

RATES = {("s0", "cpu", "default"): 1e9, ("s0", "cpu", "retain"): 2e9, ("s1", "cpu", "default"): 4e9}
ROWS = [
    Ceiling(
        sitting=sitting, device=device, precision="fp32", unit="fp32", operation="matmul", shape="8x8x8", malloc=malloc,
        flop=1024, median_s=1024 / rate, flop_per_s=rate,
    )
    for (sitting, device, malloc), rate in RATES.items()
]  # fmt: skip


@pytest.mark.parametrize(("place", "rate"), RATES.items())
def test_the_ceiling_is_that_of_the_cells_own_session_and_allocator(place, rate: float) -> None:
    sitting, device, malloc = place
    run = Run(
        model="a", batch_size=1, device=device, malloc=malloc, cell_id="c", attempt=1, sitting=sitting, status="ok"
    )
    assert [row.flop_per_s for row in ceilings_of(run, ROWS)] == [rate]
    assert session_peaks(run, datasheet("", device, None), ROWS, None).ceiling.peak_by_unit == {"fp32": rate}


def test_there_is_none_of_another_allocator() -> None:
    run = Run(model="a", batch_size=1, device="cpu", malloc="retain", cell_id="c", attempt=1, sitting="s1", status="ok")
    assert ceilings_of(run, ROWS) == []
