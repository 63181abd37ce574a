"""Faults of calflops, which patches functions of torch and gives FLOP and multiply-adds."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.fault import Fault
from measure.counters.faults.nets import TOKENS, Does, Failing, frozen_attention, under_two_parents, weight


def _profile(model: nn.Module, x: Any, **options: Any) -> list[int]:
    """[FLOP, multiply-adds]."""
    from calflops import calculate_flops

    found = calculate_flops(model, args=[x], print_results=False, output_as_string=False, **options)
    return [int(found[0]), int(found[1])]


def _flop(model: nn.Module, x: Any) -> int:
    return _profile(model, x)[0]


def addition_operator() -> list[int]:
    """a + b, a - b and a * b count nothing, torch.add and torch.mul do.

    32 of each."""
    functions = (
        lambda m, x: x + m.w,
        lambda m, x: x - m.w,
        lambda m, x: x * m.w,
        lambda m, x: torch.add(x, m.w),
        lambda m, x: torch.mul(x, m.w),
    )
    return [_flop(Does(function, w=weight(4, 8)), torch.ones(4, 8)) for function in functions]


def recurrent_layers() -> list[int]:
    """LSTM, GRU and LSTMCell have FLOP but no multiply-adds.

    10 tokens of (16 + 8) · 8 weights for each of 4 or 3 gates; 2 of them for the cell."""
    sequence, single = torch.ones(5, 2, 16), torch.ones(2, 16)
    layers = ((nn.LSTM(16, 8), sequence), (nn.GRU(16, 8), sequence), (nn.LSTMCell(16, 8), single))
    return [_profile(layer, x)[1] for layer, x in layers]


def einsum() -> list[int]:
    """einsum has FLOP but no multiply-adds, and one too many.

    2 · 16 · 16 multiply-adds."""
    return _profile(Does(lambda m, x: torch.einsum("bi,ij->bj", x, m.w), w=weight(16, 16)), torch.ones(2, 16))


def pooling_by_keywords() -> Any:
    """adaptive_avg_pool2d called with keywords raises.

    2 · 64 elements, as calflops counts a pooling."""
    return _flop(Does(lambda m, x: F.adaptive_avg_pool2d(x, output_size=1), w=weight(1)), torch.ones(1, 2, 8, 8))


def stride_as_a_list() -> Any:
    """F.conv2d with its stride as a list raises.

    4 · 9 outputs of 27 taps."""
    return _profile(Does(lambda m, x: F.conv2d(x, m.w, stride=[2, 2]), w=weight(4, 3, 3, 3)), torch.ones(1, 3, 8, 8))


def unbatched_convolution() -> Any:
    """A convolution of one sample without a batch raises.

    8 · 36 outputs of 27 taps."""
    return _profile(nn.Conv2d(3, 8, 3, bias=False), torch.ones(3, 8, 8))


def padding_same_of_an_even_kernel() -> list[int]:
    """padding="same" with an even kernel counts too few outputs.

    3 · 64 outputs of 4 · 16 taps."""
    return _profile(nn.Conv2d(4, 3, 4, padding="same", bias=False), torch.ones(1, 4, 8, 8))


def fused_attention() -> list[int]:
    """nn.MultiheadAttention frozen in evaluation counts its projections and nothing of its attention.

    278,528 multiply-adds (see nets.TOKENS)."""
    return _profile(frozen_attention(), torch.ones(TOKENS))


def exception_leaves_torch_patched() -> list[Any]:
    """A model that raises leaves torch's functions patched, and doubles every later count of the process.

    2 rows · 10 · 5 multiply-adds without a bias, and F.linear as it was."""
    before = F.linear
    with contextlib.suppress(RuntimeError):
        _profile(Failing(), torch.ones(1, 4))
    patched = F.linear is not before
    return [patched, _flop(nn.Linear(5, 10, bias=False), torch.ones(2, 5))]


def interpolation_to_a_size() -> list[int]:
    """F.interpolate to a size counts one channel of one sample, by a scale the elements of its input.

    2 · 3 · 16 · 16 elements either way."""
    x = torch.ones(2, 3, 8, 8)
    by_scale = Does(lambda m, x: F.interpolate(x, scale_factor=2), w=weight(1))
    by_size = Does(lambda m, x: F.interpolate(x, size=(16, 16)), w=weight(1))
    return [_flop(by_scale, x), _flop(by_size, x)]


def upsample_twice() -> int:
    """F.upsample counts twice the elements of its input: it calls F.interpolate, which is patched too.

    1 · 2 · 8 · 8 elements."""
    return _flop(Does(lambda m, x: F.upsample(x, scale_factor=2), w=weight(1)), torch.ones(1, 2, 4, 4))


def matmul_vector() -> list[int]:
    """matmul by a vector counts as by a square matrix.

    64 · 32 multiply-adds."""
    return _profile(Does(lambda m, x: torch.matmul(x, m.right), right=weight(32)), torch.ones(64, 32))


def matmul_broadcast() -> list[int]:
    """matmul of a matrix by a batch of matrices counts one of them.

    (5, 7) @ (4, 7, 3): 4 · 5 · 7 · 3 multiply-adds."""
    return _profile(Does(lambda m, x: torch.matmul(m.left, x), left=weight(5, 7)), torch.ones(4, 7, 3))


def function_imported_before() -> list[int]:
    """A function that was imported by name before the profile counts nothing.

    10 · 10 multiply-adds."""
    from torch.nn.functional import linear

    return _profile(Does(lambda m, x: linear(x, m.w), w=weight(10, 10)), torch.ones(1, 10))


def left_in_evaluation() -> bool:
    """The model is in evaluation mode afterwards.

    It was in training mode."""
    model = nn.Sequential(nn.Linear(4, 4)).train()
    _profile(model, torch.ones(1, 4))
    return not model.training


def activations() -> list[int]:
    """ReLU counts, ReLU6, sigmoid, tanh, Hardswish and Hardtanh do not.

    10 elements each."""
    kinds = (nn.ReLU, nn.ReLU6, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardtanh)
    return [_flop(nn.Sequential(nn.Linear(10, 10), kind()), torch.ones(1, 10)) - 200 for kind in kinds]


def bias_of_a_linear_layer() -> list[int]:
    """The bias of a linear layer is not counted, that of a convolution is.

    Beside their products 10 additions, and 4 · 4 additions."""
    linear = _flop(nn.Linear(10, 10), torch.ones(1, 10)) - 2 * 100
    return [linear, _flop(nn.Conv2d(3, 4, 1), torch.ones(1, 3, 2, 2)) - 2 * 48]


def matrix_vector() -> list[int]:
    """torch.mv and torch.dot count nothing.

    2 · 16 multiply-adds, and 16."""
    functions = (lambda m, x: torch.mv(x, m.w), lambda m, x: torch.dot(x[0], m.w))
    return [_profile(Does(function, w=weight(16)), torch.ones(2, 16))[1] for function in functions]


def bilinear() -> list[int]:
    """nn.Bilinear counts nothing.

    24 · 24 · 10 multiply-adds."""
    return _profile(Does(lambda m, x: m.layer(x, x), layer=nn.Bilinear(24, 24, 10, bias=False)), torch.ones(1, 24))


def distances() -> list[int]:
    """torch.cdist counts nothing.

    50 · 50 · 32 multiply-adds of the product x · y."""
    return _profile(Does(lambda m, x: torch.cdist(x, x), w=weight(1)), torch.ones(50, 32))


def products_by_six_names() -> dict[str, int]:
    """torch.matmul counts; the operator @, mm, bmm and their methods do not.

    2 · 16 · 16 multiply-adds each."""
    functions = {
        "torch.matmul": lambda m, x: torch.matmul(x, m.w),
        "@": lambda m, x: x @ m.w,
        "torch.mm": lambda m, x: torch.mm(x, m.w),
        "Tensor.mm": lambda m, x: x.mm(m.w),
        "torch.bmm": lambda m, x: torch.bmm(x[None], m.w[None]),
        "Tensor.bmm": lambda m, x: x[None].bmm(m.w[None]),
    }
    x = torch.ones(2, 16)
    return {name: _profile(Does(function, w=weight(16, 16)), x)[1] for name, function in functions.items()}


def attention() -> list[int]:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 4 · 16 · 16 · 32 multiply-adds."""
    return _profile(Does(lambda m, x: F.scaled_dot_product_attention(x, x, x), w=weight(1)), torch.ones(1, 4, 16, 32))


