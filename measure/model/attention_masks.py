"""Finds the mask of an attention call, on which its FLOP depend, from transformers' modules and names of inputs.

`mask_rules` takes a model and returns the path of a module → "all", "causal" or "window:N". `has_masks` tells whether a
batch may mask other pairs of query and key than these rules. `Masks` adds the mask to an `Operation`. A module's
`is_causal` says whether its masks are causal. Its `sliding_window`, or the layer's type in the configuration, says how
many keys they keep. Text models like CLIP's give causal masks to modules that say otherwise; `model_type` identifies
them. Other modules and masks (chunks, two-sided windows) have no rule. A two-dimensional `attention_mask` of ones masks
nothing, nor do consecutive `position_ids`. With any other mask (padding, packed sequences) the number of unmasked pairs
is unknown. Limit: models that no test compares may break the rules.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from analysis.operators.attention_conventions import MASK_PAIRS, MASK_RULE, may_have_mask
from results.records.counts import Operation

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
"""`model_type` of models without a rule: masks are causal in some calls only, or for the keys of two sequences."""


def mask_rules(model: torch.nn.Module) -> dict[str, str]:
    """Return the path of a module → "all", "causal" or "window:N", for modules with a rule."""
    rules = {path: _rule(module) for path, module in model.named_modules(remove_duplicate=False)}
    return {path: rule for path, rule in rules.items() if rule}


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
    """Return how many keys a module's masks keep; 0: all, None: a mask of another kind."""
    config = module.config
    layers, index = getattr(config, "layer_types", None), getattr(module, "layer_idx", None)
    if layers and isinstance(index, int) and index < len(layers):
        kind = layers[index]
        if kind not in (FULL, SLIDING):
            return None
        return int(getattr(config, "sliding_window", None) or 0) if kind == SLIDING else 0
    own = getattr(module, "sliding_window", getattr(config, "sliding_window", None))
    return int(own) if isinstance(own, int) and not isinstance(own, bool) else 0


POSITIONS = "position_ids"
_NAMES = ("attention_mask", "decoder_attention_mask", POSITIONS, "encoder_attention_mask", "encoder_hidden_states")

_DEPTH = 3
"""Levels of nested inputs in which a mask is looked for by its name."""


def has_masks(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call model(*args, **kwargs) may mask other pairs than the rules of its modules."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    named = dict(zip([parameter.name for parameter in parameters], args, strict=False))
    return any(_masks(name, value) for name, value in _inside([named, args, kwargs], _DEPTH + 1))


def _inside(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the values of _NAMES in mappings among inputs, at up to `depth` levels."""
    if isinstance(value, Mapping):
        yield from ((name, value[name]) for name in _NAMES if value.get(name) is not None)
    if depth and isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _inside(item, depth - 1)


def _masks(name: str, value: Any) -> bool:
    has_values = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and not value.is_meta
    if name.startswith("encoder") or not has_values or value.dim() != 2:
        return True
    return bool((value.diff(dim=1) != 1).any() if name == POSITIONS else (value == 0).any())


class Masks:
    """The masks of one model and batch. inputs: of the step, nested in any way. batch: the result of `has_masks` on
    inputs with values; None: it is called on `inputs`."""

    def __init__(self, model: torch.nn.Module, inputs: Any = (), batch: bool | None = None) -> None:
        says = any("is_causal" in m.__dict__ or hasattr(type(m), "is_causal") for m in model.modules())
        self._rules = mask_rules(model) if says else {}
        if self._rules and batch is None:
            batch = has_masks(model, *_arguments(inputs))
        self._more: dict[str, Any] = {MASK_PAIRS: None} if batch else {}
        self._known: dict[tuple[Any, ...], tuple[Any, dict[str, Any]]] = {}  # calls of one signature share attributes

    def with_mask(self, operation: Operation) -> Operation:
        """Return the operation; if it is attention in a module with a rule, with the rule among its attributes."""
        rule = self._rules.get(operation.module, "")
        if not rule or not may_have_mask(operation):
            return operation
        key = id(operation.attributes), rule
        if key not in self._known:
            self._known[key] = operation, {**operation.attributes, MASK_RULE: rule, **self._more}
        return replace(operation, attributes=self._known[key][1])


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return positional and named arguments of the model's call among the inputs of a step: (args, kwargs, …), or
    (inputs, target)."""
    parts = inputs if isinstance(inputs, tuple) else (inputs,)
    first = parts[0] if parts and isinstance(parts[0], (tuple, list)) else parts
    named = parts[1] if len(parts) > 1 and isinstance(parts[1], Mapping) else {}
    return tuple(first), named
