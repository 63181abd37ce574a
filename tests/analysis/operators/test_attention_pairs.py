"""Pairs of a query and a key that a mask keeps: each rule beside a mask that is made and counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.operators.attention_conventions import causal_pairs, pairs_of, window_pairs

SIZE = st.integers(0, 24)


def mask(queries: int, keys: int, shift: int, window: int | None = None) -> np.ndarray:
    i, j = np.arange(queries)[:, None] + shift, np.arange(keys)[None, :]
    kept = j <= i
    return kept if window is None else kept & (j > i - window)


@given(SIZE, SIZE, st.integers(-30, 30), st.integers(1, 30))
def test_rules_keep_as_many_pairs_as_their_masks(queries: int, keys: int, shift: int, window: int) -> None:
    assert causal_pairs(queries, keys, shift) == mask(queries, keys, shift).sum()
    assert window_pairs(queries, keys, window, shift) == mask(queries, keys, shift, window).sum()


def test_a_square_causal_mask_and_packed_documents_by_their_closed_forms() -> None:
    assert causal_pairs(131_072, 131_072) == 131_072 * 131_073 // 2
    assert pairs_of("all", 3, 5) == 15
    assert pairs_of("window:4", 9, 9) == 1 + 2 + 3 + 4 * 6


@pytest.mark.parametrize("rule", ["", "window:", "window:-1", "window:0", "diagonal"])
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        pairs_of(rule, 4, 4)
