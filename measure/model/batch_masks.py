"""What is noted of a call of attention in a trace: the rule of its module's mask, and whether its batch has another.

By transformers' names: an `attention_mask` of two dimensions that is 1 everywhere masks nothing, and so do
`position_ids` that go on by one. Of any other (padding, packed sequences, values that are not there, what an encoder
gives) no pair is counted: how many such a mask keeps is then not known.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from analysis.operators.attention_conventions import MASK_PAIRS, MASK_RULE, may_have_mask
from analysis.operators.attention_pairs import BACKWARD, CAPABILITY, FLASH
from measure.model.module_masks import makes_masks, mask_rules
from results.records.operations import Operation

POSITIONS = "position_ids"
_NAMES = ("attention_mask", "decoder_attention_mask", POSITIONS, "encoder_attention_mask", "encoder_hidden_states")

_DEPTH = 3
"""Levels of nested inputs in which a mask is looked for by its name."""


def has_masks(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call model(*args, **kwargs) may mask other pairs than its modules' rules say."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    named = dict(zip([each.name for each in parameters], args, strict=False))
    return any(_masks(name, value) for name, value in _inside([named, args, kwargs], _DEPTH + 1))


def _inside(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """The values of _NAMES in mappings among inputs, at any of so many levels."""
    if isinstance(value, Mapping):
        yield from ((name, value[name]) for name in _NAMES if value.get(name) is not None)
    if depth and isinstance(value, (Mapping, list, tuple)):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _inside(each, depth - 1)


def _masks(name: str, value: Any) -> bool:
    has_values = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and not value.is_meta
    if name.startswith("encoder") or not has_values or value.dim() != 2:
        return True
    return bool((value.diff(dim=1) != 1).any() if name == POSITIONS else (value == 0).any())


class Masks:
    """The masks of one model and batch. inputs: of the step, in any nesting; batch: whether they have masks of their
    own, where the caller has looked at inputs with values."""

    def __init__(self, model: torch.nn.Module, inputs: Any = (), batch: bool | None = None) -> None:
        self._rules = mask_rules(model) if makes_masks(model.modules()) else {}
        if self._rules and batch is None:
            batch = has_masks(model, *_arguments(inputs))
        self._more: dict[str, Any] = {MASK_PAIRS: None} if batch else {}
        self._known: dict[tuple[Any, ...], tuple[Any, dict[str, Any]]] = {}  # calls of one signature share attributes

    def noted(self, operation: Operation) -> Operation:
        """The operation, with what is known of its mask, and of its device where tiles depend on it."""
        more: dict[str, Any] = {}
        rule = self._rules.get(operation.module, "")
        if operation.name.removesuffix(BACKWARD) == FLASH and torch.version.cuda and torch.cuda.is_available():
            more = {CAPABILITY: list(torch.cuda.get_device_capability())}
        if rule and may_have_mask(operation):
            more |= {MASK_RULE: rule} | self._more
        if not more:
            return operation
        key = operation.name, id(operation.attributes), rule
        if key not in self._known:
            self._known[key] = operation, {**operation.attributes, **more}
        return replace(operation, attributes=self._known[key][1])


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Positional and named arguments of the model's call among the inputs of a step: (args, kwargs, …), or (inputs,
    target)."""
    parts = inputs if isinstance(inputs, tuple) else (inputs,)
    first = parts[0] if parts and isinstance(parts[0], (tuple, list)) else parts
    named = parts[1] if len(parts) > 1 and isinstance(parts[1], Mapping) else {}
    return tuple(first), named
