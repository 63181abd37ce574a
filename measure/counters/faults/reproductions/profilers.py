"""Faults that DeepSpeed's flops profiler and calflops, its copy, have both: they patch functions of torch.

Each reproduction takes `count(model, *shape)`, which gives [FLOP, multiply-adds] of model(ones(shape)). What a fault
is, is said where its entry is: in `faults`, or in the file of the one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import shared as reproductions_shared
from measure.counters.faults.reproductions.nets import TOKENS, Does, Failing, frozen_attention, weight


def faults(count: Count) -> tuple[Fault, ...]:
    """What both profilers have, with the same numbers."""
    missing, patch = ("missing operation", "not seen"), ("side effect", "left behind")
    wrong, called = ("wrong count", "formula"), ("crash", "calling form")
    return (
        Fault(put_to(addition_operator, count), "inconsistency", "not seen", [0, 0, 0, 32, 32], [32] * 5),
        Fault(put_to(activations, count), "inconsistency", "no formula", [10, 0, 0, 0, 0, 0], [10] * 6),
        Fault(put_to(bias_of_a_linear_layer, count), "inconsistency", "formula", [0, 16], [10, 16]),
        Fault(put_to(recurrent_layers, count), "inconsistency", "formula", [0, 0, 0], [7_680, 5_760, 1_536]),
        Fault(put_to(einsum, count), "inconsistency", "formula", [1_025, 0], [1_024, 512]),
        Fault(put_to(relu_by_three_names, count), "inconsistency", "not seen", [10, 0, 0], [10, 10, 10]),
        Fault(put_to(matrix_vector, count), *missing, [0, 0], [32, 16]),
        Fault(put_to(bilinear, count), *missing, [0, 0], [2 * 5_760, 5_760]),
        Fault(put_to(distances, count), *missing, [0, 0], [2 * 80_000, 80_000]),
        Fault(put_to(function_imported_before, count), *missing, [0, 0], [200, 100]),
        Fault(put_to(fused_attention, count), missing[0], "fused path", [0, 0], [2 * 278_528, 278_528]),
        Fault(put_to(matmul_vector, count), *wrong, [2 * 32 * 2_048, 32 * 2_048], [2 * 2_048, 2_048]),
        Fault(put_to(matmul_broadcast, count), *wrong, [210, 105], [840, 420]),
        Fault(put_to(padding_same_of_an_even_kernel, count), *wrong, [18_816, 9_408], [2 * 12_288, 12_288]),
        Fault(put_to(pooling_by_keywords, count), *called, "raises TypeError", 128),
        Fault(
            put_to(reproductions_shared.unbatched_convolution, count),
            *called,
            "raises AssertionError",
            [2 * 7_776, 7_776],
        ),
        Fault(put_to(reproductions_shared.scripted, count), "crash", "tracing", "raises RuntimeError", [512, 256]),
        Fault(put_to(exception_leaves_torch_patched, count), *patch, [True, 400], [False, 200]),
        Fault(put_to(reproductions_shared.left_in_evaluation, count), *patch, True, False),
    )


Count = Callable[..., list[int]]


def _flop(count: Count, model: nn.Module, *shape: int) -> int:
    return int(count(model, *shape)[0])


def addition_operator(count: Count) -> list[int]:
    """a + b, a - b and a * b count nothing, torch.add and torch.mul do.

    32 of each."""
    functions = (
        lambda m, x: x + m.w,
        lambda m, x: x - m.w,
        lambda m, x: x * m.w,
        lambda m, x: torch.add(x, m.w),
        lambda m, x: torch.mul(x, m.w),
    )
    return [_flop(count, Does(function, w=weight(4, 8)), 4, 8) for function in functions]


def activations(count: Count) -> list[int]:
    """ReLU counts, ReLU6, sigmoid, tanh, Hardswish and Hardtanh do not.

    10 elements each."""
    kinds = (nn.ReLU, nn.ReLU6, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardtanh)
    return [_flop(count, nn.Sequential(nn.Linear(10, 10), kind()), 1, 10) - 200 for kind in kinds]


def bias_of_a_linear_layer(count: Count) -> list[int]:
    """The bias of a linear layer is not counted, that of a convolution is.

    Beside their products 10 additions, and 4 · 4 additions."""
    linear = _flop(count, nn.Linear(10, 10), 1, 10) - 2 * 100
    return [linear, _flop(count, nn.Conv2d(3, 4, 1), 1, 3, 2, 2) - 2 * 48]


def recurrent_layers(count: Count) -> list[int]:
    """LSTM, GRU and LSTMCell have FLOP but no multiply-adds.

    10 tokens of (16 + 8) · 8 weights for each of 4 or 3 gates; 2 of them for the cell."""
    layers = ((nn.LSTM(16, 8), (5, 2, 16)), (nn.GRU(16, 8), (5, 2, 16)), (nn.LSTMCell(16, 8), (2, 16)))
    return [count(layer, *shape)[1] for layer, shape in layers]


def einsum(count: Count) -> list[int]:
    """einsum has FLOP but no multiply-adds, and one too many.

    2 · 16 · 16 multiply-adds."""
    return count(Does(lambda m, x: torch.einsum("bi,ij->bj", x, m.w), w=weight(16, 16)), 2, 16)


def matrix_vector(count: Count) -> list[int]:
    """torch.mv and torch.dot count nothing.

    2 · 16 multiply-adds, and 16."""
    functions = (lambda m, x: torch.mv(x, m.w), lambda m, x: torch.dot(x[0], m.w))
    return [count(Does(function, w=weight(16)), 2, 16)[1] for function in functions]


def bilinear(count: Count) -> list[int]:
    """nn.Bilinear counts nothing.

    24 · 24 · 10 multiply-adds."""
    return count(Does(lambda m, x: m.layer(x, x), layer=nn.Bilinear(24, 24, 10, bias=False)), 1, 24)


def distances(count: Count) -> list[int]:
    """torch.cdist counts nothing.

    50 · 50 · 32 multiply-adds of the product x · y."""
    return count(Does(lambda m, x: torch.cdist(x, x), w=weight(1)), 50, 32)


def function_imported_before(count: Count) -> list[int]:
    """A function that was imported by name before the profile counts nothing.

    10 · 10 multiply-adds."""
    from torch.nn.functional import linear

    return count(Does(lambda m, x: linear(x, m.w), w=weight(10, 10)), 1, 10)


def fused_attention(count: Count) -> list[int]:
    """nn.MultiheadAttention frozen in evaluation counts nothing, its projections neither.

    278,528 multiply-adds (see nets.TOKENS)."""
    return count(frozen_attention(), *TOKENS)


def matmul_vector(count: Count) -> list[int]:
    """matmul by a vector counts as by a square matrix.

    64 · 32 multiply-adds."""
    return count(Does(lambda m, x: torch.matmul(x, m.right), right=weight(32)), 64, 32)


def matmul_broadcast(count: Count) -> list[int]:
    """matmul of a matrix by a batch of matrices counts one of them.

    (5, 7) @ (4, 7, 3): 4 · 5 · 7 · 3 multiply-adds."""
    return count(Does(lambda m, x: torch.matmul(m.left, x), left=weight(5, 7)), 4, 7, 3)


def padding_same_of_an_even_kernel(count: Count) -> list[int]:
    """padding="same" with an even kernel counts too few outputs.

    3 · 64 outputs of 4 · 16 taps."""
    return count(nn.Conv2d(4, 3, 4, padding="same", bias=False), 1, 4, 8, 8)


def interpolation_to_a_size(count: Count) -> list[int]:
    """F.interpolate to a size counts one channel of one sample, and by a scale not always the output.

    2 · 3 · 16 · 16 elements either way."""
    by_scale = Does(lambda m, x: F.interpolate(x, scale_factor=2), w=weight(1))
    by_size = Does(lambda m, x: F.interpolate(x, size=(16, 16)), w=weight(1))
    return [_flop(count, by_scale, 2, 3, 8, 8), _flop(count, by_size, 2, 3, 8, 8)]


def upsample_twice(count: Count) -> int:
    """F.upsample counts twice: it calls F.interpolate, which is patched too.

    1 · 2 · 8 · 8 elements."""
    return count(Does(lambda m, x: F.upsample(x, scale_factor=2), w=weight(1)), 1, 2, 4, 4)[0]


def pooling_by_keywords(count: Count) -> Any:
    """adaptive_avg_pool2d called with keywords raises.

    2 · 64 elements, as a pooling is counted."""
    return count(Does(lambda m, x: F.adaptive_avg_pool2d(x, output_size=1), w=weight(1)), 1, 2, 8, 8)[0]


def stride_as_a_list(count: Count) -> Any:
    """F.conv2d with its stride as a list raises.

    4 · 9 outputs of 27 taps."""
    return count(Does(lambda m, x: F.conv2d(x, m.w, stride=[2, 2]), w=weight(4, 3, 3, 3)), 1, 3, 8, 8)


def exception_leaves_torch_patched(count: Count) -> list[Any]:
    """A model that raises leaves torch's functions patched, and doubles every later count of the process.

    2 rows · 10 · 5 multiply-adds without a bias, and F.linear as it was."""
    before = F.linear
    with contextlib.suppress(RuntimeError):
        count(Failing(), 1, 4)
    patched = F.linear is not before
    return [patched, _flop(count, nn.Linear(5, 10, bias=False), 2, 5)]


def relu_by_three_names(count: Count) -> list[int]:
    """F.relu counts, torch.relu and Tensor.relu do not.

    10 elements each."""
    functions = (lambda m, x: F.relu(x), lambda m, x: torch.relu(x), lambda m, x: x.relu())
    return [_flop(count, Does(function, w=weight(1)), 1, 10) for function in functions]
