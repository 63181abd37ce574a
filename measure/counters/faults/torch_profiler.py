"""Faults of torch.profiler's estimate, `profile(with_flops=True)`: the sum of what it gives its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.fault import Fault
from measure.counters.faults.nets import TOKENS, frozen_attention


def _flop(call: Callable[[], Any]) -> int:
    """What the profiler gives to all events while `call` runs."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler:
        call()
    return int(sum(event.flops for event in profiler.key_averages()))


def _forward(module: nn.Module, *shape: int) -> int:
    with torch.no_grad():
        return _flop(lambda: module(torch.ones(shape)))


def conv1d() -> int:
    """A convolution in one dimension counts nothing.

    1 · 8 outputs · 8 channels of 4 · 3 taps."""
    return _forward(nn.Conv1d(4, 8, 3, padding=1, bias=False), 1, 4, 8)


def conv3d() -> int:
    """A convolution in three dimensions counts nothing.

    4 channels · 27 outputs of 2 · 27 taps."""
    return _forward(nn.Conv3d(2, 4, 3, padding=1, bias=False), 1, 2, 3, 3, 3)


def transposed_convolution() -> int:
    """A transposed convolution counts nothing.

    4 · 25 inputs, each with 4 · 9 weights."""
    return _forward(nn.ConvTranspose2d(4, 4, 3, bias=False), 1, 4, 5, 5)


def padding_same() -> int:
    """A convolution with padding="same" counts nothing.

    4 channels · 64 outputs of 4 · 9 taps."""
    return _forward(nn.Conv2d(4, 4, 3, padding="same", bias=False), 1, 4, 8, 8)


def unbatched_convolution() -> int:
    """A convolution of one sample without a batch counts nothing.

    8 channels · 36 outputs of 3 · 9 taps."""
    return _forward(nn.Conv2d(3, 8, 3, bias=False), 3, 8, 8)


def convolution_backward() -> int:
    """The backward pass of a convolution counts nothing, though that of a linear layer does.

    8 · 36 outputs of 3 · 9 taps, for the weight and for the input."""
    out = nn.Conv2d(3, 8, 3, bias=False)(torch.ones(1, 3, 8, 8, requires_grad=True)).sum()
    return _flop(out.backward)


def training_step_of_resnet18() -> list[int]:
    """A training step of resnet18 counts little more than its forward pass.

    Products alone: the last linear layer's two, 512 · 10, are all that it sees of the backward pass."""
    from torchvision.models import resnet18

    model, x = resnet18(num_classes=10).eval(), torch.ones(1, 3, 32, 32)
    products = ("aten::conv2d", "aten::addmm", "aten::mm")
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler:
        out = model(x).sum()
        forward = sum(e.flops for e in profiler.events() or () if e.name in products) if False else 0
        out.backward()
    return [forward, sum(e.flops for e in profiler.key_averages() if e.key in products)]


def attention() -> int:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 8 · 16 · 16 · 32 multiply-adds."""
    q = torch.ones(2, 4, 16, 32)
    return _flop(lambda: F.scaled_dot_product_attention(q, q, q))


def fused_attention() -> int:
    """nn.MultiheadAttention in evaluation counts nothing of its attention and of its projections what is left.

    278,528 multiply-adds (see nets.TOKENS)."""
    model = frozen_attention()
    return _forward(model, *TOKENS)


def matrix_vector() -> int:
    """A matrix by a vector counts nothing.

    64 · 32 multiply-adds."""
    return _flop(lambda: torch.ones(64, 32) @ torch.ones(32))


def dot() -> int:
    """torch.dot counts nothing.

    1,000 multiply-adds."""
    return _flop(lambda: torch.dot(torch.ones(1000), torch.ones(1000)))


def baddbmm() -> int:
    """torch.baddbmm counts nothing, though bmm does.

    4 · 3 · 6 · 5 multiply-adds."""
    return _flop(lambda: torch.baddbmm(torch.ones(4, 3, 5), torch.ones(4, 3, 6), torch.ones(4, 6, 5)))


def in_place_addition() -> list[int]:
    """a.add_(b) counts nothing, a.add(b) does.

    100 additions each."""
    return [_flop(lambda: torch.ones(100).add(torch.ones(100))), _flop(lambda: torch.ones(100).add_(torch.ones(100)))]


def subtraction_and_division() -> list[int]:
    """Additions and multiplications count, subtractions and divisions do not.

    100 of each."""
    x, y = torch.ones(100), torch.ones(100)
    return [_flop(lambda: x + y), _flop(lambda: x * y), _flop(lambda: x - y), _flop(lambda: x / y)]


def broadcast_addition() -> list[int]:
    """A sum counts the elements of its first operand, so that a + b and b + a differ.

    100 additions either way."""
    one, many = torch.ones(1), torch.ones(100)
    return [_flop(lambda: one + many), _flop(lambda: many + one)]


def integers() -> int:
    """Sums and products of integers count as floating-point operations.

    There is none."""
    index = torch.arange(1000)
    return _flop(lambda: index * 2 + index)


def optimizer_step() -> int:
    """A step of SGD with momentum counts one FLOP, whatever its size, where it takes lists of tensors.

    1,000 parameters: momentum · buffer + gradient, parameter + rate · buffer."""
    parameter = nn.Parameter(torch.ones(1000))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9, foreach=True)
    parameter.grad = torch.ones(1000)
    optimizer.step()
    return _flop(optimizer.step)


def lstm() -> int:
    """An LSTM counts nothing on the CPU.

    5 · 2 tokens, 4 gates of 8 · (16 + 8) weights each: 10 · 768 multiply-adds."""
    return _forward(nn.LSTM(16, 8), 5, 2, 16)


def complex_product() -> int:
    """A product of complex matrices counts as one of real ones.

    16³ complex multiply-adds of 4 multiplications and 4 additions each."""
    matrix = torch.ones(16, 16, dtype=torch.complex64)
    return _flop(lambda: matrix @ matrix)


def bilinear() -> int:
    """nn.Bilinear counts nothing of its products.

    2 rows · 24 · 24 · 10 multiply-adds."""
    bilinear = nn.Bilinear(24, 24, 10, bias=False)
    return _flop(lambda: bilinear(torch.ones(2, 24), torch.ones(2, 24)))


def convolution_of_complex_numbers() -> int:
    """A complex convolution counts other than its work.

    8 · 36 outputs of 27 taps, 8 FLOP each."""
    weight, x = torch.ones(8, 3, 3, 3, dtype=torch.complex64), torch.ones(1, 3, 8, 8, dtype=torch.complex64)
    return _flop(lambda: F.conv2d(x, weight))


FAULTS: tuple[Fault, ...] = ()
