"""Definition, law: only a counter's convolutions and products are kept, and all else is in the log."""

import contextlib
import importlib
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.counters import COUNTERS
from analysis.operators.registry import kind_of
from cleaning.counts import affine, line, model_operators
from results.records.counts import FlopCount


def count(operator: str = "", native: float | None = 100, unit: str = "mac", **more: object) -> FlopCount:
    values = {"cell_id": "c", "attempt": 1, "counter": "fvcore", "workload": "net", "batch_size": 1, "phase": "forward"}
    return FlopCount(**{**values, "operator": operator, "native_value": native, "native_unit": unit, **more})


def test_batch_norm_is_left_out_with_its_size() -> None:
    rows = (count("conv", 10, flop=20), count("batch_norm", 7, flop=14), count("", 17, flop=34))
    products, (entry,) = model_operators(rows)
    assert [row.operator for row in products] == ["conv", ""]
    assert entry.before == "14"
    assert "normalization" in entry.reason
    assert "batch_norm" in entry.subject


def test_an_operator_nobody_knows_is_left_out_as_not_understood() -> None:
    products, log = model_operators((count("quantum_conv", 10, flop=20),))
    assert products == []
    assert "not understood" in log[0].reason


def test_of_ptflops_products_are_kept_and_elements_left_out() -> None:
    rows = (count("Conv2d", 10, counter="ptflops"), count("Conv2d elementwise", 3, counter="ptflops", unit="flop"))
    strange = count("Quantum2d", 5, counter="ptflops")
    products, log = model_operators((*rows, strange))
    assert products == [rows[0]]
    assert "elementwise" in log[0].reason
    assert "not understood" in log[1].reason


def test_the_operators_of_torchs_own_counters_are_in_the_table() -> None:
    registry = pytest.importorskip("torch.utils.flop_counter").flop_registry
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.nn.attention.varlen")  # which adds to it
    assert {str(operator) for operator in registry} <= set(COUNTERS["flop_counter_mode"].kinds)
    kinds = {name: kind_of(name) for name in COUNTERS["flop_counter_mode"].kinds if name.startswith("aten.")}
    assert {name: COUNTERS["flop_counter_mode"].kinds[name] for name in kinds} == kinds
    profiled = {name: kind_of(name.replace("::", ".")) for name in COUNTERS["torch_profiler"].kinds}
    assert profiled == COUNTERS["torch_profiler"].kinds


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
def test_what_is_not_kept_is_in_the_log_and_a_second_time_nothing_is_left_out(counts: list[FlopCount]) -> None:
    products, log = model_operators(counts)
    assert len(products) + len(log) == len(counts)
    assert model_operators(products) == (products, [])


def test_a_line_goes_through_every_point_to_the_unit() -> None:
    numbers = random.Random(7)
    for _ in range(200):
        a, c = numbers.randrange(1, 10**12), numbers.randrange(-(10**9), 10**9)
        batches = numbers.sample(range(1, 2000), 4)
        points = {(b, a * b + c) for b in batches}
        assert line(points) == (Fraction(a), Fraction(c))
        assert affine(points, batch_size=64) == 64 * a + c
        for place in range(4):
            b, y = sorted(points)[place]
            assert line((points - {(b, y)}) | {(b, y + 1)}) is None
