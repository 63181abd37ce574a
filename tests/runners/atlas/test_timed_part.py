"""The part of a step that a source timed: forward and backward without the loss, and steps of texts as rows."""

from __future__ import annotations

import pytest

from analysis.atlas import on_device, published_steps, published_steps_on
from analysis.devices import lookup
from analysis.reach import step_bound, step_cost
from results.records import StepOperation
from runners.atlas.costs import CostKey, timed_part
from runners.footprint.step import StepOptions
from runners.reach.step import operations_at

pytest.importorskip("transformers", reason="transformers is not installed")


def operation(index, phase, group=None, **fields):
    return StepOperation(index=index, name="aten.mm", kind="matmul", phase=phase, unit="fp32", group=group, **fields)


def test_a_group_that_the_loss_has_a_part_in_moves_nothing():
    """Product 0 and loss 1 are a group of 70 bytes, 2 and 3 one of 30 backward; 4 is a loss alone."""
    step = (
        operation(0, "forward", 0, fused_bytes=70, model_flop=5), operation(1, "loss", 0, fused_bytes=70),
        operation(2, "backward", 2, fused_bytes=30, model_flop=6), operation(3, "backward", 2, fused_bytes=30),
        operation(4, "loss", read_bytes=9),
    )  # fmt: skip
    cost = step_cost(timed_part(step, ("forward", "backward")))
    assert cost.group_bytes.tolist() == [0, 30]
    assert cost.model_flop == 11
    assert step_cost(timed_part(step, ())).group_bytes.tolist() == [70, 30, 9]


def test_a_group_named_after_a_loss_keeps_its_other_operations():
    step = (operation(0, "loss", 0, fused_bytes=70), operation(1, "backward", 0, fused_bytes=70, model_flop=4))
    cost = step_cost(timed_part(step, ("forward", "backward")))
    assert (cost.group_bytes.tolist(), cost.model_flop) == ([0], 4)


def test_files_of_costs_tell_steps_apart():
    names = {
        CostKey("timm:a", 224, "train").file,
        CostKey("timm:a", 224, "infer").file,
        CostKey("m:a", None, "train", 512, "fp32", ("forward", "backward")).file,
        CostKey("m:a", None, "train", 512, "fp32").file,
        CostKey("m:a", None, "train", 512).file,
        CostKey("m:a", None, "train", 128).file,
    }
    assert len(names) == 6
    assert "timm-a-224-train.npz" in names


def test_a_kept_step_of_a_text_is_that_of_today():
    row = next(row for row in published_steps() if row.source == "NeuSight" and row.model == "bert_large"
               and row.mode == "infer" and row.batch_size == 8 and row.device == "NVIDIA A100-PCIE-40GB"
               and not row.compiled)  # fmt: skip
    asked = StepOptions(row.counted_model, "fp32", hyper={"seq": row.sequence_length})
    cost = step_cost(operations_at(asked, row.batch_size, "infer"))
    device = lookup(row.device)
    bound = step_bound(cost, device.peaks, device.bandwidth_bytes_per_s)
    assert row.model_flop == cost.model_flop
    assert row.bound_time_s == pytest.approx(bound.bound_time_s, rel=1e-5)
    assert row.utilization_ratio == pytest.approx(cost.model_flop / 19.5e12 / row.step_time_s, rel=1e-5)


def test_texts_have_a_bound_where_attention_is_in_parts_and_none_where_a_compiler_may_join_them():
    rows = [row for row in published_steps() if row.source == "NeuSight" and row.status == "ok"]
    bounded = [row for row in rows if row.achieved_over_bound_ratio is not None]
    assert len(bounded) == 85  # of 89; 4 are compiled
    assert not any(row.compiled for row in bounded)
    assert all(0 < row.achieved_over_bound_ratio < 1 for row in bounded)
    assert {row.compiled for row in rows if row.achieved_over_bound_ratio is None} == {True}
    assert all(row.utilization_ratio is not None for row in rows)


@pytest.mark.parametrize("device", ["Tesla V100-PCIE-32GB", "NVIDIA GeForce RTX 4090", "NVIDIA GB200"])
def test_the_rows_of_one_device_are_those_of_all_rows(device):
    """A device whose row of peaks has several names, one with many rows, and one without any."""
    assert list(published_steps_on(device)) == on_device(published_steps(), device)


def test_no_device_of_the_peaks_has_no_rows():
    assert published_steps_on("nobody's card") == ()
