"""`runners.count --device`: the peak of a step's formats together beside that of one format, against sums by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import flopledger
from runners.count import command
from tests.support.fakes.commands import running

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
    words = [model, "--counters", "exact", "--device", DEVICE]
    code, out, _ = running(command.main, capsys)(*words, "--format", "json")
    assert code == 0
    found = json.loads(out)["peak"]
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
    code, out, _ = running(command.main, capsys)(*words)
    assert code == 0
    line = " ".join(out.split())
    assert f"of its formats together ({100 * LOW / (LOW + HIGH):.1f} % bfloat16, " in line
    assert "of bf16 alone" in line


def test_without_a_device_there_is_no_peak_and_a_format_that_has_none_is_named(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = running(command.main, capsys)(model, "--counters", "exact", "--format", "json")
    assert code == 0
    assert json.loads(out)["peak"] is None
    words = [model, "--counters", "exact", "--device", "Tesla P4", "--format", "json"]
    code, out, _ = running(command.main, capsys)(*words)
    assert code == 0
    found = json.loads(out)["peak"]
    assert found["operation_weighted_flop_per_s"] is None
    assert found["single_format_flop_per_s"] is None
    assert found["flop_by_dtype"] == {"bfloat16": LOW, "float32": HIGH}
    assert found["reason"] == flopledger.peak_refusal("Tesla P4", "bf16")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "NVIDIA H1000"], "--device: expected a device of the table of peaks"),
        (["--device", DEVICE, "--law"], "--device: goes without --law"),
        (["--device", DEVICE, "--format", "csv"], "--device: goes with --format table or json"),
        (["--device", DEVICE, "--parallel", "dp=2"], "--parallel: goes without --device"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    words: list[str], said: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = running(command.main, capsys)(model, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
