"""Definition: packed sequences of torch's varlen attention count dense against the longest."""

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


def count(window: tuple[int, int]) -> flopledger.StepCount:
    """Of one product each for queries and keys, and attention."""

    def forward(m, query, key, of_queries, of_keys):
        query, key = m.linear(query), m.linear(key)
        return varlen_attn(query, key, key, of_queries, of_keys, max(QUERIES), max(KEYS), window_size=window)

    model = Calls(forward, linear=torch.nn.Linear(WIDTH, WIDTH)).to(torch.bfloat16)
    query, key = (torch.randn(sum(each), HEADS, WIDTH, dtype=torch.bfloat16) for each in (QUERIES, KEYS))
    return flopledger.count(model, (query, key, ends(QUERIES), ends(KEYS)))


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (3, 0), (2, 2)])
def test_each_query_counts_against_the_longest_sequence_and_the_pairs_that_are_kept_are_not_known(
    window: tuple[int, int],
) -> None:
    found = count(window)
    dense = sum(QUERIES) * max(KEYS)
    linear = 2 * HEADS * WIDTH * WIDTH * (sum(QUERIES) + sum(KEYS))
    assert (found.forward_flop, found.backward_flop) == (linear + OF_PAIR * dense, linear + 2 * OF_PAIR * dense)
    assert found.by_convention("mask_exact") == found.by_convention("causal") == (None, None)
    assert found.attention is not None
    assert "packed" in found.attention.reasons["mask_exact"]
