"""Two spellings of one calculation have one count: the operator that has it as a whole, and the products written out.

Numbers by hand stand beside the first of each pair.
"""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopledger


class Made(nn.Module):
    def __init__(self, function, *children):
        super().__init__()
        self.function, self.children_ = function, nn.ModuleList(children)

    def forward(self, *inputs):
        return self.function(*self.children_, *inputs)


def products(model, *inputs):
    step = flopledger.count(model, inputs)
    assert step.not_understood == {}
    return step.forward_flop, step.backward_flop


@pytest.mark.parametrize(
    ("gradients", "is_trained", "backward"),
    [
        ((True, True), True, 3024), ((False, False), True, 1512), ((True, False), True, 2772),
        ((True, True), False, 1764), ((True, False), False, 1512), ((False, True), False, 252),
    ],
)  # fmt: skip
def test_a_bilinear_layer_is_its_einsum(gradients, is_trained, backward):
    """3 rows, 5 × 6 inputs, 7 outputs: 2·3·7·5·6 with the first input and 2·3·7·6 with the second; two gradients each,
    of which the gradient between both products is needed for the weight and the first input."""
    inputs = [torch.randn(3, width, requires_grad=needs) for width, needs in zip((5, 6), gradients, strict=True)]
    layer = nn.Bilinear(5, 6, 7, bias=False).requires_grad_(is_trained)
    einsum = Made(lambda m, a, b: torch.einsum("ni,kij,nj->nk", a, m.weight, b), layer)
    assert products(layer, *inputs) == products(einsum, *inputs) == (1512, backward)


def test_what_sums_nothing_is_elementwise():
    vectors = torch.randn(4), torch.randn(5)
    for function in (torch.outer, torch.kron, lambda a, b: torch.addr(torch.zeros(4, 5), a, b)):
        step = flopledger.count(Made(function), vectors)
        assert (step.forward_flop, step.other_flop % 20) == (0, 0)


def _written(q, k, v):
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


@pytest.mark.parametrize("needs", [c for n in (1, 2, 3) for c in itertools.combinations("qkv", n)], ids="".join)
def test_attention_has_the_gradients_that_are_needed(needs):
    """2 · 4 · 6² · 8 multiply-adds a product: dV one, dP one for queries and keys together, dQ and dK one each."""
    inputs = [torch.randn(2, 4, 6, 8, requires_grad=name in needs) for name in "qkv"]
    product = 2 * 2 * 4 * 36 * 8
    backward = len(needs) + (needs != ("v",))
    whole = products(Made(F.scaled_dot_product_attention), *inputs)
    assert whole == products(Made(_written), *inputs) == (2 * product, backward * product)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_layers_have_one_rule_for_initial_states(kind):
    """2 steps of 6 rows, 5 inputs, 8 states. Zeros need no gradient, so that the first step's state has none."""
    gates = {nn.RNN: 1, nn.GRU: 3, nn.LSTM: 4}[kind]
    layer, x, state = kind(5, 8), torch.randn(2, 6, 5), torch.randn(1, 6, 8, requires_grad=True)
    own, recurrent = 12 * 8 * 5, 12 * 8 * 8
    zeros = own + 2 * recurrent - 6 * 8 * 8
    assert products(layer, x) == (2 * gates * (own + recurrent), 2 * gates * zeros)
    given = (state, state) if kind is nn.LSTM else state
    assert products(layer, x, given)[1] == 2 * gates * (own + 2 * recurrent)
    layer.weight_hh_l0.requires_grad_(False)
    assert products(layer, x)[1] == 2 * gates * (zeros - recurrent)
    layer.requires_grad_(False)
    assert products(layer, x, given)[1] == 2 * gates * recurrent
