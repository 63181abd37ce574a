"""Definition, law: formulas of FLOP, each with its derivation; symbols and numbers agree.

What loops can prove of products is in `test_formulas_brute_force.py`.
"""

import itertools

import pytest
import sympy
import torch
import torch.nn.functional as F

from analysis.operators import products, registry, windows
from analysis.operators.cost import Cost
from tests.support.made_up_operations.made_up_operations import operation


def test_scalar_work_of_cells() -> None:
    """One state element: LSTM 22 (4 + 12 + 1 + 3 + 2) and 8 biases; GRU 16 (2 + 8 + 3 + 3) and 6; RNN 2 and 2."""
    for cell, own, biases in (("lstm", 22, 8), ("gru", 16, 6), ("rnn", 2, 2)):
        with_bias = products.network(cell, 1, 1)
        without = products.network(cell, 1, 1, bias=False)
        assert products.recurrent(1, with_bias).other_flop == own + biases
        assert products.recurrent(1, without).other_flop == own


def made(name: str, inputs: dict[str, tuple], outputs: list[tuple] = (), **attributes) -> Cost:
    return registry.cost(operation(f"aten.{name}", inputs, outputs, **attributes))


def other_flop(*call, **attributes) -> int:
    return made(*call, **attributes).other_flop


IMAGES, AFFINE = {"input": (4, 8, 16, 16)}, {"weight": (8,), "bias": (8,)}
ROWS, WIDE = {"input": (64, 64)}, {"weight": (64,), "bias": (64,)}
LAYER = {"normalized_shape": [64]}

# what, our count, count of the primitive operations that PyTorch decomposes it into (forward, or backward)
DECOMPOSED = (
    ("batch_norm train", other_flop("native_batch_norm", IMAGES | AFFINE, training=True), 73_752),
    ("batch_norm train functional", other_flop("_batch_norm_with_update_functional", IMAGES | AFFINE), 73_752),
    ("batch_norm train backward", other_flop("native_batch_norm_backward", IMAGES, train=True), 73_776),
    ("batch_norm eval", other_flop("native_batch_norm", IMAGES | AFFINE, training=False), 32_784),
    ("batch_norm eval backward", other_flop("native_batch_norm_backward", IMAGES, train=False), 40_992),
    ("layer_norm 64 rows of 64", other_flop("native_layer_norm", ROWS | WIDE, **LAYER), 37_056),
    ("layer_norm backward", other_flop("native_layer_norm_backward", ROWS | WIDE, **LAYER), 57_408),
    ("group_norm 4 × 8 channels, 4 groups", other_flop("native_group_norm", IMAGES | AFFINE, group=4), 57_504),
    ("group_norm backward", other_flop("native_group_norm_backward", IMAGES | AFFINE, group=4), 57_872),
    ("rms_norm 64 rows", other_flop("_fused_rms_norm", ROWS | WIDE, **LAYER), 16_576),
    ("rms_norm backward", other_flop("_fused_rms_norm_backward", ROWS | WIDE, **LAYER), 41_152),
    ("softmax", other_flop("_softmax", ROWS, [(64, 64)]), 20_480),
    ("softmax backward", other_flop("_softmax_backward_data", ROWS, [(64, 64)]), 16_384),
    ("log_softmax 64 rows", other_flop("_log_softmax", ROWS, [(64, 64)], dim=1), 20_544),
    ("cross_entropy 4 × 10", other_flop("cross_entropy_loss", {"self": (4, 10), "target": (4,)}), 217),
    ("its gradient in the scores", other_flop("_softmax_backward_data", ROWS, [(4, 10)]), 160),
    ("its gradient in the log scores", other_flop("nll_loss_backward", ROWS, [(4, 10)]), 41),
)


@pytest.mark.parametrize(("what", "counted", "decomposed"), DECOMPOSED, ids=[row[0] for row in DECOMPOSED])
def test_normalisation_and_softmax_as_decomposed(what: str, counted: int, decomposed: int) -> None:
    assert counted == decomposed, what


@pytest.mark.parametrize(("length", "count"), [(n, m) for n in (1, 5, 7, 8) for m in (1, 2, 3, 5)])
def test_adaptive_windows_are_torchs(length: int, count: int) -> None:
    """Every input that moves an output is in its window: the entries of torch's mean that are not 0."""
    means = F.adaptive_avg_pool1d(torch.eye(length).unsqueeze(0), count)
    assert windows.adaptive_taps((length,), (count,)) == int((means != 0).sum())


