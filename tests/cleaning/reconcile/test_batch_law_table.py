"""Definition, injected fault: slope and constant of counts by batch, and the operator that breaks their law."""

from hypothesis import given
from hypothesis import strategies as st

from cleaning.reconcile.agreement import batch_laws, by_counter_and_phase
from results.records.cell import Cell, Run
from results.records.counts import BatchLaw, FlopCount

RUN = Run(model="net", batch_size=64, device="cpu", cell_id="c", attempt=1, session="s", status="ok")


def series(counts: dict[int, int], operator: str = "", **more: object) -> list[FlopCount]:
    values = {"cell_id": "c", "attempt": 1, "counter": "fvcore", "workload": "net", "phase": "forward"}
    values |= {"operator": operator, "native_unit": "flop", **more}
    return [
        FlopCount(**{**values, "batch_size": size, "native_value": flop, "flop": flop}) for size, flop in counts.items()
    ]


def line(slope: int, constant: int, *batches: int) -> dict[int, int]:
    return {batch: slope * batch + constant for batch in batches}


def laws(counts: list[FlopCount]) -> dict[tuple[str, str, str], BatchLaw]:
    return {(law.counter, law.phase, law.operator): law for law in batch_laws(RUN, counts)}


def test_a_law_that_holds_has_its_slope_and_constant() -> None:
    (total, conv) = batch_laws(RUN, series(line(30, 7, 1, 2, 16)) + series(line(20, 7, 1, 2, 16), "conv"))
    assert (total.operator, total.slope_flop, total.constant_flop, total.holds) == ("", 30, 7, True)
    assert total.batches == (1, 2, 16)
    assert total.reason == "note: the constant is of conv (7)"
    assert (conv.operator, conv.slope_flop, conv.constant_flop, conv.holds, conv.reason) == ("conv", 20, 7, True, "")
    assert {(law.cell_id, law.attempt, law.model, law.scope) for law in (total, conv)} == {("c", 1, "net", "total")}


def test_a_total_that_breaks_it_names_the_operator_that_does() -> None:
    conv, matmul = series(line(20, 0, 1, 2, 16), "conv"), series({1: 5, 2: 10, 16: 81}, "addmm")
    total = series({1: 25, 2: 50, 16: 401})
    found = laws(conv + matmul + total)
    broken = found["fvcore", "forward", ""]
    assert (broken.holds, broken.slope_flop, broken.constant_flop) == (False, None, None)
    assert broken.reason == "on no line: counted 1: 25, 2: 50, 16: 401; broken by addmm"
    assert found["fvcore", "forward", "conv"].holds is True
    assert found["fvcore", "forward", "addmm"].holds is False


@given(st.integers(-(10**18), 10**18), st.integers(0, 10**18), st.integers(1, 10**6))
def test_a_miss_by_any_amount_is_seen_beyond_floats(slope: int, constant: int, off: int) -> None:
    exact = line(slope, constant, 1, 2, 16)
    held = laws(series(exact))["fvcore", "forward", ""]
    assert (held.slope_flop, held.constant_flop, held.holds) == (slope, constant, True)
    assert laws(series({**exact, 16: exact[16] + off}))["fvcore", "forward", ""].holds is False


def test_groups_are_in_the_order_of_the_run_and_of_a_step() -> None:
    cell = Cell(model="net", batch_size=1, device="cpu", counters=("thop", "fvcore"))
    run = Run(**vars(cell), cell_id="c", attempt=1, session="s", status="ok")
    wanted = [("thop", "forward"), ("fvcore", "forward"), ("fvcore", "backward"), ("other", "warm_up")]
    rows = [series({1: 1}, counter=counter, phase=phase) for counter, phase in reversed(wanted)]
    strangers = [series({1: 2}, counter="thop", **more) for more in ({"cell_id": "d"}, {"attempt": 2}, {"scope": "fc"})]
    groups = by_counter_and_phase(run, [count for counts in rows + strangers for count in counts])
    assert list(groups) == wanted
    assert groups["thop", "forward"] == series({1: 1}, counter="thop")
