"""Configurations of transformers that ask for millions of layers are refused before anything is built."""

from __future__ import annotations

import json

import pytest

from workloads.catalogue.model_names import parse, read_config


def config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "bert", **values}))
    return parse(f"hf:{path}")


@pytest.mark.parametrize(
    "values",
    [
        {"num_hidden_layers": 10_000_000},
        {"text_config": {"num_hidden_layers": 10_000_000}},
        {"n_layer": 20_001},
        {"depths": [10_000, 10_001]},
        {"layer_types": ["full_attention"] * 20_001},
        {"num_hidden_layers": 10_000, "num_local_experts": 10_000},
    ],
    ids=str,
)
def test_more_layers_than_the_limit_are_refused(tmp_path, values):
    with pytest.raises(ValueError, match=r"FLOPLEDGER_LIMITS=config_(layers|modules)=N raises the limit") as fault:
        read_config(config(tmp_path, **values))
    assert len(str(fault.value)) < 400


def test_what_counts_no_modules_may_be_large(tmp_path, monkeypatch):
    read_config(config(tmp_path, num_hidden_layers=61, n_routed_experts=256, block_size=1_048_576, vocab_size=10**6))
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "config_layers=60")
    with pytest.raises(ValueError, match="num_hidden_layers is 61: more than 60"):
        read_config(config(tmp_path, num_hidden_layers=61))


def test_one_expert_a_layer_makes_no_more_modules(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "config_modules=60")
    read_config(config(tmp_path, num_hidden_layers=60, num_experts=1))
    with pytest.raises(ValueError, match="its layers and experts are 120: more than 60"):
        read_config(config(tmp_path, num_hidden_layers=60, num_experts=2))


def test_a_large_or_endless_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="expected JSON"):
        read_config(parse(f"hf:{path}"))
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "config_bytes=1000")
    with pytest.raises(ValueError, match="config_bytes=N"):
        read_config(parse(f"hf:{path}"))


KERNEL = "somebody/kernel"


@pytest.mark.parametrize(
    "values",
    [
        {"attn_implementation": KERNEL},
        {"_attn_implementation": KERNEL},
        {"_attn_implementation_internal": f"{KERNEL}:attention"},
        {"attn_implementation": {"": "sdpa", "text_config": KERNEL}},
        {"experts_implementation": KERNEL},
        {"text_config": {"_attn_implementation": KERNEL}},
        {"parts": [{"_attn_implementation": KERNEL}]},
        {"attn_implementation": "flash_attention_2"},
        {"attn_implementation": [KERNEL]},
    ],
    ids=str,
)
def test_a_kernel_of_the_hub_is_refused(tmp_path, values):
    """transformers would load it, and run its code, from the hub or from its cache."""
    with pytest.raises(ValueError, match=r"_implementation.*: expected one of eager, sdpa, .*, got ") as fault:
        read_config(config(tmp_path, **values))
    assert len(str(fault.value)) < 400


@pytest.mark.parametrize("values", [{"attn_implementation": "eager"}, {"_attn_implementation": None}], ids=str)
def test_implementations_of_pytorch_are_taken(tmp_path, values):
    assert read_config(config(tmp_path, **values)) == {"model_type": "bert", **values}
