"""Definition, law: FlexAttention is counted dense, what a block mask keeps is unknown, and torch is put back."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import flopledger

BATCH, HEADS, WIDTH, BLOCK = 2, 4, 8, 16
OF_PAIR = 2 * 2 * BATCH * HEADS * WIDTH


class Attend(torch.nn.Module):
    """One product, and attention under a block mask, which is held or made inside."""

    def __init__(self, mask: Any = None, key_heads: int = HEADS) -> None:
        super().__init__()
        self.linear, self.mask, self.key_heads = torch.nn.Linear(WIDTH, WIDTH), mask, key_heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = self.linear(x)
        key = query[:, : self.key_heads]
        held = self.mask(x.shape[-2]) if callable(self.mask) else self.mask
        return flex_attention(query, key, key, block_mask=held, enable_gqa=self.key_heads != HEADS)


def block_mask(length: int) -> BlockMask:
    return create_block_mask(lambda _b, _h, q, k: q >= k, None, None, length, length, device="cpu", BLOCK_SIZE=BLOCK)


MASKS: dict[str, Callable[[], Any]] = {"held": lambda: block_mask(56), "made inside": lambda: block_mask}


@pytest.mark.parametrize("how", MASKS)
def test_it_is_counted_dense_and_what_a_block_mask_keeps_is_not_known(how: str) -> None:
    length = 56  # three blocks and a half
    found = flopledger.count(Attend(MASKS[how]()), torch.randn(BATCH, HEADS, length, WIDTH))
    linear = 2 * BATCH * HEADS * length * WIDTH * WIDTH
    assert found.forward_flop == linear + OF_PAIR * length**2
    assert found.backward_flop == linear + 2 * OF_PAIR * length**2  # the data needs no gradient
    for convention in ("causal", "mask_exact", "hardware"):
        assert found.by_convention(convention) == (None, None)
    assert found.attention is not None
    assert "a block mask keeps are not known" in found.attention.reasons["mask_exact"]


def test_without_a_block_mask_every_pair_is_kept() -> None:
    found = flopledger.count(Attend(key_heads=2), torch.randn(BATCH, HEADS, 48, WIDTH))
    for convention in ("causal", "mask_exact", "hardware"):
        assert found.by_convention(convention) == (found.forward_flop, found.backward_flop)
    assert found.forward_flop == 2 * BATCH * HEADS * 48 * WIDTH**2 + OF_PAIR * 48**2


@pytest.mark.filterwarnings("ignore:return_lse is deprecated")
def test_the_sums_that_it_can_return_have_a_number_for_each_query() -> None:
    shapes = []

    class Sums(torch.nn.Module):
        def forward(self, query: torch.Tensor) -> torch.Tensor:
            out, sums = flex_attention(query, query, query, return_lse=True)
            shapes.append(tuple(sums.shape))
            return out

    flopledger.count(Sums(), torch.randn(BATCH, HEADS, 16, WIDTH, requires_grad=True))
    assert {*shapes} == {(BATCH, HEADS, 16)}


def test_torchs_function_is_put_back() -> None:
    model, inputs = Attend(block_mask(48)), torch.randn(BATCH, HEADS, 48, WIDTH)
    flopledger.count(model, inputs)
    with pytest.raises(RuntimeError, match="does not support backward on CPU"):
        model(inputs)


def test_a_model_may_import_it_as_it_runs() -> None:
    """In a process of its own: 2 rows, 2 heads, 16 × 16 pairs of 8; two products forward, four backward."""
    code = """
import torch, flopledger
class Net(torch.nn.Module):
    def forward(self, q):
        from torch.nn.attention.flex_attention import flex_attention
        return flex_attention(q, q, q)
step = flopledger.count(Net(), torch.randn(2, 2, 16, 8, requires_grad=True))
print(step.forward_flop, step.backward_flop)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    product = 2 * 2 * 2 * 16 * 16 * 8
    assert done.stdout.split() == [str(2 * product), str(4 * product)]
