"""Computes attention's model FLOP by conventions, which differ in the query-key pairs that they count.

`attention_flop` takes a table of operations and returns `AttentionFlop`. `dense` counts all pairs (PaLM's 12·L·H·Q·T,
the default), `causal` those up to the diagonal, and `mask_exact` those that the mask keeps. `hardware` counts the tiles
that torch's CPU kernel computes (pytorch at 008ec6b1, native/cpu/FlashAttentionKernel.cpp). A mask is identified by its
rule, never by its values. The rule is the call's `is_causal`, or its module's (`MASK_RULE`, from
`measure/model/attention_masks.py`) unless the batch has its own mask (`MASK_PAIRS`). Query i and key j count from 0. A
causal mask keeps j ≤ i + shift, a window the last `window` of these keys. Not claimed: attention written as separate
products outside such modules (always dense), and `hardware` of other kernels, of given masks and of half precision.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.operators import names
from analysis.operators.cost import Size, attribute, has_any, shape
from analysis.operators.registry import kind_of, model_flop
from results.records.counts import Operation

CAUSAL, ALL = "causal", "all"
WINDOW = "window:"
"""Prefix of a windowed mask's rule. The rules: "causal", "all", "window:4096"."""

ON_CPU = "aten._scaled_dot_product_flash_attention_for_cpu"


def causal_pairs(queries: int, keys: int, shift: int = 0) -> int:
    """Return the pairs with j ≤ i + shift, for i < queries and j < keys: the sum over i of min(max(i + shift + 1, 0),
    keys).

    >>> causal_pairs(4, 4)  # 1 + 2 + 3 + 4
    10
    """
    if queries == keys and isinstance(shift, int) and shift == 0:  # also valid for symbolic sizes
        return queries * (queries + 1) // 2
    first = min(max(-shift, 0), queries)  # the first query that has a key
    full = min(max(keys - shift - 1, first), queries)  # the first query that has all keys
    growing = full - first
    return growing * (first + shift + 1) + growing * (growing - 1) // 2 + (queries - full) * keys


def pairs_of(rule: str, queries: int, keys: int, shift: int = 0) -> int:
    """Count the pairs that a mask rule keeps. A window keeps i + shift - window < j ≤ i + shift.

    >>> pairs_of("window:2", 4, 4)  # 1 + 2 + 2 + 2
    7
    """
    if rule == ALL:
        return queries * keys
    causal = causal_pairs(queries, keys, shift)
    return causal if rule == CAUSAL else causal - causal_pairs(queries, keys, shift - int(rule.removeprefix(WINDOW)))


def is_rule(rule: object) -> bool:
    """Return whether this value is a valid mask rule."""
    if not isinstance(rule, str):
        return False
    width = rule.removeprefix(WINDOW)
    return rule in (ALL, CAUSAL) or (rule.startswith(WINDOW) and width.isdecimal() and int(width) > 0)


def tile_pairs(queries: int, keys: int, tile: tuple[int, int]) -> int:
    """Return the pairs in all tiles with at least one pair of the causal mask, as a kernel computes them that skips
    whole tiles only. tile: (queries, keys) of a tile; tiles at the edges are smaller.

    >>> tile_pairs(3, 3, (2, 2))  # one upper tile of 4 pairs, two lower tiles of 2 and 1
    7
    """
    rows, columns = tile
    pairs = 0
    for first in range(0, queries, rows):
        last = min(first + rows, queries)
        reach = min(last, keys)  # keys that the tile's last query attends to
        pairs += (last - first) * min(-(-reach // columns) * columns, keys)
    return pairs


def computed_pairs(operation: Operation, queries: int, keys: int) -> int | None:
    """Return the query-key pairs of one head that the kernel of this call computes; None where its tiles are
    unknown."""
    is_known = operation.name.removesuffix("_backward") == ON_CPU and BLOCK_PAIRS not in operation.attributes
    if not is_known or operation.input_dtypes[0] not in ("float32", "float64"):
        return None
    if not attribute(operation, "is_causal", False):
        return queries * keys
    return tile_pairs(queries, keys, (256 if queries >= 768 else 64 if queries >= 192 else 32, 512))


CONVENTIONS = ("dense", "causal", "mask_exact", "hardware")
BY_RULE = ("causal", "mask_exact")
"""Conventions that leave pairs out of the dense count by the masks' rules."""

MASK_RULE, MASK_PAIRS = "mask_rule", "mask_pairs"
"""Trace attributes of an attention call: its module's mask rule, and whether the batch has a mask of its own."""

BLOCK_PAIRS = "block_pairs"
"""Attribute of FlexAttention under a block mask, whose pairs are unknown (`measure/operations/control_flow.py`)."""

_WITH_HEADS = frozenset(f"aten.{name}" for name in (*names.ATTENTION.split(), *names.ATTENTION_BACKWARD.split()))
"""Operators whose query and key are (…, heads, length, width)."""

_BATCHED = frozenset(("aten.bmm", "aten.baddbmm"))
"""Batched products: attention consists of them where no single operator computes it."""

_MASKS = ("attn_mask", "attn_bias", "bias", "mask")

SYMBOLS = "the pairs under a mask have no single formula for a symbolic length ({name} in {module})"
UNEQUAL = "attention runs as plain products, and its numbers of queries and keys differ ({name} in {module})"
UNKNOWN_MASK = "the values of a mask are not known ({name} in {module})"
UNKNOWN_BLOCKS = "the pairs that a block mask keeps are not known ({name} in {module})"
UNKNOWN_BATCH = "the batch has a mask or positions of its own, whose values are not known ({name} in {module})"
PACKED = "sequences are packed, and the values of their ends are not known ({name} in {module})"
NO_TILES = "the tiles that a kernel computes are known only for torch's CPU kernel in float32 and float64"


@dataclass(frozen=True)
class AttentionFlop:
    """Dense FLOP less the FLOP of each convention, by phase ("forward", "backward", "recompute", …).

    None: unknown; `reasons` maps the convention to the reason. calls: number of attention calls examined.
    """

    causal: Mapping[str, int] | None
    mask_exact: Mapping[str, int] | None
    calls: int
    reasons: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, int] | None = None

    def flop(self, convention: str, phase: str, dense: int | None) -> int | None:
        """Return a phase's FLOP by a convention, from its dense FLOP. Raises ValueError for an unknown convention."""
        if convention not in CONVENTIONS:
            raise ValueError(f"expected one of {', '.join(CONVENTIONS)}, got {convention!r}")
        if convention == "dense" or dense is None:
            return dense
        less = getattr(self, convention)
        return None if less is None else dense - less.get(phase, 0)

    def as_row(self, phase: str, dense: int | None) -> dict[str, Any]:
        """Return what a row of flop_counts.csv stores: convention → FLOP of a phase, and the reason where there is
        none."""
        others = {name: self.flop(name, phase, dense) for name in (*BY_RULE, "hardware")}
        return {"convention": "dense", **others, "calls": self.calls, "reasons": dict(self.reasons)}

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, int | None, Mapping[str, Any]]]) -> AttentionFlop | None:
        """Return the inverse of `as_row`, from (phase, dense FLOP, stored values); None where no row stores any."""
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
    """Query-key pairs of one call: all, and those of two conventions. None: unknown, with the reason."""

    dense: Size
    causal: Size | None
    mask_exact: Size | None
    why: str = ""
    hardware: Size | None = None

    def less(self, convention: str, flop: Size) -> Size | None:
        """Return the part of the call's dense FLOP that a convention leaves out. All pairs have equal FLOP."""
        pairs: Size | None = getattr(self, convention)
        if pairs is None:
            return None
        if pairs == self.dense:
            return 0
        return flop - flop // self.dense * pairs


