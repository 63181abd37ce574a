"""Definition, known answer: pairs that attention keeps and computes, against counted masks and the CPU's own kernel."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from analysis.operators.attention_conventions import (
    ON_CPU,
    causal_pairs,
    computed_pairs,
    is_rule,
    pairs_of,
    tile_pairs,
)
from tests.support.made_up_operations.made_up_operations import operation

FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
ITS_GRADIENTS = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def in_tile(query: int, key: int, rows: int, columns: int, length: int) -> bool:
    """Whether the tile of this pair holds a pair of the causal mask: its last query is not before its first key."""
    return min(query // rows * rows + rows, length) - 1 >= key // columns * columns


LENGTHS = {190: 32, 600: 64, 767: 64, 800: 256}
"""Queries, and as many keys → queries of a tile, as the kernel's source has it; 512 keys."""


@pytest.mark.parametrize(("length", "rows"), LENGTHS.items())
def test_the_kernel_for_cpus_computes_the_tiles_that_are_said(length: int, rows: int) -> None:
    """A value that is not a number spoils the output of every query whose tile is computed, since 0 · NaN is NaN; those
    that are left out stay numbers. A gradient that is none spoils those of the values in the same way."""
    call = operation(ON_CPU, {"query": (1, 1, length, 4)}, [(1, 1, length, 4)], is_causal=True)
    assert computed_pairs(call, length, length) == tile_pairs(length, length, (rows, 512))
    marks = [place for place in (0, 31, 63, 64, 255, 256, 511, 512, 599, 766, length - 1) if place < length]
    query, key, value, upstream = (torch.randn(len(marks), 1, length, 4) for _ in range(4))
    for each, mark in enumerate(marks):
        value[each, 0, mark] = float("nan")
    spoiled = FUSED(query, key, value, 0.0, True)[0].isnan().any(-1)[:, 0]
    for each, mark in enumerate(marks):
        expected = [in_tile(place, mark, rows, 512, length) for place in range(length)]
        assert spoiled[each].tolist() == expected
    value = torch.randn(len(marks), 1, length, 4)
    out, sums = FUSED(query, key, value, 0.0, True)
    for each, mark in enumerate(marks):
        upstream[each, 0, mark] = float("nan")
    spoiled = ITS_GRADIENTS(upstream, query, key, value, out, sums, 0.0, True)[2].isnan().any(-1)[:, 0]
    for each, mark in enumerate(marks):
        assert spoiled[each].tolist() == [in_tile(mark, place, rows, 512, length) for place in range(length)]


SIZE = st.integers(0, 24)


def mask(queries: int, keys: int, shift: int, window: int | None = None) -> np.ndarray:
    i, j = np.arange(queries)[:, None] + shift, np.arange(keys)[None, :]
    kept = j <= i
    return kept if window is None else kept & (j > i - window)


@given(SIZE, SIZE, st.integers(-30, 30), st.integers(1, 30))
def test_rules_keep_as_many_pairs_as_their_masks(queries: int, keys: int, shift: int, window: int) -> None:
    assert causal_pairs(queries, keys, shift) == mask(queries, keys, shift).sum()
    assert pairs_of(f"window:{window}", queries, keys, shift) == mask(queries, keys, shift, window).sum()


@given(st.integers(1, 24), st.integers(1, 24), st.integers(1, 9), st.integers(1, 9))
def test_tiles_are_those_that_hold_a_kept_pair(queries: int, keys: int, rows: int, columns: int) -> None:
    kept, found = mask(queries, keys, 0), 0
    for i in range(0, queries, rows):
        for j in range(0, keys, columns):
            tile = kept[i : i + rows, j : j + columns]
            found += tile.size if tile.any() else 0
    assert tile_pairs(queries, keys, (rows, columns)) == found


def test_a_square_causal_mask_and_packed_documents_by_their_closed_forms() -> None:
    assert causal_pairs(131_072, 131_072) == 131_072 * 131_073 // 2
    assert pairs_of("all", 3, 5) == 15
    assert pairs_of("window:4", 9, 9) == 1 + 2 + 3 + 4 * 6


@pytest.mark.parametrize("rule", ["", "window:", "window:-1", "window:0", "diagonal"])
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    assert not is_rule(rule)
