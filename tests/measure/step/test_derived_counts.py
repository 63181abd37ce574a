"""Layers and functions that are counted in odd ways elsewhere: the count is the one by hand.

Each expected pair is (forward, backward) in FLOP, derived beside it; the input needs no gradient.
"""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopledger

LAYER = 2 * 4 * 8 * 8
"""A product of 4 × 8 by 8 × 8, and each of its two gradients."""


class Made(nn.Module):
    """A module around a function of itself and its inputs."""

    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def _linear():
    return nn.Linear(8, 8, bias=False)


def _weight(*sizes):
    return nn.Parameter(torch.randn(*sizes))


def _einsum(equation, *shapes):
    return lambda: Made(
        lambda m, _x: torch.einsum(equation, *m.operands), operands=nn.ParameterList(_weight(*s) for s in shapes)
    )


def _penalty(m, x):
    x = x.detach().requires_grad_()
    y = m.b(torch.tanh(m.a(x)))
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return gradient.square().sum() + y.sum()


def _cubed(m, y):
    return (y @ m.w.weight) ** 3


def _recurrent(kind, gates, hidden, proj=0, layers=1, directions=1, steps=7, rows=3, width=6):
    """(forward, backward) of a recurrent layer as products alone. Each step's gates have two products, with the input
    and with the state, and a projection a third. Backward: of weights all of them again; of the input but for the
    first layer's; of states and projections all but that of the first state, which is a constant."""
    forward = backward = 0
    tokens, state = steps * rows, proj or hidden
    for layer in range(layers):
        source = width if layer == 0 else directions * state
        inner, outer = 2 * tokens * gates * hidden * source, 2 * tokens * gates * hidden * state
        first = 2 * rows * gates * hidden * state
        projected = 2 * tokens * hidden * proj
        forward += directions * (inner + outer + projected)
        backward += directions * (inner * (2 if layer else 1) + 2 * outer - first + 2 * projected)
    return forward, backward