def grouped_transposed_convolution() -> list[int]:
    """A grouped transposed convolution counts nothing.

    4 channels · 25 inputs, each with 2 · 4 weights."""
    return _profile(nn.ConvTranspose2d(4, 8, 2, groups=4, bias=False), torch.ones(1, 4, 5, 5))


def broadcast_product() -> int:
    """torch.mul of a tensor and a vector is broadcast from the left, and counts other elements.

    2 · 3 · 4 multiplications."""
    return _flop(Does(lambda m, x: torch.mul(x, m.w), w=weight(4)), torch.ones(2, 3, 4))


def shared_module() -> list[int]:
    """A module that two others share counts its work twice.

    Two calls of 16 · 16 multiply-adds."""
    return _profile(under_two_parents(), torch.ones(1, 16))


def backward_of_a_frozen_layer() -> list[int]:
    """include_backPropagation multiplies everything by 3, frozen layers too.

    A layer that is frozen and whose input needs no gradient has no backward pass: 10 · 10 multiply-adds."""
    model = nn.Linear(10, 10, bias=False).requires_grad_(False)
    return _profile(model, torch.ones(1, 10), include_backPropagation=True)


def backward_of_the_first_layer() -> list[int]:
    """include_backPropagation multiplies everything by 3, the first layer too.

    Its input needs no gradient, so that its backward pass is one product: 2 · 10 · 10 multiply-adds in all."""
    return _profile(nn.Linear(10, 10, bias=False), torch.ones(1, 10), include_backPropagation=True)


