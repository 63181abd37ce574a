"""Reproductions that several counters are put to, which all miss, mistake or refuse the same.

Each takes `count(model, *shape)`, which counts model(ones(shape)) in the counter's own unit. What a fault is, is said
where its entry is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.reproductions.nets import TOKENS, Does, Subclass, frozen_attention, weight

Count = Callable[..., Any]


def transposed_convolution(count: Count) -> Any:
    """A transposed convolution of stride 2 counts 4 times its work: by output positions, which each weight meets once.

    4 channels · 25 inputs, each with 4 · 4 weights."""
    return count(nn.Sequential(nn.ConvTranspose2d(4, 4, 2, stride=2, bias=False)), 1, 4, 5, 5)


def functional_linear(count: Count) -> Any:
    """F.linear counts nothing.

    10 · 10 multiply-adds."""
    return count(Does(lambda m, x: F.linear(x, m.weight), weight=weight(10, 10)), 1, 10)


def functional_convolution(count: Count) -> Any:
    """F.conv2d counts nothing.

    4 · 36 outputs of 3 · 9 taps."""
    return count(Does(lambda m, x: F.conv2d(x, m.weight), weight=weight(4, 3, 3, 3)), 1, 3, 8, 8)


def attention(count: Count) -> Any:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 4 · 16 · 16 · 32 multiply-adds."""
    return count(Does(lambda m, x: F.scaled_dot_product_attention(x, x, x)), 1, 4, 16, 32)


def einsum(count: Count) -> Any:
    """torch.einsum counts nothing.

    16 · 16 multiply-adds."""
    return count(Does(lambda m, x: torch.einsum("bi,ij->bj", x, m.weight), weight=weight(16, 16)), 1, 16)


def subclass(count: Count) -> Any:
    """A subclass of nn.Linear counts nothing: modules are looked up by their exact type, or by its name.

    10 · 10 multiply-adds."""
    return count(nn.Sequential(Subclass(10, 10, bias=False)), 1, 10)


def bilinear(count: Count) -> Any:
    """nn.Bilinear counts nothing.

    24 · 24 · 10 multiply-adds."""
    return count(Does(lambda m, x: m.layer(x, x), layer=nn.Bilinear(24, 24, 10, bias=False)), 1, 24)


def parametrised(count: Count) -> Any:
    """A linear layer with weight_norm counts nothing: its class, and where its weight is, are others.

    16 · 16 multiply-adds."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16, bias=False))
    return count(nn.Sequential(layer), 1, 16)


def forward_called_directly(count: Count) -> Any:
    """A layer whose forward is called as a method counts nothing: its hooks do not run.

    16 · 16 multiply-adds."""
    return count(Does(lambda m, x: m.layer.forward(x), layer=nn.Linear(16, 16, bias=False)), 1, 16)


def scripted(count: Count) -> Any:
    """A scripted model cannot be counted.

    16 · 16 multiply-adds."""
    return count(torch.jit.script(nn.Sequential(nn.Linear(16, 16, bias=False))), 1, 16)


def compiled(count: Count) -> Any:
    """A compiled model cannot be counted.

    16 · 16 multiply-adds."""
    return count(torch.compile(nn.Sequential(nn.Linear(16, 16, bias=False)), backend="eager"), 1, 16)


def multi_head_attention(count: Count) -> Any:
    """nn.MultiheadAttention counts nothing, its projections neither: they are not called as modules.

    278,528 multiply-adds (see nets.TOKENS)."""
    return count(frozen_attention().requires_grad_(True), *TOKENS)


def left_in_evaluation(count: Count) -> bool:
    """The model is in evaluation mode afterwards, whatever it was in before.

    It was in training mode."""
    model = nn.Sequential(nn.Linear(4, 4)).train()
    count(model, 1, 4)
    return not model.training


def unbatched_convolution(count: Count) -> Any:
    """A convolution of one sample without a batch is refused, or taken for one of other sizes.

    8 channels · 36 outputs of 3 · 9 taps."""
    return count(nn.Sequential(nn.Conv2d(3, 8, 3, bias=False)), 3, 8, 8)


def lstm(count: Count) -> Any:
    """An LSTM counts nothing.

    5 · 2 tokens, 4 gates of 8 · (16 + 8) weights each: 10 · 768 multiply-adds."""
    return count(nn.LSTM(16, 8), 5, 2, 16)


def baddbmm(count: Count) -> Any:
    """torch.baddbmm counts nothing, though bmm does.

    4 · 3 · 6 · 5 multiply-adds."""
    return count(Does(lambda m, x: torch.baddbmm(m.a, x, m.b), a=weight(4, 3, 5), b=weight(4, 6, 5)), 4, 3, 6)


def addbmm(count: Count) -> Any:
    """torch.addbmm counts nothing, though addmm does.

    4 · 3 · 6 · 5 multiply-adds."""
    return count(Does(lambda m, x: torch.addbmm(m.a, x, m.b), a=weight(3, 5), b=weight(4, 6, 5)), 4, 3, 6)


def distances(count: Count) -> Any:
    """torch.cdist counts nothing.

    50 · 50 · 32 multiply-adds of the product x · y."""
    return count(Does(lambda m, x: torch.cdist(x, x)), 50, 32)
