"""A configuration of one's own: transformers' `config.json` → the sizes that closed forms and rules read.

Types of decoders and encoders of the audit alone, in the form that its table has: what changes products in another way
(layers without experts between those with, another order of windows) is refused, not passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from analysis.audit.architecture import Architecture, layer_types

TIED = ("gpt2", "bert", "gemma3_text", "modernbert")
"""Types whose head shares the table's weights where the configuration does not say it."""

PLAIN = ("gpt2", "bert")
"""Types whose MLP has no gate."""

MOST_LAYERS = 10_000


def own_architecture(name: str, config: Mapping[str, Any]) -> Architecture:
    """config: what a `config.json` says. Raises ValueError for a type that the audit has not, and for a size that is
    missing or none."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f"{name}: expected a model_type of {', '.join(_TYPES)}, got {kind!r}")
    sizes = _Sizes(name, config)
    hidden, heads = sizes.of("hidden_size", "n_embd"), sizes.of("num_attention_heads", "n_head")
    wide = sizes.of("intermediate_size", "n_inner", default=4 * hidden)
    model = Architecture(
        name=name,
        family="a configuration of one's own",
        model_type=kind,
        source=name,
        hidden_size=hidden,
        num_hidden_layers=sizes.of("num_hidden_layers", "n_layer"),
        num_attention_heads=heads,
        num_key_value_heads=sizes.of("num_key_value_heads", default=heads),
        head_dim=sizes.of("head_dim", default=hidden // heads),
        intermediate_size=wide,
        vocab_size=sizes.of("vocab_size"),
        gated=int(kind not in PLAIN),
        tied=int(bool(config.get("tie_word_embeddings", kind in TIED))),
    )
    if model.num_hidden_layers > MOST_LAYERS:
        raise ValueError(f"{name}: expected at most {MOST_LAYERS:,} layers, got {model.num_hidden_layers:,}")
    made = _TYPES[kind](model, sizes)
    if made.first_k_dense_replace > made.num_hidden_layers:
        raise ValueError(f"{name}: {made.first_k_dense_replace} layers without experts, of {made.num_hidden_layers}")
    if made.num_experts_per_tok > made.num_experts:
        raise ValueError(f"{name}: {made.num_experts_per_tok} experts for a token, of {made.num_experts}")
    return made


class _Sizes:
    """The whole numbers of a configuration."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        self.name, self.config = name, config

    def of(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """The first of these that there is. Raises ValueError where none is, or it is no number from `least`."""
        found = next((self.config[each] for each in names if self.config.get(each) is not None), default)
        if not isinstance(found, int) or isinstance(found, bool) or found < least:
            raise ValueError(f"{self.name}: expected a whole number from {least} as {names[0]}, got {found!r}")
        return found

    def refuse(self, name: str, *usual: Any) -> None:
        """Raises ValueError for what changes products in a way that no closed form has."""
        if (value := self.config.get(name)) not in (None, *usual):
            raise ValueError(f"{self.name}: {name} = {value!r} is not counted; expected {usual[0]!r}")


def _as_is(model: Architecture, sizes: _Sizes) -> Architecture:
    return model


def _no_window(model: Architecture, sizes: _Sizes) -> Architecture:
    sizes.refuse("use_sliding_window", False)
    return model


def _positions(model: Architecture, sizes: _Sizes) -> Architecture:
    return replace(model, positions=sizes.of("n_positions", "max_position_embeddings"))


def _window(model: Architecture, sizes: _Sizes) -> Architecture:
    return replace(model, sliding_window=sizes.of("sliding_window", default=0, least=0))


def _local_experts(model: Architecture, sizes: _Sizes) -> Architecture:
    return replace(
        model,
        num_experts=sizes.of("num_local_experts"),
        num_experts_per_tok=sizes.of("num_experts_per_tok"),
        moe_intermediate_size=model.intermediate_size,
    )


def _experts(model: Architecture, sizes: _Sizes) -> Architecture:
    sizes.refuse("decoder_sparse_step", 1)
    sizes.refuse("mlp_only_layers", [])
    sizes.refuse("use_sliding_window", False)
    return replace(
        model,
        num_experts=sizes.of("num_experts", "num_local_experts"),
        num_experts_per_tok=sizes.of("num_experts_per_tok"),
        moe_intermediate_size=sizes.of("moe_intermediate_size"),
    )


def _latent(model: Architecture, sizes: _Sizes) -> Architecture:
    rotated = sizes.of("qk_rope_head_dim")
    return replace(
        model,
        num_experts=sizes.of("n_routed_experts", "num_local_experts"),
        num_experts_per_tok=sizes.of("num_experts_per_tok"),
        moe_intermediate_size=sizes.of("moe_intermediate_size"),
        shared_experts=sizes.of("n_shared_experts", default=0, least=0),
        first_k_dense_replace=sizes.of("first_k_dense_replace", default=0, least=0),
        num_key_value_heads=model.num_attention_heads,
        head_dim=sizes.of("qk_nope_head_dim") + rotated,
        q_lora_rank=sizes.of("q_lora_rank", default=0, least=0),
        kv_lora_rank=sizes.of("kv_lora_rank"),
        qk_rope_head_dim=rotated,
        v_head_dim=sizes.of("v_head_dim"),
    )


def _some_windows(every: int) -> Callable[[Architecture, _Sizes], Architecture]:
    """One layer in `every` sees all, or in as many as `layer_types` says."""

    def with_windows(model: Architecture, sizes: _Sizes) -> Architecture:
        given = sizes.config.get("layer_types")
        window = sizes.of("sliding_window", "local_attention", default=0, least=0)
        if not window:
            return model
        for each in (sizes.of("sliding_window_pattern", default=every), *_patterns(given)):
            made = replace(model, sliding_window=window, full_every=each)
            if given is None or given == layer_types(made):
                return made
        raise ValueError(f"{sizes.name}: layer_types are in an order that is not counted")

    return with_windows


def _patterns(types: Any) -> tuple[int, ...]:
    """After how many layers another one may see all; 0: none does."""
    full = [place for place, each in enumerate(types or ()) if each == "full_attention"]
    return (*(later - full[0] for later in full[1:2]), *(place + 1 for place in full[:1])) if full else (0,)


def _of_gpt_oss(model: Architecture, sizes: _Sizes) -> Architecture:
    return _local_experts(_some_windows(2)(model, sizes), sizes)


def _of_modernbert(model: Architecture, sizes: _Sizes) -> Architecture:
    every = sizes.of("global_attn_every_n_layers", default=3)
    return _some_windows(every)(replace(model, positions=sizes.of("max_position_embeddings")), sizes)


_TYPES: Mapping[str, Callable[[Architecture, _Sizes], Architecture]] = {
    "llama": _as_is,
    "mistral": _window,
    "mixtral": _local_experts,
    "qwen2": _no_window,
    "qwen3": _no_window,
    "qwen3_moe": _experts,
    "deepseek_v3": _latent,
    "gemma3_text": _some_windows(6),
    "gpt_oss": _of_gpt_oss,
    "gpt2": _positions,
    "bert": _positions,
    "modernbert": _of_modernbert,
}
"""model_type → what it has beside the common sizes."""
