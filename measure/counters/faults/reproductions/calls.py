"""Reproductions of operations that PyTorch's own counters have no formula for.

Each takes `flop(call)`, which gives the FLOP counted while `call()` runs. What a fault is, is said where its entry is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Flop = Callable[[Callable[[], Any]], int]


def lstm(flop: Flop) -> int:
    """An LSTM on the CPU counts nothing: aten.mkldnn_rnn_layer has no formula.

    5 · 2 tokens, 4 gates of 8 · (16 + 8) weights each: 10 · 768 multiply-adds."""
    return flop(lambda: nn.LSTM(16, 8)(torch.ones(5, 2, 16)))


def lstm_backward(flop: Flop) -> int:
    """An LSTM on the CPU counts nothing in its backward pass either.

    10 · 768 multiply-adds forward, and twice that backward: the kernel always computes the input's gradient."""
    return flop(lambda: nn.LSTM(16, 8)(torch.ones(5, 2, 16))[0].sum().backward())


def cpu_attention(flop: Flop) -> int:
    """scaled_dot_product_attention on the CPU counts nothing: its kernel has no formula.

    2 · 4 heads, Q Kᵀ and P V: 2 · 8 · 16 · 16 · 32 multiply-adds."""
    q = torch.ones(2, 4, 16, 32)
    return flop(lambda: F.scaled_dot_product_attention(q, q, q))


def cpu_attention_backward(flop: Flop) -> int:
    """scaled_dot_product_attention on the CPU counts nothing in its backward pass either.

    6 products of 8 · 16 · 16 · 32 multiply-adds: 2 forward, 4 backward."""
    q = torch.ones(2, 4, 16, 32, requires_grad=True)
    return flop(lambda: F.scaled_dot_product_attention(q, q, q).sum().backward())


def matrix_vector(flop: Flop) -> int:
    """A matrix by a vector counts nothing: aten.mv has no formula, though mm has.

    64 · 32 multiply-adds."""
    return flop(lambda: torch.ones(64, 32) @ torch.ones(32))


def dot(flop: Flop) -> int:
    """torch.dot counts nothing.

    1,000 multiply-adds."""
    return flop(lambda: torch.dot(torch.ones(1000), torch.ones(1000)))


def addmv(flop: Flop) -> int:
    """torch.addmv counts nothing, though addmm does.

    3 · 6 multiply-adds."""
    return flop(lambda: torch.addmv(torch.ones(3), torch.ones(3, 6), torch.ones(6)))


def addbmm(flop: Flop) -> int:
    """torch.addbmm counts nothing, though baddbmm does.

    4 · 3 · 6 · 5 multiply-adds."""
    return flop(lambda: torch.addbmm(torch.ones(3, 5), torch.ones(4, 3, 6), torch.ones(4, 6, 5)))


def addmm_in_place(flop: Flop) -> int:
    """Tensor.addmm_ counts nothing, though addmm does: an in-place form is an operator of its own.

    3 · 6 · 5 multiply-adds."""
    return flop(lambda: torch.ones(3, 5).addmm_(torch.ones(3, 6), torch.ones(6, 5)))


def baddbmm_in_place(flop: Flop) -> int:
    """Tensor.baddbmm_ counts nothing, though baddbmm does.

    4 · 3 · 6 · 5 multiply-adds."""
    return flop(lambda: torch.ones(4, 3, 5).baddbmm_(torch.ones(4, 3, 6), torch.ones(4, 6, 5)))


def outer_product(flop: Flop) -> int:
    """torch.addr counts nothing, though the addmm that it is does.

    3 · 5 multiply-adds."""
    return flop(lambda: torch.addr(torch.ones(3, 5), torch.ones(3), torch.ones(5)))


def bilinear(flop: Flop) -> int:
    """nn.Bilinear counts nothing: aten._trilinear has no formula.

    2 rows · 24 · 24 · 10 multiply-adds."""
    return flop(lambda: nn.Bilinear(24, 24, 10)(torch.ones(2, 24), torch.ones(2, 24)))


def distances(flop: Flop) -> int:
    """torch.cdist, a matrix product for more than 25 rows, counts nothing.

    50 · 50 · 32 multiply-adds of the product x · y."""
    return flop(lambda: torch.cdist(torch.ones(50, 32), torch.ones(50, 32)))


def deformable_convolution(flop: Flop) -> int:
    """torchvision's deform_conv2d counts nothing.

    4 · 36 outputs of 27 taps."""
    from torchvision.ops import deform_conv2d

    weight, offsets = torch.ones(4, 3, 3, 3), torch.ones(1, 18, 6, 6)
    return flop(lambda: deform_conv2d(torch.ones(1, 3, 8, 8), offsets, weight))


def quantised_linear(flop: Flop) -> int:
    """A dynamically quantised linear layer counts nothing.

    8 rows · 64 · 64 multiply-adds."""
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(64, 64)), {nn.Linear}, dtype=torch.qint8)
    return flop(lambda: model(torch.ones(8, 64)))


def integer_product(flop: Flop) -> int:
    """torch._int_mm counts nothing.

    64 · 64 · 64 multiply-adds."""
    eight = torch.ones(64, 64, dtype=torch.int8)
    return flop(lambda: torch._int_mm(eight, eight))


def grouped_product(flop: Flop) -> int:
    """torch._grouped_mm, the product of mixtures of experts, counts nothing.

    32 rows in two groups · 16 · 64 multiply-adds."""
    rows, experts = torch.ones(32, 16, dtype=torch.bfloat16), torch.ones(2, 16, 64, dtype=torch.bfloat16)
    ends = torch.tensor([16, 32], dtype=torch.int32)
    return flop(lambda: torch._grouped_mm(rows, experts, offs=ends))


def mkldnn_layout(flop: Flop) -> int:
    """A model in oneDNN's layout counts nothing.

    4 · 64 outputs of 27 taps."""
    from torch.utils import mkldnn

    model = mkldnn.to_mkldnn(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)).eval())
    return flop(lambda: model(torch.ones(1, 3, 8, 8).to_mkldnn()))


def complex_product(flop: Flop) -> int:
    """A product of complex matrices counts as one of real ones.

    16³ complex multiply-adds of 4 multiplications and 4 additions each."""
    matrix = torch.ones(16, 16, dtype=torch.complex64)
    return flop(lambda: matrix @ matrix)
