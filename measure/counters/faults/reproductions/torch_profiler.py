"""Faults of torch.profiler's estimate, `profile(with_flops=True)`: the sum of what it gives its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import calls


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


def attention() -> int:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 8 · 16 · 16 · 32 multiply-adds."""
    q = torch.ones(2, 4, 16, 32)
    return _flop(lambda: F.scaled_dot_product_attention(q, q, q))


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
    """An LSTM on the CPU counts next to nothing: 32 additions on the way to it.

    5 · 2 tokens, 4 gates of 8 · (16 + 8) weights each: 10 · 768 multiply-adds."""
    return _forward(nn.LSTM(16, 8), 5, 2, 16)


MISSING = ("missing operation", "no formula")

FAULTS = (
    Fault(conv1d, *MISSING, 0, 2 * 8 * 8 * 4 * 3),
    Fault(conv3d, *MISSING, 0, 2 * 4 * 27 * 2 * 27),
    Fault(transposed_convolution, *MISSING, 0, 2 * 4 * 25 * 4 * 9),
    Fault(padding_same, *MISSING, 0, 2 * 4 * 64 * 4 * 9),
    Fault(unbatched_convolution, *MISSING, 0, 2 * 8 * 36 * 3 * 9),
    Fault(convolution_backward, *MISSING, 0, 2 * 2 * 8 * 36 * 3 * 9, ("69782",)),
    Fault(attention, *MISSING, 0, 2 * 2 * 65_536),
    Fault(lstm, *MISSING, 32, 2 * 7_680),
    Fault(put_to(calls.matrix_vector, _flop), *MISSING, 0, 2 * 64 * 32),
    Fault(put_to(calls.dot, _flop), *MISSING, 0, 2 * 1_000),
    Fault(in_place_addition, "inconsistency", "no formula", [100, 0], [100, 100]),
    Fault(subtraction_and_division, "inconsistency", "no formula", [100, 100, 0, 0], [100] * 4),
    Fault(broadcast_addition, "wrong count", "formula", [1, 100], [100, 100]),
    Fault(integers, "wrong count", "no work", 2_000, 0),
    Fault(optimizer_step, *MISSING, 1, 4_000),
    Fault(put_to(calls.complex_product, _flop), "wrong count", "formula", 2 * 16**3, 8 * 16**3),
)
