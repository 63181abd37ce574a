"""How many pairs of a query and a key an attention keeps, by the rule of its mask; no mask is made.

Query i and key j are counted from 0. A causal mask keeps j ≤ i + shift: with equal numbers of both, s (s + 1) / 2
pairs. torch's `is_causal` aligns the first query with the first key (shift 0); a decoder that has earlier keys aligns
the last ones (shift = keys - queries). A window keeps the last `window` of the keys that a causal mask keeps, the
query's own among them. All numbers are exact integers of any size.
"""

from __future__ import annotations

from collections.abc import Iterable

CAUSAL, ALL = "causal", "all"
WINDOW = "window:"
"""Rules of a mask in words: "causal", "all", "window:4096"."""


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


def document_pairs(lengths: Iterable[int], causal: bool = True) -> int:
    """Pairs of packed sequences of which each attends to itself alone. lengths: of the sequences.

    >>> document_pairs([2, 3])  # 3 + 6
    9
    """
    return sum(causal_pairs(length, length) if causal else length * length for length in lengths)


def packed_pairs(rule: str, lengths: Iterable[int]) -> int:
    """The same with the rule of a mask in words, of each sequence by itself.

    >>> packed_pairs("window:2", [2, 3])  # 1 + 2, and 1 + 2 + 2
    8
    """
    return sum(pairs_of(rule, length, length) for length in lengths)


def padded_pairs(rule: str, queries: int, runs: Iterable[tuple[int, int]], shift: int = 0) -> int:
    """Pairs of a rule whose keys lie in the runs [start, stop) that padding leaves; queries of padding count.

    >>> padded_pairs("causal", 4, [(1, 3)])  # 0 + 1 + 2 + 2
    5
    """
    return sum(pairs_of(rule, queries, stop, shift) - pairs_of(rule, queries, start, shift) for start, stop in runs)


def tile_pairs(queries: int, keys: int, tile: tuple[int, int], shift: int = 0) -> int:
    """Pairs in the tiles that hold a pair of the causal mask: what a kernel computes that leaves out whole tiles alone.

    tile: queries and keys of one; those at the edges are smaller. A kernel that pads them computes more.
    """
    rows, columns = tile
    found = 0
    for first in range(0, queries, rows):
        last = min(first + rows, queries)
        reach = min(max(last + shift, 0), keys)  # keys that the tile's last query attends to
        found += (last - first) * min(-(-reach // columns) * columns, keys)
    return found


def pairs_of(rule: str, queries: int, keys: int, shift: int = 0) -> int:
    """Of a rule in words. Raises ValueError for a rule that is none."""
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
