"""Definition: counts by hand of layers and functions that are counted in odd ways elsewhere.

Each expected pair is (forward, backward) in FLOP, derived beside it; the input needs no gradient.
"""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopledger
from tests.support.nets.small_steps import Calls

LAYER = 2 * 4 * 8 * 8
"""A product of 4 × 8 by 8 × 8, and each of its two gradients."""


def _linear():
    return nn.Linear(8, 8, bias=False)


def _weight(*sizes):
    return nn.Parameter(torch.randn(*sizes))


def _einsum(equation, *shapes):
    return lambda: Calls(
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
        lambda: Calls(
            lambda m, x: torch.func.grad(lambda y: (y @ m.w.weight).square().sum())(x), w=_linear()
        ), (4, 8), (2 * LAYER, 3 * LAYER),
    ),
    # rows through vmap are one product
    "torch.func.vmap": (
        lambda: Calls(lambda m, x: torch.func.vmap(lambda row: m.w.weight @ row)(x), w=_linear()),
        (4, 8), (LAYER, LAYER)
    ),
    # y w by 3 × 3 · 3; three rows of the diagonal 3 z² by wᵀ: 3 × 3 · 3 × 3, and its two gradients; w again by z = y w
    "torch.func.jacrev": (
        lambda: Calls(lambda m, x: torch.func.jacrev(lambda y: _cubed(m, y))(x), w=nn.Linear(3, 3, bias=False)),
        (3,), (2 * 9 + 2 * 27, 2 * 2 * 27 + 2 * 9),
    ),
    # a, b; then gradients of both by their inputs. Backward, of the gradient's square: of a's product by operand and
    # weight, of b's by the weight alone (its operand is ones); of the forward pass: by weight and input, x is a leaf
    "a gradient penalty": (
        lambda: Calls(_penalty, a=_linear(), b=nn.Linear(8, 1, bias=False)), (4, 8),
        (2 * (LAYER + LAYER // 8), 2 * LAYER + LAYER // 8 + 2 * LAYER // 8 + 2 * LAYER),
    ),
    # each of 5 outputs: x₁ W x₂, as one sum over 8 · 6 pairs; the weight's gradient alone
    "nn.Bilinear": (lambda: Calls(lambda m, x: m.b(x, x[:, :6]), b=nn.Bilinear(8, 6, 5, bias=False)), (4, 8),
                    (2 * 4 * (8 * 6 * 5 + 6 * 5), 2 * 4 * (8 * 6 * 5 + 6 * 5))),
    "GRU, both ways, two layers": (
        lambda: Calls(lambda m, x: m.r(x)[0], r=nn.GRU(6, 5, 2, bidirectional=True)), (7, 3, 6),
        _recurrent("gru", 3, 5, layers=2, directions=2),
    ),
    "RNN, both ways, two layers": (
        lambda: Calls(lambda m, x: m.r(x)[0], r=nn.RNN(6, 5, 2, bidirectional=True)), (7, 3, 6),
        _recurrent("rnn", 1, 5, layers=2, directions=2),
    ),
    "LSTM with projections, both ways": (
        lambda: Calls(lambda m, x: m.r(x)[0], r=nn.LSTM(6, 5, proj_size=2, bidirectional=True)), (7, 3, 6),
        _recurrent("lstm", 4, 5, proj=2, directions=2),
    ),
    "LSTM, both ways, two layers": (
        lambda: Calls(lambda m, x: m.r(x)[0], r=nn.LSTM(6, 5, 2, bidirectional=True)), (7, 3, 6),
        _recurrent("lstm", 4, 5, layers=2, directions=2),
    ),
    # input and first state are constants: the weights' gradients alone
    "nn.LSTMCell": (lambda: Calls(lambda m, x: m.c(x)[0], c=nn.LSTMCell(8, 5)), (4, 8),
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
        lambda: Calls(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(8, 2, batch_first=True)), (2, 4, 8),
        (2 * 8 * 64 * 4 + 2 * 2 * 2 * 2 * 16 * 4, 2 * 8 * 64 * (3 + 2) + 4 * 2 * 2 * 2 * 16 * 4),
    ),
    # an encoder layer in one operator: 4 · 64 of projections, 2 · 8 · 16 of the feed-forward part, 2 heads · 4² · 4
    "a fast path without gradients": (
        lambda: Calls(lambda m, x: m.a(torch.no_grad()(m.t)(x)), a=_linear(), t=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()), (2, 4, 8),
        (2 * 8 * (4 * 64 + 2 * 128) + 2 * 2 * 2 * 2 * 16 * 4 + 2 * LAYER, 2 * LAYER),
    ),
    "torch.func.functional_call": (
        lambda: Calls(lambda m, x: torch.func.functional_call(m.b, {"weight": m.b.weight}, (m.a(x),)), a=_linear(),
                     b=_linear()), (4, 8), (2 * LAYER, 3 * LAYER),
    ),
    "torch.cond of a number": (
        lambda: Calls(lambda m, x: torch.cond(x.shape[0] > 2, m.b, torch.sin, (m.a(x),)), a=_linear(), b=_linear()),
        (4, 8), (2 * LAYER, 3 * LAYER),
    ),
    "inference mode": (
        lambda: Calls(lambda m, x: m.b(torch.inference_mode()(m.a)(x).clone()), a=_linear(), b=_linear()), (4, 8),
        (2 * LAYER, LAYER),
    ),
    # 8 × 8 twice for the third power, then 4 × 8 · 8 × 8 twice; each has two gradients
    "powers and chains of matrices": (
        lambda: Calls(lambda m, x: torch.linalg.multi_dot([m.a(x), torch.matrix_power(m.w, 3), m.w]), a=_linear(),
                     w=_weight(8, 8)), (4, 8), (LAYER + 2 * 2 * 512 + 2 * LAYER, LAYER + 4 * 2 * 512 + 4 * LAYER),
    ),
    # 6 × 27 · 27 × 9 windows
    "a convolution by unfold": (
        lambda: Calls(lambda m, x: m.w @ F.unfold(x, 3), w=_weight(6, 27)), (1, 3, 5, 5),
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


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # dual numbers load them
def test_a_hessian_has_a_total():
    """Its decompositions end in primitives, which are arithmetic and no products: nothing is unknown."""
    model = Calls(lambda m, x: torch.func.hessian(lambda y: _cubed(m, y).sum())(x), w=nn.Linear(3, 3, bias=False))
    found = flopledger.count(model, torch.randn(3))
    assert found.not_understood == {}
    assert found.forward_flop > 0


# --- two spellings of one calculation: the operator that has it as a whole, and the products written out ---


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
    einsum = Calls(lambda m, a, b: torch.einsum("ni,kij,nj->nk", a, m.layer.weight, b), layer=layer)
    assert products(layer, *inputs) == products(einsum, *inputs) == (1512, backward)


def _written(_m, q, k, v):
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


@pytest.mark.parametrize("needs", [c for n in (1, 2, 3) for c in itertools.combinations("qkv", n)], ids="".join)
def test_attention_has_the_gradients_that_are_needed(needs):
    """2 · 4 · 6² · 8 multiply-adds a product: dV one, dP one for queries and keys together, dQ and dK one each."""
    inputs = [torch.randn(2, 4, 6, 8, requires_grad=name in needs) for name in "qkv"]
    product = 2 * 2 * 4 * 36 * 8
    backward = len(needs) + (needs != ("v",))
    whole = products(Calls(lambda _m, *given: F.scaled_dot_product_attention(*given)), *inputs)
    assert whole == products(Calls(_written), *inputs) == (2 * product, backward * product)


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


def test_what_sums_nothing_is_elementwise():
    vectors = torch.randn(4), torch.randn(5)
    for function in (torch.outer, torch.kron, lambda a, b: torch.addr(torch.zeros(4, 5), a, b)):
        step = flopledger.count(Calls(lambda _m, *given, f=function: f(*given)), vectors)
        assert (step.forward_flop, step.other_flop % 20) == (0, 0)


def test_muon_has_products() -> None:
    """Muon's five Newton-Schulz steps on 16 × 32: X Xᵀ, its square, and that by X; SGD has none."""
    model = torch.nn.Linear(32, 16, bias=False)
    plain, muon = (
        flopledger.count(model, torch.randn(4, 32), optimizer=each) for each in (torch.optim.SGD, torch.optim.Muon)
    )
    assert plain.optimizer_model_flop == 0
    assert muon.optimizer_model_flop == 5 * 2 * (16 * 16 * 32 + 16**3 + 16 * 16 * 32)
    assert muon.model_flop == plain.model_flop
    assert flopledger.count(model, torch.randn(4, 32)).optimizer_model_flop is None
