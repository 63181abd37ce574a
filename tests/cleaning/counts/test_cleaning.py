"""Cleaning: one convention, exact extrapolation, convolutions and products only; nothing lost, nothing done twice.

Sums of numbers some of which are unknown: what is known alone, or nothing unless all are.
"""

import contextlib
import dataclasses
import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.operators.registry import kind_of
from analysis.utilization.counter_operators import OPERATORS
from cleaning.counts.conventions import CleaningStep, Outcome, extrapolation_checked, one_convention
from cleaning.counts.pipeline import FLOP_COUNTS, clean_records, model_operators
from results.errors import Inconsistent
from results.records.counts import FlopCount


def count(operator: str = "", native: float | None = 100, unit: str = "mac", **more: object) -> FlopCount:
    values = {"cell_id": "c", "attempt": 1, "counter": "fvcore", "workload": "net", "batch_size": 1, "phase": "forward"}
    return FlopCount(**{**values, "operator": operator, "native_value": native, "native_unit": unit, **more})


def test_a_multiply_add_is_two_flop_and_a_flop_is_one() -> None:
    macs, flops = one_convention((count(native=50), count(native=50, unit="flop"))).kept
    assert (macs.flop, macs.native_value, macs.native_unit) == (100, 50, "mac")  # both are kept
    assert flops.flop == 50


def test_a_number_that_was_never_converted_is_put_right_and_logged() -> None:
    outcome = one_convention((count("conv", native=50, flop=50),))
    assert outcome.kept[0].flop == 100
    assert (outcome.log[0].before, outcome.log[0].after) == ("50", "100")


@pytest.mark.parametrize("bad", [count(unit="gigaflop"), count(unit=""), count(native=float("inf"))])
def test_a_number_without_meaning_is_invalid_never_guessed(bad: FlopCount) -> None:
    (kept,) = one_convention((bad,)).kept
    assert (kept.status, kept.flop) == ("invalid", None)
    assert "expected a finite number of mac or flop" in kept.reason


def test_batch_norm_is_left_out_with_its_size() -> None:
    rows = (count("conv", 10, flop=20), count("batch_norm", 7, flop=14), count("", 17, flop=34))
    outcome = model_operators(rows)
    assert [row.operator for row in outcome.kept] == ["conv", ""]
    assert [row.operator for row in outcome.dropped] == ["batch_norm"]
    (entry,) = outcome.log
    assert entry.before == "14"
    assert "normalization" in entry.reason
    assert "batch_norm" in entry.subject


def test_an_operator_nobody_knows_is_left_out_as_not_understood() -> None:
    outcome = model_operators((count("quantum_conv", 10, flop=20),))
    assert outcome.kept == ()
    assert "not understood" in outcome.log[0].reason


def test_of_ptflops_products_are_kept_and_elements_left_out() -> None:
    rows = (count("Conv2d", 10, counter="ptflops"), count("Conv2d elementwise", 3, counter="ptflops", unit="flop"))
    strange = count("Quantum2d", 5, counter="ptflops")
    outcome = model_operators((*rows, strange))
    assert outcome.kept == rows[:1]
    assert outcome.dropped == (rows[1], strange)
    assert "elementwise" in outcome.log[0].reason
    assert "not understood" in outcome.log[1].reason


def test_a_total_is_the_sum_of_its_operators_in_their_units() -> None:
    rows = (count("conv", 10), count("batch_norm", 7, unit="flop"), count("", 17))
    outcome = one_convention(rows)
    assert [row.flop for row in outcome.kept] == [20, 7, 27]
    assert one_convention(outcome.kept).log == ()
    assert one_convention(outcome.kept[::2]).kept[1].flop == 27  # though an operator was left out since
    assert one_convention((count("", 17),)).kept[0].flop == 34
    assert one_convention((count("conv", 10, unit="?"), count("", 17))).kept[1].flop == 34


