"""Small models of transformers with the rules of their masks, and batches that are padded or packed."""

from typing import Any

import torch
import transformers

LENGTH, WINDOW, LAYERS = 24, 7, 2

SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "vocab_size": 50,
    "max_position_embeddings": 64,
}  # fmt: skip

GROUPED = {"num_key_value_heads": 2, "head_dim": 8}

NO_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}

MODELS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "llama": ("Llama", SMALL | GROUPED, ["causal"] * 2),
    "mistral": ("Mistral", SMALL | GROUPED | {"sliding_window": WINDOW}, [f"window:{WINDOW}"] * 2),
    "mistral without a window": ("Mistral", SMALL | GROUPED | {"sliding_window": None}, ["causal"] * 2),
    "qwen2": (
        "Qwen2",
        SMALL
        | {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
        ["causal", f"window:{WINDOW}"],
    ),
    "gemma3": (
        "Gemma3Text",
        SMALL | GROUPED | {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
        [f"window:{WINDOW}", "causal"],
    ),
    "bert": ("Bert", SMALL | NO_DROPOUT, ["all"] * 2),
}


def model_of(name: str, **more: Any) -> torch.nn.Module:
    family, options, _ = MODELS[name]
    config = getattr(transformers, f"{family}Config")(**options | more)
    model: torch.nn.Module = getattr(transformers, f"{family}Model")(config).eval()
    return model


WIDTH, BATCH = 32, 3

PADDED = torch.ones(BATCH, LENGTH, dtype=torch.long)

PADDED[1, 17:] = 0  # on the right

PADDED[2, :5] = 0  # on the left

POSITIONS = torch.tensor([[*range(10), *range(9), *range(5)]])

BATCHES: dict[str, dict[str, Any]] = {
    "no mask": {},
    "no padding": {"attention_mask": torch.ones_like(PADDED)},
    "positions": {"position_ids": torch.arange(LENGTH)[None]},
}
