"""`runners.count` by convention of attention, alone and beside other counters, against the pairs of a window."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runners.count import command
from tests.support.fakes.commands import running

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
    words = [f"hf:{tmp_path}", "--size", "seq=12", "--batch-size", 3, "--counters", counters, "--format", "json"]
    code, out, _ = running(command.main, capsys)(*words)
    assert code == 0
    found = json.loads(out)["attention"]
    dense = found["dense"]
    for convention, pairs in {"causal": 78, "mask_exact": 50}.items():
        for phase, times in {"forward_flop": 1, "backward_flop": 2}.items():
            assert dense[phase] - found[convention][phase] == times * OF_PAIR * (144 - pairs)
    assert found["hardware"] == dense, "a kernel that is given a mask leaves out nothing"
    assert "hardware" not in found["reasons"]


CAUSAL = """
import torch

class Causal(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.Linear(16, 48)

    def forward(self, x):
        query, key, value = self.parts(x).view(-1, 1024, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

def build():
    return Causal(), (torch.randn(1, 1024, 16),)
"""


def test_the_table_has_what_the_kernel_computes_beside_what_masks_keep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A causal call without a mask, of 1,024 words: torch's kernel for CPUs takes 256 queries by 512 keys, so that the
    first 512 queries meet 512 keys and the others all 1,024."""
    (tmp_path / "causal.py").write_text(CAUSAL)
    words = [f"{tmp_path / 'causal.py'}:build", "--counters", "exact"]
    code, out, _ = running(command.main, capsys)(*words, "--format", "json")
    assert code == 0
    found = json.loads(out)["attention"]
    less = 2 * 2 * 16 * (1024**2 - (512 * 512 + 512 * 1024))
    assert found["dense"]["forward_flop"] - found["hardware"]["forward_flop"] == less
    code, out, _ = running(command.main, capsys)(*words)
    assert code == 0
    share = sum(found["hardware"].values()) / sum(found["dense"].values())
    text = " ".join(out.split())
    assert f"({100 * share:.1f} % of dense)" in text
    assert "hardware (torch's kernels for CPUs)" in text