def model_without_parameters() -> Any:
    """A model without parameters raises.

    10 elements of ReLU."""
    return _flop(nn.Sequential(nn.ReLU()), torch.ones(1, 10))


MISSING, PATCH = ("missing operation", "not seen"), ("side effect", "left behind")

FAULTS = (
    Fault(
        products_by_six_names,
        "inconsistency",
        "not seen",
        {"torch.matmul": 512, "@": 0, "torch.mm": 0, "Tensor.mm": 0, "torch.bmm": 0, "Tensor.bmm": 0},
        {"torch.matmul": 512, "@": 512, "torch.mm": 512, "Tensor.mm": 512, "torch.bmm": 512, "Tensor.bmm": 512},
        ("26", "36", "48"),
    ),
    Fault(addition_operator, "inconsistency", "not seen", [0, 0, 0, 32, 32], [32] * 5),
    Fault(activations, "inconsistency", "no formula", [10, 0, 0, 0, 0, 0], [10] * 6),
    Fault(bias_of_a_linear_layer, "inconsistency", "formula", [0, 16], [10, 16]),
    Fault(recurrent_layers, "inconsistency", "formula", [0, 0, 0], [7_680, 5_760, 1_536]),
    Fault(einsum, "inconsistency", "formula", [1_025, 0], [1_024, 512]),
    Fault(attention, *MISSING, [0, 0], [2 * 65_536, 65_536], ("26", "36", "48")),
    Fault(matrix_vector, *MISSING, [0, 0], [32, 16]),
    Fault(bilinear, *MISSING, [0, 0], [2 * 5_760, 5_760]),
    Fault(distances, *MISSING, [0, 0], [2 * 80_000, 80_000]),
    Fault(function_imported_before, *MISSING, [0, 0], [200, 100]),
    Fault(fused_attention, "missing operation", "fused path", [0, 0], [2 * 278_528, 278_528]),
    Fault(grouped_transposed_convolution, "wrong count", "formula", [0, 0], [1_600, 800]),
    Fault(matmul_vector, "wrong count", "formula", [2 * 32 * 2_048, 32 * 2_048], [2 * 2_048, 2_048]),
    Fault(matmul_broadcast, "wrong count", "formula", [210, 105], [840, 420]),
    Fault(broadcast_product, "wrong count", "formula", 48, 24),
    Fault(padding_same_of_an_even_kernel, "wrong count", "formula", [18_816, 9_408], [2 * 12_288, 12_288]),
    Fault(interpolation_to_a_size, "wrong count", "formula", [384, 256], [1_536, 1_536]),
    Fault(upsample_twice, "wrong count", "counted twice", 2 * 32, 128),
    Fault(shared_module, "wrong count", "counted twice", [2_048, 1_024], [1_024, 512]),
    Fault(backward_of_a_frozen_layer, "wrong count", "backward by decree", [600, 300], [200, 100]),
    Fault(backward_of_the_first_layer, "wrong count", "backward by decree", [600, 300], [400, 200]),
    Fault(pooling_by_keywords, "crash", "calling form", "raises TypeError", 128),
    Fault(stride_as_a_list, "crash", "calling form", "raises TypeError", [2 * 972, 972], ("11",)),
    Fault(unbatched_convolution, "crash", "calling form", "raises AssertionError", [2 * 7_776, 7_776]),
    Fault(model_without_parameters, "crash", "calling form", "raises StopIteration", 10),
    Fault(exception_leaves_torch_patched, *PATCH, [True, 400], [False, 200]),
    Fault(left_in_evaluation, *PATCH, True, False),
)
