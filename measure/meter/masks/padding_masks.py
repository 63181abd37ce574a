"""Which keys does padding leave in the calls of a loop? Read from their `attention_mask`, without waiting for a device.

Of each mask (sequences, keys) a call only counts how many sequences keep each key: a vector as long as a sequence. On
a GPU that is queued behind the loop's own work, and copied to memory that the host reads once the step has completed.
The pairs of a query and a key follow: a key that is kept has as many as there are queries that its rule lets attend to
it. No mask of queries by keys is made, and nothing of it is in a CUDA graph that is being captured.

Not claimed: masks that are no plain tensor of two dimensions, that have another name, that are several of one name in a
call, or are on neither a CPU nor a CUDA device; packed sequences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from analysis.operators.attention_pairs import ALL, CAUSAL, WINDOW
from measure.meter.calls import CallKey, MaskPairs
from measure.model.batch_masks import Place, at_place, has_rows_of, mask_names, mask_places
from measure.model.module_masks import mask_rules


class _Mask(NamedTuple):
    """A mask of a kind of call: where it is among its arguments, and the rules whose masks it pads."""

    place: Place
    rules: tuple[str, ...]


class _Count(NamedTuple):
    """A mask of one call: how many of its sequences keep each key. copied: what says that the host has it; None: at
    once."""

    mask: _Mask
    sequences: int
    kept: torch.Tensor
    copied: Any


class Copies:
    """What a device copies to the host: an event says when it is there, and is used again after it was read."""

    def __init__(self) -> None:
        self._free: dict[torch.device, list[Any]] = defaultdict(list)

    def begin(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """A tensor of a CUDA device in pinned memory, which torch uses again; and the event."""
        free = self._free[tensor.device]
        copied = free.pop() if free else torch.cuda.Event()
        held = tensor.to("cpu", non_blocking=True)
        copied.record(torch.cuda.current_stream(tensor.device))
        return held, copied

    def end(self, copied: Any) -> None:
        """The host has read what this event is of."""
        self._free[copied.device].append(copied)


class CallMasks:
    """The masks of one call."""

    __slots__ = ("_copies", "_counts")

    def __init__(self, counts: Sequence[_Count], copies: Copies) -> None:
        self._counts = counts
        self._copies = copies

    @property
    def are_there(self) -> bool:
        """Whether the host has all of them."""
        return all(each.copied is None or each.copied.query() for each in self._counts)

    def wait(self) -> None:
        """Wait until it has. They may be on a stream that the end of the step does not wait for."""
        for each in self._counts:
            if each.copied is not None:
                each.copied.synchronize()

    def pairs(self) -> Iterator[MaskPairs]:
        """All of them by rule, once they are there. For the first and only time: their events are given back."""
        for mask, sequences, kept, copied in self._counts:
            for rule in mask.rules:
                yield MaskPairs(rule, sequences, len(kept), kept_pairs(rule, kept))
            if copied is not None:
                self._copies.end(copied)


class PaddingMasks:
    """Reads the masks of the calls of one model."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._kinds: dict[CallKey, tuple[_Mask, ...]] = {}
        self._rules: dict[tuple[str, int], frozenset[str]] = {}
        self._copies = Copies()

    def read(self, key: CallKey, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CallMasks | None:
        """The masks of a call of this kind; None where it has none that is read."""
        masks = self._kinds.get(key)
        if masks is None:
            masks = self._kinds[key] = tuple(self._masks_of(key, args, kwargs))
        found = [_count(each, at_place(each.place, args, kwargs), self._copies) for each in masks]
        return CallMasks([each for each in found if each is not None], self._copies) if found else None

    def _masks_of(self, key: CallKey, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[_Mask]:
        module = self._model.get_submodule(key.module)
        same_model = key.module, key.version
        if same_model not in self._rules:
            self._rules[same_model] = frozenset(mask_rules(module).values())
        by_name: dict[str, list[str]] = defaultdict(list)
        places = mask_places(module, args, kwargs)
        for rule, name in mask_names(module, self._rules[same_model], places).items():
            by_name[name].append(rule)
        for name, rules in by_name.items():
            if len(places.get(name, ())) != 1:
                continue
            (place,) = places[name]
            mask = at_place(place, args, kwargs)
            if _is_read(mask) and has_rows_of(mask, (args, kwargs)):
                yield _Mask(place, tuple(rules))


def kept_pairs(rule: str, kept: torch.Tensor) -> int:
    """Pairs that masks of a rule keep. kept: (keys,) how many sequences keep each key.

    There are as many queries as keys, but for the rule "all", where they are those of one query.

    >>> kept_pairs("causal", torch.tensor([2, 2, 1]))  # keys 0 and 1 twice, of 3 and 2 queries; key 2 once, of 1
    11
    """
    if rule == ALL:
        return int(kept.sum())
    queries = torch.arange(len(kept), 0, -1, device="cpu")  # those at a key and after it
    if rule != CAUSAL:
        queries = queries.clamp(max=int(rule.removeprefix(WINDOW)))
    return int((kept * queries).sum())


def _is_read(mask: Any) -> bool:
    return type(mask) is torch.Tensor and mask.dim() == 2 and mask.device.type in ("cpu", "cuda")


def _count(mask: _Mask, tensor: torch.Tensor, copies: Copies) -> _Count | None:
    """None for what cannot be read here: another kind of tensor, or inside of a graph that is being captured."""
    if not _is_read(tensor) or (tensor.is_cuda and torch.cuda.is_current_stream_capturing()):
        return None
    kept = torch.count_nonzero(tensor, dim=0)
    held, copied = copies.begin(kept) if tensor.is_cuda else (kept, None)
    return _Count(mask, len(tensor), held, copied)
