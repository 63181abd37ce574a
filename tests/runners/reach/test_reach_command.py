"""`runners.reach`: a product whose bound is derived by hand, its forms of output, and what it refuses."""

from __future__ import annotations

import json
import math

import pytest

from analysis.reach import BatchCost
from runners.cli import MARGIN_RATIO, Mistake
from runners.footprint.command import Steps
from runners.footprint.fit import moments
from runners.footprint.step import StepOptions
from runners.reach import SMALL, cost_at
from runners.reach.command import _largest, main
from tests.support.fakes.commands import refused, running

DEVICE = "NVIDIA GeForce RTX 3090"
WIDTH, BATCH = 64, 8


@pytest.fixture
def reach(capsys):
    return running(main, capsys)


@pytest.fixture(scope="module")
def asked():
    return "synthetic_matmul", "--hyper", f"width={WIDTH}", "--batch-size", BATCH, "--device", DEVICE


def test_the_forward_pass_of_one_product_by_hand(reach, asked):
    """Two products of (batch, width) × (width, width) and what is between, in fp32: memory takes longer."""
    code, out, _ = reach(*asked, "--mode", "infer", "--format", "json")
    found = json.loads(out)
    assert code == 0
    cost = cost_at(StepOptions("synthetic_matmul", hyper={"width": WIDTH}), BATCH, "infer")
    assert found["model_flop"] == cost.model_flop
    assert found["model_flop"] % (2 * BATCH * WIDTH * WIDTH) == 0, "whole products of batch × width × width"
    products = found["model_flop"] // (2 * BATCH * WIDTH * WIDTH)
    weights = 4 * WIDTH * WIDTH * products
    assert found["bound_time_s"] >= weights / 936e9, "each weight is read once at least"
    assert found["bound_time_s"] >= found["model_flop"] / 35.6e12
    assert found["peak_flop_per_s"] == pytest.approx(35.6e12)
    assert found["attainable_ratio"] == pytest.approx(found["model_flop"] / 35.6e12 / found["bound_time_s"])
    assert found["bound_by"] == pytest.approx({"arithmetic": 0.0, "memory": 1.0})
    assert (found["eager_peak_bytes"], found["largest_batch"]) == (None, None), "of training alone"


