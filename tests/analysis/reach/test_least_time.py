"""The least time of a step: every number by hand on a device of round figures, and laws over random steps."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from analysis.reach.least_time import step_bound, step_cost
from results.errors import Unavailable
from results.records.step_profile import StepOperation

PEAKS, BYTES_PER_S = {"bf16": 100.0, "fp32": 10.0}, 5.0


def op(index: int, **more: Any) -> StepOperation:
    return StepOperation(index=index, name="aten.x", kind="elementwise", phase="forward", **more)


def step() -> list[StepOperation]:
    """A product with its epilogue as one group, a product of another unit, a group without a product."""
    return [
        op(0, unit="bf16", model_flop=1000, read_bytes=20, written_bytes=10, group=0, fused_bytes=30),
        op(1, read_bytes=10, written_bytes=10, group=0),
        op(2, unit="fp32", model_flop=20, read_bytes=30, written_bytes=10, group=2, fused_bytes=40),
        op(3, read_bytes=15, written_bytes=5, group=3, fused_bytes=20),
    ]


def test_each_group_takes_the_larger_of_its_two_times():
    # groups: max(1000/100, 30/5) = 10; max(20/10, 40/5) = 8; max(0, 20/5) = 4
    # operations: 10; 20/5 = 4; 8; 4
    bound = step_bound(step_cost(step()), PEAKS, BYTES_PER_S)
    assert bound.model_flop == 1020
    assert bound.bound_time_s == pytest.approx(22)
    assert bound.unfused_time_s == pytest.approx(26)
    # the products alone: 1000/100 + 20/10 = 12 s
    assert bound.peak_flop_per_s == pytest.approx(1020 / 12)
    assert bound.attainable_ratio == pytest.approx(12 / 22)
    assert bound.unfused_ratio == pytest.approx(12 / 26)
    assert bound.bound_by == pytest.approx({"arithmetic": 10 / 22, "memory": 12 / 22})


def test_recomputation_takes_time_and_is_no_model_flop():
    again = op(4, unit="bf16", model_flop=500, group=4, fused_bytes=5)
    bound = step_bound(step_cost([*step(), replace(again, phase="recompute")]), PEAKS, BYTES_PER_S)
    assert bound.model_flop == 1020
    assert bound.bound_time_s == pytest.approx(22 + 5)
    assert bound.attainable_ratio == pytest.approx(12 / 27)


def test_what_is_not_known_has_no_bound():
    with pytest.raises(Unavailable, match=r"no rule for aten\.x"):
        step_cost([op(0, model_flop=None)])
    with pytest.raises(Unavailable, match="dtype without an arithmetic unit"):
        step_cost([op(0, model_flop=1, group=0)])
    with pytest.raises(Unavailable, match="no convolution or matrix product"):
        step_bound(step_cost(step()[3:]), PEAKS, BYTES_PER_S)
    with pytest.raises(Unavailable, match="no datasheet peak of fp32"):
        step_bound(step_cost(step()), {"bf16": 100.0}, BYTES_PER_S)
    with pytest.raises(Unavailable, match="bandwidth"):
        step_bound(step_cost(step()), PEAKS, None)


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_of_random_steps_is_below_whatever_fuses_less(seed):
    """Taking groups apart never makes a step faster, nor does a slower device."""
    draw = random.Random(seed)
    operations = []
    for index in range(draw.randint(2, 30)):
        leader = index if not operations or draw.random() < 0.5 else draw.choice(operations).group
        flop = draw.choice((0, draw.randint(1, 900)))
        nbytes = draw.randint(0, 50)
        operations.append(op(index, unit="bf16" if flop else "", model_flop=flop, read_bytes=nbytes, group=leader))
    fused = {each.group: 0 for each in operations}
    for each in operations:
        fused[each.group] += draw.randint(0, each.read_bytes)
    operations = [
        replace(each, fused_bytes=fused[each.group] if each.group == each.index else 0) for each in operations
    ]
    if not any(each.model_flop for each in operations):
        operations.append(op(len(operations), unit="bf16", model_flop=1, group=len(operations)))
    cost = step_cost(operations)
    bound = step_bound(cost, PEAKS, BYTES_PER_S)
    arithmetic = sum(each.model_flop for each in operations) / 100
    assert max(arithmetic, sum(fused.values()) / BYTES_PER_S) <= bound.bound_time_s * (1 + 1e-12)
    assert bound.bound_time_s <= bound.unfused_time_s * (1 + 1e-12)
    assert sum(bound.bound_by.values()) == pytest.approx(1)
    slower = step_bound(cost, {"bf16": 50.0}, BYTES_PER_S)
    assert slower.bound_time_s >= bound.bound_time_s
