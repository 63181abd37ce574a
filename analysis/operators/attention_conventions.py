"""Model FLOP of attention by convention: dense, causal, mask-exact; from the rows of a table of operations.

dense: every pair of a query and a key counts, whatever is masked (PaLM's 12·L·H·Q·T, most frameworks, and the default
everywhere here). causal: where an attention is causal, pairs up to the diagonal alone. mask_exact: the pairs that the
mask keeps: a sliding window, all of an encoder. hardware: what the kernel of the call computes by its tiles, where they
are known.

A mask is known by its rule: `is_causal` of the call, or the rule of the module that called (`MASK_RULE`, which the
tracer notes; `measure/model/attention_masks.py`), where the batch has no mask of its own (`MASK_PAIRS`). No mask is
read. Where attention runs as plain products (with dropout on a CPU, or written so), the batched products that a module
with a rule calls itself are its scores and their use. Not claimed: anything of other attention that is written as plain
products, which is dense in each convention.

Query i and key j are counted from 0. A causal mask keeps j ≤ i + shift: with equal numbers of both, s (s + 1) / 2
pairs. torch's `is_causal` aligns the first query with the first key (shift 0); a decoder that has earlier keys aligns
the last ones (shift = keys - queries). A window keeps the last `window` of the keys that a causal mask keeps, the
query's own among them. All numbers are exact integers of any size.

A fused kernel computes whole tiles (`computed_pairs`): under a causal mask it leaves out those that lie above the
diagonal, and computes all pairs of the others. How large its tiles are is written in its source:

* torch's kernel for CPUs (pytorch at 008ec6b1, aten/src/ATen/native/cpu/FlashAttentionKernel.cpp; a test finds the
  same tiles in what torch 2.15.0 computes): 32 queries by 512 keys, 64 from 192 queries on, 256 from 768 on; the tiles
  at the edges are smaller. A mask that is given leaves out nothing. In half precision it may pack, and pad, by what the
  processor has.
* FlashAttention 2, which torch has for NVIDIA's devices (read, not run: Dao-AILab/flash-attention at 01afd16d,
  csrc/flash_attn/src/flash_fwd_launch_template.h, and at 073afd59, flash_bwd_launch_template.h; pytorch at 04ff5beb has
  the same forward tiles in aten/src/ATen/native/transformers/cuda/flash_attn): by head size, compute capability and
  dropout (`flash_tile`); tiles at the edges are whole.

Not claimed: any other kernel (cuDNN's, memory-efficient attention, FlashAttention 3); what a kernel splits over keys
when there are few queries, as in decoding; the fifth product of a backward pass, which computes the scores again.
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
"""Rules of a mask in words: "causal", "all", "window:4096"."""

ON_CPU = "aten._scaled_dot_product_flash_attention_for_cpu"

FLASH = "aten._scaled_dot_product_flash_attention"

BACKWARD = "_backward"

CAPABILITY = "capability"
"""Attribute of a call on a device: its compute capability [major, minor]."""

KERNEL_SIZES = (32, 64, 96, 128, 160, 192, 224, 256)
"""Head sizes that FlashAttention 2 has, or once had, kernels for; one between them runs on the next."""

Tile = tuple[int, int]
"""(queries, keys)."""

_FORWARD: dict[int, Tile] = {
    32: (128, 128), 64: (128, 128), 96: (128, 64), 128: (128, 64), 192: (128, 64), 256: (64, 64),
}  # fmt: skip
_FORWARD_CAUSAL_8X: dict[int, Tile] = {96: (64, 64), 128: (64, 64)}
"""Where compute capability 8.6 and 8.9 have another."""

_FORWARD_DROPOUT: dict[int, Tile] = {64: (128, 64), 128: (128, 32), 192: (64, 64)}
"""With dropout."""

_BACKWARD: dict[int, Tile] = {
    32: (128, 128), 64: (128, 128), 96: (64, 128), 128: (64, 128), 192: (64, 64), 256: (64, 64),
}  # fmt: skip
_BACKWARD_8X: dict[int, Tile] = {64: (64, 128), 128: (64, 64), 256: (64, 32)}
"""Where there are 99 KB of shared memory for a block, as on 8.6 and 8.9."""

_KNOWN = ((8, 0), (8, 6), (8, 9), (9, 0))
"""Compute capabilities whose shared memory decides as above."""


def causal_pairs(queries: int, keys: int, shift: int = 0) -> int:
    """Pairs with j ≤ i + shift, for i < queries and j < keys.

    >>> causal_pairs(4, 4)  # 1 + 2 + 3 + 4
    10
    """
    if queries == keys and isinstance(shift, int) and shift == 0:  # of sizes that are symbols, too
        return queries * (queries + 1) // 2
    return _up_to(queries, keys, shift)


def window_pairs(queries: int, keys: int, window: int, shift: int = 0) -> int:
    """Pairs with i + shift - window < j ≤ i + shift: a causal mask that keeps `window` keys at most.

    Raises ValueError for a window below 1.

    >>> window_pairs(4, 4, 2)  # 1 + 2 + 2 + 2
    7
    """
    if window < 1:
        raise ValueError(f"expected a window of at least 1 key, got {window}")
    # of query i the keys up to i + shift, less those up to i + shift - window
    return _up_to(queries, keys, shift) - _up_to(queries, keys, shift - window)


def tile_pairs(queries: int, keys: int, tile: Tile, shift: int = 0, padded: bool = False) -> int:
    """Pairs in the tiles that hold a pair of the causal mask: what a kernel computes that leaves out whole tiles alone.

    padded: whether tiles at the edges are as large as the others; else they are smaller.

    >>> tile_pairs(3, 3, (2, 2), padded=True)  # two tiles of the lower rows and one of the upper, of four pairs each
    12
    """
    rows, columns = tile
    pairs = 0
    for first in range(0, queries, rows):
        last = min(first + rows, queries)
        reach = min(max(last + shift, 0), keys)  # keys that the tile's last query attends to
        width = -(-reach // columns) * columns
        pairs += rows * width if padded else (last - first) * min(width, keys)
    return pairs


def cpu_tile(queries: int) -> Tile:
    """The tile of torch's kernel for CPUs.

    >>> cpu_tile(200)
    (64, 512)
    """
    rows = 256 if queries >= 768 else 64 if queries >= 192 else 32
    return rows, 512


def flash_tile(head: int, capability: tuple[int, int], *, dropout: bool = False, backward: bool = False) -> Tile | None:
    """The tile of FlashAttention 2's causal kernel. head: the size of a head.

    None: of another device, a larger head, or one that versions run on different kernels (129 to 160, 193 to 224).

    >>> flash_tile(128, (9, 0))
    (128, 64)
    >>> flash_tile(128, (8, 9), backward=True)
    (64, 64)
    """
    size = next((each for each in KERNEL_SIZES if head <= each), None)
    if size not in _FORWARD or tuple(capability) not in _KNOWN:
        return None
    small = tuple(capability) in ((8, 6), (8, 9))
    if backward:
        return _BACKWARD_8X.get(size, _BACKWARD[size]) if small else _BACKWARD[size]
    if size == 256 and tuple(capability) == (8, 0):
        return 128, 64
    if dropout and size in _FORWARD_DROPOUT:
        return _FORWARD_DROPOUT[size]
    return _FORWARD_CAUSAL_8X.get(size, _FORWARD[size]) if small else _FORWARD[size]


def computed_pairs(operation: Operation, queries: int, keys: int) -> int | None:
    """Pairs of one head's queries and keys that the kernel of this call computes; None: its tiles are not known."""
    name = operation.name.removesuffix(BACKWARD)
    causal = bool(attribute(operation, "is_causal", False))
    if name == ON_CPU:
        if operation.input_dtypes[0] not in ("float32", "float64"):
            return None
        return tile_pairs(queries, keys, cpu_tile(queries)) if causal else queries * keys
    if name != FLASH or not causal or queries != keys or CAPABILITY not in operation.attributes:
        return None
    head, (major, minor) = shape(operation, "query")[-1], operation.attributes[CAPABILITY]
    dropout, backward = bool(attribute(operation, "dropout_p", 0.0)), operation.name.endswith(BACKWARD)
    tile = flash_tile(head, (major, minor), dropout=dropout, backward=backward)
    return None if tile is None else tile_pairs(queries, keys, tile, padded=True)


