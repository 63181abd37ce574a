"""What each framework's formula counts otherwise than the exact dense count, in words of our own, cause by cause.

Each rule is derived from the formula's source, not from its numbers: a cause is listed only if its FLOP follow from
sizes of the model. Exact count + all causes = what the framework says; a test runs the frameworks and holds this.
Raises KeyError for a type of model that a rule does not know; the caller then shows the difference as unexplained.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from fractions import Fraction

from analysis.audit.architecture import Architecture
from analysis.audit.parts import (
    ENCODERS,
    EXPERTS,
    MLP,
    PROJECTIONS,
    ROUTER,
    SCORES,
    SHARED,
    forward,
    pair_width,
    pairs,
)
from analysis.audit.profiler_rules import calflops, deepspeed
from analysis.operators import causal_pairs, window_pairs

CAUSES = {
    "embedding_as_product": "the lookup of embeddings is counted as a product with the whole table",
    "attention_halved": "half of the pairs of positions are counted, for the causal mask",
    "attention_window": "pairs outside of the sliding window are left out",
    "attention_of_frozen": "attention is counted again for frozen parameters, though none is frozen",
    "attention_left_out": "the products of attention are left out",
    "attention_width": "the size of a head is taken for hidden size ÷ heads, or that of keys for that of values",
    "gate_left_out": "a gated MLP is counted as one without a gate",
    "gate_added": "an MLP without a gate is counted as one with a gate",
    "mlp_width": "the MLP is counted with another width than the model's",
    "router_left_out": "the router's product is left out",
    "all_experts": "all experts are counted, not those that a token is sent to",
    "experts_not_seen": "the products of experts, which run as grouped products, are not counted",
    "shared_experts": "another number of shared experts is counted",
    "head_left_out": "the product with the vocabulary is left out",
    "head_transform_left_out": "the head's product before the vocabulary is left out",
    "parameters_without_product": "positions, normalisations and biases are counted as weights of products",
    "convolution_left_out": "the products of a convolution are left out",
    "grouped_convolution": "the gradient of a grouped convolution's weights is counted for each pair of channels",
    "scan_left_out": "the scan of a state space layer is left out",
    "scan_width": "the scan is counted by a number for each state of a position, not by its products",
    "state_space_as_attention": "layers of a state space are counted as layers of attention",
    "state_width": "the inner width of a state space layer is taken for twice the hidden size",
    "other_positions": "weights are counted for another number of positions than they are applied to",
    "gradient_of_input": "a gradient is counted that none asks for, as that of a picture",
    "frozen_as_trained": "frozen weights are counted as if they were trained",
    "adapters_left_out": "the products of adapters are left out",
    "vision_left_out": "the tower of a vision-language model is left out",
    "patches_left_out": "the product that embeds patches is left out",
    "operator_not_seen": "the products that are written with the operator @ are not counted",
    "activations_counted": "an operation is counted for each element of some activations",
    "normalisations_counted": "5 operations are counted for each element of a layer normalisation, 4 without weights",
    "softmax_counted": "an operation is counted for each element of some softmaxes",
    "biases_counted": "the additions of the bias of a convolution are counted, or one position's of an addmm's",
    "einsum_rounded": "an einsum is counted as numpy prints it: one operation more, with four digits",
    "kept_in_float32": "the number is kept in float32, which has 24 bits",
    "not_supported": "the framework gives 0 for this type of model",
}
"""Cause → what it says, for people."""

Causes = Mapping[str, int]
Rule = Callable[[Architecture, int], Causes]


def _table(model: Architecture, tokens: int) -> int:
    """6 × the table of embeddings × tokens."""
    return 6 * tokens * model.vocab_size * model.hidden_size


def _dense_pairs(model: Architecture, tokens: int) -> int:
    return 3 * forward(model, tokens)[SCORES]


def _everything(model: Architecture, tokens: int) -> Causes:
    return {"not_supported": -3 * sum(forward(model, tokens).values())}


VERL = {"llama", "qwen2", "qwen3", "mistral", "qwen3_moe", "deepseek_v3", "gemma3_text", "gpt_oss"}


def verl(model: Architecture, tokens: int) -> Causes:
    """verl: the table counts twice, attention by half; windows where the configuration names each layer's type."""
    if model.model_type not in VERL:
        return _everything(model, tokens)
    found = {"embedding_as_product": _table(model, tokens)}
    if model.model_type in ("gemma3_text", "gpt_oss"):
        outside = (tokens - min(tokens, model.sliding_window)) * tokens * model.windowed_layers
        seen = pairs(model, tokens) - outside
        found["attention_window"] = -6 * outside * pair_width(model)
        return found | {"attention_halved": -3 * seen * pair_width(model)}
    return found | {"attention_halved": -_dense_pairs(model, tokens) // 2}


VEOMNI = {"llama", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3", "gpt_oss"}


def veomni(model: Architecture, tokens: int) -> Causes:
    """VeOmni: all pairs; a window's pairs exactly; MLA's values as wide as its keys."""
    if model.model_type not in VEOMNI:
        return _everything(model, tokens)
    wider = model.num_attention_heads * (model.head_dim - model.value_dim)
    found = {"attention_width": 6 * pairs(model, tokens) * wider}
    if model.model_type == "gpt_oss":
        inside = window_pairs(tokens, tokens, model.sliding_window) if model.sliding_window else 0
        outside = (tokens * tokens - inside) * model.windowed_layers
        found["attention_window"] = -6 * outside * pair_width(model)
    return found


def trl(model: Architecture, tokens: int) -> Causes:
    """TRL: the exact dense count of decoders with a gate, for configurations that have the names it asks for."""
    parts = forward(model, tokens)
    return {
        "gate_added": 0 if model.gated else 3 * parts[MLP] // 2,
        "head_transform_left_out": -_transform(model, tokens),
    }


def _transform(model: Architecture, tokens: int) -> int:
    """Of an encoder's head, before the vocabulary: hidden × hidden."""
    return 6 * tokens * model.hidden_size * model.hidden_size if model.model_type in ENCODERS else 0


def nanogpt(model: Architecture, tokens: int) -> Causes:
    """nanoGPT: 6 × parameters without positions + 12 × layers × hidden × tokens, all × tokens. The table is tied."""
    return {"parameters_without_product": 6 * tokens * _scalars(model, 0)}


def automodel(model: Architecture, tokens: int) -> Causes:
    """NeMo Automodel: by the configuration's class; one without a formula falls back to a transformer without gate."""
    return AUTOMODEL.get(model.model_type, _automodel_fallback)(model, tokens)


def _halved(model: Architecture, tokens: int) -> dict[str, int]:
    return {"attention_halved": -_dense_pairs(model, tokens) // 2}


def _automodel_fallback(model: Architecture, tokens: int) -> Causes:
    parts = forward(model, tokens)
    layers, hidden = model.num_hidden_layers, model.hidden_size
    heads = model.num_attention_heads
    channels = hidden // heads * heads  # hidden // heads is the head that it takes
    projections = 12 * tokens * layers * hidden * channels * Fraction(heads + model.num_key_value_heads, heads)
    found = {
        "attention_width": _whole(projections)
        - 3 * parts[PROJECTIONS]
        + 6 * pairs(model, tokens) * (2 * channels - pair_width(model)),
        "attention_halved": -6 * pairs(model, tokens) * channels,
        "head_transform_left_out": -_transform(model, tokens),
        "router_left_out": -3 * parts[ROUTER],
    }
    if model.gated:
        found["gate_left_out"] = -(parts[MLP] + parts[EXPERTS])
    return found


def _automodel_qwen(model: Architecture, tokens: int) -> Causes:
    return _halved(model, tokens) | {"router_left_out": -3 * forward(model, tokens)[ROUTER]}


def _automodel_latent(model: Architecture, tokens: int) -> Causes:
    """One shared expert, whatever the configuration has."""
    parts = forward(model, tokens)
    shared = 3 * parts[SHARED]
    one = shared // model.shared_experts if model.shared_experts else 0
    return _halved(model, tokens) | {"router_left_out": -3 * parts[ROUTER], "shared_experts": one - shared}


def _automodel_open_weights(model: Architecture, tokens: int) -> Causes:
    """Every second layer is full, from the first on; the window is 128, whatever the model's; under it a parabola."""
    window = 128
    full = (model.num_hidden_layers + 1) // 2
    windowed = model.num_hidden_layers - full
    inside = window * (window + 1) // 2 + (tokens - window) * window
    causal = causal_pairs(tokens, tokens)
    outside = windowed * (causal - inside)
    every = model.num_hidden_layers * (tokens * tokens - causal)
    return {
        "attention_halved": -6 * every * pair_width(model),
        "attention_window": -6 * outside * pair_width(model),
        "router_left_out": -3 * forward(model, tokens)[ROUTER],
    }


def _automodel_encoder(model: Architecture, tokens: int) -> Causes:
    """The MLP is taken for 4 × hidden; the head for the vocabulary's product alone."""
    parts = forward(model, tokens)
    four = 3 * 2 * tokens * model.hidden_size * 2 * 4 * model.hidden_size * model.num_hidden_layers
    return {"mlp_width": four - 3 * parts[MLP], "head_transform_left_out": -_transform(model, tokens)}


AUTOMODEL: Mapping[str, Rule] = {
    "llama": _halved,
    "gpt2": _halved,
    "qwen2": _automodel_qwen,
    "qwen3": _automodel_qwen,
    "qwen3_moe": _automodel_qwen,
    "mixtral": _automodel_qwen,
    "deepseek_v3": _automodel_latent,
    "gpt_oss": _automodel_open_weights,
    "bert": _automodel_encoder,
}
"""model_type → the rule of the formula that NeMo Automodel chooses."""


def bridge(model: Architecture, tokens: int) -> Causes:
    """Megatron-Bridge and Megatron-LM: half of the pairs, no router, a weight of MLA's two normalisations counted.

    The vocabulary is padded to a multiple of 128 unless the caller says otherwise; here it is not.
    """
    found = _halved(model, tokens) | {"router_left_out": -3 * forward(model, tokens)[ROUTER]}
    if model.gated and model.model_type in GELU_GATES:
        parts = forward(model, tokens)
        found["gate_left_out"] = -(parts[MLP] + parts[EXPERTS] + parts[SHARED])
    if model.kv_lora_rank:
        norms = (model.q_lora_rank + model.kv_lora_rank) * model.num_hidden_layers
        found["parameters_without_product"] = 6 * tokens * norms
    return found | {"head_transform_left_out": -_transform(model, tokens)}


GELU_GATES = ("gemma3_text", "gpt_oss", "modernbert")
"""Types whose gate has a form of GELU: Megatron-Bridge's providers of Gemma 3 and gpt-oss have it so."""


def llm_foundry(model: Architecture, tokens: int) -> Causes:
    """LLM Foundry: 6 × parameters, without the table unless it is tied, and all pairs by the hidden size."""
    by_hidden = 6 * pairs(model, tokens) * 2 * model.hidden_size
    scalars = _scalars(model, model.num_experts) + _positions(model)
    return {
        "attention_width": by_hidden - _dense_pairs(model, tokens),
        "parameters_without_product": 6 * tokens * scalars,
    }


def composer(model: Architecture, tokens: int) -> Causes:
    """Composer's SpeedMonitor: what LLM Foundry's model says, in a tensor of float32."""
    causes = llm_foundry(model, tokens)
    said = 3 * sum(forward(model, tokens).values()) + sum(causes.values())
    kept = int(struct.unpack("f", struct.pack("f", said))[0])
    return {**causes, "kept_in_float32": kept - said}


def nanochat(model: Architecture, tokens: int) -> Causes:
    """nanochat: 6 × parameters without the table + all pairs; it has no other parameters than those of products."""
    return {}


def maxtext(model: Architecture, tokens: int) -> Causes:
    """MaxText: half of tokens × tokens. Of a window of w, tokens × w without half of w × w."""
    if model.model_type not in MAXTEXT_WINDOWS:
        return _halved(model, tokens)
    window, layers = min(tokens, model.sliding_window), model.windowed_layers
    outside = (tokens - window) * tokens * layers
    masked = window * window * layers + tokens * tokens * (model.num_hidden_layers - layers)
    return {
        "attention_window": -6 * outside * pair_width(model),
        "attention_halved": -3 * masked * pair_width(model),
    }


MAXTEXT_WINDOWS = ("gemma3_text", "gpt_oss")


def megatron_lm(model: Architecture, tokens: int) -> Causes:
    """Megatron-LM: as Megatron-Bridge; a gate is known by the option of SwiGLU alone."""
    return bridge(model, tokens)


def litgpt(model: Architecture, tokens: int) -> Causes:
    """litgpt: 6 × all parameters, experts and table among them, + attention by the hidden size, 3 × for what is trained
    and 2 × again for what is frozen, whether anything is frozen or not."""
    by_hidden = 2 * pairs(model, tokens) * 2 * model.hidden_size
    idle = (model.num_experts - model.num_experts_per_tok) * _one_expert(model, tokens)
    return {
        "attention_width": 3 * by_hidden - _dense_pairs(model, tokens),
        "attention_of_frozen": 2 * by_hidden,
        "all_experts": idle,
        "parameters_without_product": 6 * tokens * (_scalars(model, model.num_experts) + _positions(model)),
        "embedding_as_product": 0 if model.tied else _table(model, tokens),
    }


def torchtitan(model: Architecture, tokens: int) -> Causes:
    """torchtitan: 6 × parameters without the table of embeddings (unless tied) + all pairs; active experts alone."""
    scalars = _scalars(model, model.num_experts_per_tok) + _positions(model)
    return {"parameters_without_product": 6 * tokens * scalars}


def transformers(model: Architecture, tokens: int) -> Causes:
    """transformers' Trainer (total_flos): 6 × parameters but those of embeddings, a tied head's among them."""
    idle = (model.num_experts - model.num_experts_per_tok) * _one_expert(model, tokens)
    return {
        "attention_left_out": -_dense_pairs(model, tokens),
        "all_experts": idle,
        "head_left_out": -_table(model, tokens) if model.tied else 0,
        "parameters_without_product": 6 * tokens * _scalars(model, model.num_experts),
    }


def lightning(model: Architecture, tokens: int) -> Causes:
    """Lightning's measure_flops: PyTorch's own counter on the module. It has no formula for grouped products, by which
    transformers runs experts."""
    return {"experts_not_seen": -3 * forward(model, tokens)[EXPERTS]}


def _one_expert(model: Architecture, tokens: int) -> int:
    routed = 3 * forward(model, tokens)[EXPERTS]
    return routed // model.num_experts_per_tok if model.num_experts_per_tok else 0


def _positions(model: Architecture) -> int:
    """Weights of the tables of positions and, in an encoder, of its two types of tokens."""
    if model.model_type == "modernbert":  # positions are turned into angles
        return 0
    return (model.positions + (2 if model.model_type == "bert" else 0)) * model.hidden_size


def _scalars(model: Architecture, experts: int) -> int:
    """Weights of normalisations and biases in transformers' module, with those of so many experts. Raises KeyError for
    a type that is not listed."""
    hidden, layers, wide = model.hidden_size, model.num_hidden_layers, model.intermediate_size
    queries, kept = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
    sinks = queries + 2 * kept + hidden + model.num_attention_heads
    of_layer, outside = {
        "llama": (2 * hidden, hidden),
        "mistral": (2 * hidden, hidden),
        "mixtral": (2 * hidden, hidden),
        "nanochat": (0, 0),
        "modernbert": (2 * hidden, 2 * hidden + model.vocab_size),
        "qwen2": (2 * hidden + queries + 2 * kept, hidden),
        "qwen3": (2 * hidden + 2 * model.head_dim, hidden),
        "qwen3_moe": (2 * hidden + 2 * model.head_dim, hidden),
        "gemma3_text": (4 * hidden + 2 * model.head_dim, hidden),
        "deepseek_v3": (2 * hidden + model.q_lora_rank + model.kv_lora_rank, hidden),
        "gpt2": (9 * hidden + wide, 2 * hidden),
        "bert": (9 * hidden + wide, 5 * hidden + model.vocab_size),
        "gpt_oss": (
            2 * hidden + sinks + model.num_experts + experts * (2 * model.moe_intermediate_size + hidden),
            hidden,
        ),
    }[model.model_type]
    return of_layer * layers + outside


def _whole(number: Fraction) -> int:
    """Raises ValueError for a broken number."""
    if number.denominator != 1:
        raise ValueError(f"expected a whole number of FLOP, got {number}")
    return int(number)


RULES: Mapping[str, Rule] = {
    "verl": verl,
    "veomni": veomni,
    "nemo_automodel": automodel,
    "megatron_bridge": bridge,
    "trl": trl,
    "litgpt": litgpt,
    "torchtitan": torchtitan,
    "transformers": transformers,
    "lightning": lightning,
    "llm_foundry": llm_foundry,
    "composer": composer,
    "deepspeed": deepspeed,
    "calflops": calflops,
    "nanogpt": nanogpt,
    "nanochat": nanochat,
    "megatron_lm": megatron_lm,
    "maxtext": maxtext,
}
"""Framework → its rule."""