def updated(name: str, size: int, **settings) -> int:
    """FLOP of one step of an optimizer for a weight of `size` elements."""
    scale = {"grad_scale": ()} if settings.pop("grad_scale", False) else {}
    return other_flop(name, {"self[0]": (size,), "grads[0]": (size,), **scale}, **settings)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_sgd_by_hand(weight_decay: float, nesterov: bool) -> None:
    """g += d·w 2; b = m·b + g 2; g + m·b 2 (nesterov); w -= lr·g 2."""
    settings = {"momentum": 0.9, "weight_decay": weight_decay, "nesterov": nesterov, "dampening": 0.0}
    expected = 2 + 2 + (2 if weight_decay else 0) + (2 if nesterov else 0)
    assert updated("_fused_sgd_", 100, **settings) == 100 * expected


# plain SGD 2; Adam 3 + 4 + 3 + 3 = 13, decay 2 in the gradient or 1 decoupled, amsgrad 1; a gradient scale 1
OPTIMIZERS = [
    ("_fused_sgd_", {}, 2),
    ("_fused_sgd_", {"momentum": 0.9, "is_first_step": True}, 2),
    ("_fused_sgd_", {"momentum": 0.9, "dampening": 0.1}, 5),
    ("_fused_adam_", {}, 13),
    ("_fused_adam_", {"weight_decay": 0.1}, 15),
    ("_fused_adamw_", {"weight_decay": 0.1}, 14),
    ("_fused_adam_", {"amsgrad": True, "grad_scale": True}, 15),
    ("_fused_adagrad_", {}, 7),
]


@pytest.mark.parametrize(("name", "settings", "each"), OPTIMIZERS)
def test_optimizers_by_hand(name, settings, each) -> None:
    assert updated(name, 7, **settings) == 7 * each


def test_sampling_by_hand() -> None:
    """Bilinear: 4 multiplications, 3 additions; backward a multiply-add into each pixel. Nearest copies; its gradient
    adds. A grid point maps and splits 2 coordinates (14) and multiplies 4 weights."""
    form = {"grad_output": (10,)}
    assert other_flop("upsample_bilinear2d", form, [(10,)]) == 70
    assert other_flop("upsample_bilinear2d_backward", form) == 80
    assert other_flop("upsample_nearest2d", form, [(10,)]) == 0
    assert other_flop("upsample_nearest2d_backward", form) == 10
    grid = {"input": (1, 3, 4, 4), "grid": (1, 5, 2, 2)}
    assert other_flop("grid_sampler_2d", grid, [(1, 3, 5, 2)]) == 30 * 7 + 10 * 18
    assert other_flop("grid_sampler_2d_backward", {"grad_output": (1, 3, 5, 2)}) == 30 * 8 * 3
    assert other_flop("grid_sampler_2d_backward", {"grad_output": (1, 3, 5, 2)}, interpolation_mode=1) == 30
    # bicubic: 16 multiplications and 15 additions, and 16 weights
    assert other_flop("grid_sampler_2d", grid, [(1, 3, 5, 2)], interpolation_mode=2) == 30 * 31 + 10 * 30
    assert other_flop("grid_sampler_2d_backward", {"grad_output": (1, 3, 5, 2)}, interpolation_mode=2) == 30 * 32 * 3


# 5 · 8 · log2 8 = 120; cubic terms for n = 6
ALGEBRA = [
    ("_fft_c2c", {"self": (8,)}, [(8,)], [0], 120),
    ("_fft_r2c", {"self": (8,)}, [(5,)], [0], 60),
    ("linalg_cholesky_ex", {"self": (6, 6)}, [], None, 72),  # 216 / 3
    ("linalg_lu", {"self": (6, 6)}, [], None, 144),
    ("linalg_inv_ex", {"self": (2, 6, 6)}, [], None, 864),
    ("linalg_solve", {"A": (6, 6), "B": (6, 1)}, [], None, 144 + 72),
    ("linalg_solve_triangular", {"self": (6, 6), "B": (6, 2)}, [], None, 72),
    ("linalg_qr", {"self": (6, 3)}, [], None, 180),  # 2 · (2 · 6 · 9 - 18)
]


@pytest.mark.parametrize(("name", "inputs", "outputs", "dim", "flop"), ALGEBRA)
def test_transforms_and_factorisations(name, inputs, outputs, dim, flop) -> None:
    assert other_flop(name, inputs, outputs, dim=dim) == flop


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
    "pool": lambda b, n, h: made("_adaptive_avg_pool2d", {"self": (b, h, 8 * n, 8 * n)}, [(b, h, 1, 1)]),
    "adam": lambda b, n, h: made("_fused_adam_", {"self[0]": (n, h)}, weight_decay=0.1),
    "cholesky": lambda b, n, h: made("linalg_cholesky_ex", {"self": (b, 3 * n, 3 * n)}),
    "suppression": lambda b, n, h: registry.cost(operation("torchvision.nms", {"dets": (n, 4)})),
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
    symbolic, number = (other_flop("_fft_c2c", {"self": (n,)}, [(n,)], dim=[0]) for n in (N, 1024))
    assert sympy.simplify(symbolic.subs(N, 1024)) == 5 * 1024 * 10 == number