def pairs_of(rule: str, queries: int, keys: int, shift: int = 0) -> int:
    """Counts pairs by a rule in words. Raises ValueError for a rule that is none."""
    if rule == ALL:
        return queries * keys
    if rule == CAUSAL:
        return causal_pairs(queries, keys, shift)
    if is_rule(rule):
        return window_pairs(queries, keys, int(rule.removeprefix(WINDOW)), shift)
    raise ValueError(f"expected a rule {ALL!r}, {CAUSAL!r} or {WINDOW + 'N'!r}, got {rule!r}")


def is_rule(rule: object) -> bool:
    """Whether this is a rule in words."""
    if not isinstance(rule, str):
        return False
    width = rule.removeprefix(WINDOW)
    return rule in (ALL, CAUSAL) or (rule.startswith(WINDOW) and width.isdecimal() and int(width) > 0)


def _up_to(queries: int, keys: int, shift: int) -> int:
    """Sum over i < queries of min(max(i + shift + 1, 0), keys)."""
    first = min(max(-shift, 0), queries)  # queries before it have no key
    full = min(max(keys - shift - 1, first), queries)  # queries from it on have all keys
    growing = full - first
    begins = first + shift + 1
    return growing * begins + growing * (growing - 1) // 2 + (queries - full) * keys


CONVENTIONS = ("dense", "causal", "mask_exact", "hardware")
BY_RULE = ("causal", "mask_exact")
"""Those that leave pairs out of the dense count, by the rules of masks."""

MASK_RULE, MASK_PAIRS = "mask_rule", "mask_pairs"
"""Attributes of a call of attention in a trace: the rule of its module's mask in words, and that
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
    the rule of the masks that it makes, for a table whose calls do not say it."""
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
