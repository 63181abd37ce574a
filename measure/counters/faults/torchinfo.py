"""Faults of torchinfo's total of multiply-adds, `summary(…).total_mult_adds`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.fault import Fault
from measure.counters.faults.nets import TOKENS, Does, frozen_attention, weight


def _mac(model: nn.Module, x: Any) -> int:
    from torchinfo import summary

    return int(summary(model, input_data=x, verbose=0).total_mult_adds)


def linear_of_a_sequence() -> int:
    """A linear layer on a sequence counts one token of each sample.

    2 · 7 rows of 24 features to 10, without a bias."""
    return _mac(nn.Linear(24, 10, bias=False), torch.ones(2, 7, 24))


def embedding() -> int:
    """An embedding counts as a product with its whole table.

    A lookup multiplies nothing."""
    return _mac(nn.Embedding(1000, 16), torch.zeros(2, 3, dtype=torch.long))


def conv1d_of_transformers() -> int:
    """A class whose name begins with Conv is taken for a convolution: GPT-2's linear layer counts otherwise.

    2 · 4 rows of 8 features to 24."""

    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight(8, 24)
            self.bias = weight(24)

        def forward(self, x: Any) -> Any:
            return torch.addmm(self.bias, x.view(-1, 8), self.weight).view(2, 4, 24)

    return _mac(Conv1D(), torch.ones(2, 4, 8))


def transposed_convolution() -> int:
    """A transposed convolution of stride 2 counts 4 times its work: by output positions, which each weight meets once.

    4 channels · 25 inputs, each with 4 · 4 weights."""
    return _mac(nn.ConvTranspose2d(4, 4, 2, stride=2, bias=False), torch.ones(1, 4, 5, 5))


def multi_head_attention() -> int:
    """nn.MultiheadAttention counts nothing.

    278,528 multiply-adds (see nets.TOKENS)."""
    return _mac(frozen_attention().requires_grad_(True), torch.ones(TOKENS))


def lstm_cell() -> int:
    """LSTMCell counts each of its weights as often as its output has elements.

    2 rows, 4 gates of 8 · (16 + 8) weights."""
    return _mac(nn.LSTMCell(16, 8, bias=False), torch.ones(2, 16))


def functional_linear() -> int:
    """F.linear, of a parameter of a module with children, counts nothing.

    10 · 10 multiply-adds."""
    return _mac(
        Does(lambda m, x: m.other(F.linear(x, m.weight)), weight=weight(10, 10), other=nn.Identity()), torch.ones(1, 10)
    )


def matmul() -> int:
    """torch.matmul, and the operator @, count nothing.

    16 · 16 · 16 multiply-adds."""
    return _mac(Does(lambda m, x: m.other(torch.matmul(x, x)), other=nn.Identity()), torch.ones(16, 16))


def attention() -> int:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 4 · 16 · 16 · 32 multiply-adds."""
    return _mac(Does(lambda m, x: F.scaled_dot_product_attention(x, x, x)), torch.ones(1, 4, 16, 32))


def normalisation_among_multiply_adds() -> int:
    """Layer normalisation adds its parameters once a sample, whatever the tokens, to a total of multiply-adds.

    It has 48 parameters and no product."""
    return _mac(nn.LayerNorm(24), torch.ones(2, 7, 24))


def parametrised() -> int:
    """A linear layer with weight_norm counts nothing: its weight is held by another module.

    16 · 16 multiply-adds."""
    return _mac(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 16, bias=False))), torch.ones(1, 16))


def forward_called_directly() -> int:
    """A layer whose forward is called as a method counts nothing: its hooks do not run.

    16 · 16 multiply-adds."""
    return _mac(Does(lambda m, x: m.layer.forward(x), layer=nn.Linear(16, 16, bias=False)), torch.ones(1, 16))


def scripted() -> Any:
    """A scripted model counts nothing.

    16 · 16 multiply-adds."""
    return _mac(torch.jit.script(nn.Sequential(nn.Linear(16, 16, bias=False))), torch.ones(1, 16))


def unbatched_convolution() -> Any:
    """A convolution of one sample without a batch counts other sizes.

    8 channels · 36 outputs of 3 · 9 taps."""
    return _mac(nn.Conv2d(3, 8, 3, bias=False), torch.ones(3, 8, 8))


MISSING = ("missing operation", "not seen")

FAULTS = (
    Fault(linear_of_a_sequence, "wrong count", "batch", 2 * 240, 14 * 240),
    Fault(embedding, "wrong count", "no work", 32_000, 0),
    Fault(conv1d_of_transformers, "wrong count", "type match", 10_368, 8 * 8 * 24),
    Fault(transposed_convolution, "wrong count", "formula", 4 * 1_600, 1_600, ("318",)),
    Fault(lstm_cell, "wrong count", "formula", 8 * 1_536, 1_536),
    Fault(unbatched_convolution, "wrong count", "calling form", 10_368, 8 * 36 * 27),
    Fault(normalisation_among_multiply_adds, "inconsistency", "unit", 2 * 48, 0),
    Fault(multi_head_attention, *MISSING, 0, 278_528),
    Fault(functional_linear, *MISSING, 0, 100),
    Fault(matmul, *MISSING, 0, 16**3),
    Fault(attention, *MISSING, 0, 2 * 4 * 16 * 16 * 32),
    Fault(forward_called_directly, *MISSING, 0, 256),
    Fault(parametrised, "missing operation", "type match", 0, 256),
    Fault(scripted, *MISSING, 0, 256),
)