def test_the_operators_of_torchs_own_counters_are_in_the_table() -> None:
    registry = pytest.importorskip("torch.utils.flop_counter").flop_registry
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.nn.attention.varlen")  # which adds to it
    assert {str(operator) for operator in registry} <= set(OPERATORS["flop_counter_mode"])
    kinds = {name: kind_of(name) for name in OPERATORS["flop_counter_mode"] if name.startswith("aten.")}
    assert {name: OPERATORS["flop_counter_mode"][name] for name in kinds} == kinds
    profiled = {name: kind_of(name.replace("::", ".")) for name in OPERATORS["torch_profiler"]}
    assert profiled == OPERATORS["torch_profiler"]


def points_on(slope: int, constant: int, *batches: int, at: int, off: int = 0) -> tuple[FlopCount, ...]:
    counted = [count("", None, batch_size=b, flop=slope * b + constant) for b in batches]
    return (*counted, count("", None, batch_size=at, flop=slope * at + constant + off, extrapolated=True))


def test_extrapolation_on_the_line_stays_and_off_the_line_is_invalid() -> None:
    good = extrapolation_checked(points_on(3, 5, 1, 2, 16, at=64))
    assert good.kept == points_on(3, 5, 1, 2, 16, at=64)
    assert good.log == ()
    bad = extrapolation_checked(points_on(3, 5, 1, 2, 16, at=64, off=1))
    assert (bad.kept[-1].status, bad.kept[-1].flop) == ("invalid", None)
    assert "give 197" in bad.kept[-1].reason  # 3 · 64 + 5


COUNTS = st.builds(
    count,
    operator=st.sampled_from(["", "conv", "addmm", "batch_norm", "strange"]),
    native=st.none() | st.integers(0, 10**15),
    unit=st.sampled_from(["mac", "flop", ""]),
    flop=st.none() | st.integers(0, 10**15),
    batch_size=st.sampled_from([1, 2, 16, 64]),
    extrapolated=st.booleans(),
    counter=st.sampled_from(["fvcore", "ptflops", "other"]),
    status=st.sampled_from(["ok", "unavailable"]),
)


@given(st.lists(COUNTS, max_size=12))
def test_cleaning_what_is_clean_changes_nothing(counts: list[FlopCount]) -> None:
    once = clean_records({FLOP_COUNTS: counts})
    twice = clean_records({FLOP_COUNTS: once.flop_counts})
    assert twice.flop_counts == once.flop_counts
    assert twice.dropped[FLOP_COUNTS] == ()


@given(st.lists(COUNTS, max_size=12))
def test_kept_and_dropped_are_what_came(counts: list[FlopCount]) -> None:
    cleaned = clean_records({FLOP_COUNTS: counts})

    def identity(rows: tuple[FlopCount, ...]) -> list[str]:
        untouched = ("counter", "operator", "batch_size", "native_value", "native_unit", "extrapolated")
        return sorted(str([getattr(row, name) for name in untouched]) for row in rows)

    assert identity(cleaned.flop_counts + cleaned.dropped[FLOP_COUNTS]) == identity(tuple(counts))
    assert len(cleaned.log) >= len(cleaned.dropped[FLOP_COUNTS])  # nothing leaves without a line


def test_a_step_that_loses_a_record_stops_the_cleaning() -> None:
    losing = CleaningStep("losing", FLOP_COUNTS, lambda rows: Outcome(rows[1:]))
    with pytest.raises(Inconsistent, match=r"cleaning step losing: 2 records of flop_counts\.csv came, 1 kept"):
        clean_records({FLOP_COUNTS: [count(), count("conv")]}, [losing])


def test_counted_batches_that_are_on_no_line_carry_no_extrapolation() -> None:
    rows = list(points_on(3, 5, 1, 2, 16, at=64))
    rows[1] = dataclasses.replace(rows[1], flop=12)
    (bad,) = [row for row in extrapolation_checked(tuple(rows)).kept if row.extrapolated]
    assert bad.status == "invalid"
    assert "on no line" in bad.reason
