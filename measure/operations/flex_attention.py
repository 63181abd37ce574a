"""FlexAttention in a trace on fake tensors: one fused attention, with the pairs that its block mask keeps.

torch's own function refuses a backward pass on a CPU, and has no formula. In its place runs the CPU's fused attention
on the same query, key and value, which is counted dense as any other. The pairs that are kept come from the structure
of the BlockMask: its full blocks are counted by their area, its partial blocks by the mask's function over one block at
a time, so that no mask is made whole. The area of both is what a kernel computes that leaves out blocks alone.

Not claimed: the work of a score's or a mask's function; a BlockMask that is made inside of the model, whose tensors are
fake, so that its blocks are not known. On real tensors torch's own function runs.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

MODULE = "torch.nn.attention.flex_attention"

MOST_PARTIAL = 2**16
"""Partial blocks over which a mask's function is asked; with more of them only their area is known."""

Noted = Callable[[dict[str, Any]], contextlib.AbstractContextManager[None]]
"""What notes the pairs of the attention that runs inside of it."""

_UNKNOWN = {"kept": None, "tiles": None, "causal": None, "masks": 1}


@contextlib.contextmanager
def stand_in(noted: Noted) -> Iterator[None]:
    """While inside, FlexAttention is a fused attention. Nothing is done where torch's module is not loaded."""
    flex: Any = sys.modules.get(MODULE)
    if flex is None:
        yield
        return

    def attend(query: Any, key: Any, value: Any, _score: Any, mask: Any, *_rest: Any, **_named: Any) -> Any:
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, 1) if groups > 1 else each for each in (key, value))
        with noted(block_pairs(mask, query.shape[-2], key.shape[-2])):
            out = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)[0]
        beside = query.new_empty(query.shape[:-1])
        return out, beside, beside

    instead = {
        "flex_attention_hop": attend,
        "_validate_device": lambda *_: None,
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,
    }
    before = {name: getattr(flex, name) for name in instead}
    try:
        for name, each in instead.items():
            setattr(flex, name, each)
        yield
    finally:
        for name, each in before.items():
            setattr(flex, name, each)


def block_pairs(mask: tuple[Any, ...], queries: int, keys: int) -> dict[str, Any]:
    """Of a BlockMask as a tuple: pairs that are kept, pairs in the blocks that are computed, whether no kept key comes
    after its query, and of how many masks (batch × heads) these are sums. None: not known."""
    partial_count, partial_at, full_count, full_at = mask[2:6]
    size, function = mask[-3:-1], mask[-1]
    if size[0] >= queries and size[1] >= keys and getattr(function, "__name__", "") == "noop_mask":
        return {"kept": queries * keys, "tiles": queries * keys, "causal": False, "masks": 1}
    held = [each for each in (partial_count, partial_at, full_count, full_at) if each is not None]
    if any(isinstance(each, FakeTensor) or each.is_meta for each in held):
        return dict(_UNKNOWN)
    with torch.utils._python_dispatch._disable_current_modes():
        partial = _blocks(partial_count, partial_at)
        full = _blocks(full_count, full_at) if full_count is not None else []
        sides = [(each, *_area(each, size, queries, keys)) for each in full]
        edges = [(each, *_area(each, size, queries, keys)) for each in partial]
        tiles = sum(len(rows) * len(columns) for _, rows, columns in (*sides, *edges))
        found = {"tiles": tiles, "masks": partial_count.shape[0] * partial_count.shape[1]}
        asked = None if len(edges) > MOST_PARTIAL else _edge_pairs(edges, function, partial_count.device)
    if asked is None:
        return {**_UNKNOWN, **found}
    kept, later = asked
    area = sum(len(rows) * len(columns) for _, rows, columns in sides)
    beyond = later or any(columns and rows and columns[-1] > rows[0] for _, rows, columns in sides)
    return {**found, "kept": kept + area, "causal": not beyond}


def _blocks(counts: Any, places: Any) -> list[tuple[int, int, int, int]]:
    """(batch, head, row, column) of each block."""
    counts, places = counts.tolist(), places.tolist()
    return [
        (batch, head, row, column)
        for batch, heads in enumerate(counts)
        for head, rows in enumerate(heads)
        for row, count in enumerate(rows)
        for column in places[batch][head][row][:count]
    ]


def _area(block: tuple[int, int, int, int], size: tuple[int, int], queries: int, keys: int) -> tuple[range, range]:
    """Queries and keys of a block; those at the edges are smaller."""
    _, _, row, column = block
    return (
        range(row * size[0], min((row + 1) * size[0], queries)),
        range(column * size[1], min((column + 1) * size[1], keys)),
    )


def _edge_pairs(edges: Any, function: Any, device: Any) -> tuple[int, bool] | None:
    """(pairs that a mask's function keeps in these blocks, whether a key of them comes after its query); None where it
    cannot be asked."""
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    over, kept, later = _vmap_for_bhqkv(function, prefix=()), 0, False
    try:
        for (batch, head, _, _), rows, columns in edges:
            at = [torch.tensor(each, device=device) for each in ([batch], [head], [*rows], [*columns])]
            found = over(*at)[0, 0]
            kept += int(found.sum())
            later = later or bool((found & (at[3][None, :] > at[2][:, None])).any())
    except Exception:  # noqa: BLE001  a function of somebody's own may raise anything: then it says nothing
        return None
    return kept, later
