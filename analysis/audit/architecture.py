"""The configurations of the audit: sizes of published models, from their model cards, in a table of this project.

Columns have the names of transformers' configurations; an empty one is not in the model. Not claimed: biases, positions
and normalisations, which are no products.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("configurations.csv")

TEXT = ("name", "family", "model_type", "source")


@dataclass(frozen=True)
class Architecture:
    """The sizes of one model. gated: 1 where the MLP has a gate. Zero: the model has none of it."""

    name: str
    family: str
    model_type: str
    source: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    gated: int
    tied: int = 0
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    shared_experts: int = 0
    first_k_dense_replace: int = 0  # dense layers before those with experts
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0  # 0: head_dim
    sliding_window: int = 0
    full_every: int = 0  # of layers with a window, one in so many has none; 0: all have the window
    positions: int = 0  # rows of a learned table of positions, the longest sequence; 0: any length

    @property
    def value_dim(self) -> int:
        """Of a head."""
        return self.v_head_dim or self.head_dim

    @property
    def moe_layers(self) -> int:
        return self.num_hidden_layers - self.first_k_dense_replace if self.num_experts else 0

    @property
    def dense_layers(self) -> int:
        return self.num_hidden_layers - self.moe_layers

    @property
    def windowed_layers(self) -> int:
        """Layers whose attention sees a window."""
        return layer_types(self).count("sliding_attention")


@cache
def architectures() -> dict[str, Architecture]:
    """Name → configuration, in the order of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["name"]: _read(row) for row in rows}


def _read(row: dict[str, str]) -> Architecture:
    values: dict[str, Any] = {
        field.name: row[field.name] if field.name in TEXT else int(row[field.name] or 0)
        for field in fields(Architecture)
    }
    return Architecture(**values)


def layer_types(model: Architecture) -> list[str]:
    """What transformers calls each layer's attention. ModernBERT begins with a full one, others with a window."""
    full, every = "full_attention", model.full_every
    if not model.sliding_window:
        return [full] * model.num_hidden_layers
    shift = 0 if model.model_type == "modernbert" else 1
    return [
        full if every and (index + shift) % every == 0 else "sliding_attention"
        for index in range(model.num_hidden_layers)
    ]


COMMON = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
)


def configuration(model: Architecture) -> dict[str, Any]:
    """What transformers' configuration of this type is built from."""
    absent = ABSENT.get(model.model_type, ())
    given: dict[str, Any] = {name: getattr(model, name) for name in COMMON if name not in absent}
    given["tie_word_embeddings"] = bool(model.tied)
    return given | OTHERS.get(model.model_type, lambda _: {})(model)


def _gpt2(model: Architecture) -> dict[str, Any]:
    sizes = {"n_embd": model.hidden_size, "n_layer": model.num_hidden_layers, "n_head": model.num_attention_heads}
    return sizes | {"n_inner": model.intermediate_size, "vocab_size": model.vocab_size, "n_positions": model.positions}


def _experts(model: Architecture) -> dict[str, Any]:
    return {
        "num_experts": model.num_experts,
        "num_experts_per_tok": model.num_experts_per_tok,
        "moe_intermediate_size": model.moe_intermediate_size,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _latent(model: Architecture) -> dict[str, Any]:
    return {
        "n_routed_experts": model.num_experts,
        "num_experts_per_tok": model.num_experts_per_tok,
        "moe_intermediate_size": model.moe_intermediate_size,
        "n_shared_experts": model.shared_experts,
        "first_k_dense_replace": model.first_k_dense_replace,
        "q_lora_rank": model.q_lora_rank or None,
        "kv_lora_rank": model.kv_lora_rank,
        "qk_rope_head_dim": model.qk_rope_head_dim,
        "qk_nope_head_dim": model.head_dim - model.qk_rope_head_dim,
        "v_head_dim": model.v_head_dim,
        "head_dim": model.qk_rope_head_dim,
        "n_group": 1,
        "topk_group": 1,
    }


def _windows(model: Architecture) -> dict[str, Any]:
    return {"sliding_window": model.sliding_window or None, "layer_types": layer_types(model)}


def _local_experts(model: Architecture) -> dict[str, Any]:
    return {
        "num_local_experts": model.num_experts,
        "num_experts_per_tok": model.num_experts_per_tok,
        "intermediate_size": model.moe_intermediate_size,
    }


def _local_windows(model: Architecture) -> dict[str, Any]:
    return {
        "local_attention": model.sliding_window,
        "layer_types": layer_types(model),
        "max_position_embeddings": model.positions,
        "pad_token_id": 0,
    }


OTHERS = {
    "gpt2": _gpt2,
    "bert": lambda model: {"max_position_embeddings": model.positions},
    "qwen3_moe": _experts,
    "deepseek_v3": _latent,
    "gemma3_text": _windows,
    "mistral": lambda model: {"sliding_window": model.sliding_window or None},
    "gpt_oss": lambda model: _windows(model) | _local_experts(model),
    "mixtral": _local_experts,
    "modernbert": _local_windows,
}
"""model_type → what it takes beside the common sizes."""

ABSENT = {
    "gpt2": ("num_key_value_heads", "head_dim", "intermediate_size"),
    "bert": ("num_key_value_heads", "head_dim"),
    "modernbert": ("num_key_value_heads", "head_dim"),
}
"""model_type → sizes that its own configuration has not: a formula that asks for one fails as it would there."""
