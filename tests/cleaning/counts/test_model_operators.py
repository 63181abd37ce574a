"""Rows by counter and phase: of this attempt at this cell, in the order of the run and of a step."""

from cleaning.counts.pipeline import by_counter_and_phase
from results.records.cell import Cell, Run
from results.records.counts import FlopCount


def count(counter: str, phase: str, **more: object) -> FlopCount:
    values = {"cell_id": "c", "attempt": 1, "counter": counter, "workload": "net", "batch_size": 1, "phase": phase}
    return FlopCount(**{**values, "native_value": 1, "native_unit": "mac", **more})


def test_groups_are_in_the_order_of_the_run_and_of_a_step() -> None:
    cell = Cell(model="net", batch_size=1, device="cpu", counters=("thop", "fvcore"))
    run = Run(**vars(cell), cell_id="c", attempt=1, sitting="s", status="ok")
    wanted = [("thop", "forward"), ("fvcore", "forward"), ("fvcore", "backward"), ("other", "warm_up")]
    rows = [count(*key) for key in reversed(wanted)]
    strangers = [count("thop", "forward", cell_id="d"), count("thop", "forward", attempt=2)]
    module = count("fvcore", "forward", scope="fc", batch_size=16)
    groups = by_counter_and_phase(run, [*rows, *strangers, module])
    assert list(groups) == wanted
    assert groups["thop", "forward"] == [count("thop", "forward")]
    assert groups["fvcore", "forward"] == [count("fvcore", "forward"), module]
