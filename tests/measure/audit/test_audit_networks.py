"""The closed forms of networks that are no plain decoder, against what their modules run, small, for each type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Trainer

from analysis.audit import NetworkSizes, causes_of, networks, training_flop
from analysis.audit.forms import products
from analysis.operators.registry import cost
from measure.audit.modules import hub_model, outputs, sample
from measure.fast_count import trace_model
from tests.measure.audit.test_audit_exact import SHRUNK, small

TOKENS = 10

SIZES: Mapping[str, Mapping[str, int]] = {
    # of the scan: two chunks and a half, heads in two groups
    "mamba2-130m": {
        "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 8, "state_size": 6, "n_groups": 2,
        "chunk_size": 4, "vocab_size": 40,
    },
    "nemotron-3-nano-30b-a3b": {
        "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 20,
        "ssm_state_size": 6, "mamba_num_heads": 4, "mamba_head_dim": 10, "n_groups": 2, "chunk_size": 4,
        "vocab_size": 40, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
        "moe_shared_expert_intermediate_size": 14,
    },
    "bamba-9b": {
        "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
        "intermediate_size": 20, "ssm_state_size": 6, "mamba_num_heads": 4, "mamba_head_dim": 8, "chunk_size": 4,
        "vocab_size": 40,
    },
    "mamba-130m": {
        "hidden_size": 16, "num_hidden_layers": 2, "expand": 2, "state_size": 6, "conv_kernel": 3, "time_step_rank": 5,
        "vocab_size": 40,
    },
    "jamba-52b": {
        "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
        "intermediate_size": 20, "state_size": 6, "conv_kernel": 3, "time_step_rank": 5, "vocab_size": 40,
        "n_routed_experts": 8, "attn_layer_period": 4, "attn_layer_offset": 1,
    },
    "zamba2-1.2b": {
        "hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 4, "intermediate_size": 20,
        "ssm_state_size": 6, "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2, "chunk_size": 4,
        "num_mem_blocks": 2, "adapter_rank": 3, "vocab_size": 40,
    },
    "t5-small": {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 4, "vocab_size": 40},
    "flan-t5-xxl": {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 4, "vocab_size": 40},
    "bart-large": {
        "d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": 40, "positions": 32,
    },
    "vit-base": {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
        "image_size": 12, "patch_size": 4, "num_labels": 7, "positions": 10,
    },
    "dit-xl-2": {
        "hidden_size": 16, "depth": 2, "num_heads": 4, "input_size": 6, "frequency_size": 12, "num_classes": 5,
        "positions": 9,
    },
    "llama-3-8b-lora": {"rank": 3},
    "llama-3-70b-lora": {"rank": 3},
}  # fmt: skip
"""Configuration → sizes that are small, and unlike each other where a form could mistake one for another."""


def shrunk(name: str) -> NetworkSizes:
    network = networks()[name]
    base = small("llama") if network.model_type == "lora" else None
    patterns = {
        "nemotron_h": {"hybrid_override_pattern": "M*E-M"},
        "bamba": {"attn_layer_indices": "1"},
        "zamba2": {"hybrid_layer_ids": "1+3+4"},
    }
    words = {**network.words, **patterns.get(network.model_type, {})}
    return replace(network, sizes={**network.sizes, **SIZES[name]}, words=words, base=base)


@pytest.mark.parametrize("name", list(SIZES))
def test_a_closed_form_is_what_the_module_runs(name: str) -> None:
    network = shrunk(name)
    made = hub_model(network).to_empty(device="cpu")
    given = sample(network, TOKENS, "cpu")
    trace = trace_model(made, (), given, train=True, grad_inputs=None, loss_of=outputs)
    traced = sum(int(cost(operation).model_flop) for operation in trace.operations)
    assert traced == training_flop(network, TOKENS)


def test_a_vision_language_model_is_what_torch_counts() -> None:
    # its tower asks for the values of the picture's grid, which a fake tensor does not have: torch's own counter here
    base = replace(small("qwen2"), head_dim=4)
    sizes = {"depth": 2, "embed_dim": 16, "num_heads": 2, "patch_size": 2, "patches": 16}
    network = replace(networks()["qwen2-vl-7b"], base=base)
    network = replace(network, sizes={**network.sizes, **sizes})
    made = hub_model(network).to_empty(device="cpu")
    made.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        outputs(made(**sample(network, TOKENS, "cpu"))).sum().backward()
    assert counter.get_total_flops() == training_flop(network, TOKENS)


def small_llava() -> NetworkSizes:
    """A tower of three layers, of whose last one nothing is asked."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 20}
    pictures = {"image_size": 6, "patch_size": 3, "patches": 4}
    return replace(networks()["llava-1.5-7b"], base=small("llama"), sizes=sizes | pictures)


