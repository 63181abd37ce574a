"""MaxText's calculator, from its package without JAX: a function and those that it calls, on sizes under its names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from analysis.audit import Architecture, Model
from measure.audit.exact_numbers import exactly
from measure.audit.sources import cut_with_callees


def maxtext(folder: Path) -> tuple[Callable[[Model, int], Any], list[str]]:
    """One function and those that it calls, whose module imports JAX; of its enumerations each word is its own name."""
    path = folder / "maxtext" / "utils" / "maxtext_utils.py"
    words = type("Words", (), {"__getattr__": lambda _, name: name})()
    names = {"DecoderBlockType": words, "AttentionType": words}
    function = cut_with_callees(path, "calculate_tflops_training_per_device", names)

    def formula(model: Model, tokens: int) -> Any:
        if not isinstance(model, Architecture) or model.model_type not in MAXTEXT_BLOCKS:
            raise ValueError("MaxText trains decoders, and none of this form")
        return function(maxtext_config(model, tokens), log=False)[0] * 10**12

    return formula, ["maxtext/utils/maxtext_utils.py: only this function and those that it calls are run"]


MAXTEXT_BLOCKS = {
    "gpt2": "GPT3",
    "llama": "LLAMA2",
    "mistral": "MISTRAL",
    "mixtral": "MIXTRAL",
    "qwen2": "QWEN2",
    "qwen3": "QWEN3",
    "qwen3_moe": "QWEN3_MOE",
    "deepseek_v3": "DEEPSEEK",
    "gemma3_text": "GEMMA3",
    "gpt_oss": "GPT_OSS",
}
"""Type of model → MaxText's block of layers. The formula tells DEEPSEEK, GEMMA3 and GPT_OSS of these from the rest."""


def maxtext_config(model: Architecture, tokens: int) -> SimpleNamespace:
    """The sizes of a decoder under MaxText's names, one sequence on one device; what is not used is off."""
    off = dict.fromkeys(("share_kv_projections", "use_indexer", "use_multimodal", "use_dpo"), False)
    latent = {
        "attention_type": "mla" if model.kv_lora_rank else "global",
        "q_lora_rank": exactly(model.q_lora_rank),
        "kv_lora_rank": exactly(model.kv_lora_rank),
        "qk_nope_head_dim": exactly(model.head_dim - model.qk_rope_head_dim),
        "qk_rope_head_dim": exactly(model.qk_rope_head_dim),
        "v_head_dim": exactly(model.value_dim),
    }
    experts = {
        "num_experts": exactly(model.num_experts or 1),
        "num_experts_per_tok": exactly(model.num_experts_per_tok or 1),
        "moe_mlp_dim": exactly(model.moe_intermediate_size),
        "shared_experts": exactly(model.shared_experts),
        "first_num_dense_layers": exactly(model.dense_layers),
    }
    return SimpleNamespace(
        decoder_block=MAXTEXT_BLOCKS[model.model_type],
        per_device_batch_size=exactly(1),
        gradient_accumulation_steps=exactly(1),
        max_target_length=exactly(tokens),
        emb_dim=exactly(model.hidden_size),
        num_decoder_layers=exactly(model.num_hidden_layers),
        num_query_heads=exactly(model.num_attention_heads),
        num_kv_heads=exactly(model.num_key_value_heads),
        head_dim=exactly(model.head_dim),
        mlp_dim=exactly(model.intermediate_size),
        mlp_activations=["silu", "linear"] if model.gated else ["gelu"],
        vocab_size=exactly(model.vocab_size),
        sliding_window_size=exactly(model.sliding_window),
        engram_layers=[],
        mtp_num_layers=0,
        **off,
        **latent,
        **experts,
    )