def attention_flop(operations: Iterable[Operation], rules: Mapping[str, str] | None = None) -> AttentionFlop:
    """Sum over a step's operations. A convention is None where it is unknown for any call, and `hardware` also where
    there are no calls. rules: module path → rule of the masks that the module makes, for a table whose calls lack
    it."""
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
    """Return whether this is attention, or a product that may be part of it."""
    return operation.name in _BATCHED or kind_of(operation.name) == "attention"


def kept_pairs(operation: Operation, rule: str = "") -> KeptPairs | None:
    """Count the pairs of a call that may have a mask; None for a product outside attention. rule: the mask rule of the
    call's module, where the call lacks it. A gradient's call has the pairs of its forward call."""
    batched, rule = operation.name in _BATCHED, attribute(operation, MASK_RULE, "") or rule
    if batched and not is_rule(rule):
        return None
    rule, why = _rule(operation, rule if is_rule(rule) else "")
    queries, keys = attention_sizes(operation) or (1, 1)
    dense, causal, exact, tiles = queries * keys, None, None, None
    own_mask = MASK_PAIRS in operation.attributes and (batched or has_any(operation, *_MASKS))
    if isinstance(queries, int) and isinstance(keys, int):
        tiles = computed_pairs(operation, queries, keys)
        if rule:
            # a module's masks align the last query with the last key, the call's `is_causal` the first with the first
            shift = 0 if attribute(operation, "is_causal", False) else keys - queries
            causal = pairs_of(ALL if rule == ALL else CAUSAL, queries, keys, shift)
            exact, why = pairs_of(rule, queries, keys, shift), UNKNOWN_BATCH
    elif rule:  # lengths that are symbols: where one formula has the pairs at all sizes
        causal = dense if rule == ALL else causal_pairs(queries, keys) if queries == keys else None
        exact, why = causal if rule in (ALL, CAUSAL) else None, SYMBOLS
    why = why.format(name=operation.name, module=operation.module or "the model")
    return KeptPairs(dense, causal, None if own_mask else exact, why, tiles)


def _rule(operation: Operation, rule: str) -> tuple[str, str]:
    """Return (mask rule of a call, or "" and the reason). rule: of the module's masks, or ""."""
    if BLOCK_PAIRS in operation.attributes:
        return "", UNKNOWN_BLOCKS
    if operation.name in _BATCHED:
        return (rule, "") if rule == ALL or attention_sizes(operation) else ("", UNEQUAL)
    masked, causal = has_any(operation, *_MASKS), bool(attribute(operation, "is_causal", False))
    if operation.name not in _WITH_HEADS:
        if has_any(operation, "cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k", "cu_seq_q"):
            return "", PACKED
        return ("", UNKNOWN_MASK) if masked or causal else (ALL, "")
    if causal:
        return ("", UNKNOWN_MASK) if masked else (CAUSAL, "")
    if not masked:
        return ALL, ""
    return (rule, "") if rule else ("", UNKNOWN_MASK)


def attention_sizes(operation: Operation) -> tuple[Size, ...]:
    """Return (queries, keys) of a call; empty where its shapes do not show them.

    For a batched product, the length is what two of its three sizes share: scores are (length × width) by (width ×
    length), and every other product of attention and its gradients has the same three sizes in another order.
    """
    if operation.name in _WITH_HEADS:
        return tuple(shape(operation, name)[-2] for name in ("query", "key"))
    if operation.name not in _BATCHED:
        return ()
    sizes = *shape(operation, "self", "batch1")[-2:], shape(operation, "mat2", "batch2")[-1]
    twice = [size for size, other in itertools.combinations(sizes, 2) if size == other]
    return (twice[0], twice[0]) if twice else ()
