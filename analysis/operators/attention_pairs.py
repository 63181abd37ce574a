"""How many pairs of a query and a key an attention keeps, by the rule of its mask; no mask is made.

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

from analysis.operators.cost import attribute, shape
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
    32: (128, 128),
    64: (128, 128),
    96: (128, 64),
    128: (128, 64),
    192: (128, 64),
    256: (64, 64),
}
_FORWARD_CAUSAL_8X: dict[int, Tile] = {96: (64, 64), 128: (64, 64)}
"""Where compute capability 8.6 and 8.9 have another."""

_FORWARD_DROPOUT: dict[int, Tile] = {64: (128, 64), 128: (128, 32), 192: (64, 64)}
"""With dropout."""

_BACKWARD: dict[int, Tile] = {
    32: (128, 128),
    64: (128, 128),
    96: (64, 128),
    128: (64, 128),
    192: (64, 64),
    256: (64, 64),
}
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
