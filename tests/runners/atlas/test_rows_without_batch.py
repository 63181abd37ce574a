"""Rows of the atlas that have a throughput and no batch: their utilization from FLOP an item, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.atlas import PublishedStep
from analysis.reach import BatchCost, StepCost
from runners.atlas.importing import _by_rate

V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB"

ROW = PublishedStep(
    source="NVIDIA examples", commit="c", file="f", row=1, model="m", mode="train", precision="amp-fp16", layout="",
    framework="torch", device=V100, items_per_s=50.0,
)  # fmt: skip


def cost(flop):
    """A step of one product in bf16, as traces are, without other operations."""
    table = np.array([[flop]], np.int64)
    return StepCost(("bf16",), table, np.array([10]), table, np.array([10]), np.zeros(1, np.int64))


PROPORTIONAL = BatchCost(2, cost(2 * 10**12), 4, cost(4 * 10**12))
"""1e12 FLOP an item."""


@pytest.mark.parametrize(
    ("device", "precision", "peak"),
    [(V100, "amp-fp16", 125e12), (V100, "fp32", 15.7e12), (A100, "tf32", 156e12), (A100, "amp-fp16", 312e12)],
)
def test_flop_an_item_times_items_a_second_over_the_peak_of_the_unit(device, precision, peak):
    found = _by_rate(replace(ROW, device=device, precision=precision), PROPORTIONAL)
    assert found.peak_flop_per_s == pytest.approx(peak)
    assert found.utilization_ratio == pytest.approx(50 * 1e12 / peak, rel=1e-5)
    assert (found.bound_time_s, found.achieved_over_bound_ratio, found.status) == (None, None, "ok")


def test_flop_that_are_not_proportional_to_the_batch_say_nothing_without_one():
    found = _by_rate(ROW, BatchCost(2, cost(3 * 10**12), 4, cost(4 * 10**12)))
    assert (found.status, found.utilization_ratio) == ("not_counted", None)
    assert "not proportional" in found.reason


def test_fp32_of_a_source_that_does_not_tell_tf32_apart_has_no_peak():
    found = _by_rate(replace(ROW, source="Lambda", device=A100, precision="fp32"), PROPORTIONAL)
    assert found.utilization_ratio is None
    assert "whether TF32 was on" in found.reason
    assert _by_rate(replace(ROW, source="Lambda", precision="fp32"), PROPORTIONAL).utilization_ratio is not None
