"""Definition, injected fault: `runners.count` over the peaks of a step's formats, and by convention of attention."""

import json
from pathlib import Path

import pytest

import flopledger
from runners import count as command
from tests.support.fakes.commands import refused, running, telling

DEVICE = "NVIDIA H100 80GB HBM3"

TWO_FORMATS = """
import torch

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = torch.nn.Linear(16, 32, dtype=torch.bfloat16), torch.nn.Linear(32, 8)

    def forward(self, x):
        return self.high(self.low(x.bfloat16()).float())

def build():
    return Two(), (torch.randn(4, 16),)
"""
LOW = 2 * 2 * 16 * 32
"""FLOP of one sample in bfloat16: forward, and the weight's gradient; the input asks for none."""
HIGH = 3 * 2 * 32 * 8


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "two_formats.py").write_text(TWO_FORMATS)
    return f"{tmp_path / 'two_formats.py'}:build"


def test_products_in_two_formats_have_both_denominators_by_name(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = telling(command.main, capsys)(model, "--counters", "exact", "--device", DEVICE)["peak"]
    bf16, fp32 = (flopledger.peak(DEVICE, each) for each in ("bf16", "fp32"))
    assert bf16 is not None
    assert fp32 is not None
    assert found["flop_by_dtype"] == {"bfloat16": LOW, "float32": HIGH}
    weighted = (LOW + HIGH) / (LOW / bf16.flop_per_s + HIGH / fp32.flop_per_s)
    assert found["operation_weighted_flop_per_s"] == pytest.approx(weighted)
    assert (found["single_format"], found["single_format_flop_per_s"]) == ("bf16", bf16.flop_per_s)
    assert {unit: each["flop_per_s"] for unit, each in found["by_format"].items()} == {
        "bf16": bf16.flop_per_s,
        "fp32": fp32.flop_per_s,
    }
    assert found["reason"] is None


def test_a_format_that_has_no_peak_is_named(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = telling(command.main, capsys)(model, "--counters", "exact", "--device", "Tesla P4")["peak"]
    assert (found["operation_weighted_flop_per_s"], found["single_format_flop_per_s"]) == (None, None)
    assert found["flop_by_dtype"] == {"bfloat16": LOW, "float32": HIGH}
    assert found["reason"] == flopledger.peak_refusal("Tesla P4", "bf16")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "NVIDIA H1000"], "--device: expected a device of the table of peaks"),
        (["--device", DEVICE, "--explain", "6N"], "--device: cannot be combined with --explain"),
        (["--device", DEVICE, "--format", "csv"], "--device: expected --format table or json with it, got csv"),
        (["--device", DEVICE, "--parallel", "dp=2"], "--parallel: cannot be combined with --device"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    words: list[str], said: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(running(command.main, capsys)(model, *words), said)


CONFIG = {
    "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 5, "hidden_size": 16,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "num_hidden_layers": 2, "intermediate_size": 16,
    "vocab_size": 16, "max_position_embeddings": 64,
}  # fmt: skip
OF_PAIR = 2 * 2 * 16 * 2 * 3
"""Of two layers 16 wide and three sequences: a score and its use, 2 FLOP a multiply-add."""


@pytest.mark.parametrize("counters", ["exact", "exact,flop_counter_mode"])
def test_each_way_of_asking_says_the_same(counters: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 12 · 12 pairs 78 are up to the diagonal, and 1 + 2 + 3 + 4 + 8 · 5 = 50 in the windows."""
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    words = [f"hf:{tmp_path}", "--size", "seq=12", "--batch-size", 3, "--counters", counters]
    found = telling(command.main, capsys)(*words)["attention"]
    dense = found["dense"]
    for convention, pairs in {"causal": 78, "mask_exact": 50}.items():
        for phase, times in {"forward_flop": 1, "backward_flop": 2}.items():
            assert dense[phase] - found[convention][phase] == times * OF_PAIR * (144 - pairs)
    assert found["hardware"] == dense, "a kernel that is given a mask leaves out nothing"
    assert "hardware" not in found["reasons"]
