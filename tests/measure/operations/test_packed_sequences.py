"""Packed sequences of torch's varlen attention: dense against the longest, exact by each sequence's own pairs."""

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn

import flopledger
from tests.support.nets.small_steps import Calls

HEADS, WIDTH = 2, 16
QUERIES, KEYS = (5, 1, 9), (7, 4, 9)
OF_PAIR = 2 * 2 * HEADS * WIDTH


def ends(lengths: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def count(window: tuple[int, int], calculates: bool = False) -> flopledger.StepCount:
    """Of one product each for queries and keys, and attention; calculates: whether ends come out of an operation."""

    def forward(m, query, key, of_queries, of_keys):
        query, key = m.linear(query), m.linear(key)
        of_queries = of_queries + 0 if calculates else of_queries
        return varlen_attn(query, key, key, of_queries, of_keys, max(QUERIES), max(KEYS), window_size=window)

    model = Calls(forward, linear=torch.nn.Linear(WIDTH, WIDTH)).to(torch.bfloat16)
    query, key = (torch.randn(sum(each), HEADS, WIDTH, dtype=torch.bfloat16) for each in (QUERIES, KEYS))
    return flopledger.count(model, (query, key, ends(QUERIES), ends(KEYS)))


def keeps(i: int, j: int, window: tuple[int, int]) -> bool:
    before, after = window
    return (after == -1 or j <= i + after) and (before == -1 or j >= i - before)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (3, 0), (0, 0)])
def test_each_sequence_attends_to_itself(window: tuple[int, int]) -> None:
    found = count(window)
    dense = sum(QUERIES) * max(KEYS)
    linear = 2 * HEADS * WIDTH * WIDTH * (sum(QUERIES) + sum(KEYS))
    assert (found.forward_flop, found.backward_flop) == (linear + OF_PAIR * dense, linear + 2 * OF_PAIR * dense)
    places = [(i + k - q, j) for q, k in zip(QUERIES, KEYS, strict=True) for i in range(q) for j in range(k)]
    kept = sum(keeps(i, j, window) for i, j in places)
    causal = dense if window == (-1, -1) else sum(j <= i for i, j in places)
    assert found.by_convention("mask_exact") == (linear + OF_PAIR * kept, linear + 2 * OF_PAIR * kept)
    assert found.by_convention("causal") == (linear + OF_PAIR * causal, linear + 2 * OF_PAIR * causal)
    assert found.by_convention("hardware") == (None, None)


@pytest.mark.parametrize(("window", "calculates"), [((2, 2), False), ((-1, 0), True)])
def test_windows_on_both_sides_and_ends_that_are_calculated_are_not_known(
    window: tuple[int, int], calculates: bool
) -> None:
    found = count(window, calculates)
    assert found.forward_flop is not None
    assert found.by_convention("mask_exact") == found.by_convention("causal") == (None, None)
    assert "packed" in found.attention.reasons["mask_exact"]
