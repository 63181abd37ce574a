"""Model FLOP of a decoder's or an encoder's forward pass of one sequence, in closed form, by part of the model; a
multiply-add is 2 FLOP.

Each product costs the same twice in the backward pass (`forms.py`). Biases, normalisations, activations and softmax are
other FLOP and not here.
"""

from __future__ import annotations

from collections.abc import Mapping

from analysis.audit.architecture import Architecture
from analysis.operators import causal_pairs, window_pairs

DENSE, CAUSAL, MASK_EXACT = "dense", "causal", "mask_exact"
CONVENTIONS = (DENSE, CAUSAL, MASK_EXACT)

PROJECTIONS, SCORES, MLP, ROUTER, EXPERTS, SHARED, HEAD = (
    "projections",
    "attention",
    "mlp",
    "router",
    "experts",
    "shared_experts",
    "head",
)

ENCODERS = ("bert", "modernbert")
"""Types whose attention has no causal mask, and whose head has a product of hidden × hidden before the vocabulary's."""


def forward(model: Architecture, tokens: int, attention: str = DENSE) -> Mapping[str, int]:
    """Part → FLOP of the forward pass of one sequence."""
    wide = 2 * tokens * model.hidden_size
    matrices = 3 if model.gated else 2
    expert = wide * matrices * model.moe_intermediate_size * model.moe_layers
    return {
        PROJECTIONS: 2 * tokens * projection_weights(model) * model.num_hidden_layers,
        SCORES: 2 * pairs(model, tokens, attention) * pair_width(model),
        MLP: wide * matrices * model.intermediate_size * model.dense_layers,
        ROUTER: wide * model.num_experts * model.moe_layers,
        EXPERTS: expert * model.num_experts_per_tok,
        SHARED: expert * model.shared_experts,
        HEAD: wide * (model.vocab_size + (model.hidden_size if model.model_type in ENCODERS else 0)),
    }


def projection_weights(model: Architecture) -> int:
    """Weights of one layer's queries, keys, values and output."""
    queries, values = model.num_attention_heads * model.head_dim, model.num_attention_heads * model.value_dim
    if not model.kv_lora_rank:
        kept = 2 * model.num_key_value_heads * model.head_dim
        return model.hidden_size * (2 * queries + kept)
    rank = model.q_lora_rank
    asked = rank * (model.hidden_size + queries) if rank else model.hidden_size * queries
    compressed = model.hidden_size * (model.kv_lora_rank + model.qk_rope_head_dim)
    widened = model.kv_lora_rank * (queries - model.num_attention_heads * model.qk_rope_head_dim + values)
    return asked + compressed + widened + values * model.hidden_size


def pair_width(model: Architecture) -> int:
    """Multiply-adds of one pair of positions in one layer: the score, and the value that it weighs."""
    return model.num_attention_heads * (model.head_dim + model.value_dim)


def pairs(model: Architecture, tokens: int, attention: str = DENSE) -> int:
    """Pairs of positions over all layers. Raises ValueError for a convention of none."""
    if attention not in CONVENTIONS:
        raise ValueError(f"expected attention one of {', '.join(CONVENTIONS)}, got {attention!r}")
    layers, windowed = model.num_hidden_layers, model.windowed_layers
    both = model.model_type in ENCODERS
    full = tokens * tokens if attention == DENSE or both else causal_pairs(tokens, tokens)
    if attention != MASK_EXACT or not windowed:
        return full * layers
    kept = both_sides(tokens, model.sliding_window) if both else window_pairs(tokens, tokens, model.sliding_window)
    return full * (layers - windowed) + kept * windowed


def both_sides(tokens: int, window: int) -> int:
    """Pairs at most half a window apart, before and after: two windows that end at a position, less itself."""
    return 2 * window_pairs(tokens, tokens, window // 2 + 1) - tokens
