"""A `config.json` of one's own: read as the sizes that transformers wrote it from, or refused with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from analysis.audit import CONVENTIONS, own_architecture, training_flop
from analysis.audit.architecture import layer_types
from measure.audit.modules import hub_config
from tests.measure.audit.test_audit_exact import TYPES, small

WRITTEN = [each for each in TYPES if each != "nanochat"]
ALL_EXPERTS = ("mixtral", "gpt_oss")
"""Types whose configuration has the experts' width alone."""


@pytest.mark.parametrize("model_type", WRITTEN)
def test_what_transformers_writes_is_read_as_the_sizes_that_it_was_made_of(model_type: str) -> None:
    model = small(model_type)
    found = own_architecture("mine", json.loads(hub_config(model).to_json_string(use_diff=False)))
    same: dict[str, Any] = {"name": "", "family": "", "source": "", "full_every": 0}
    if model_type in ALL_EXPERTS:
        same["intermediate_size"] = 0
    assert replace(found, **same) == replace(model, **same)
    assert layer_types(found) == layer_types(model)
    for convention in CONVENTIONS:
        assert training_flop(found, 6, convention) == training_flop(model, 6, convention)


LLAMA = {
    "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 40,
    "intermediate_size": 24,
}  # fmt: skip


def test_sizes_that_are_left_out_are_those_of_the_type() -> None:
    found = own_architecture("mine", LLAMA)
    assert (found.num_key_value_heads, found.head_dim, found.gated, found.tied) == (4, 4, 1, 0)
    gpt2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 9, "n_positions": 12}
    found = own_architecture("mine", gpt2)
    assert (found.intermediate_size, found.gated, found.tied, found.positions) == (32, 0, 1, 12)


def test_a_pattern_of_windows_is_that_of_the_layers() -> None:
    windows = LLAMA | {"model_type": "gemma3_text", "num_hidden_layers": 5, "sliding_window": 3}
    types = ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"]
    assert own_architecture("mine", windows | {"layer_types": types}).windowed_layers == 3
    assert own_architecture("mine", windows).windowed_layers == 5, "one of six sees all"
    assert own_architecture("mine", windows | {"sliding_window_pattern": 5}).windowed_layers == 4
    assert own_architecture("mine", windows | {"layer_types": ["sliding_attention"] * 5}).windowed_layers == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mamba"}, "expected a model_type of llama, mistral"),
        ({"model_type": None}, "got None"),
        ({"model_type": ["llama"]}, "got ['llama']"),
        ({"hidden_size": None}, "expected a whole number from 1 as hidden_size, got None"),
        ({"num_attention_heads": 0}, "expected a whole number from 1 as num_attention_heads, got 0"),
        ({"vocab_size": True}, "as vocab_size, got True"),
        ({"vocab_size": 1.5}, "as vocab_size, got 1.5"),
        ({"num_hidden_layers": 10**9}, "expected at most 10,000 layers"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window = True is not counted"),
        ({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}, "3 experts for a token, of 2"),
        (
            {"model_type": "gpt_oss", "sliding_window": 4, "layer_types": ["full_attention", "sliding_attention"]},
            "layer_types are in an order that is not counted",
        ),
    ],
)
def test_what_is_not_counted_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r"^mine: ") as fault:
        own_architecture("mine", LLAMA | changes)
    assert words in str(fault.value)
    assert "\n" not in str(fault.value)
