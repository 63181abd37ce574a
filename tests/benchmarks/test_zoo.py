"""The zoo's command asks `runners.count` with all of its options, and goes on with models that are known in part."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.pages import zoo
from measure.counters.harness import registry

NETS = """
import torch
from torch import nn


@torch.library.custom_op("zoo_test::multiplied", mutates_args=())
def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


multiplied.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))


class Hiding(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = nn.Linear(8, 8)

    def forward(self, x):
        return self.seen(x) + multiplied(x.detach(), torch.ones(8, 8))


def hiding():
    return Hiding(), (torch.ones(1, 8),)
"""


def test_a_model_that_is_known_in_part_has_its_rows_and_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nets.py"
    file.write_text(NETS)
    model, out = f"{file}:hiding", tmp_path / "zoo"
    monkeypatch.setattr(registry, "COUNTERS", {"flopledger": registry.COUNTERS["flopledger"]})
    monkeypatch.setattr(sys, "argv", ["zoo", "--out", str(out), "--models", model, "--batches", "1"])
    assert zoo.main() == 0
    assert "a part has no count" in capsys.readouterr().out
    accounts, _ = zoo.read(out)
    forward = next(row for row in accounts if row.phase == "forward")
    assert (forward.exact_flop, forward.at_least_flop, forward.unknown_calls) == (None, 2 * 8 * 8, 1)
    page = tmp_path / "page.md"
    monkeypatch.setattr(sys, "argv", ["zoo", "--write", str(page), str(out)])
    assert zoo.main() == 0
    assert f"| {model} | ≥ 128 FLOP | – |" in page.read_text(encoding="utf-8")
