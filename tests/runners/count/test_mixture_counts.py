"""`runners.count` of a mixture of experts by part, alone and beside other counters, against closed forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from measure.counters.adapters import own
from measure.counters.harness import child
from reports.count.text import ModelCounts, document, mixture_words
from runners.count import command
from runners.workers import any_model
from tests.support.fakes.commands import running

WIDTH, INNER, SHARED, LAYERS, EXPERTS, CHOSEN, TOKENS = 16, 12, 20, 2, 8, 2, 3 * 10
CONFIG = {
    "model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": WIDTH, "vocab_size": 16,
    "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": LAYERS, "num_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN, "moe_intermediate_size": INNER, "shared_expert_intermediate_size": SHARED,
    "decoder_sparse_step": 1, "max_position_embeddings": 64,
}  # fmt: skip

TOKEN, EXPERT = 2 * TOKENS * LAYERS, 3 * WIDTH * INNER
PARTS = {
    "router_flop": TOKEN * WIDTH * EXPERTS,
    "experts_flop": TOKEN * CHOSEN * EXPERT,
    "shared_flop": TOKEN * (3 * WIDTH * SHARED + WIDTH),
    "chosen_flop": TOKEN * CHOSEN * EXPERT,
    "experts": EXPERTS,
    "experts_per_token": CHOSEN,
}
"""An expert is three products of WIDTH × INNER, the shared one of WIDTH × SHARED with a gate of WIDTH."""


def check(found: Mapping[str, Any]) -> None:
    assert {name: found[name] for name in PARTS} == PARTS
    assert found["parameters"] - found["active_parameters"] == LAYERS * (EXPERTS - CHOSEN) * EXPERT


@pytest.fixture
def spec(tmp_path: Path) -> str:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return f"hf:{tmp_path}"


def test_the_counts_and_the_recording_have_the_same_parts(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = any_model.get(spec, seq=10)
    model = workload.build(**workload.hyper).eval()
    inputs = workload.batch(workload.hyper, 3, torch.device("cpu"), torch.Generator()).inputs
    for counter in (any_model.exact, own.count):
        first, *others = counter(model, inputs, workload=spec, batch_size=3)
        check(first.mixture)
        assert not any(row.mixture for row in others)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    task = child.Task("", "", "", "", spec, {}, (3,), 60, "", records=True)
    check(child._record_calls(task, workload, model, 3, has_weights=True).mixture)


@pytest.mark.parametrize(
    ("ran", "padding", "words"),
    [
        (1000, 0, "experts 1.00 kFLOP,"),
        (1500, 500, "(500 FLOP of them padding)"),
        (600, -400, "(dropped tokens lack 400 FLOP)"),
    ],
)
def test_what_is_said_of_a_mixture(ran: int, padding: int, words: str) -> None:
    mixture = PARTS | {"experts_flop": ran, "chosen_flop": 1000, "parameters": 4000, "active_parameters": 3000}
    counted = ModelCounts("m", 1, 4000, {}, {}, {}, (), (), {}, mixture=mixture)
    assert document(counted)["mixture"] == mixture | {"padding_flop": padding}
    said = mixture_words(counted)
    assert words in said
    assert said.endswith("a token meets 3.00 k of 4.00 k parameters (2 of 8 experts)")
    unknown = mixture | {"chosen_flop": None, "active_parameters": None}
    assert "does not say" in mixture_words(ModelCounts("m", 1, 1, {}, {}, {}, (), (), {}, mixture=unknown))
    plain = ModelCounts("m", 1, 1, {}, {}, {}, (), (), {})
    assert (document(plain)["mixture"], mixture_words(plain)) == (None, "")


@pytest.mark.slow
@pytest.mark.parametrize("counters", ["exact", "exact,flop_counter_mode"])
def test_the_command_says_the_parts(counters: str, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (spec, "--size", "seq=10", "--batch-size", 3, "--counters", counters, "--format", "json")
    code, out, _ = running(command.main, capsys)(*words)
    assert code == 0
    check(json.loads(out)["mixture"])
