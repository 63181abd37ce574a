"""Sequences that are packed one behind another (`torch.nn.attention.varlen`): the pairs of each by itself.

Where one sequence ends and the next begins is the value of a small tensor, and a trace runs on tensors without values.
So the ends of a tensor among the model's inputs are noted on its fake copy, and read where attention gets that very
copy. Not claimed: ends that the model calculates, or keeps in other dtypes; keys in pages of a cache.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from analysis.operators.attention_pairs import causal_pairs, pairs_of
from measure.dispatch.schemas import Plan

FORWARD = "torch_attn._varlen_attn"

MOST = 2**16
"""Elements of a tensor whose values are noted."""

_ENDS = "flopledger_ends"


def note_ends(given: Any, fakes: Any) -> None:
    """Note on fake copies of 1-dimensional whole numbers what values they have. Both are trees of one form."""
    for real, fake in zip(tree_leaves(given), tree_leaves(fakes), strict=True):
        if isinstance(real, torch.Tensor) and isinstance(fake, FakeTensor) and _has_ends(real):
            setattr(fake, _ENDS, tuple(real.tolist()))


def _has_ends(tensor: torch.Tensor) -> bool:
    whole = tensor.dtype in (torch.int32, torch.int64) and tensor.dim() == 1 and tensor.numel() <= MOST
    return whole and not tensor.is_meta and not isinstance(tensor, FakeTensor)


def sequence_pairs(plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of a call of FORWARD what `BLOCK_PAIRS` holds; None of any other."""
    if plan.name != FORWARD:
        return None
    query, longest = plan.value("query", args, kwargs), plan.value("max_k", args, kwargs)
    dense = query.shape[0] * longest
    found = {"dense": dense, "kept": None, "causal": None, "tiles": None}
    of_queries, of_keys = (getattr(plan.value(name, args, kwargs), _ENDS, ()) for name in ("cu_seq_q", "cu_seq_k"))
    rule = _rule(plan.value("window_size", args, kwargs), plan.value("is_causal", args, kwargs))
    paged = plan.value("block_table", args, kwargs) is not None
    if paged or not rule or not of_queries or len(of_queries) != len(of_keys):
        return found
    queries, keys = ([stop - start for start, stop in itertools.pairwise(each)] for each in (of_queries, of_keys))
    sizes = [(q, k, k - q) for q, k in zip(queries, keys, strict=True)]  # the last query has the last key
    kept = sum(pairs_of(rule, *each) for each in sizes)
    return found | {"kept": kept, "causal": dense if rule == "all" else sum(causal_pairs(*each) for each in sizes)}


def _rule(window: Sequence[int] | None, is_causal: bool) -> str:
    """The rule of a mask in words; "" for a window on both sides. window: keys before and after; -1: all."""
    before, after = window or (-1, -1)
    if after == -1 and before == -1:
        return "causal" if is_causal else "all"
    if after != 0:
        return ""
    return "causal" if before == -1 else f"window:{before + 1}"
