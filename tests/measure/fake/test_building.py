"""Models are built without weights where a count needs none: nothing is allocated, and inputs keep their values."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from torch import nn

from measure.counters.harness.isolation import count_isolated
from measure.fake.building import built_on_meta, modules_on_meta
from runners.count import command
from runners.workers.any_model import FACTORY, FAST
from tests.support.fakes.commands import running


class Reads(nn.Module):
    """Its construction reads a value."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(int(torch.ones(3).sum().item())))


def test_what_modules_hold_has_no_values_and_inputs_have_theirs():
    with modules_on_meta():
        model, x = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)), torch.ones(2, 8)
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}
    assert float(x.sum()) == 16


def test_a_model_that_reads_values_while_it_is_built_is_built_with_them():
    assert {p.device.type for p in built_on_meta(Reads).parameters()} == {"cpu"}
    assert {p.device.type for p in built_on_meta(lambda: nn.Linear(2, 2)).parameters()} == {"meta"}


HUGE = """
import torch
from torch import nn
def build():
    return nn.Sequential(*(nn.Linear(2**17, 2**17, bias=False) for _ in range(4))), torch.ones(1, 2**17)
"""


def counted(model: str, hyper: dict[str, int]) -> list:
    return count_isolated("exact", model, hyper, (1,), 60.0, factory=FACTORY, registry={"exact": (FAST, "")})


def test_weights_that_no_machine_holds_are_counted(tmp_path):
    """4 products of 2¹⁷ × 2¹⁷, of weights of 275 GB; the first layer's input asks for no gradient."""
    (tmp_path / "huge.py").write_text(HUGE)
    forward, backward, _ = counted(f"{tmp_path}/huge.py:build", {})
    assert (forward.flop, backward.flop) == (4 * 2 * 2**34, 7 * 2 * 2**34)
    assert forward.peak_memory_bytes < 1.5e9


def test_gpt_of_175_billion_parameters_is_counted_in_a_process_of_its_own():
    """12 d² a layer and the head: 2 FLOP for each of a token, and 4 · length · d of attention a layer."""
    forward, *_ = counted("gpt", {"d_model": 12288, "layers": 96, "heads": 96, "seq": 2048})
    d, length = 12288, 2048
    vocabulary = (forward.parameters - 96 * 12 * d * d) // d  # and a few biases, norms and positions
    products = forward.flop - 2048 * 96 * (24 * d * d + 4 * length * d)
    assert forward.parameters > 170e9
    assert 0 < products <= 2 * 2048 * d * vocabulary


@pytest.mark.skipif(sys.platform != "linux", reason="what is free is read from Linux")
def test_counters_that_need_weights_are_left_out_with_the_reason(capsys, tmp_path):
    """32 layers of 12 · 8192² weights of 4 bytes, and as many gradients: 206 GB."""
    sizes = {"model_type": "gpt2", "n_embd": 8192, "n_layer": 32, "n_head": 64, "vocab_size": 64, "n_positions": 16}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    arguments = (f"hf:{tmp_path}", "--counters", "exact,fvcore", "--format", "json")
    code, out, _ = running(command.main, capsys)(*arguments)
    told = json.loads(out)
    (ours, theirs) = told["counters"]
    assert (code, ours["status"], theirs["status"]) == (0, "ok", "unavailable")
    assert "weights and gradients are 20" in theirs["reason"]
    assert told["exact"]["forward_flop"] > 2 * 16 * 32 * 12 * 8192**2
