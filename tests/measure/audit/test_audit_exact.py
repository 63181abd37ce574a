"""The closed forms of the audit against a trace of transformers' own module, small, for each type of model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from analysis.audit import Architecture, architectures, training_flop
from measure.audit.modules import hub_model
from measure.fast_count import trace_model

TOKENS = 6

SHRUNK = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 8,
    "intermediate_size": 24,
    "vocab_size": 40,
}


def small(model_type: str) -> Architecture:
    """The first configuration of a type with small sizes, and what makes it that type kept."""
    model = next(each for each in architectures().values() if each.model_type == model_type)
    plain = model_type in ("gpt2", "bert", "modernbert")
    grouped = model.num_key_value_heads < model.num_attention_heads
    sizes = SHRUNK | {"num_key_value_heads": 2 if grouped else 4} | ({"head_dim": 4} if plain else {})
    if model.num_experts:
        sizes |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
    if model.kv_lora_rank:
        sizes |= {"kv_lora_rank": 6, "q_lora_rank": 10, "qk_rope_head_dim": 2, "v_head_dim": 4}
        sizes |= {"first_k_dense_replace": 1, "shared_experts": 2}
    return replace(model, **sizes)


TYPES = list(dict.fromkeys(model.model_type for model in architectures().values()))


@pytest.mark.parametrize("model_type", TYPES)
def test_a_closed_form_is_what_the_module_runs(model_type: str) -> None:
    from analysis.operators.registry import cost

    model = small(model_type)
    words = torch.zeros(1, TOKENS, dtype=torch.long)
    trace = trace_model(
        hub_model(model).to_empty(device="cpu"),
        (words,),
        {},
        train=True,
        grad_inputs=None,
        loss_of=lambda output: output.logits,
    )
    traced = sum(int(cost(operation).model_flop) for operation in trace.operations)
    assert traced == training_flop(model, TOKENS)
