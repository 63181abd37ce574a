"""FlexAttention is counted as attention, with the pairs of the mask that its function makes (made whole here)."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention

import flopledger

BATCH, HEADS, WIDTH, BLOCK = 2, 4, 8, 16
DOCUMENTS = torch.tensor([0] * 21 + [1] * 30 + [2] * 5)
OF_PAIR = 2 * 2 * BATCH * HEADS * WIDTH

CAUSAL = {"causal", "window", "documents"}
MASKS: dict[str, Any] = {
    "causal": lambda _b, _h, q, k: q >= k,
    "window": lambda _b, _h, q, k: (q >= k) & (q - k < 20),
    "documents": lambda _b, _h, q, k: (q >= k) & (DOCUMENTS[q] == DOCUMENTS[k]),
    "both ways": lambda _b, _h, q, k: (q - k).abs() < 9,
    "of a batch and head": lambda b, h, q, k: q - 7 * b - 3 * h >= k,
}


class Attend(torch.nn.Module):
    """One product, and attention under a block mask, which is held, given or made inside."""

    def __init__(self, mask: Any = None, key_heads: int = HEADS) -> None:
        super().__init__()
        self.linear, self.mask, self.key_heads = torch.nn.Linear(WIDTH, WIDTH), mask, key_heads

    def forward(self, x: torch.Tensor, mask: BlockMask | None = None) -> torch.Tensor:
        query = self.linear(x)
        key = query[:, : self.key_heads]
        held = self.mask(x.shape[-2]) if callable(self.mask) else self.mask
        return flex_attention(query, key, key, block_mask=mask or held, enable_gqa=self.key_heads != HEADS)


def block_mask(name: str, length: int, batch: int | None = None, heads: int | None = None) -> BlockMask:
    return create_block_mask(MASKS[name], batch, heads, length, length, device="cpu", BLOCK_SIZE=BLOCK)


def less(found: Any, convention: str) -> int:
    """Pairs that a convention leaves out of the forward pass; twice as many FLOP backward."""
    forward, backward = found.by_convention(convention)
    left_out = found.forward_flop - forward
    assert found.backward_flop - backward == 2 * left_out
    assert left_out % OF_PAIR == 0
    return int(left_out // OF_PAIR)


@pytest.mark.parametrize("length", [48, 56])  # three blocks, and three and a half
@pytest.mark.parametrize("name", ["causal", "window", "documents", "both ways"])
def test_kept_pairs_are_those_of_the_mask_made_whole(name: str, length: int) -> None:
    found = flopledger.count(Attend(block_mask(name, length)), torch.randn(BATCH, HEADS, length, WIDTH))
    linear = 2 * BATCH * HEADS * length * WIDTH * WIDTH
    assert found.forward_flop == linear + OF_PAIR * length**2
    assert found.backward_flop == linear + 2 * OF_PAIR * length**2  # the data needs no gradient
    whole = create_mask(MASKS[name], None, None, length, length, device="cpu")[0, 0]
    assert less(found, "mask_exact") == length**2 - int(whole.sum())
    assert less(found, "causal") == (length**2 - length * (length + 1) // 2 if name in CAUSAL else 0)
    tiles = torch.nn.functional.pad(whole, (0, -length % BLOCK, 0, -length % BLOCK))
    touched = tiles.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).any(3).any(1)
    sides = torch.full((len(touched),), BLOCK)
    sides[-1] = length - BLOCK * (len(touched) - 1)
    assert less(found, "hardware") == length**2 - int((touched * sides[:, None] * sides[None, :]).sum())


def test_masks_that_differ_by_sequence_and_head_and_one_that_is_given() -> None:
    mask = block_mask("of a batch and head", 48, BATCH, HEADS)
    found = flopledger.count(Attend(), torch.randn(BATCH, HEADS, 48, WIDTH), kwargs={"mask": mask})
    whole = create_mask(MASKS["of a batch and head"], BATCH, HEADS, 48, 48, device="cpu")
    forward, exact = found.forward_flop, found.by_convention("mask_exact")[0]
    assert forward - exact == 2 * 2 * WIDTH * (BATCH * HEADS * 48**2 - int(whole.sum()))


def test_a_mask_that_the_model_makes_is_not_known_and_one_whose_function_fails_has_its_blocks() -> None:
    inside = flopledger.count(Attend(lambda length: block_mask("causal", length)), torch.randn(1, HEADS, 48, WIDTH))
    assert inside.forward_flop == 2 * HEADS * 48 * WIDTH**2 + 2 * 2 * HEADS * WIDTH * 48**2
    for convention in ("causal", "mask_exact", "hardware"):
        assert inside.by_convention(convention) == (None, None)
    mask = block_mask("causal", 48)

    def fail(*_: Any) -> Any:
        raise RuntimeError("no such thing")

    mask.mask_mod = fail
    blind = flopledger.count(Attend(mask), torch.randn(BATCH, HEADS, 48, WIDTH))
    assert blind.by_convention("mask_exact") == (None, None)
    assert less(blind, "hardware") == 3 * BLOCK**2  # of nine blocks those above the diagonal


def test_torchs_function_is_put_back() -> None:
    model, inputs = Attend(block_mask("window", 48)), torch.randn(BATCH, HEADS, 48, WIDTH)
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


def test_without_a_mask_nothing_is_left_out() -> None:
    found = flopledger.count(Attend(), torch.randn(BATCH, HEADS, 48, WIDTH))
    assert less(found, "causal") == less(found, "mask_exact") == less(found, "hardware") == 0