def test_a_training_step_has_memory_and_a_largest_batch(reach, asked):
    code, out, _ = reach(*asked, "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert found["memory_bytes"] == 24 * 10**9
    assert 0 < found["eager_peak_bytes"] < found["memory_bytes"]
    assert found["largest_batch"] > BATCH
    infer = json.loads(reach(*asked, "--mode", "infer", "--format", "json")[1])
    assert found["bound_time_s"] > 2 * infer["bound_time_s"], "the backward pass reads every weight again"


@pytest.mark.parametrize("largest", [0, 1, 2, 3, 40])
def test_a_batch_of_one_is_traced_only_where_two_do_not_fit(largest):
    steps = Steps(StepOptions("synthetic_matmul", optimizer="sgd", hyper={"width": 4096}))
    bytes_free = max(moments(steps.at(largest + 1), "cuda", None)) - 1  # of the first batch that does not fit
    steps = Steps(StepOptions("synthetic_matmul", optimizer="sgd", hyper={"width": 4096}))
    assert _largest(steps, math.ceil(bytes_free / (1 - MARGIN_RATIO)), "") == largest
    assert (1 in steps._traced) == (largest < 2)


def test_a_step_that_takes_no_two_has_a_largest_batch():
    """As an exported graph with its batch fixed to eight has."""

    class OfEight(Steps):
        def at(self, batch_size):
            if batch_size != 8:
                raise Mistake(f"expected a batch of 8, got {batch_size}")
            return super().at(batch_size)

    assert _largest(OfEight(StepOptions("synthetic_matmul", hyper={"width": 8})), 10**9, "") == 8


def test_a_least_time_that_is_none_is_not_printed(reach):
    """A fused attention kernel moves fewer bytes than the parts of a trace: their sum bounds nothing."""
    words = ("tests.support.nets.masked_nets:build", "--device", DEVICE, "--precision", "amp-fp16")
    found = json.loads(reach(*words, "--format", "json")[1])
    assert (found["bound_time_s"], found["attainable_ratio"], found["bound_by"]) == (None, None, {})
    assert found["unfused_time_s"] > 0
    code, text, _ = reach(*words)
    assert code == 0
    assert "The least time of a step is not known." in text
    assert "No bound: attention is in parts" in text
    assert not {"at best", "least time", "bound by"} & {line.strip().partition("  ")[0] for line in text.splitlines()}


def test_memory_without_what_onednns_lstm_keeps_is_at_least(reach):
    """Its workspace has no known size: no memory of the step, and no largest batch."""
    words = ("wordlm", "--device", "NVIDIA H100 80GB HBM3", "--batch-sizes", "2")
    words += ("--hyper", "hidden=8,vocab=20,seq=4")
    found = json.loads(reach(*words, "--format", "json")[1])
    assert [found[name] for name in ("eager_peak_bytes", "largest_batch", "unfused_time_s", "unfused_ratio")] == [
        None
    ] * 4
    assert found["at_least_eager_peak_bytes"] > 0
    assert found["at_most_largest_batch"] > 2
    text = reach(*words)[1]
    assert "memory         at least " in text
    assert "largest batch  at most " in text
    assert "has no known size" in text


def test_the_cost_at_any_batch_is_that_of_a_trace_there():
    asked = StepOptions("resnet18", "amp-bf16", hyper={"image_size": 64})
    low, high = SMALL
    found, traced = BatchCost(low, cost_at(asked, low), high, cost_at(asked, high)).at(16), cost_at(asked, 16)
    assert found.model_flop == traced.model_flop
    assert (found.group_flop == traced.group_flop).all()
    assert (found.group_bytes == traced.group_bytes).all()


def test_text_and_csv_have_the_numbers_of_the_document(reach, asked):
    document = json.loads(reach(*asked, "--mode", "infer", "--format", "json")[1])
    head, row = (line.split(",") for line in reach(*asked, "--mode", "infer", "--format", "csv")[1].splitlines())
    assert float(dict(zip(head, row, strict=False))["bound_time_s"]) == document["bound_time_s"]
    text = reach(*asked, "--mode", "infer")[1]
    assert max(map(len, text.splitlines())) <= 100
    assert f"{document['model_flop']:,}" in text
    assert "No step of it can use more than" in text


def test_what_cannot_be_asked(reach, asked, tmp_path):
    refused(reach("synthetic_matmul", "--device", "RTX 3O90"), "expected a device", "'RTX 3O90'", "GeForce RTX 3090")
    refused(reach("synthetic_matmull", "--device", DEVICE), "synthetic_matmul")
    refused(reach(*asked, "--precision", "fp8"), "fp8")
    refused(
        reach(*asked[:-2], "--device", "Tesla P100-PCIE-16GB", "--precision", "amp-bf16"),
        "no datasheet peak of bf16",
        code=1,
    )
    (tmp_path / "file").write_text("")
    refused(reach(*asked, "--mode", "infer", "--out", tmp_path / "file" / "x.txt"), "could not be written", code=3)


def test_relatives_of_compiled_steps_alone(reach):
    words = ("timm:resnet50", "--device", "RTX 4090", "--mode", "infer", "--precision", "amp-fp16")
    every = json.loads(reach(*words, "--format", "json")[1])
    compiled = json.loads(reach(*words, "--compile", "--format", "json")[1])
    assert compiled["bound_time_s"] == every["bound_time_s"]
    assert compiled["relatives"]
    assert all("compiled" in each["framework"] for each in compiled["relatives"])
    assert any("eager and compiled" in note for note in compiled["notes"])
