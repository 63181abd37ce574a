"""Model FLOP of attention by convention: dense, causal, mask-exact; from the rows of a table of operations.

dense: every pair of a query and a key counts, whatever is masked (PaLM's 12·L·H·Q·T, most frameworks, and the default
everywhere here). causal: where an attention is causal, pairs up to the diagonal alone. mask_exact: the pairs that the
mask keeps, a sliding window or all of an encoder. hardware: what a kernel computes by its tiles; not known without the
kernel, so there is none.

A mask is known by its rule: `is_causal` of the call, or the rule of the module that called
(`measure/model/module_masks.py`). Values are never looked at. Where attention runs as plain products (with dropout on a
CPU, or written so), the batched products that a module with a rule calls itself are its scores and their use. Not
claimed: anything of other attention that is written as plain products, which is dense in each convention, nor of packed
sequences, whose lengths are in no table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from analysis.operators import names
from analysis.operators.attention_pairs import ALL, CAUSAL, pairs_of
from analysis.operators.operands import attribute, has_any, shape
from analysis.operators.registry import cost, kind_of
from results.records import Operation

CONVENTIONS = ("dense", "causal", "mask_exact", "hardware")

_WITH_HEADS = frozenset(f"aten.{name}" for name in (*names.ATTENTION.split(), *names.ATTENTION_BACKWARD.split()))
"""Operators whose query and key are (…, heads, length, width)."""

_BATCHED = frozenset(("aten.bmm", "aten.baddbmm"))
"""Products of three dimensions, which scores and their use are where no operator has attention as a whole."""

UNEQUAL = "attention runs as plain products, with another number of keys than of queries ({name} in {module})"
UNKNOWN_MASK = "the values of a mask are not known ({name} in {module})"
PACKED = "sequences of different lengths are packed, which no table holds ({name} in {module})"
NO_TILES = "which tiles a kernel computes depends on the kernel of the device"


@dataclass(frozen=True)
class AttentionFlop:
    """By phase ("forward", "backward", "recompute", …) the FLOP that a convention counts less than the dense one.

    None: not known, and `reasons` (convention → why) has the reason. calls: of attention that were looked at.
    """

    causal: Mapping[str, int] | None
    mask_exact: Mapping[str, int] | None
    calls: int
    reasons: Mapping[str, str] = field(default_factory=dict)

    def flop(self, convention: str, phase: str, dense: int | None) -> int | None:
        """A phase's FLOP by a convention, of its dense FLOP. Raises ValueError for a convention that is none."""
        if convention not in CONVENTIONS:
            raise ValueError(f"expected one of {', '.join(CONVENTIONS)}, got {convention!r}")
        if convention == "dense" or dense is None:
            return dense
        less = getattr(self, convention, None)
        return None if less is None else dense - less.get(phase, 0)


def attention_flop(operations: Iterable[Operation], rules: Mapping[str, str]) -> AttentionFlop:
    """Of a step's operations. rules: path of a module → the rule of the masks that it makes (`attention_pairs.py`)."""
    less: dict[str, dict[str, int]] = {"causal": {}, "mask_exact": {}}
    reasons = {"hardware": NO_TILES}
    calls = 0
    for operation in operations:
        if not _is_attention(operation, rules):
            continue
        calls += 1
        rule, why = _rule(operation, rules)
        if rule is None:
            reasons |= dict.fromkeys(less, why)
            continue
        phase = "forward" if operation.phase == "loss" else operation.phase
        for convention, found in less.items():
            found[phase] = found.get(phase, 0) + _less(operation, rule, convention)
    known = {name: found if name not in reasons else None for name, found in less.items()}
    return AttentionFlop(known["causal"], known["mask_exact"], calls, reasons)


def _is_attention(operation: Operation, rules: Mapping[str, str]) -> bool:
    return kind_of(operation.name) == "attention" or (operation.name in _BATCHED and operation.module in rules)


def _rule(operation: Operation, rules: Mapping[str, str]) -> tuple[str | None, str]:
    """(the rule of the mask of a call, or None and why)."""
    named = {"name": operation.name, "module": operation.module or "the model"}
    if operation.name in _BATCHED:
        sizes = _sizes(operation)
        return (rules[operation.module], "") if sizes else (None, UNEQUAL.format(**named))
    masked = has_any(operation, "attn_mask", "attn_bias", "bias", "mask")
    causal = bool(attribute(operation, "is_causal", False))
    if operation.name not in _WITH_HEADS:
        if has_any(operation, "cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k"):
            return None, PACKED.format(**named)
        return (None, UNKNOWN_MASK.format(**named)) if masked or causal else (ALL, "")
    if causal:
        return (None, UNKNOWN_MASK.format(**named)) if masked else (CAUSAL, "")
    if not masked:
        return ALL, ""
    rule = rules.get(operation.module)
    return (rule, "") if rule else (None, UNKNOWN_MASK.format(**named))


def _less(operation: Operation, rule: str, convention: str) -> int:
    """FLOP of the pairs that a convention leaves out. Each pair has the same share of a call's products."""
    if rule == ALL:
        return 0
    queries, keys = _sizes(operation)
    # masks that a module makes align the last query with the last key, `is_causal` of the call the first ones
    shift = 0 if attribute(operation, "is_causal", False) else keys - queries
    kept = pairs_of(CAUSAL if convention == "causal" else rule, queries, keys, shift)
    dense = int(cost(operation).model_flop)
    return dense - dense // (queries * keys) * kept if queries * keys else 0


def _sizes(operation: Operation) -> tuple[int, ...]:
    """(queries, keys) of a call. Of a batched product the length that two of its three sizes have; empty: none has.

    Scores are (length × width) by (width × length), and every other product of attention and of its gradients has the
    same three sizes in another order.
    """
    if operation.name not in _BATCHED:
        return tuple(int(shape(operation, name)[-2]) for name in ("query", "key"))
    sizes = sorted((*shape(operation, "self", "batch1")[-2:], shape(operation, "mat2", "batch2")[-1]))
    twice = [int(size) for size, larger in itertools.pairwise(sizes) if size == larger]
    return (twice[0], twice[0]) if twice else ()
