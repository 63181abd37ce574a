"""The fast count of small nets, one for each rule: equal to the executed trace, and to counts by hand."""

from __future__ import annotations

import pytest
import torch

from measure.fast_count.fast_count import fast_count
from tests.support.nets.fast_nets import NETS, agree

OPTIONS = {
    "as it is": {},
    "in evaluation": {"train": False},
    "inputs need a gradient": {"grad_inputs": True},
}


def made(name):
    torch.manual_seed(0)
    make, given = NETS[name]
    return make(), given if isinstance(given, torch.Tensor) else torch.randn(given)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", NETS)
def test_equal_to_the_executed_trace(name, options):
    model, x = made(name)
    # A gradient taken inside of the forward pass: the trace does not say in which module its products' gradients are.
    agree(model, (x,), by_module=name != "a gradient inside of the forward pass", **OPTIONS[options])


BY_HAND = {
    # model FLOP forward and backward, 2 for each multiply-add; the input needs no gradient
    "linear": (2 * 4 * 64, 2 * 4 * 64),  # 4 rows of 8 × 8; backward the weight alone
    "frozen first layer": (4 * 4 * 64, 2 * 4 * 64),  # the second weight alone: what it stands on needs no gradient
    "frozen last layer": (4 * 4 * 64, 4 * 4 * 64),  # the second's input, the first's weight
    "all frozen": (4 * 4 * 64, 0),
    "a layer used three times": (4 * 2 * 4 * 64, 7 * 2 * 4 * 64),  # four products; all gradients but the input's
    "an output that reaches no loss": (3 * 2 * 4 * 64, 2 * 4 * 64),  # a's weight; b and c are computed for nothing
    "detached": (3 * 2 * 4 * 64, 2 * 2 * 4 * 64),  # a's and c's weights; b's output was detached
    "no_grad inside": (2 * 2 * 4 * 64, 2 * 4 * 64),
    # stem 27 · 8 · 64 positions; 2 taps-in · 9 · 8 · 36; 9 · 16 · 16 positions; two images; first weight alone
    "grouped and depthwise": (
        4 * (27 * 8 * 64 + 18 * 8 * 36 + 9 * 16 * 16),
        4 * (27 * 8 * 64 + 2 * 18 * 8 * 36 + 2 * 9 * 16 * 16),
    ),
    # 2 layers × 2 directions on 10 tokens; rows 4 · 8; inputs 16 then 16, state 8; oneDNN returns all gradients
    "lstm": (2 * 10 * 2 * 2 * 32 * (16 + 8), 4 * 10 * 2 * 2 * 32 * (16 + 8)),
    # layer 0 frozen: no gradient at all; layer 1, 8 wide: all of its own
    "lstm, first layer frozen": (2 * 10 * 32 * (16 + 8 + 8 + 8), 4 * 10 * 32 * (8 + 8)),
    # q, k 16 wide, v 8; 2 · 5 tokens; scores 2 · 25 · 16, sums 2 · 25 · 8; backward: weights, and twice attention
    "attention, values narrower": (
        2 * (10 * 16 * 40 + 50 * 16 + 50 * 8),
        2 * (10 * 16 * 40 + 2 * 50 * 16 + 2 * 50 * 8),
    ),
    # a function of one's own: x · W for 4 rows; backward two products, none for W; then a's weight
    "a function of one's own": (4 * 4 * 64, 3 * 2 * 4 * 64),
    # two layers around three; backward all but the input's gradient
    "checkpoint": (5 * 2 * 4 * 64, 9 * 2 * 4 * 64),
}


def test_counts_by_hand():
    """In evaluation, so that no dropout takes fused attention apart."""
    found = {}
    for name in BY_HAND:
        model, x = made(name)
        count = fast_count(model, (x,), train=False)
        found[name] = (count.forward_flop, count.backward_flop)
    assert found == BY_HAND


REPLAYED = {
    "blocks alike": 3,  # of four
    "blocks alike, first ones frozen": 1,  # the third
    "blocks alike, all before one frozen": 2,  # of three frozen ones; then one whose input needs no gradient; then one
    "blocks alike but for groups": 2,
    "blocks alike but for the stride": 0,  # each works on another size
    "blocks alike but for what trains": 2,
    "blocks that keep lists": 4,  # not they, but the layers inside, but for the first block's two
    "blocks of blocks": 4,  # two inside of the first, then two whole ones
    "blocks that write their input": 0,
}


@pytest.mark.parametrize("name", REPLAYED)
def test_blocks_are_left_out_where_they_are_alike_and_nowhere_else(name):
    model, x = made(name)
    assert fast_count(model, (x,)).replayed == REPLAYED[name]
