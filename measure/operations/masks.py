"""What a trace notes of attention masks: the rule of the module that calls, and what the batch leaves of it.

See `analysis/operators/attention_conventions.py` for what is made of them. Nothing of a mask is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from analysis.operators import may_have_mask
from measure.model import NOTHING, BatchMask, batch_mask, makes_masks, mask_rules, with_mask
from results.records import Operation


class Masks:
    """The masks of one model and batch. inputs: of the step, in any nesting; batch: what they say of masks, where the
    caller has read it of inputs with values."""

    def __init__(self, model: torch.nn.Module, inputs: Any = (), batch: BatchMask | None = None) -> None:
        self._rules = mask_rules(model) if makes_masks(model.modules()) else {}
        if self._rules and batch is None:
            batch = batch_mask(model, *_arguments(inputs))
        self._batch = batch or NOTHING
        self._known: dict[tuple[int, int, str], tuple[Operation, Operation]] = {}

    def noted(self, operation: Operation) -> Operation:
        """The operation, with what is known of its mask."""
        rule = self._rules.get(operation.module, "")
        if not rule or not may_have_mask(operation):
            return operation
        # calls of one signature share their attributes, as those without a mask do
        key = id(operation.attributes), id(operation.input_shapes), rule
        if key not in self._known:
            self._known[key] = operation, with_mask(operation, rule, self._batch)
        return replace(operation, attributes=self._known[key][1].attributes)


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Positional and named arguments of the model's call among the inputs of a step: (args, kwargs, …), or (inputs,
    target)."""
    parts = inputs if isinstance(inputs, tuple) else (inputs,)
    first = parts[0] if parts and isinstance(parts[0], (tuple, list)) else parts
    named = parts[1] if len(parts) > 1 and isinstance(parts[1], Mapping) else {}
    return tuple(first), named
