"""What does a batch say of its attention masks? Keys that padding leaves, lengths of packed sequences.

Read from two inputs by transformers' names: `attention_mask` (batch, keys), whose zeros are padding, and, where there
is none and no cache is made, `position_ids` (batch, keys), whose restarts begin another sequence. Of an encoder and a
decoder `decoder_attention_mask` is that of the decoder's own attention, which is causal, and `attention_mask` that of
the others. Nothing of a mask of queries by keys is read or made. Inputs without values (fake tensors, meta), masks of
four dimensions and of queries by keys, and several tensors of one name say nothing: the pairs are then not known.
`Masks` puts the rules of a model and what its batch says into the rows of a trace.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from analysis.operators.attention_conventions import (
    MASK_PAIRS,
    MASK_RULE,
    attention_sizes,
    may_have_mask,
    product_sizes,
)
from analysis.operators.attention_pairs import ALL, BACKWARD, CAPABILITY, FLASH, packed_pairs, padded_pairs
from measure.model.module_masks import makes_masks, mask_rules
from results.records.operations import Operation

MASK, TARGET_MASK, POSITIONS = "attention_mask", "decoder_attention_mask", "position_ids"

_SOURCES = ("encoder_attention_mask", "encoder_hidden_states")
"""What a decoder alone is given of an encoder that is none of its own."""

_NAMES = (MASK, TARGET_MASK, POSITIONS, *_SOURCES)

_SEVERAL: Any = object()
"""Stands for tensors of one name that are not the same: which attention has which is not known."""

_DEPTH = 3
"""Levels of nested inputs in which a mask is looked for by its name."""

Place = tuple[Any, ...]
"""Where an argument is in (args, kwargs): an index or a key for each level."""


@dataclass(frozen=True)
class BatchMask:
    """Of a batch, by sequence: runs [start, stop) of keys that padding leaves, or lengths of packed sequences.

    keys: length of each. masks: whether there is anything but the rules of the modules; if there is, and all else is
    empty, it is not known. target: of a decoder's own attention, where that of an encoder is another.
    """

    masks: bool = True
    keys: int = 0
    runs: tuple[tuple[tuple[int, int], ...], ...] = ()
    lengths: tuple[tuple[int, ...], ...] = ()
    target: BatchMask | None = None

    def of(self, rule: str) -> BatchMask:
        """What it says of the masks of this rule."""
        return self if self.target is None or rule == ALL else self.target

    def pairs(self, rule: str, queries: int, keys: int, sequences: int, heads_too: bool = False) -> list[int] | None:
        """[pairs that masks of this rule keep in all sequences, sequences]; None where they are not known.

        sequences: of the call; heads_too: whether that is a multiple, because heads are in it.
        """
        held = len(self.runs) or len(self.lengths)
        if not held or keys != self.keys or (self.lengths and queries != keys):
            return None
        if sequences % held if heads_too else held not in (1, sequences):
            return None
        if self.runs:
            return [sum(padded_pairs(rule, queries, runs, keys - queries) for runs in self.runs), held]
        return [sum(packed_pairs(rule, lengths) for lengths in self.lengths), held]


NOTHING, UNKNOWN = BatchMask(masks=False), BatchMask()


def batch_mask(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BatchMask:
    """Of a call model(*args, **kwargs)."""
    held = (getattr(each, "config", None) for each in model.modules())
    configs = [each for each in held if each is not None]
    if not configs:
        return NOTHING
    given = _named(model, args, kwargs)
    mask, target = (_padding(given.get(name), (args, kwargs)) for name in (MASK, TARGET_MASK))
    if any(getattr(each, "is_encoder_decoder", False) is True for each in configs):
        return replace(mask, target=target)
    if MASK not in given and not _makes_cache(model, configs, given):
        mask = _packing(given.get(POSITIONS))
    return replace(UNKNOWN, target=mask) if any(name in given for name in _SOURCES) else mask


def _mask_places(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, list[Place]]:
    """Name → places of what a call has by it and is not None: its arguments, and those of _NAMES in mappings inside."""
    named: list[tuple[str, Place]] = [(name, (0, place)) for place, name in enumerate(_positional(model)[: len(args)])]
    named += [(name, (1, name)) for name in kwargs]
    named += _inside((args, kwargs), (), _DEPTH + 1)
    found: dict[str, list[Place]] = {}
    for name, place in dict.fromkeys(named):
        if _at_place(place, args, kwargs) is not None:
            found.setdefault(name, []).append(place)
    return found


def _at_place(place: Place, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a call has there."""
    found: Any = args, kwargs
    for each in place:
        found = found[each]
    return found


def _has_rows_of(mask: torch.Tensor, inputs: Any) -> bool:
    """Whether a mask of two dimensions has a row for each sequence, or one for all; a mask of queries by keys has not.

    inputs: of the call, in any nesting. Without another tensor than the mask in them it is not known, and True.
    """
    others = (each for each in tree_leaves(inputs) if isinstance(each, torch.Tensor) and each is not mask)
    lengths = {len(each) for each in others if each.dim()}
    return len(mask) == 1 or not lengths or len(mask) in lengths


