"""Formulas of frameworks that are no package, re-derived from their source in our own words: read, not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from analysis.audit.architecture import Architecture
from analysis.audit.network import Model, NetworkSizes
from analysis.audit.parts import projection_weights
from analysis.audit.state_space import pattern_of

if TYPE_CHECKING:
    from analysis.audit.answers import Framework


def reading(framework: Framework, model: Model, tokens: int) -> Mapping[str, object]:
    """What the formula gives, as `account` takes it; a reason where it has none for such a model."""
    if framework.framework not in READINGS:
        return {"reason": framework.place}
    formulas, trains = READINGS[framework.framework]
    if model.model_type not in formulas:
        return {"reason": f"{framework.framework} trains {trains}"}
    return {"flop": str(formulas[model.model_type](model, tokens))}


def _decoder(formula: Callable[[Architecture, int], int | Fraction]) -> Callable[[Model, int], int | Fraction]:
    def of_decoder(model: Model, tokens: int) -> int | Fraction:
        return formula(model if isinstance(model, Architecture) else model.decoder, tokens)

    return of_decoder


def _network(formula: Callable[[NetworkSizes, int], int | Fraction]) -> Callable[[Model, int], int | Fraction]:
    def of_network(model: Model, tokens: int) -> int | Fraction:
        if isinstance(model, Architecture):
            raise ValueError(f"{model.name}: expected a network")
        return formula(model, tokens)

    return of_network


def nanogpt(model: Architecture, tokens: int) -> int:
    """6 × weights, biases and the tied table, without positions; and 12 × layers × hidden × tokens of attention."""
    hidden, layers = model.hidden_size, model.num_hidden_layers
    block = projection_weights(model) + 4 * hidden  # with the biases of queries, keys, values and output
    block += 2 * hidden * model.intermediate_size + model.intermediate_size + hidden
    block += 4 * hidden  # two normalisations
    parameters = block * layers + 2 * hidden + model.vocab_size * hidden
    return tokens * (6 * parameters + 12 * layers * hidden * tokens)


def nanochat(model: Architecture, tokens: int) -> int:
    """6 × all parameters but the table's, and 12 × layers × heads × head size × tokens of attention."""
    hidden, layers = model.hidden_size, model.num_hidden_layers
    parameters = layers * (4 * hidden * hidden + 8 * hidden * hidden) + model.vocab_size * hidden
    return tokens * (6 * parameters + 12 * layers * hidden * tokens)


def megatron_lm(model: Architecture, tokens: int) -> int:
    """6 × of products; half of the pairs; the weights of MLA's two normalisations; a gate where SwiGLU is asked for,
    which the other gates' options are not; no router."""
    factor = 3 if model.gated and model.model_type != "gpt_oss" else 2
    experts = model.moe_intermediate_size * (model.num_experts_per_tok + model.shared_experts)
    mlp = factor * (model.intermediate_size * model.dense_layers + experts * model.moe_layers)
    norms = model.q_lora_rank + model.kv_lora_rank
    half = tokens * model.num_attention_heads * (model.head_dim + model.value_dim) // 2
    attention = model.num_hidden_layers * (projection_weights(model) + norms + half)
    return 6 * tokens * (model.hidden_size * (mlp + model.vocab_size) + attention)


def megatron_lm_hybrid(network: NetworkSizes, tokens: int) -> Fraction:
    """3 × forward, by the letters of its pattern. A Mamba-2 layer has an inner width of 2 × hidden, and a scan of 7
    operations for each state of each of its channels."""
    hidden, heads = network["hidden_size"], network.get("num_attention_heads")
    matrices = 3 if network.get("gated") else 2
    inner = 2 * hidden
    state = network.get("state_size") or network["ssm_state_size"]
    mixers = network.get("num_heads") or network["mamba_num_heads"]
    mixer = 2 * hidden * (2 * inner + 2 * network["n_groups"] * state + mixers) + 7 * inner * state + 2 * inner * hidden
    queries = heads * network["head_dim"]
    kept = Fraction(network.get("num_key_value_heads"), heads) if heads else Fraction(0)
    shared = network.get("moe_shared_expert_intermediate_size")
    active = network.get("moe_intermediate_size") * network.get("num_experts_per_tok")
    of_layer = {
        "M": Fraction(mixer),
        "*": 4 * queries * (hidden * (1 + kept) + Fraction(tokens, 2)),
        "-": Fraction(2 * matrices * hidden * network.get("intermediate_size")),
        "E": Fraction(4 * hidden * (active + shared)),
    }
    forward = sum(of_layer[letter] for letter in pattern_of(network)) + 2 * hidden * network["vocab_size"]
    return Fraction(3 * tokens * forward)


Formulas = Mapping[str, Callable[[Model, int], int | Fraction]]

GATED = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3")

READINGS: Mapping[str, tuple[Formulas, str]] = {
    "nanogpt": ({"gpt2": _decoder(nanogpt)}, "models of GPT-2's form alone"),
    "nanochat": ({"nanochat": _decoder(nanochat)}, "models of its own form alone"),
    "megatron_lm": (
        dict.fromkeys(("gpt2", "gpt_oss", *GATED), _decoder(megatron_lm))
        | dict.fromkeys(("mamba2", "nemotron_h", "bamba"), _network(megatron_lm_hybrid)),
        "decoders and hybrids, and its options have no gate but SwiGLU and the quick GeGLU",
    ),
}
"""Framework → (type of model → its formula, what it trains)."""
