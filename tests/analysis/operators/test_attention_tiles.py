"""Pairs that kernels of attention compute, beside what the kernel itself computes and beside loops over tiles.

Pairs of a query and a key that a mask keeps: each rule beside a mask that is made and counted.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from analysis.operators.attention_conventions import (
    CAPABILITY,
    FLASH,
    attention_flop,
    causal_pairs,
    cpu_tile,
    flash_tile,
    kept_pairs,
    pairs_of,
    tile_pairs,
    window_pairs,
)
from measure.model.attention_masks import Masks
from results.records.counts import Operation

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
    assert cpu_tile(length) == (rows, 512)
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


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9))
def test_whole_tiles_are_those_that_hold_a_kept_pair(length: int, rows: int, columns: int) -> None:
    tiles = 0
    for top in range(0, length, rows):
        for left in range(0, length, columns):
            queries, keys = range(top, min(top + rows, length)), range(left, min(left + columns, length))
            tiles += any(key <= query for query in queries for key in keys)
    assert tile_pairs(length, length, (rows, columns), padded=True) == tiles * rows * columns


def flash(head: int, *, backward: bool = False, causal: bool = True, **more: object) -> Operation:
    """A call of FlashAttention 2 on 300 tokens, two heads."""
    names = ("grad_out", "query", "key", "value") if backward else ("query", "key", "value")
    sizes = ((1, 2, 300, head),) * len(names)
    return Operation(
        index=0, name=FLASH + "_backward" * backward, kind="attention", phase="backward" if backward else "forward",
        module="", sequence_nr=None, forward_index=None, input_names=names, input_shapes=sizes,
        input_dtypes=("bfloat16",) * len(names), output_shapes=sizes[:3] if backward else sizes[:1],
        output_dtypes=("bfloat16",), attributes={"is_causal": causal, "dropout_p": 0.0, **more}, reads=(), writes=(),
    )  # fmt: skip


def test_flash_attention_by_device() -> None:
    """Tiles of 128 × 64 on an H100: of the first 128 queries 2, of the next 4, of the last 44 queries 5. Backward
    of 64 × 128: 1, 1, 2, 2, 3. On 8.9 of 64 × 64: 1, 2, 3, 4, 5."""
    for capability, backward, tiles in (([9, 0], False, 11), ([9, 0], True, 9), ([8, 9], False, 15)):
        call = flash(128, backward=backward, **{CAPABILITY: capability})
        area = 64 * 64 if capability == [8, 9] else 128 * 64
        assert kept_pairs(call).hardware == tiles * area
    for unknown in (flash(128), flash(128, **{CAPABILITY: [10, 0]}), flash(144, **{CAPABILITY: [9, 0]})):
        summed = attention_flop([unknown])
        assert summed.hardware is None
        assert "FlashAttention 2" in summed.reasons["hardware"]
    decoding = replace(flash(128, **{CAPABILITY: [9, 0]}), input_shapes=((1, 2, 1, 128), *((1, 2, 300, 128),) * 2))
    assert kept_pairs(decoding).hardware is None, "keys may be split among blocks"


def test_a_trace_notes_the_device_of_such_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = Masks(nn.Linear(1, 1))
    assert CAPABILITY not in masks.noted(flash(128)).attributes, "there is no device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    noted = masks.noted(flash(128, backward=True))
    assert kept_pairs(noted).hardware == 9 * 128 * 64
    one = flash(128)
    for name in (f"{FLASH}_for_cpu", f"{FLASH}_for_cpu_backward"):
        assert CAPABILITY not in masks.noted(replace(one, name=name)).attributes, "no kernel of the device"
    monkeypatch.setattr(torch.version, "cuda", None)
    assert CAPABILITY not in masks.noted(flash(128)).attributes, "another maker's device has other kernels"


@pytest.mark.gpu
@pytest.mark.parametrize("head", [32, 64, 96, 128, 192, 256])
def test_flash_attention_on_a_device_computes_the_tiles_that_are_said(head: int) -> None:
    capability = torch.cuda.get_device_capability()
    rows, columns = flash_tile(head, capability) or pytest.skip(f"no tiles are known of {capability}")
    length, marks = 600, (0, 63, 64, 127, 128, 300, 599)
    query, key, value = (torch.randn(len(marks), 1, length, head, device="cuda").bfloat16() for _ in range(3))
    for each, mark in enumerate(marks):
        value[each, 0, mark] = float("nan")
    out = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, True)[0]
    spoiled = out.isnan().any(-1)[:, 0]
    for each, mark in enumerate(marks):
        assert spoiled[each].tolist() == [in_tile(place, mark, rows, columns, length) for place in range(length)]


SIZE = st.integers(0, 24)


def mask(queries: int, keys: int, shift: int, window: int | None = None) -> np.ndarray:
    i, j = np.arange(queries)[:, None] + shift, np.arange(keys)[None, :]
    kept = j <= i
    return kept if window is None else kept & (j > i - window)


@given(SIZE, SIZE, st.integers(-30, 30), st.integers(1, 30))
def test_rules_keep_as_many_pairs_as_their_masks(queries: int, keys: int, shift: int, window: int) -> None:
    assert causal_pairs(queries, keys, shift) == mask(queries, keys, shift).sum()
    assert window_pairs(queries, keys, window, shift) == mask(queries, keys, shift, window).sum()


@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 30), st.integers(1, 9), st.integers(1, 9))
def test_tiles_are_those_that_hold_a_kept_pair(queries: int, keys: int, shift: int, rows: int, columns: int) -> None:
    kept, found = mask(queries, keys, shift), 0
    for i in range(0, queries, rows):
        for j in range(0, keys, columns):
            tile = kept[i : i + rows, j : j + columns]
            found += tile.size if tile.any() else 0
    assert tile_pairs(queries, keys, (rows, columns), shift) == found


def test_a_square_causal_mask_and_packed_documents_by_their_closed_forms() -> None:
    assert causal_pairs(131_072, 131_072) == 131_072 * 131_073 // 2
    assert pairs_of("all", 3, 5) == 15
    assert pairs_of("window:4", 9, 9) == 1 + 2 + 3 + 4 * 6


@pytest.mark.parametrize("rule", ["", "window:", "window:-1", "window:0", "diagonal"])
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        pairs_of(rule, 4, 4)