def _named(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call by name."""
    found: dict[str, Any] = {}
    for name, places in _mask_places(model, args, kwargs).items():
        first, *others = (_at_place(place, args, kwargs) for place in places)
        found[name] = first if all(each is first for each in others) else _SEVERAL
    return found


def _positional(model: torch.nn.Module) -> list[str]:
    """Names of the arguments that a call may give by position, before any `*args`."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def _inside(value: Any, place: Place, depth: int) -> Iterator[tuple[str, Place]]:
    if isinstance(value, Mapping):
        yield from ((name, (*place, name)) for name in value if name in _NAMES)
    if depth and isinstance(value, (Mapping, list, tuple)):
        for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _inside(each, (*place, key), depth - 1)


def _makes_cache(model: torch.nn.Module, configs: Iterable[Any], given: Mapping[str, Any]) -> bool:
    """Whether the model makes a cache of keys, and then looks at no position for a mask."""
    asked = given.get("use_cache")
    checkpointed = model.training and any(vars(each).get("gradient_checkpointing") for each in model.modules())
    usual = next((each.use_cache for each in configs if hasattr(each, "use_cache")), False)
    return not checkpointed and bool(usual if asked is None else asked)


def _has_values(tensor: Any) -> bool:
    given = isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeTensor)
    return given and tensor.dim() == 2 and not tensor.is_meta


def _padding(mask: Any, inputs: Any) -> BatchMask:
    if mask is None:
        return NOTHING
    if not _has_values(mask) or not _has_rows_of(mask, inputs):
        return UNKNOWN
    edges = torch.nn.functional.pad((mask != 0).to(torch.int8), (1, 1)).diff(dim=1).cpu()
    runs = tuple(
        tuple(zip((row == 1).nonzero().flatten().tolist(), (row == -1).nonzero().flatten().tolist(), strict=True))
        for row in edges
    )
    return BatchMask(keys=mask.shape[1], runs=runs)


def _packing(positions: Any) -> BatchMask:
    if positions is None:
        return NOTHING
    if not _has_values(positions):
        return UNKNOWN
    length = positions.shape[1]
    lengths = []
    for row in (positions.diff(dim=1) != 1).cpu():
        ends = [0, *((row.nonzero().flatten() + 1).tolist()), length]
        lengths.append(tuple(stop - start for start, stop in itertools.pairwise(ends)))
    packed = any(len(each) > 1 for each in lengths)
    return BatchMask(keys=length, lengths=tuple(lengths)) if packed else NOTHING


def with_mask(operation: Operation, rule: str, batch: BatchMask) -> Operation:
    """A call that may have a mask, with what is known of it. rule: of its module's masks; "": none is known."""
    if not rule:
        return operation
    more: dict[str, Any] = {MASK_RULE: rule}
    batch = batch.of(rule)
    if batch.masks:
        more[MASK_PAIRS] = _mask_pairs(operation, rule, batch)
    return replace(operation, attributes={**operation.attributes, **more})


def _mask_pairs(operation: Operation, rule: str, batch: BatchMask) -> list[int] | None:
    """[pairs that the masks of a call keep, sequences]; None where they are not known."""
    sizes, first = attention_sizes(operation), operation.input_shapes[0]
    sequences, heads_too = first[0], len(first) == 3
    queries, keys = sizes or (1, 1)
    found = batch.pairs(rule, queries, keys, sequences, heads_too) if sizes else None
    if found is not None or rule != ALL or batch.keys not in product_sizes(operation):
        return found
    # attention to another sequence, as plain products: which of three sizes is that of the queries does not matter,
    # since each query keeps the same keys
    of_one_query = batch.pairs(ALL, 1, batch.keys, sequences, heads_too)
    return of_one_query and [queries * keys * of_one_query[0], of_one_query[1] * batch.keys]


class Masks:
    """The masks of one model and batch. inputs: of the step, in any nesting; batch: what they say of masks, where the
    caller has read it of inputs with values."""

    def __init__(self, model: torch.nn.Module, inputs: Any = (), batch: BatchMask | None = None) -> None:
        self._rules = mask_rules(model) if makes_masks(model.modules()) else {}
        if self._rules and batch is None:
            batch = batch_mask(model, *_arguments(inputs))
        self._batch = batch or NOTHING
        self._known: dict[tuple[str, int, int, str], tuple[Operation, Operation]] = {}

    def noted(self, operation: Operation) -> Operation:
        """The operation, with what is known of its mask, and of its device where tiles depend on it."""
        is_flash = operation.name.removesuffix(BACKWARD) == FLASH
        rule = self._rules.get(operation.module, "")
        if not is_flash and not (rule and may_have_mask(operation)):
            return operation
        # calls of one signature share their attributes, as those without a mask do
        key = operation.name, id(operation.attributes), id(operation.input_shapes), rule
        if key not in self._known:
            known = _with_device(operation) if is_flash else operation
            self._known[key] = operation, with_mask(known, rule, self._batch)
        return replace(operation, attributes=self._known[key][1].attributes)


def _with_device(operation: Operation) -> Operation:
    """A call of FlashAttention 2, with the compute capability of the device that it runs on."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return operation
    capability = list(torch.cuda.get_device_capability())
    return replace(operation, attributes={**operation.attributes, CAPABILITY: capability})


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Positional and named arguments of the model's call among the inputs of a step: (args, kwargs, …), or (inputs,
    target)."""
    parts = inputs if isinstance(inputs, tuple) else (inputs,)
    first = parts[0] if parts and isinstance(parts[0], (tuple, list)) else parts
    named = parts[1] if len(parts) > 1 and isinstance(parts[1], Mapping) else {}
    return tuple(first), named
