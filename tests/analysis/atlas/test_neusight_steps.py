"""NeuSight's whole steps: which model a case means, what is refused and why."""

from __future__ import annotations

import lzma

import pytest

from analysis.atlas import is_neusight_steps, read_neusight_steps
from analysis.atlas.neusight_steps import BY_CONFIGURATION, MODULE

TIMES = '"{""num_layer"": 24, ""e2e_latency"": %s, ""fw_latency"": %s, ""bwall_latency"": %s}"'


@pytest.fixture
def read(tmp_path):
    """Reads rows (case, whole, forward, backward in ms) of an A100."""

    def of(*cases):
        path = tmp_path / "neusight" / "end_to_end.csv.xz"
        path.parent.mkdir(exist_ok=True)
        lines = [
            f"NVIDIA_A100-PCIE-40GB,{case},{TIMES % times}" for case, *values in cases for times in [tuple(values)]
        ]
        path.write_bytes(lzma.compress("\n".join(["device,case,json", *lines]).encode()))
        assert is_neusight_steps(path)
        return list(read_neusight_steps(path))

    return of


def test_a_case_is_a_model_a_mode_tokens_and_a_batch(read):
    train, infer, compiled = read(
        ("bert_large-train-512-8", 700, 300, 400),
        ("bert_large-inf-512-16", 400, 400, 0),
        ("bert_large-inf-512-8-fusion", 200, 200, 0),
    )
    assert (train.mode, train.sequence_length, train.batch_size) == ("train", 512, 8)
    assert (train.step_time_s, train.items_per_s) == (0.7, pytest.approx(8 / 0.7))
    assert train.counted_model == f"{MODULE}:bert_large_pretraining"
    assert infer.counted_model == f"{MODULE}:bert_large_classification"
    assert (train.device, train.precision, train.status) == ("NVIDIA A100-PCIE-40GB", "fp32", "ok")
    assert (train.reason, infer.compiled, compiled.compiled) == (BY_CONFIGURATION, False, True)
    assert train.file == "scripts/asplos/label/NVIDIA_A100-PCIE-40GB/bert_large-train-512-8.json"


@pytest.mark.parametrize(
    ("case", "times", "status", "reason"),
    [
        ("switchxl4-inf-512-1", (2, 2, 0), "no_model", "experts"),
        ("gpt5-inf-512-1", (2, 2, 0), "no_model", "no configuration"),
        ("gpt2_large-train-1024-4-dp4", (2, 0, 0), "not_counted", "four devices"),
        ("gpt2_large-train-1024-4", (0, 0, 0), "invalid", "0.0 for a time"),
        ("gpt2_large-train-1024-4", (5, 1, 3), "invalid", "are 4 ms, the step 5 ms"),
        ("gpt2_large-train-1024-x", (2, 1, 1), "invalid", "'x'"),
    ],
)
def test_what_cannot_be_used_has_the_reason(read, case, times, status, reason):
    (row,) = read((case, *times))
    assert row.status == status
    assert reason in row.reason


def test_another_table_is_refused(tmp_path):
    path = tmp_path / "end_to_end.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="expected the columns device, case and json, got none called case"):
        list(read_neusight_steps(path))
