"""Goldens of the formulas, each with its derivation, and laws they obey.

What loops can prove of products is in `test_formulas_brute_force.py`.
"""

import itertools

import pytest
import sympy
import torch
import torch.nn.functional as F

from analysis.operators import nonproducts, products
from analysis.operators.cost import ZERO, Cost


def test_scalar_work_of_cells() -> None:
    """One state element: LSTM 22 (4 + 12 + 1 + 3 + 2) and 8 biases; GRU 16 (2 + 8 + 3 + 3) and 6; RNN 2 and 2."""
    for cell, own, biases in (("lstm", 22, 8), ("gru", 16, 6), ("rnn", 2, 2)):
        with_bias = products.network(cell, 1, 1)
        without = products.network(cell, 1, 1, bias=False)
        assert products.recurrent(1, with_bias).other_flop == own + biases
        assert products.recurrent(1, without).other_flop == own


# what, our count, count of the primitive operations that PyTorch decomposes it into (forward, or backward)
DECOMPOSED = (
    ("batch_norm train 8192, 8 channels", nonproducts.batch_norm(8192, 8, True), 73_752),
    ("batch_norm train backward", nonproducts.batch_norm_backward(8192, 8, True, (True,) * 3), 73_776),
    ("batch_norm eval", nonproducts.batch_norm(8192, 8, False), 32_784),
    ("batch_norm eval backward", nonproducts.batch_norm_backward(8192, 8, False, (True,) * 3), 40_992),
    ("layer_norm 64 rows of 64", nonproducts.layer_norm(4096, 64), 37_056),
    ("layer_norm backward", nonproducts.layer_norm_backward(4096, 64, True, (True,) * 3), 57_408),
    ("group_norm 4 × 8 channels, 4 groups", nonproducts.group_norm(8192, 32, 16), 57_504),
    ("group_norm backward", nonproducts.group_norm_backward(8192, 32, 16), 57_872),
    ("rms_norm 64 rows", nonproducts.rms_norm(4096, 64), 16_576),
    ("rms_norm backward", nonproducts.rms_norm_backward(4096, 64), 41_152),
    ("softmax", nonproducts.softmax(4096), 20_480),
    ("softmax backward", nonproducts.softmax_backward(4096), 16_384),
    ("log_softmax 64 rows", nonproducts.log_softmax(4096, 64), 20_544),
    ("cross_entropy 4 × 10", nonproducts.cross_entropy(40, 4), 217),
    ("its backward", nonproducts.softmax_backward(40) + nonproducts.nll_loss_backward(40), 201),
)


@pytest.mark.parametrize(("what", "cost", "decomposed"), DECOMPOSED, ids=[row[0] for row in DECOMPOSED])
def test_normalisation_and_softmax_as_decomposed(what: str, cost: Cost, decomposed: int) -> None:
    assert (cost.model_flop, cost.other_flop) == (0, decomposed), what


def test_pooling_windows() -> None:
    """3 × 3 maximum: 8 comparisons; 2 × 2 mean: 4 and a division."""
    assert nonproducts.max_pool(10, 9) == Cost(other_flop=80)
    assert nonproducts.avg_pool(10, 4) == Cost(other_flop=50)


@pytest.mark.parametrize(("length", "count"), [(n, m) for n in (1, 5, 7, 8) for m in (1, 2, 3, 5)])
def test_adaptive_windows_are_torchs(length: int, count: int) -> None:
    """Every input that moves an output is in its window: the entries of torch's mean that are not 0."""
    means = F.adaptive_avg_pool1d(torch.eye(length).unsqueeze(0), count)
    assert nonproducts.adaptive_taps((length,), (count,)) == int((means != 0).sum())


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_sgd_by_hand(weight_decay: float, nesterov: bool) -> None:
    """g += d·w 2; b = m·b + g 2; g + m·b 2 (nesterov); w -= lr·g 2."""
    settings = {"momentum": 0.9, "weight_decay": weight_decay, "nesterov": nesterov, "dampening": 0.0}
    expected = 2 + 2 + (2 if weight_decay else 0) + (2 if nesterov else 0)
    assert nonproducts.sgd(100, settings) == Cost(other_flop=100 * expected)


def test_optimizers_by_hand() -> None:
    """Plain SGD 2. Adam 3 + 4 + 3 + 3 = 13, decay 2 in the gradient or 1 decoupled, amsgrad 1. A gradient scale 1."""
    assert nonproducts.sgd(7, {}) == Cost(other_flop=14)
    assert nonproducts.sgd(7, {"momentum": 0.9, "is_first_step": True}) == Cost(other_flop=14)
    assert nonproducts.sgd(7, {"momentum": 0.9, "dampening": 0.1}) == Cost(other_flop=35)
    assert nonproducts.adam(7, {}) == Cost(other_flop=91)
    assert nonproducts.adam(7, {"weight_decay": 0.1}) == Cost(other_flop=105)
    assert nonproducts.adam(7, {"weight_decay": 0.1}, decoupled=True) == Cost(other_flop=98)
    assert nonproducts.adam(7, {"amsgrad": True, "grad_scale": True}) == Cost(other_flop=105)
    assert nonproducts.adagrad(7, {}) == Cost(other_flop=49)


