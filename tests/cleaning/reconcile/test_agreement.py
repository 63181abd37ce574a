"""Definition: how far counters disagree with our own count, by hand; nothing unknown is zero."""

import dataclasses
from typing import Any

from cleaning.counts import model_operators
from cleaning.reconcile.agreement import agreement
from results.records.cell import Cell, Run
from results.records.counts import Agreement, FlopCount
from tests.support.made_up import run_fixture
from tests.support.recordings.recordings import table_flop

BATCH = 8
CELL = Cell(
    model="resnet18", batch_size=BATCH, device="cuda", counters=("flopledger", "flop_counter_mode", "fvcore", "ptflops")
)
RUN = Run(**vars(CELL), cell_id="c", attempt=2, session="s", status="ok")
TABLE = run_fixture.operations("resnet18", BATCH, "fp32")

FORWARD = 2 * BATCH * (run_fixture.FIRST_MAC + run_fixture.SECOND_MAC + run_fixture.PRODUCT_MAC)
BACKWARD = (
    2 * BATCH * (run_fixture.FIRST_MAC + 2 * run_fixture.SECOND_MAC + 2 * run_fixture.PRODUCT_MAC)
)  # no gradient of the images
"""Model FLOP of the made-up resnet18 at the cell's batch, from the sizes in run_fixture."""


def count(counter: str, operator: str = "", native: int | None = None, unit: str = "mac", **more: object) -> FlopCount:
    values = {"cell_id": "c", "attempt": 2, "workload": "resnet18", "batch_size": BATCH, "phase": "forward"}
    flop = None if native is None else native * {"mac": 2, "flop": 1}[unit]
    values |= {"counter": counter, "operator": operator, "native_value": native, "native_unit": unit, "flop": flop}
    return FlopCount(**{**values, **more})


def own(forward: int = FORWARD, phase: str = "forward", **more: object) -> list[FlopCount]:
    """Our own counter, its convolutions and products in one row each."""
    product = 2 * BATCH * run_fixture.PRODUCT_MAC
    named = {"convolution": forward - product, "matmul": product, "": forward}
    return [count("flopledger", name, flop, "flop", phase=phase, **more) for name, flop in named.items()]


def fvcore(conv: int = 1000, norm: int = 50, **more: object) -> list[FlopCount]:
    total = count("fvcore", "", conv + norm, flop=2 * conv + norm, **more)
    return [total, count("fvcore", "conv", conv, **more), count("fvcore", "batch_norm", norm, "flop", **more)]


def rows(counts: list[FlopCount], table: Any = None) -> dict[tuple[str, str], Agreement]:
    cleaned, _ = model_operators(counts)
    traced = lambda phase: None if table is None else table_flop(table, phase)  # noqa: E731
    return {(row.counter, row.phase): row for row in agreement(RUN, cleaned, traced)}


def test_the_size_of_a_disagreement_with_our_own_count() -> None:
    """fvcore says 1,000 MAC of convolutions: 2,000 FLOP against ours of 2,500; with 50 for norms its total is 2,050."""
    ours = [count("flopledger", "convolution", 2_500, "flop"), count("flopledger", "", 2_500, "flop")]
    row = rows(ours + fvcore())["fvcore", "forward"]
    assert (row.native_value, row.native_unit, row.total_flop) == (1_050, "mac", 2_050)
    assert (row.model_flop, row.exact_flop, row.difference_flop) == (2_000, 2_500, -500)
    assert (row.ratio, row.total_ratio) == (0.8, 0.82)
    assert (row.status, row.reason, row.extrapolated) == ("ok", "", False)
    assert (row.cell_id, row.attempt, row.model, row.batch_size) == ("c", 2, "resnet18", BATCH)


def test_without_our_own_counter_the_operation_table_is_the_measure() -> None:
    """Forward and backward are summed apart; the recomputed convolution at the table's end is in neither."""
    backward = [count("flop_counter_mode", name, BACKWARD, "flop", phase="backward") for name in ("aten.mm", "")]
    found = rows(fvcore() + backward, TABLE)
    assert found["fvcore", "forward"].exact_flop == FORWARD
    row = found["flop_counter_mode", "backward"]
    assert (row.exact_flop, row.difference_flop, row.ratio) == (BACKWARD, 0, 1.0)


def test_our_own_counter_is_the_measure_and_says_where_training_does_more() -> None:
    found = rows(own(FORWARD - 4_000) + fvcore(), TABLE)
    assert found["fvcore", "forward"].exact_flop == FORWARD - 4_000
    row = found["flopledger", "forward"]
    assert (row.difference_flop, row.ratio) == (0, 1.0)
    assert row.reason == "note: the step in training mode has +4000 FLOP (auxiliary heads)"
    assert rows(own() + fvcore(), TABLE)["flopledger", "forward"].reason == ""


def test_an_operator_that_broke_the_law_of_the_batch_leaves_the_sum_unknown() -> None:
    total, conv, norm = fvcore(extrapolated=True)
    conv = dataclasses.replace(conv, native_value=None, flop=None, status="invalid", reason="not affine in the batch")
    row = rows([*own(), total, conv, norm])["fvcore", "forward"]
    assert (row.total_flop, row.model_flop, row.ratio) == (2_050, None, None)
    assert (row.status, row.reason) == ("invalid", "not affine in the batch")


def test_without_one_total_at_the_cells_batch_there_is_no_number_and_the_reason_says_which_there_are() -> None:
    row = rows([*own(), *fvcore(batch_size=2)])["fvcore", "forward"]
    assert (row.status, row.total_flop, row.model_flop) == ("unavailable", None, None)
    assert row.reason == "expected one total at a batch of 8, found 0; there are rows at [2]"
    row = rows([*own(), *fvcore(), count("fvcore", "", 7)])["fvcore", "forward"]
    assert (row.status, row.total_flop) == ("invalid", None)
    assert row.reason == "expected one total at a batch of 8, found 2; there are rows at [8]"


def test_a_counter_that_counted_no_product_says_zero_and_one_that_tells_none_apart_says_nothing() -> None:
    """torch_profiler counts additions and, of this made-up model, no convolution: that is its number, and it is 0."""
    blind = [count("torch_profiler", name, 90, "flop") for name in ("aten::add", "")]
    opaque = [count("someone", "", 90, "flop")]
    found = rows(own() + blind + opaque)
    assert (found["torch_profiler", "forward"].model_flop, found["torch_profiler", "forward"].ratio) == (0, 0.0)
    row = found["someone", "forward"]
    assert (row.model_flop, row.ratio, row.total_flop) == (None, None, 90)
    assert row.reason == "note: someone does not tell convolutions and matrix products apart"