def _transposed(images, inner, outer, kernel, pixels, groups):
    """Each element of the input meets `outer` / `groups` kernels."""
    return 2 * images * inner * pixels * (outer // groups) * kernel


DERIVED = {
    # 4 × 8 · 8 × 8; its gradient by y of the sum of squares; backward: by w and g of the second, by w of the first
    "torch.func.grad": (
        lambda: Made(
            lambda m, x: torch.func.grad(lambda y: (y @ m.w.weight).square().sum())(x), w=_linear()
        ), (4, 8), (2 * LAYER, 3 * LAYER),
    ),
    # rows through vmap are one product
    "torch.func.vmap": (
        lambda: Made(lambda m, x: torch.func.vmap(lambda row: m.w.weight @ row)(x), w=_linear()), (4, 8), (LAYER, LAYER)
    ),
    # y w by 3 × 3 · 3; three rows of the diagonal 3 z² by wᵀ: 3 × 3 · 3 × 3, and its two gradients; w again by z = y w
    "torch.func.jacrev": (
        lambda: Made(lambda m, x: torch.func.jacrev(lambda y: _cubed(m, y))(x), w=nn.Linear(3, 3, bias=False)),
        (3,), (2 * 9 + 2 * 27, 2 * 2 * 27 + 2 * 9),
    ),
    # a, b; then gradients of both by their inputs. Backward, of the gradient's square: of a's product by operand and
    # weight, of b's by the weight alone (its operand is ones); of the forward pass: by weight and input, x is a leaf
    "a gradient penalty": (
        lambda: Made(_penalty, a=_linear(), b=nn.Linear(8, 1, bias=False)), (4, 8),
        (2 * (LAYER + LAYER // 8), 2 * LAYER + LAYER // 8 + 2 * LAYER // 8 + 2 * LAYER),
    ),
    # each of 5 outputs: x₁ W x₂, as one sum over 8 · 6 pairs; the weight's gradient alone
    "nn.Bilinear": (lambda: Made(lambda m, x: m.b(x, x[:, :6]), b=nn.Bilinear(8, 6, 5, bias=False)), (4, 8),
                    (2 * 4 * (8 * 6 * 5 + 6 * 5), 2 * 4 * (8 * 6 * 5 + 6 * 5))),
    "GRU, both ways, two layers": (
        lambda: Made(lambda m, x: m.r(x)[0], r=nn.GRU(6, 5, 2, bidirectional=True)), (7, 3, 6),
        _recurrent("gru", 3, 5, layers=2, directions=2),
    ),
    "RNN, both ways, two layers": (
        lambda: Made(lambda m, x: m.r(x)[0], r=nn.RNN(6, 5, 2, bidirectional=True)), (7, 3, 6),
        _recurrent("rnn", 1, 5, layers=2, directions=2),
    ),
    "LSTM with projections, both ways": (
        lambda: Made(lambda m, x: m.r(x)[0], r=nn.LSTM(6, 5, proj_size=2, bidirectional=True)), (7, 3, 6),
        _recurrent("lstm", 4, 5, proj=2, directions=2),
    ),
    "LSTM, both ways, two layers": (
        lambda: Made(lambda m, x: m.r(x)[0], r=nn.LSTM(6, 5, 2, bidirectional=True)), (7, 3, 6),
        _recurrent("lstm", 4, 5, layers=2, directions=2),
    ),
    # input and first state are constants: the weights' gradients alone
    "nn.LSTMCell": (lambda: Made(lambda m, x: m.c(x)[0], c=nn.LSTMCell(8, 5)), (4, 8),
                    (2 * 4 * 20 * (8 + 5), 2 * 4 * 20 * (8 + 5))),
    "einsum, one product": (_einsum("ij,jk->ik", (4, 8), (8, 8)), (1,), (LAYER, 2 * LAYER)),
    "einsum, of a batch": (_einsum("bij,bjk->bik", (2, 4, 8), (2, 8, 8)), (1,), (2 * LAYER, 4 * LAYER)),
    "einsum, scores": (_einsum("bhqd,bhkd->bhqk", (2, 3, 4, 8), (2, 3, 5, 8)), (1,), (2 * 6 * 4 * 5 * 8, 4 * 6 * 160)),
    # two sums of 4 · 8 products
    "einsum, to rows": (_einsum("bij,bij->b", (2, 4, 8), (2, 4, 8)), (1,), (2 * 2 * 32, 2 * 2 * 2 * 32)),
    # (2 · 3) × 4 · 4 × 5, then (2 · 3) × 5 · 5 × 6
    "einsum, three operands": (_einsum("abc,cd,de->abe", (2, 3, 4), (4, 5), (5, 6)), (1,), (600, 1200)),
    # nothing is summed: no product
    "einsum, outer": (_einsum("i,j->ij", (4,), (8,)), (1,), (0, 0)),
    "einsum, elementwise": (_einsum("ij,ij->ij", (4, 8), (4, 8)), (1,), (0, 0)),
    "ConvTranspose2d with groups, dilation and output padding": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, dilation=2, groups=2, output_padding=1, bias=False), (1, 4, 5, 5),
        (_transposed(1, 4, 6, 9, 25, 2), _transposed(1, 4, 6, 9, 25, 2)),
    ),
    # 5 pixels become 4 · 3 + 3 + 2 = 17
    "ConvTranspose1d after another": (
        lambda: nn.Sequential(nn.ConvTranspose1d(4, 6, 3, stride=3, output_padding=2, bias=False),
                              nn.ConvTranspose1d(6, 2, 4, groups=2, bias=False)), (2, 4, 5),
        (_transposed(2, 4, 6, 3, 5, 1) + _transposed(2, 6, 2, 4, 17, 2),
         _transposed(2, 4, 6, 3, 5, 1) + 2 * _transposed(2, 6, 2, 4, 17, 2)),
    ),
    # 2 · 4 tokens of 8: projections in 3 · 64, scores and values 2 heads · 4² · 4 each, out 64; the input is a constant
    "attention layer": (
        lambda: Made(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(8, 2, batch_first=True)), (2, 4, 8),
        (2 * 8 * 64 * 4 + 2 * 2 * 2 * 2 * 16 * 4, 2 * 8 * 64 * (3 + 2) + 4 * 2 * 2 * 2 * 16 * 4),
    ),
    # an encoder layer in one operator: 4 · 64 of projections, 2 · 8 · 16 of the feed-forward part, 2 heads · 4² · 4
    "a fast path without gradients": (
        lambda: Made(lambda m, x: m.a(torch.no_grad()(m.t)(x)), a=_linear(), t=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()), (2, 4, 8),
        (2 * 8 * (4 * 64 + 2 * 128) + 2 * 2 * 2 * 2 * 16 * 4 + 2 * LAYER, 2 * LAYER),
    ),
    "torch.func.functional_call": (
        lambda: Made(lambda m, x: torch.func.functional_call(m.b, {"weight": m.b.weight}, (m.a(x),)), a=_linear(),
                     b=_linear()), (4, 8), (2 * LAYER, 3 * LAYER),
    ),
    "torch.cond of a number": (
        lambda: Made(lambda m, x: torch.cond(x.shape[0] > 2, m.b, torch.sin, (m.a(x),)), a=_linear(), b=_linear()),
        (4, 8), (2 * LAYER, 3 * LAYER),
    ),
    "inference mode": (
        lambda: Made(lambda m, x: m.b(torch.inference_mode()(m.a)(x).clone()), a=_linear(), b=_linear()), (4, 8),
        (2 * LAYER, LAYER),
    ),
    # 8 × 8 twice for the third power, then 4 × 8 · 8 × 8 twice; each has two gradients
    "powers and chains of matrices": (
        lambda: Made(lambda m, x: torch.linalg.multi_dot([m.a(x), torch.matrix_power(m.w, 3), m.w]), a=_linear(),
                     w=_weight(8, 8)), (4, 8), (LAYER + 2 * 2 * 512 + 2 * LAYER, LAYER + 4 * 2 * 512 + 4 * LAYER),
    ),
    # 6 × 27 · 27 × 9 windows
    "a convolution by unfold": (
        lambda: Made(lambda m, x: m.w @ F.unfold(x, 3), w=_weight(6, 27)), (1, 3, 5, 5),
        (2 * 6 * 27 * 9, 2 * 6 * 27 * 9),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", DERIVED)
def test_the_count_is_the_one_by_hand(name):
    make, sizes, expected = DERIVED[name]
    torch.manual_seed(0)
    found = flopledger.count(make(), torch.randn(*sizes))
    assert (found.forward_flop, found.backward_flop, dict(found.not_understood)) == (*expected, {})


def test_a_scripted_submodule_is_counted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: torch.jit.script is old, and gradients of what is copied of one
        found = flopledger.count(nn.Sequential(_linear(), torch.jit.script(_linear())), torch.randn(4, 8))
    assert (found.forward_flop, found.backward_flop) == (2 * LAYER, 3 * LAYER)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # dual numbers load them
def test_a_hessian_has_a_total():
    """Its decompositions end in primitives, which are arithmetic and no products: nothing is unknown."""
    model = Made(lambda m, x: torch.func.hessian(lambda y: _cubed(m, y).sum())(x), w=nn.Linear(3, 3, bias=False))
    found = flopledger.count(model, torch.randn(3))
    assert found.not_understood == {}
    assert found.forward_flop > 0


@pytest.mark.parametrize(
    ("function", "unknown"), [(torch.matrix_exp, "aten.linalg_matrix_exp"), (torch.linalg.pinv, "aten.linalg_pinv")]
)
def test_algebra_without_a_rule_leaves_no_total(function, unknown):
    found = flopledger.count(Made(lambda m, x: m.a(x) @ function(m.w), a=_linear(), w=_weight(8, 8)), torch.randn(4, 8))
    assert (found.forward_flop, found.at_least_flop["forward"] >= 2 * LAYER) == (None, True)
    assert unknown in found.not_understood
