"""Definition, law: the roofline of operations and steps by hand on a machine of round figures; laws of random steps."""

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from analysis.roofline import (
    groups,
    moved_bytes,
    roofline_point,
    roofline_ratios,
    step_roof,
)
from results.errors import Inconsistent
from results.records.answers import Machine, StepOperation
from tests.support.made_up.made_up_profile import step_of

MACHINE = Machine(
    device="cuda",
    peak_by_unit={"bf16": 800.0, "fp32": 50.0},
    datasheet_by_unit={"bf16": 1000.0, "fp32": 60.0},
    bytes_per_s=4.0,
    datasheet_bytes_per_s=5.0,
    launch_s=0.5,
)
"""FLOP/s, bytes/s and seconds of round figures: the bf16 unit's ridge is at 800 ÷ 4 = 200 FLOP a byte."""


def op(index: int = 0, **more: Any) -> StepOperation:
    values: dict[str, Any] = {
        "name": "aten.x",
        "kind": "elementwise",
        "phase": "forward",
        "kernels": 1,
        "time_s": 100.0,
    }
    return StepOperation(index=index, **{**values, **more})


def product(index: int = 0, flop: int = 8000, **more: Any) -> StepOperation:
    return op(index, **{"kind": "matmul", "unit": "bf16", "dtype": "bfloat16", "model_flop": flop, **more})


profile = partial(step_of, machine=MACHINE)


# --- one operation ---


def test_a_product_is_held_against_its_own_unit():
    # 8000 FLOP at 800 a second: 10 s; 20 + 12 bytes at 4 a second: 8 s; one launch: 0.5 s; it took 40 s
    found = roofline_point(product(other_flop=40, read_bytes=20, written_bytes=12, time_s=40.0), MACHINE)
    assert (found.unit, found.flop, found.moved_bytes) == ("bf16", 8000, 32)
    assert (found.arithmetic_s, found.memory_s, found.launch_s) == (10.0, 8.0, 0.5)
    assert found.intensity == 8040 / 32
    assert found.roof_flop_per_s == 800.0  # its intensity lies right of the ridge
    assert found.attained_flop_per_s == 200.0
    assert found.attained_ratio == 0.25
    # datasheet: 8 s of arithmetic, 32 / 5 = 6.4 s of memory
    assert found.datasheet_roof_flop_per_s == 1000.0
    assert found.datasheet_attained_ratio == 0.2
    assert found.bound == "arithmetic"


@pytest.mark.parametrize(
    ("more", "bound"),
    [
        ({"read_bytes": 8, "kernels": 3}, "memory"),  # 2 s against 1.5 s
        ({"read_bytes": 8, "kernels": 5}, "launch"),  # 2 s against 2.5 s
        ({"read_bytes": 8, "kernels": 4}, "memory"),  # equal: memory is told first
        ({"other_flop": 100, "read_bytes": 8}, "arithmetic"),  # equal: arithmetic is told first
        ({"other_flop": 99, "read_bytes": 8}, "memory"),
        ({"read_bytes": 8, "waited_s": 100.0}, "memory"),  # waited no longer than it worked
        ({"read_bytes": 8, "waited_s": 100.1}, "host"),
        ({"read_bytes": 8, "waited_s": 0.5, "time_s": 0.4}, "host"),
    ],
)
def test_the_rule(more: dict[str, Any], bound: str):
    assert roofline_point(op(**more), MACHINE).bound == bound


@pytest.mark.parametrize(
    ("more", "machine"),
    [
        ({"read_bytes": 8, "time_s": None}, {}),
        ({"read_bytes": 8, "time_s": None, "waited_s": 9.0}, {}),
        ({"read_bytes": 8}, {"bytes_per_s": None}),
        ({"read_bytes": 8, "other_flop": 1}, {"peak_by_unit": {}}),
        ({"read_bytes": 8}, {"launch_s": None}),
        ({"read_bytes": 8, "kernels": None}, {}),
        ({"kernels": 0}, {}),  # nothing to do at all
        ({"read_bytes": 8, "model_flop": 800}, {}),  # a product on no known unit
    ],
)
def test_what_is_not_known_bounds_nothing(more: dict[str, Any], machine: dict[str, Any]):
    assert roofline_point(op(**more), replace(MACHINE, **machine)).bound == ""


# --- the step ---


def test_a_steps_ratios_by_hand():
    # a convolution (10 s of arithmetic, 2 s of memory) with its batch norm and ReLU (each 8 s of memory alone);
    # fused they move 20 bytes, 5 s, beside the 10 s of arithmetic
    step = (
        product(0, read_bytes=4, written_bytes=4, group=0, fused_bytes=20),
        op(1, read_bytes=16, written_bytes=16, group=0),
        op(2, read_bytes=16, written_bytes=16, group=0),
        op(3, read_bytes=8, group=3, fused_bytes=8),  # alone, 2 s
    )
    found = step_roof(profile(*step, unprofiled_times_s=(30.0, 50.0)))
    assert found.step_s == 40.0
    assert found.ceiling.utilization_ratio == 10 / 40
    assert found.ceiling.attainable_ratio == 10 / (10 + 2)
    assert found.ceiling.unfused_estimate_ratio == pytest.approx(10 / (10 + 8 + 8 + 2))
    assert not found.ceiling.raised
    # datasheet: 8 s of arithmetic; alone 8 / 5 = 1.6 s; unfused 8 + 6.4 + 6.4 + 1.6
    assert found.datasheet.utilization_ratio == 8 / 40
    assert found.datasheet.attainable_ratio == pytest.approx(8 / 9.6)
    assert found.datasheet.unfused_estimate_ratio == pytest.approx(8 / 22.4)


