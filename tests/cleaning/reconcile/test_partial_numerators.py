"""A run with a call that no rule counts: a counter's number that is less than what is known is no numerator of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.utilization.numerators import TableCount
from cleaning.reconcile import run as reconcile_run
from results.records.cell import Cell, Run
from results.records.counts import FlopCount

CELL = vars(
    Cell(model="net", batch_size=2, device="cpu", precision="fp32", methods=("theory", "exact"), counters=("fvcore",))
)
RUN = Run(**CELL, cell_id="c", attempt=1, sitting="s1", status="ok", items_per_step=2)


@pytest.mark.parametrize("least", [61, 60, 59])
def test_a_part_of_the_step_is_no_theory(least: int) -> None:
    """fvcore gives 10 multiply-adds: 60 FLOP of a step. It may not know the operation that has no formula either."""
    row = FlopCount(
        cell_id="c", attempt=1, counter="fvcore", workload="net", batch_size=2, phase="forward", native_value=10,
        native_unit="mac", flop=20,
    )  # fmt: skip
    counts = [row, replace(row, operator="conv")]
    counted = TableCount({("matmul", "float32"): least}, 0, 1, 1, {"my.op": 1})
    found = {each.method: each for each in reconcile_run._numerators(RUN, counts, counted, ())}
    assert (found["exact"].model_flop, found["exact"].at_least_flop) == (None, least)
    assert found["theory"].model_flop is None
