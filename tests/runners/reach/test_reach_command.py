"""Definition, command, injected fault: `runners.reach` for one product by hand, in each format; its refusals."""

import csv
import io
import math

import pytest
import torch

from analysis.reach.bound import step_cost
from runners.cli.arguments import MARGIN_RATIO
from runners.footprint import StepTraces
from runners.reach import _largest, main, operations_of, trace_forward
from runners.workers.traced_step import StepOptions, moments, trace_batch
from tests.support.fakes.commands import refused, running, telling


class Biased(torch.nn.Module):
    """Attention over 8 tokens of 16 numbers, with 2 heads. PyTorch runs it in parts on a CPU, CUDA may have one
    kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.bias = torch.nn.Linear(16, 48), torch.nn.Parameter(torch.zeros(8, 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.inputs(tokens).view(-1, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=self.bias)


def build() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """The first model and a batch of 2."""
    return Biased(), (torch.randn(2, 8, 16),)


DEVICE = "NVIDIA GeForce RTX 3090"
WIDTH, BATCH = 64, 8
MATMUL = ("synthetic_matmul", "--size", f"width={WIDTH}", "--batch-size", BATCH, "--device", DEVICE)
RESNET = ("resnet18", "--device", DEVICE, "--precision", "amp-fp16", "--batch-size", 64)


@pytest.fixture
def reach(capsys):
    return running(main, capsys)


@pytest.fixture
def document(capsys):
    return telling(main, capsys)


def test_the_forward_pass_of_one_product_by_hand(document):
    """Two products of (batch, width) × (width, width) and what is between, in fp32: memory takes longer."""
    found = document(*MATMUL, "--mode", "infer")
    asked = StepOptions("synthetic_matmul", hyper={"width": WIDTH})
    assert found["model_flop"] == step_cost(operations_of(asked, trace_forward(asked, BATCH))).model_flop
    assert found["model_flop"] % (2 * BATCH * WIDTH * WIDTH) == 0, "whole products of batch × width × width"
    products = found["model_flop"] // (2 * BATCH * WIDTH * WIDTH)
    weights = 4 * WIDTH * WIDTH * products
    assert found["bound_time_s"] >= weights / 936e9, "each weight is read once at least"
    assert found["bound_time_s"] >= found["model_flop"] / 35.6e12
    assert found["peak_flop_per_s"] == pytest.approx(35.6e12)
    assert found["attainable_ratio"] == pytest.approx(found["model_flop"] / 35.6e12 / found["bound_time_s"])
    assert found["bound_by"] == pytest.approx({"arithmetic": 0.0, "memory": 1.0})
    assert (found["eager_peak_bytes"], found["largest_batch"]) == (None, None), "of training only"


def test_a_training_step_has_memory_and_a_largest_batch(document):
    found, infer = document(*MATMUL), document(*MATMUL, "--mode", "infer")
    assert found["memory_bytes"] == 24 * 10**9
    assert 0 < found["eager_peak_bytes"] < found["memory_bytes"]
    assert BATCH < found["largest_batch"] <= found["at_most_largest_batch"]
    assert found["largest_batch"] % 8 == 0
    assert found["bound_time_s"] > 2 * infer["bound_time_s"], "the backward pass reads every weight again"


@pytest.mark.parametrize("largest", [0, 1, 2, 3, 40])
def test_a_batch_of_one_is_traced_only_where_two_do_not_fit(largest):
    steps = StepTraces(StepOptions("synthetic_matmul", optimizer="sgd", hyper={"width": 4096}))
    bytes_free = max(moments(steps.trace_of(largest + 1), "cuda", None)) - 1  # of the first batch that does not fit
    batches = []
    steps = StepTraces(steps.options, lambda asked, batch: batches.append(batch) or trace_batch(asked, batch))
    assert _largest(steps, math.ceil(bytes_free / (1 - MARGIN_RATIO)), "").largest_batch == largest
    assert (1 in batches) == (largest < 2)


def test_a_least_time_that_is_none_is_not_printed(reach, document):
    """A fused attention kernel moves fewer bytes than the parts of a trace: their sum bounds nothing."""
    words = ("tests.runners.reach.test_reach_command:build", "--device", DEVICE, "--precision", "amp-fp16")
    found = document(*words)
    assert (found["bound_time_s"], found["attainable_ratio"], found["bound_by"]) == (None, None, {})
    assert found["unfused_time_s"] > 0
    assert found["step_time_s"] > 0
    text = reach(*words)[1]
    assert "The least time of a step is not known." in text
    assert not {"at best", "least time", "bound by"} & {line.strip().partition("  ")[0] for line in text.splitlines()}


def test_the_same_numbers_as_text_csv_and_json(reach, document):
    found = document(*RESNET)
    assert found["bound_time_s"] <= found["low_step_time_s"] < found["step_time_s"] < found["high_step_time_s"]
    assert found["items_per_s"] == pytest.approx(64 / found["step_time_s"])
    used = found["model_flop"] / found["peak_flop_per_s"] / found["step_time_s"]
    assert found["utilization_ratio"] == pytest.approx(used)
    assert found["low_utilization_ratio"] < used < found["high_utilization_ratio"] < found["attainable_ratio"]
    assert sum(part["time_s"] for part in found["parts"]) == pytest.approx(found["step_time_s"])
    assert (found["nominal_ratio"], found["device_status"], found["step_energy_j"]) == (0.9, "measured", None)
    (row,) = csv.DictReader(io.StringIO(reach(*RESNET, "--format", "csv")[1]))
    assert float(row["step_time_s"]) == found["step_time_s"]
    assert float(row["bound_time_s"]) == found["bound_time_s"]
    assert float(row["bound_by_memory_ratio"]) == found["bound_by"]["memory"]
    assert f"{found['model_flop']:,}" in reach(*RESNET)[1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--compile",), "no published step was fitted in this setting: train, channels_first, compiled"),
        (("--precision", "fp32"), "no published step in fp32 was fitted"),
    ],
)
def test_a_time_without_ground_is_null_and_the_notes_say_why(document, words, reason):
    found = document(*RESNET, *words)
    assert [found[name] for name in ("step_time_s", "low_step_time_s", "utilization_ratio", "scores")] == [None] * 4
    assert found["parts"] == []
    assert found["bound_time_s"] > 0
    assert any(note.startswith(f"No predicted time: {reason}") for note in found["notes"])


def test_what_others_measured_of_this_model_on_this_device(document):
    found = document(*RESNET)
    assert found["published"] == found["relatives"] != []
    for row in found["published"]:
        assert (row["model"], row["device"], row["precision"]) == ("timm:resnet18", DEVICE, "amp-fp16")
        assert 0 < row["utilization_ratio"] < found["attainable_ratio"]
        assert 0 < row["achieved_over_bound_ratio"] < 1
        assert row["batch_size"] > 0
        assert row["source"].startswith("timm: benchmark-train-amp-")


def test_what_cannot_be_asked(reach, tmp_path):
    refused(reach("synthetic_matmul", "--device", "RTX 3O90"), "expected a device", "'RTX 3O90'", "GeForce RTX 3090")
    refused(reach(*RESNET, "--batch-size", 0), "--batch-size")
    refused(
        reach(*MATMUL[:-2], "--device", "Tesla P100-PCIE-16GB", "--precision", "amp-bf16"),
        "no datasheet peak of bf16",
        code=1,
    )
    (tmp_path / "file").write_text("")
    refused(reach(*MATMUL, "--mode", "infer", "--out", tmp_path / "file" / "x.txt"), "could not be written", code=3)