def test_attainable_is_never_below_what_was_measured():
    # ideal fusion would move 400 bytes in 100 s; it took 50 s, because they stayed in a cache
    step = (product(0, group=0, fused_bytes=400),)
    found = roofline_ratios(step, 50.0, MACHINE.peak_by_unit, 4.0)
    assert (found.utilization_ratio, found.attainable_ratio, found.raised) == (0.2, 0.2, True)
    slower = roofline_ratios(step, 200.0, MACHINE.peak_by_unit, 4.0)
    assert (slower.utilization_ratio, slower.attainable_ratio, slower.raised) == (0.05, 0.1, False)
    equal = roofline_ratios(step, 100.0, MACHINE.peak_by_unit, 4.0)
    assert not equal.raised


@pytest.mark.parametrize(
    ("operations", "step_s", "peaks", "bandwidth", "known", "words"),
    [
        ((op(0, read_bytes=4),), 1.0, {"bf16": 1.0}, 4.0, "", "no model FLOP"),
        ((product(0),), 1.0, {"fp32": 1.0}, 4.0, "", "no peak of bf16"),
        ((product(0, unit=""),), 1.0, {"fp32": 1.0}, 4.0, "", "no peak of unknown unit"),
        ((product(0),), 1.0, {"bf16": 1.0}, None, "utilization", "no bandwidth"),
        ((product(0, read_bytes=4),), 1.0, {"bf16": 1.0}, 4.0, "utilization unfused_estimate", "not grouped"),
        ((product(0),), None, {"bf16": 1.0}, 4.0, "attainable unfused_estimate", "no step was timed"),
    ],
)
def test_what_is_missing_is_said(operations: Any, step_s: Any, peaks: Any, bandwidth: Any, known: str, words: str):
    found = roofline_ratios(operations, step_s, peaks, bandwidth)
    names = ("utilization", "attainable", "unfused_estimate")
    assert [name for name in names if getattr(found, f"{name}_ratio") is not None] == known.split()
    assert words in found.reason


# --- laws ---


def random_step(seed: int) -> tuple[StepOperation, ...]:
    """Operations in groups of up to three; what a group moves is no more than its operations do alone."""
    numbers = random.Random(seed)
    made: list[StepOperation] = []
    while len(made) < 12:
        first, count = len(made), numbers.randint(1, 3)
        for index in range(first, first + count):
            flop = numbers.choice([0, 0, numbers.randint(1, 10**5)]) if made else 5000
            made.append(product(index, flop, read_bytes=numbers.randint(0, 400), group=first) if flop else
                        op(index, read_bytes=numbers.randint(0, 400), group=first))  # fmt: skip
        whole = sum(moved_bytes(each) for each in made[first:])
        made[first] = replace(made[first], fused_bytes=int(whole * numbers.random()))
    return tuple(made)


@pytest.mark.parametrize("seed", range(40))
def test_laws_of_the_attainable_ratio(seed: int):
    step, peaks = random_step(seed), MACHINE.peak_by_unit
    found = roofline_ratios(step, None, peaks, 4.0)
    assert 0 < found.unfused_estimate_ratio <= found.attainable_ratio <= 1
    measured = roofline_ratios(step, 1e-3, peaks, 4.0)
    assert measured.attainable_ratio == measured.utilization_ratio
    faster = roofline_ratios(step, None, peaks, 8.0)
    assert faster.attainable_ratio >= found.attainable_ratio
    assert faster.unfused_estimate_ratio > found.unfused_estimate_ratio or found.unfused_estimate_ratio == 1
    without_limit = roofline_ratios(step, None, peaks, 1e30)
    assert without_limit.attainable_ratio == pytest.approx(1)
    more = (*step, op(len(step), read_bytes=40, group=len(step), fused_bytes=40))
    assert roofline_ratios(more, None, peaks, 4.0).attainable_ratio < found.attainable_ratio


def test_a_group_without_leader_is_inconsistent():
    with pytest.raises(Inconsistent, match="operation 7"):
        groups((op(0, group=7),))


def test_left_of_the_ridge_memory_is_the_roof():
    # 8000 FLOP and 80 bytes: 100 FLOP a byte x 4 bytes a second = 400 FLOP/s; 20 s
    found = roofline_point(product(read_bytes=80, time_s=40.0), MACHINE)
    assert found.roof_flop_per_s == 100 * 4.0
    assert found.datasheet_roof_flop_per_s == 100 * 5.0
    assert (found.attained_ratio, found.bound) == (0.5, "memory")


@pytest.mark.parametrize(
    ("dtype", "unit"), [("bfloat16", "fp32"), ("float32", "fp32"), ("int64", "fp32"), ("float64", "fp64")]
)
def test_without_a_product_the_cores_run_it(dtype: str, unit: str):
    found = roofline_point(op(other_flop=100, read_bytes=4, dtype=dtype), replace(MACHINE, peak_by_unit={unit: 50.0}))
    assert (found.unit, found.flop, found.arithmetic_s) == (unit, 100, 2.0)
    assert found.intensity == 25.0
