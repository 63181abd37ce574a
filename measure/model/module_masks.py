"""Which mask does an attention module make? By what transformers' modules say of themselves: no mask is read.

`is_causal` of a module says whether its masks are causal, `sliding_window` (or the layer's type in the configuration)
how many keys they keep. Not claimed: masks of padding; that a batch has padding is for its maker to say. Modules that
say nothing, and kinds of masks that no rule here has (chunks, two-sided windows), have no rule.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

FULL, SLIDING = "full_attention", "sliding_attention"
"""Types of layers in a configuration of transformers."""


def mask_rules(model: torch.nn.Module) -> dict[str, str]:
    """Path of a module → "all", "causal" or "window:N" (`analysis/operators/attention_pairs.py`), where it is known."""
    rules = {path: _rule(module) for path, module in model.named_modules(remove_duplicate=False)}
    return {path: rule for path, rule in rules.items() if rule}


def makes_masks(modules: Iterable[torch.nn.Module]) -> bool:
    """Whether any of these modules says what masks it makes."""
    return any("is_causal" in module.__dict__ or hasattr(type(module), "is_causal") for module in modules)


def _rule(module: torch.nn.Module) -> str:
    causal = getattr(module, "is_causal", None)
    if not isinstance(causal, bool) or getattr(module, "config", None) is None:
        return ""
    window = _window(module)
    if window is None:
        return ""
    if not causal:
        return "" if window else "all"
    return f"window:{window}" if window else "causal"


def _window(module: torch.nn.Module) -> int | None:
    """Keys that a module's masks keep; 0: all, None: a mask of another kind."""
    config = module.config
    layers, place = getattr(config, "layer_types", None), getattr(module, "layer_idx", None)
    if layers and isinstance(place, int) and place < len(layers):
        kind = layers[place]
        if kind not in (FULL, SLIDING):
            return None
        return int(getattr(config, "sliding_window", None) or 0) if kind == SLIDING else 0
    own = getattr(module, "sliding_window", getattr(config, "sliding_window", None))
    return int(own) if isinstance(own, int) and not isinstance(own, bool) else 0
