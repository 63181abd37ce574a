"""Which mask does an attention module make? By what transformers' modules say of themselves: no mask is read.

`is_causal` of a module says whether its masks are causal, `sliding_window` (or the layer's type in the configuration)
how many keys they keep. Text models like CLIP's give causal masks to modules that say otherwise, and are known by the
type of their configuration. Modules that say nothing, and kinds of masks that no rule here has (chunks, two-sided
windows), have no rule. Not claimed: masks of padding, since that a batch has padding is for its maker to say; families
of models that no test here compares, if their masks are other than their modules say.
"""

from collections.abc import Iterable

import torch

FULL, SLIDING = "full_attention", "sliding_attention"
"""Types of layers in a configuration of transformers."""

CAUSAL_TEXT = frozenset(
    {
        "clip_text_model", "clipseg_text_model", "metaclip_2_text_model", "owlv2_text_model", "owlvit_text_model",
        "xclip_text_model",
    }
)  # fmt: skip
"""`model_type` of models that give causal masks to modules whose `is_causal` is False."""

BY_CALL = frozenset({"aimv2_text_model", "t5gemma2_decoder", "videoprism_text_model"})
"""`model_type` of those that do so in some calls only, or for the keys of two sequences at once: no rule says it."""


def mask_rules(model: torch.nn.Module) -> dict[str, str]:
    """Path of a module → "all", "causal" or "window:N" (`analysis/operators/attention_pairs.py`), where it is known."""
    rules = {path: _rule(module) for path, module in model.named_modules(remove_duplicate=False)}
    return {path: rule for path, rule in rules.items() if rule}


def makes_masks(modules: Iterable[torch.nn.Module]) -> bool:
    """Whether any of these modules says what masks it makes."""
    return any("is_causal" in module.__dict__ or hasattr(type(module), "is_causal") for module in modules)


def _rule(module: torch.nn.Module) -> str:
    causal, config = getattr(module, "is_causal", None), getattr(module, "config", None)
    kind = getattr(config, "model_type", "")
    if not isinstance(causal, bool) or config is None or kind in BY_CALL:
        return ""
    window = _window(module)
    if window is None:
        return ""
    if not causal and kind not in CAUSAL_TEXT:
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
