"""Faults of torchinfo's total of multiply-adds, `summary(…).total_mult_adds`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import shared as reproductions_shared
from measure.counters.faults.reproductions.nets import Does, weight


def _of(model: nn.Module, x: Any) -> int:
    from torchinfo import summary

    return int(summary(model, input_data=x, verbose=0).total_mult_adds)


def _count(model: nn.Module, *shape: int) -> int:
    return _of(model, torch.ones(shape))


def linear_of_a_sequence() -> int:
    """A linear layer on a sequence counts one token of each sample.

    2 · 7 rows of 24 features to 10, without a bias."""
    return _of(nn.Linear(24, 10, bias=False), torch.ones(2, 7, 24))


def embedding() -> int:
    """An embedding counts as a product with its whole table.

    A lookup multiplies nothing."""
    return _of(nn.Embedding(1000, 16), torch.zeros(2, 3, dtype=torch.long))


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

    return _of(Conv1D(), torch.ones(2, 4, 8))


def lstm_cell() -> int:
    """LSTMCell counts each of its weights as often as its output has elements.

    2 rows, 4 gates of 8 · (16 + 8) weights."""
    return _of(nn.LSTMCell(16, 8, bias=False), torch.ones(2, 16))


def functional_linear() -> int:
    """F.linear, of a parameter of a module with children, counts nothing.

    10 · 10 multiply-adds."""
    return _of(
        Does(lambda m, x: m.other(F.linear(x, m.weight)), weight=weight(10, 10), other=nn.Identity()), torch.ones(1, 10)
    )


def matmul() -> int:
    """torch.matmul, and the operator @, count nothing.

    16 · 16 · 16 multiply-adds."""
    return _of(Does(lambda m, x: m.other(torch.matmul(x, x)), other=nn.Identity()), torch.ones(16, 16))


def normalisation_among_multiply_adds() -> int:
    """Layer normalisation adds its parameters once a sample, whatever the tokens, to a total of multiply-adds.

    It has 48 parameters and no product."""
    return _of(nn.LayerNorm(24), torch.ones(2, 7, 24))


MISSING = ("missing operation", "not seen")

FAULTS = (
    Fault(linear_of_a_sequence, "wrong count", "batch", 2 * 240, 14 * 240, ("77",)),
    Fault(embedding, "wrong count", "no work", 32_000, 0),
    Fault(conv1d_of_transformers, "wrong count", "type match", 10_368, 8 * 8 * 24),
    Fault(put_to(reproductions_shared.transposed_convolution, _count), "wrong count", "formula", 4 * 1_600, 1_600),
    Fault(lstm_cell, "wrong count", "formula", 8 * 1_536, 1_536),
    Fault(
        put_to(reproductions_shared.unbatched_convolution, _count), "wrong count", "calling form", 10_368, 8 * 36 * 27
    ),
    Fault(normalisation_among_multiply_adds, "inconsistency", "unit", 2 * 48, 0),
    Fault(put_to(reproductions_shared.multi_head_attention, _count), *MISSING, 0, 278_528),
    Fault(functional_linear, *MISSING, 0, 100),
    Fault(matmul, *MISSING, 0, 16**3),
    Fault(put_to(reproductions_shared.attention, _count), *MISSING, 0, 2 * 4 * 16 * 16 * 32),
    Fault(put_to(reproductions_shared.forward_called_directly, _count), *MISSING, 0, 256),
    Fault(put_to(reproductions_shared.parametrised, _count), "missing operation", "type match", 0, 256),
    Fault(put_to(reproductions_shared.scripted, _count), *MISSING, 0, 256),
)
