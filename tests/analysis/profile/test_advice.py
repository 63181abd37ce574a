"""Advice: each rule speaks where its numbers are there, tells them, and is silent where one is missing."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from analysis.profile.advice import advise
from results.records.step_profile import Machine, StepOperation, StepProfile
from tests.support.made_up.made_up_profile import step_of

MACHINE = Machine(
    device="cuda", peak_by_unit={"fp32": 10.0, "bf16": 40.0}, bytes_per_s=1.0, launch_s=0.1, datasheet_by_unit={}
)


def op(index: int, kind: str, time_s: float, **more: Any) -> StepOperation:
    values: dict[str, Any] = {"name": "aten.x", "phase": "forward", "kernels": 1, "group": index}
    return StepOperation(index=index, kind=kind, time_s=time_s, **{**values, **more})


def of_memory(index: int, kind: str, time_s: float, **more: Any) -> StepOperation:
    return op(index, kind, time_s, **{"read_bytes": 600, "written_bytes": 400, "fused_bytes": 1000, **more})


def of_arithmetic(index: int, time_s: float, **more: Any) -> StepOperation:
    return op(index, "convolution", time_s, **{"unit": "fp32", "model_flop": 500, "dtype": "float32", **more})


profile = partial(step_of, machine=MACHINE, batch_size=8, precision="fp32")


def told(found: StepProfile) -> dict[str, str]:
    return {advice.change: advice.sentence for advice in advise(found)}


def test_memory_bound_operations_that_could_be_fused():
    # normalization, activation and softmax move 1000 bytes each, in one group 500; together 70 of 100 s
    step = (
        of_memory(0, "normalization", 50.0, fused_bytes=500),
        of_memory(1, "activation", 15.0, group=0),
        of_memory(3, "softmax", 5.0, group=0),
        op(2, "view", 30.0, kernels=0),
    )
    words = told(profile(*step))["fuse"]
    assert "70 % of the step's time is in operations that memory bounds (normalization 50 %, activation 15 %)" in words
    assert "move 3 kB a step, ideally fused 500 B" in words
    assert "torch.compile" in words


@pytest.mark.parametrize("more", [{"group": None}, {"fused_bytes": 999}, {"fused_bytes": 0}])
def test_without_fewer_bytes_nothing_is_said_of_fusing(more: dict[str, Any]):
    assert "fuse" not in told(profile(of_memory(0, "normalization", 50.0, **more)))


def test_a_device_that_waits():
    step = (of_arithmetic(0, 40.0), op(1, "elementwise", 10.0, waited_s=20.0), op(2, "elementwise", 5.0, kernels=9))
    words = told(profile(*step, between_s={"forward": 25.0, "backward": 20.0}))["feed"]
    # 10 s of host, 5 s of launches and 45 s between, of 100 s
    assert words.startswith("60 % of the step's time goes into starting work: 45 % while the device waited")
    assert "larger batch than 8" in words
    assert "reduce-overhead" in words
    on_cpu = told(profile(*step, between_s={"forward": 45.0}, device="cpu", batch_size=None))["feed"]
    assert "in Python" in on_cpu
    assert "A larger batch gives" in on_cpu
    assert "CUDA" not in on_cpu


def test_a_faster_unit():
    step = (of_arithmetic(0, 80.0), op(1, "view", 20.0, kernels=0))
    assert "80 % of the step's time is in fp32 products" in told(profile(*step))["precision"]
    assert (
        "(amp-bf16) can run them 4.0 × as fast: bf16 against fp32 here (measured)" in told(profile(*step))["precision"]
    )
    sheet = replace(MACHINE, peak_by_unit={"fp32": 10.0}, datasheet_by_unit={"fp32": 10.0, "fp16": 80.0, "bf16": 60.0})
    assert "amp-fp16) can run them 8.0 ×" in told(profile(*step, machine=sheet))["precision"]
    assert "(datasheet)" in told(profile(*step, machine=sheet))["precision"]


@pytest.mark.parametrize(
    "peaks", [{"fp32": 10.0}, {"fp32": 10.0, "bf16": 11.9}, {"fp32": 10.0, "tf32": 90.0}, {"bf16": 90.0}]
)
def test_no_faster_unit_no_advice(peaks: dict[str, float]):
    found = profile(of_arithmetic(0, 80.0), machine=replace(MACHINE, peak_by_unit=peaks))
    assert "precision" not in told(found)


def test_who_runs_on_the_fast_unit_already_is_told_nothing():
    assert "precision" not in told(profile(of_arithmetic(0, 80.0, unit="bf16")))


def test_a_layout_that_was_faster_here():
    # two convolutions of 50 s of arithmetic: 200 s and 100 s reach 0.25 and 0.5; weighted by time 1/3
    machine = replace(MACHINE, channels_last_gain_by_unit={"fp32": 1.52})
    step = (of_arithmetic(0, 200.0), of_arithmetic(1, 100.0), op(2, "view", 100.0, kernels=0))
    words = told(profile(*step, machine=machine))["layout"]
    assert words.startswith("Convolutions take 75 % of the step's time and reach 33 % of their roof")
    assert "1.5 × as fast as in channels_first" in words
    assert "layout" not in told(profile(*step))
    fast = (of_arithmetic(0, 100.0), of_arithmetic(1, 100.0))
    assert "layout" not in told(profile(*fast, machine=machine))


def test_slow_kernels():
    # memory needs 100 s and 50 s of the 400 s and 100 s: (400 * 1/4 + 100 * 1/2) / 500 = 30 %
    slow = (
        of_memory(0, "normalization", 400.0, read_bytes=60, written_bytes=40),
        of_memory(1, "normalization", 100.0, read_bytes=30, written_bytes=20),
        of_memory(2, "activation", 500.0, read_bytes=300, written_bytes=150),  # 90 %
    )
    words = told(profile(*slow))["kernels"]
    assert words.startswith("Normalization takes 50 % of the step's time and reaches 30 % of its roof")
    assert "kernels" not in told(profile(*slow[2:]))
    waited = [replace(each, waited_s=1e6) for each in slow]  # the host bounds them
    assert "kernels" not in told(profile(*waited))


def test_of_convolutions_the_layout_speaks_if_it_can():
    step = (of_arithmetic(0, 200.0),)
    machine = replace(MACHINE, channels_last_gain_by_unit={"fp32": 2.0})
    assert {"layout", "kernels"} & told(profile(*step, machine=machine)).keys() == {"layout"}
    assert {"layout", "kernels"} & told(profile(*step)).keys() == {"kernels"}


def test_copies_and_the_optimizer():
    step = (
        of_memory(0, "copy", 20.0),
        of_memory(1, "copy", 10.0),
        of_memory(2, "optimizer", 50.0, phase="optimizer"),
        op(3, "view", 15.0, kernels=0),
        of_memory(4, "copy", 0.0),  # was not run
        of_memory(5, "elementwise", 5.0),
    )
    found = told(profile(*step))
    assert found["copies"].startswith("30 % of the step's time is in 2 copies")
    assert found["optimizer"].startswith("50 % of the step's time is the optimizer's, which moves 1 kB a step")


def test_the_largest_concern_comes_first_and_small_ones_not_at_all():
    machine = replace(MACHINE, channels_last_gain_by_unit={"fp32": 2.0})
    step = (
        of_arithmetic(0, 400.0),
        of_memory(1, "copy", 200.0),
        of_memory(2, "optimizer", 140.0, phase="optimizer"),
        op(3, "elementwise", 10.0, waited_s=20.0),
    )
    found = advise(profile(*step, machine=machine, between_s={"forward": 250.0}))
    # of 1000 s: convolutions 40 %, waiting 26 %, copies 20 %; the optimizer's 14 % are below 15 %
    assert [(advice.change, pytest.approx(advice.share)) for advice in found] == [
        ("precision", 0.4),  # of equals the rule that comes first
        ("layout", 0.4),
        ("feed", 0.26),
    ]


def test_no_times_no_advice():
    assert advise(profile()) == ()
    assert advise(profile(op(0, "copy", 0.0))) == ()
    assert told(profile(of_memory(0, "normalization", 50.0, fused_bytes=10), machine=None)) == {}