def test_sampling_by_hand() -> None:
    """Bilinear: 4 multiplications, 3 additions; backward a multiply-add into each pixel. Nearest copies; its gradient
    adds. A grid point maps and splits 2 coordinates (14) and multiplies 4 weights."""
    assert nonproducts.interpolate(10, 4) == Cost(other_flop=70)
    assert nonproducts.interpolate_backward(10, 4) == Cost(other_flop=80)
    assert nonproducts.interpolate(10, 1) == ZERO
    assert nonproducts.interpolate_backward(10, 1) == Cost(other_flop=10)
    assert nonproducts.grid_sample(30, 10, 2) == Cost(other_flop=30 * 7 + 10 * 18)
    assert nonproducts.grid_sample_backward(30, 2) == Cost(other_flop=30 * 8 * 3)
    assert nonproducts.roi_align(10, 4) == Cost(other_flop=330)  # 4 × (7 + 1) and a division
    assert nonproducts.box_suppression(5) == Cost(other_flop=130)  # 10 pairs


def test_transforms_and_factorisations() -> None:
    """5 · 8 · log2 8 = 120; cubic terms for n = 6."""
    assert nonproducts.fft(8, 8) == Cost(other_flop=120)
    assert nonproducts.fft(8, 8, real=True) == Cost(other_flop=60)
    assert nonproducts.cholesky(6) == Cost(other_flop=72)  # 216 / 3
    assert nonproducts.lu(6) == Cost(other_flop=144)
    assert nonproducts.inverse(6, batch=2) == Cost(other_flop=864)
    assert nonproducts.solve(6, 1) == Cost(other_flop=144 + 72)
    assert nonproducts.triangular_solve(6, 2) == Cost(other_flop=72)
    assert nonproducts.qr(6, 3) == Cost(other_flop=180)  # 2 · (2 · 6 · 9 - 18)


B, N, H = sympy.symbols("b n h", positive=True, integer=True)
SYMBOLIC = {
    "convolution": lambda b, n, h: products.convolution(b * n * n * h, (h, 2 * h, 3, 3), bias=True),
    "transposed": lambda b, n, h: products.convolution_transpose(b * n * h, (h, 2, 3), b * n),
    "linear backward": lambda b, n, h: products.linear_backward(b * n, h, 4 * h, (True, True, True)),
    "addmm": lambda b, n, h: products.addmm(b, n, h, alpha=2, beta=3),
    "attention": lambda b, n, h: products.attention(b * h * n, n, 64, 64, True, True),
    "attention backward": lambda b, n, h: products.attention_backward(b * h * n, n, 64, 64),
    "multi-head attention": lambda b, n, h: products.multi_head_attention(b, n, n, 4 * h, 4),
    "lstm": lambda b, n, h: products.recurrent(b * n, products.network("lstm", 3, h, 2, 2)),
    "lstm projected": lambda b, n, h: products.recurrent_backward(
        b * n, products.network("lstm", 3, 2 * h, 2, 2, projection=h)
    ),
    "batch_norm": lambda b, n, h: nonproducts.batch_norm(b * n * h, h, True, True, True),
    "layer_norm": lambda b, n, h: nonproducts.layer_norm(b * n * h, b * n),
    "pool": lambda b, n, h: nonproducts.adaptive_avg_pool(b * h, (8 * n, 8 * n), (1, 1)),
    "adam": lambda b, n, h: nonproducts.adam(n * h, {"weight_decay": 0.1}),
    "cholesky": lambda b, n, h: nonproducts.cholesky(3 * n, b),
    "suppression": lambda b, n, h: nonproducts.box_suppression(n),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbols_and_numbers_agree(name: str) -> None:
    """A formula in symbols, with numbers put in, is the count of the numbers; counts of numbers are exact ints."""
    symbolic = SYMBOLIC[name](B, N, H)
    for b, n, h in itertools.product((1, 4), (2, 16), (4, 12)):
        count = SYMBOLIC[name](b, n, h)
        assert all(type(value) is int for value in (count.model_flop, count.other_flop))
        for field in ("model_flop", "other_flop"):
            assert sympy.sympify(getattr(symbolic, field)).subs({B: b, N: n, H: h}) == getattr(count, field)


def test_fft_of_symbols() -> None:
    """Powers of 2 come out exact."""
    symbolic = sympy.simplify(nonproducts.fft(N, N).other_flop.subs(N, 1024))
    assert symbolic == 5 * 1024 * 10 == nonproducts.fft(1024, 1024).other_flop


def test_einsum_of_one_is_a_sum() -> None:
    """A transpose moves, a contraction of one operand adds its elements."""
    assert products.einsum("ij->ji", [(3, 4)]) == ZERO
    assert products.einsum("ij->i", [(3, 4)]) == Cost(other_flop=12)