def test_a_picture_in_words_is_what_torch_counts() -> None:
    network = small_llava()
    made = hub_model(network).to_empty(device="cpu")
    places = made.model.vision_tower.embeddings.position_ids
    places.copy_(torch.arange(places.shape[-1])[None])
    made.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        outputs(made(**sample(network, TOKENS, "cpu"))).sum().backward()
    assert counter.get_total_flops() == training_flop(network, TOKENS)


def test_frozen_weights_have_half_of_the_backward_pass() -> None:
    # by hand, rank 0 would be a frozen decoder: forward, and the inputs' gradients of all but the first q, k and v
    network = shrunk("llama-3-8b-lora")
    thin = replace(network, sizes={"rank": 1})
    thinner = training_flop(network, TOKENS) - training_flop(thin, TOKENS)
    # of 2 ranks more: 6 × tokens × (what a matrix takes and gives), in 2 layers; q, k and v: 16 + 32, o: 32 + 16,
    # MLP: 3 × (16 + 24); less 2 × tokens × 3 × 16 in the first
    assert thinner == 2 * (6 * TOKENS * 2 * (4 * 48 + 3 * 40) - 2 * TOKENS * 3 * 16)


def test_small_sizes_are_those_of_the_test_of_decoders() -> None:
    assert (SHRUNK["hidden_size"], SHRUNK["head_dim"], SHRUNK["intermediate_size"]) == (16, 8, 24)


@pytest.mark.parametrize(
    "name", ["mamba-130m", "mamba2-130m", "nemotron-h", "bamba-9b", "zamba2-1.2b", "vit-base", "llama-3-8b-lora"]
)
def test_torchs_counter_is_what_lightnings_rule_says(name: str) -> None:
    network = shrunk(name) if name in SIZES else without_experts()
    made = hub_model(network)
    with FlopCounterMode(display=False) as counter:
        outputs(made(**sample(network, TOKENS))).sum().backward()
    causes = causes_of(network, TOKENS, "lightning")
    assert counter.get_total_flops() == training_flop(network, TOKENS) + sum(causes.values())


def without_experts() -> NetworkSizes:
    """Those of a hybrid run as one grouped product, for which torch's counter has no formula."""
    network = shrunk("nemotron-3-nano-30b-a3b")
    return replace(network, words={"hybrid_override_pattern": "M*-M"})


@pytest.mark.parametrize("name", list(SIZES))
def test_trainers_count_is_what_its_rule_says(name: str) -> None:
    network = shrunk(name)
    inputs: Any = sample(network, TOKENS)
    said = Trainer.floating_point_ops(SimpleNamespace(model=hub_model(network)), inputs)  # type: ignore[arg-type]
    assert said == training_flop(network, TOKENS) + sum(causes_of(network, TOKENS, "transformers").values())


@pytest.mark.parametrize(
    ("name", "published", "unit"),
    [
        ("mamba-130m", 129_135_360, 1),
        ("mamba-2.8b", 2_768_345_600, 1),
        ("jamba-52b", 52e9, 1e9),
        ("jamba-1.5-large", 398e9, 1e9),
        ("zamba2-1.2b", 1_215_064_704, 1),
        ("zamba2-7b", 7.4e9, 1e8),
    ],
)
def test_published_sizes_make_the_published_number_of_parameters(name: str, published: float, unit: float) -> None:
    """As model cards and papers say it, in the unit of their last digit. A tied head's weight is its table's."""
    found = sum(product.weights for product in products(networks()[name], 1) if not product.tied)
    assert abs(found - published) < unit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("mamba2-130m", 1000),  # four chunks, the last one padded
        ("mamba-130m", 60),
        ("nemotron-h-8b", 300),
        ("jamba-52b", 30),
        ("zamba2-7b", 300),
        ("t5-base", 512),
        ("bart-large", 1024),
        ("vit-huge", 257),
        ("dit-xl-2", 256),
        ("llama-3-8b-lora", 4096),
        ("llama-3-70b-lora", 512),
        ("qwen2.5-7b-lora", 131_072),
    ],
)
def test_published_sizes_are_what_their_modules_run(name: str, tokens: int) -> None:
    network = networks()[name]
    trace = trace_model(hub_model(network), (), sample(network, tokens), train=False, grad_inputs=None, loss_of=outputs)
    assert sum(int(cost(each).model_flop) for each in trace.operations) == training_flop(network, tokens)


def test_a_token_meets_as_many_of_jambas_parameters_as_were_published() -> None:
    """94 of 398 billion (arXiv:2408.12570): of the experts in every second layer, of three matrices each, 2 of 16."""
    jamba = networks()["jamba-1.5-large"]
    total = sum(parameter.numel() for parameter in hub_model(jamba).parameters())
    expert = 3 * jamba["hidden_size"] * jamba["intermediate_size"]
    assert (total - jamba["num_hidden_layers"] // 2 * (16 - 2) * expert) // 10**9 == 94
