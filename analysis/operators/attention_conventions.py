"""Model FLOP of attention by convention: dense, causal, mask-exact; from the rows of a table of operations.

dense: every pair of a query and a key counts, whatever is masked (PaLM's 12·L·H·Q·T, most frameworks, and the default
everywhere here). causal: where an attention is causal, pairs up to the diagonal alone. mask_exact: the pairs that the
mask keeps: a sliding window, all of an encoder. hardware: what the kernel of
the call computes by its tiles (`attention_pairs.py`), where they are known.

A mask is known by its rule: `is_causal` of the call, or the rule of the module that called (`MASK_RULE`, which the
tracer notes; `measure/model/attention_masks.py`), where the batch has no mask of its own (`MASK_PAIRS`;
`measure/model/attention_masks.py`). No mask is read. Where attention runs as plain products (with dropout
on a CPU, or written so), the batched products that a module with a rule calls itself are its scores and their use. Not
claimed: anything of other attention that is written as plain products, which is dense in each convention.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.operators import names
from analysis.operators.attention_pairs import ALL, CAUSAL, causal_pairs, computed_pairs, is_rule, pairs_of
from analysis.operators.cost import Size, attribute, has_any, shape
from analysis.operators.registry import kind_of, model_flop
from results.records.counts import Operation

CONVENTIONS = ("dense", "causal", "mask_exact", "hardware")
BY_RULE = ("causal", "mask_exact")
"""Those that leave pairs out of the dense count, by the rules of masks."""

MASK_RULE, MASK_PAIRS = "mask_rule", "mask_pairs"
"""Attributes of a call of attention in a trace: the rule of its module's mask in words (`attention_pairs.py`), and that
the batch has a mask of its own."""

BLOCK_PAIRS = "block_pairs"
"""Attribute of FlexAttention under a block mask, whose pairs are not known (`measure/operations/control_flow.py`)."""

_WITH_HEADS = frozenset(f"aten.{name}" for name in (*names.ATTENTION.split(), *names.ATTENTION_BACKWARD.split()))
"""Operators whose query and key are (…, heads, length, width)."""

_BATCHED = frozenset(("aten.bmm", "aten.baddbmm"))
"""Products of three dimensions, which scores and their use are where no operator has attention as a whole."""

_MASKS = ("attn_mask", "attn_bias", "bias", "mask")

SYMBOLS = "a length that is a symbol has more than one formula under its mask ({name} in {module})"
UNEQUAL = "attention runs as plain products, with another number of keys than of queries ({name} in {module})"
UNKNOWN_MASK = "the values of a mask are not known ({name} in {module})"
UNKNOWN_BLOCKS = "what a block mask keeps is not known ({name} in {module})"
UNKNOWN_BATCH = "the batch has a mask or positions of its own, whose values are not known ({name} in {module})"
PACKED = "sequences are packed, and the values of their ends are not known ({name} in {module})"
NO_TILES = "which tiles a kernel computes is known of torch's kernel for CPUs in float32 and of FlashAttention 2 alone"


@dataclass(frozen=True)
class AttentionFlop:
    """By phase ("forward", "backward", "recompute", …) the FLOP that a convention counts less than the dense one.

    None: not known, and `reasons` (convention → why) has the reason. calls: of attention that were looked at.
    """

    causal: Mapping[str, int] | None
    mask_exact: Mapping[str, int] | None
    calls: int
    reasons: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, int] | None = None

    def flop(self, convention: str, phase: str, dense: int | None) -> int | None:
        """A phase's FLOP by a convention, of its dense FLOP. Raises ValueError for a convention that is none."""
        if convention not in CONVENTIONS:
            raise ValueError(f"expected one of {', '.join(CONVENTIONS)}, got {convention!r}")
        if convention == "dense" or dense is None:
            return dense
        less = getattr(self, convention)
        return None if less is None else dense - less.get(phase, 0)

    def as_row(self, phase: str, dense: int | None) -> dict[str, Any]:
        """What a row of flop_counts.csv says of its own count: convention → FLOP of a phase, and why one has none."""
        others = {name: self.flop(name, phase, dense) for name in (*BY_RULE, "hardware")}
        return {"convention": "dense", **others, "calls": self.calls, "reasons": dict(self.reasons)}

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, int | None, Mapping[str, Any]]]) -> AttentionFlop | None:
        """The inverse of `as_row`, of (phase, dense FLOP, what the row says); None where no row says anything."""
        counted = [(phase, dense, row) for phase, dense, row in rows if row and dense is not None]
        if not counted:
            return None
        less = {
            name: {phase: dense - row[name] for phase, dense, row in counted}
            if all(row.get(name) is not None for _, _, row in counted)
            else None
            for name in (*BY_RULE, "hardware")
        }
        row = counted[0][2]
        return cls(less["causal"], less["mask_exact"], row["calls"], row["reasons"], less["hardware"])


@dataclass(frozen=True, slots=True)
class KeptPairs:
    """Pairs of a query and a key in one call: all, and those of two conventions. None: not known, and why."""

    dense: Size
    causal: Size | None
    mask_exact: Size | None
    why: str = ""
    hardware: Size | None = None

    def less(self, convention: str, flop: Size) -> Size | None:
        """FLOP that a convention leaves out of so much dense FLOP of the call, in which each pair has one share."""
        pairs: Size | None = getattr(self, convention)
        if pairs is None:
            return None
        if pairs == self.dense:
            return 0
        return flop - flop // self.dense * pairs


