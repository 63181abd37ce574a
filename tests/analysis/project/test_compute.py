"""Compute from GPU-hours: the spread by hand and by simulation, the ladder of groups, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.project.compute.gpu_hours import (
    TooFew,
    VarianceComponents,
    flop_of,
    gpu_hours_of,
    left_out,
    pooled,
    predicted_utilization,
)
from analysis.project.compute.published_runs import Observation, observations
from analysis.stats.intervals import Uncertain


def run(ratio: float, stack: str, generation: str = "8.0", family: str = "cnn", kind: str = "half") -> Observation:
    return Observation(family, "net", "device", generation, "amp-bf16", kind, stack, ratio, "recomputed")


def logistic(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def test_flop_and_hours_are_inverse_to_each_other() -> None:
    # 300 h × 3600 s × 312e12 FLOP/s × 0.25 = 8.424e19
    assert flop_of(300, 312e12, 0.25) == pytest.approx(8.424e19)
    assert gpu_hours_of(8.424e19, 312e12, 0.25) == pytest.approx(300)


def test_the_spread_by_hand() -> None:
    """Two strata. First: stacks (1, 3), (4): means 2, 4, centre 3. Second: stacks (0), (1, 3): means 0, 2, centre 1.

    S² = (1 + 1 + 1 + 1) / (1 + 1) = 2. W² = (2 + 2) / 2 = 2. Sizes 2, 1, 1, 2: harmonic 4 / (0.5 + 1 + 1 + 0.5) = 4/3.
    A new run around 2 stacks: 2 · 1.5 + 2 · (1 − 3/4) = 3.5; degrees 3.5² / (9/2 + 0.5²/2) = 2.65, at most 2.
    """
    spread = pooled([[[1.0, 3.0], [4.0]], [[0.0], [1.0, 3.0]]])
    assert (spread.between, spread.within) == (2.0, 2.0)
    assert (spread.between_degrees, spread.within_degrees) == (2, 2)
    assert spread.harmonic == pytest.approx(4 / 3)
    deviation, degrees = spread.of_new_run(2)
    assert deviation == pytest.approx(math.sqrt(3.5))
    assert degrees == 2


def test_degrees_of_freedom_are_satterthwaites() -> None:
    # 0.1 · (1 + 1/5) = 0.12 with 5 degrees, 10 · (1 − 1/2) = 5 with 1: 5.12² / (0.12²/5 + 5²/1) = 1.0485
    deviation, degrees = VarianceComponents(0.1, 10.0, 5, 1, 2.0).of_new_run(5)
    assert (deviation, degrees) == (pytest.approx(math.sqrt(5.12)), pytest.approx(5.12**2 / (0.00288 + 25)))
    assert VarianceComponents(0.1, 0.0, 5, 0, 1.0).of_new_run(5)[1] == pytest.approx(
        5
    )  # one run a stack: no second term


def test_one_run_a_stack_is_the_textbooks_prediction_interval() -> None:
    # mean ± t(0.975, n − 1) · s · √(1 + 1/n), for n = 3 and values 0, 1, 2 on the scale: s = 1, t = 4.302653
    rows = [run(logistic(z), stack) for z, stack in ((0.0, "a"), (1.0, "b"), (2.0, "c"))]
    found = predicted_utilization(rows, "cnn", "8.0", "half")
    half = 4.302652730 * math.sqrt(1 + 1 / 3)
    assert found.utilization.median == pytest.approx(logistic(1.0))
    assert found.utilization.interval() == pytest.approx((logistic(1 - half), logistic(1 + half)))
    assert (found.stacks, found.degrees, found.fallback) == (3, 2, "")


def test_a_stack_with_many_runs_counts_once() -> None:
    alone = [run(0.2, "a"), run(0.3, "b"), run(0.4, "c")]
    many = [run(0.2, "a")] * 50 + [run(0.3, "b"), run(0.4, "c")]
    assert predicted_utilization(many, "cnn", "8.0", "half").utilization.location == pytest.approx(
        predicted_utilization(alone, "cnn", "8.0", "half").utilization.location
    )


def test_the_spread_is_of_all_generations_and_the_location_of_one() -> None:
    rows = [run(r, s) for r, s in ((0.1, "a"), (0.2, "b"), (0.3, "c"))] + [run(0.05, "a", "9.0")]
    found = predicted_utilization(rows, "cnn", "9.0", "half")
    assert found.utilization.median == pytest.approx(0.05)
    assert (len(found.near), len(found.rows), found.fallback) == (1, 4, "")
    of_old = predicted_utilization(rows, "cnn", "8.0", "half").utilization.spread
    assert found.utilization.spread == pytest.approx(of_old * math.sqrt(2 / (4 / 3)))  # 1 + 1/1 against 1 + 1/3


def test_a_generation_without_runs_falls_back_and_says_so() -> None:
    rows = [run(0.1, "a"), run(0.2, "b"), run(0.3, "c", "9.0")]
    found = predicted_utilization(rows, "cnn", "12.0", "half")
    assert "no published run" in found.fallback
    assert found.group == "cnn under half on any device"
    assert found.stacks == 3


def test_tensor_classes_tell_each_other_how_runs_differ_but_not_where() -> None:
    rows = [run(r, s) for r, s in ((0.1, "a"), (0.2, "b"), (0.3, "c"))]
    found = predicted_utilization([*rows, run(0.5, "a", kind="tf32")], "cnn", "8.0", "tf32")
    assert found.utilization.median == pytest.approx(0.5)
    alone = predicted_utilization(rows, "cnn", "8.0", "half").utilization.spread
    assert found.utilization.spread == pytest.approx(alone * math.sqrt(2 / (4 / 3)))
    with pytest.raises(TooFew, match="no published run of cnn under fp32"):
        predicted_utilization(rows, "cnn", "8.0", "fp32")


def test_too_few_are_refused_with_what_there_is() -> None:
    with pytest.raises(TooFew, match=r"2 published runs of 2 stacks \(0.100 to 0.200\), too few for an interval"):
        predicted_utilization([run(0.1, "a"), run(0.2, "b")], "cnn", "8.0", "half")
    with pytest.raises(TooFew, match="no published run of cnn under tf32"):
        predicted_utilization([run(0.1, "a")], "cnn", "8.0", "tf32")


def test_fp32_may_go_beyond_its_peak_and_tensor_units_may_not() -> None:
    rows = [run(r, s, kind="fp32") for r, s in ((0.5, "a"), (0.9, "b"), (1.3, "c"))]
    assert predicted_utilization(rows, "cnn", "8.0", "fp32").utilization.interval()[1] > 1
    tensor = [run(r, s) for r, s in ((0.5, "a"), (0.7, "b"), (0.98, "c"))]
    assert predicted_utilization(tensor, "cnn", "8.0", "half").utilization.interval()[1] < 1


@pytest.mark.parametrize(("between", "within"), [(1.0, 0.3), (0.3, 1.0)])
def test_the_interval_holds_new_runs_of_new_stacks(between: float, within: float) -> None:
    """5 stacks of 1 to 4 runs, drawn 2000 times: at least the 80 % that were asked for, and not far more."""
    random, held, trials = np.random.default_rng(7), 0, 2000
    for _ in range(trials):
        stacks = [
            list(effect + within * random.standard_normal(size))
            for effect, size in zip(between * random.standard_normal(5), (1, 2, 3, 4, 1), strict=True)
        ]
        deviation, degrees = pooled([stacks]).of_new_run(5)
        centre = float(np.mean([np.mean(values) for values in stacks]))
        low, high = Uncertain(centre, deviation, degrees).interval(0.8)
        new = between * random.standard_normal() + within * random.standard_normal()
        held += low <= new <= high
    assert 0.78 < held / trials < 0.90  # 0.8 ± 0.018 is two standard errors; few degrees are counted, so it is wide


def test_held_out_stacks_of_the_real_table() -> None:
    """What docs/compute.md says of it: asked for 80 %, the other stacks hold about that share of a stack's runs."""
    held = left_out(observations(), 0.8)
    assert held.runs > 200
    assert held.stacks == 26
    assert 0.7 < held.stacks_held < 0.9


def test_the_issues_question() -> None:
    found = predicted_utilization(observations(), "cnn", "8.0", "half")
    low, high = found.utilization.interval()
    assert low < 0.109 < 0.279 < high  # every published ResNet-50 on an A100 in half precision
    assert 0.15 < found.utilization.median < 0.25
    assert {row.device for row in found.near} == {
        "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe"
    }  # fmt: skip