def attention_flop(operations: Iterable[Operation], rules: Mapping[str, str] | None = None) -> AttentionFlop:
    """Adds up a step's operations; None for a convention that one of the calls does not have. rules: path of a module →
    the rule of the masks that it makes (`attention_pairs.py`), for a table whose calls do not say it."""
    less: dict[str, dict[str, int]] = {name: {} for name in (*BY_RULE, "hardware")}
    reasons: dict[str, str] = {}
    calls = 0
    for operation in filter(may_have_mask, operations):
        pairs = kept_pairs(operation, (rules or {}).get(operation.module, ""))
        if pairs is None:
            continue
        calls += 1
        phase, flop = "forward" if operation.phase == "loss" else operation.phase, model_flop(operation)
        for name, by_phase in less.items():
            left_out = pairs.less(name, flop)
            if left_out is None:
                reasons.setdefault(name, NO_TILES if name == "hardware" else pairs.why)
            else:
                by_phase[phase] = by_phase.get(phase, 0) + left_out
    if not calls:
        reasons["hardware"] = NO_TILES
    known = {name: by_phase for name, by_phase in less.items() if name not in reasons}
    return AttentionFlop(known.get("causal"), known.get("mask_exact"), calls, reasons, known.get("hardware"))


def may_have_mask(operation: Operation) -> bool:
    """Whether this is attention, or a product that may be one of its own."""
    return operation.name in _BATCHED or kind_of(operation.name) == "attention"


def kept_pairs(operation: Operation, rule: str = "") -> KeptPairs | None:
    """Counts the pairs of a call that may have a mask; None for a product that is none of attention. rule: of its
    module's masks, where the call itself does not say it. A gradient's call has the pairs of its forward call."""
    if BLOCK_PAIRS in operation.attributes:
        queries, keys = attention_sizes(operation) or (1, 1)
        return KeptPairs(queries * keys, None, None, UNKNOWN_BLOCKS.format(**_place(operation)))
    rule = attribute(operation, MASK_RULE, "") or rule
    rule = rule if is_rule(rule) else ""
    if operation.name in _BATCHED and not rule:
        return None
    rule, why = _rule(operation, rule)
    queries, keys = attention_sizes(operation) or (1, 1)
    are_numbers = isinstance(queries, int) and isinstance(keys, int)
    tiles = computed_pairs(operation, queries, keys) if are_numbers else None
    if not rule:
        return KeptPairs(queries * keys, None, None, why, tiles)
    # masks that a module makes align the last query with the last key, `is_causal` of the call the first ones
    shift = 0 if attribute(operation, "is_causal", False) else keys - queries
    if not are_numbers:
        return _of_symbols(operation, rule, queries, keys)
    causal = pairs_of(ALL if rule == ALL else CAUSAL, queries, keys, shift)
    if MASK_PAIRS not in operation.attributes or not (operation.name in _BATCHED or has_any(operation, *_MASKS)):
        return KeptPairs(queries * keys, causal, pairs_of(rule, queries, keys, shift), "", tiles)
    return KeptPairs(queries * keys, causal, None, UNKNOWN_BATCH.format(**_place(operation)), tiles)


def _of_symbols(operation: Operation, rule: str, queries: Size, keys: Size) -> KeptPairs:
    """Pairs of lengths that are symbols: where one formula has them at all sizes."""
    why, dense = SYMBOLS.format(**_place(operation)), queries * keys
    if rule != ALL and queries != keys:
        return KeptPairs(dense, None, None, why)
    causal = dense if rule == ALL else causal_pairs(queries, keys)
    exact = causal if rule in (ALL, CAUSAL) and MASK_PAIRS not in operation.attributes else None
    return KeptPairs(dense, causal, exact, why)


def _place(operation: Operation) -> dict[str, str]:
    return {"name": operation.name, "module": operation.module or "the model"}


def _rule(operation: Operation, rule: str) -> tuple[str, str]:
    """(the rule of the mask of a call, or "" and why). rule: of the module's masks; "": it says none."""
    place = _place(operation)
    if operation.name in _BATCHED:
        return (rule, "") if rule == ALL or attention_sizes(operation) else ("", UNEQUAL.format(**place))
    masked = has_any(operation, *_MASKS)
    causal = bool(attribute(operation, "is_causal", False))
    if operation.name not in _WITH_HEADS:
        if has_any(operation, "cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k", "cu_seq_q"):
            return "", PACKED.format(**place)
        return ("", UNKNOWN_MASK.format(**place)) if masked or causal else (ALL, "")
    if causal:
        return ("", UNKNOWN_MASK.format(**place)) if masked else (CAUSAL, "")
    if not masked:
        return ALL, ""
    return (rule, "") if rule else ("", UNKNOWN_MASK.format(**place))


def product_sizes(operation: Operation) -> tuple[Size, ...]:
    """The three sizes of a batched product: rows, what is summed over, columns; empty for any other call."""
    if operation.name not in _BATCHED:
        return ()
    return *shape(operation, "self", "batch1")[-2:], shape(operation, "mat2", "batch2")[-1]


def attention_sizes(operation: Operation) -> tuple[Size, ...]:
    """(queries, keys) of a call; empty where its form does not say them.

    Of a batched product the length that two of its three sizes have. Scores are (length × width) by (width × length),
    and every other product of attention and of its gradients has the same three sizes in another order.
    """
    if operation.name in _WITH_HEADS:
        return tuple(shape(operation, name)[-2] for name in ("query", "key"))
    sizes = product_sizes(operation)
    twice = [size for size, other in itertools.combinations(sizes, 2) if size == other]
    return (twice[0], twice[0]) if twice else ()
