"""Faults of ptflops' other backend (`aten`), whose number is multiply-adds of the whole batch."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import shared as reproductions_shared
from measure.counters.faults.reproductions.nets import TOKENS, Does, frozen_attention, weight
from measure.counters.faults.reproductions.ptflops import complexity

_count = functools.partial(complexity, "aten")


def attention() -> Any:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 8 · 16 · 16 · 32 multiply-adds."""
    return _count(Does(lambda m, x: F.scaled_dot_product_attention(x, x, x)), 2, 4, 16, 32)


def fused_attention() -> Any:
    """nn.MultiheadAttention in evaluation without gradients counts nothing.

    278,528 multiply-adds (see nets.TOKENS)."""
    return _count(frozen_attention(), *TOKENS)


def addmm_in_place() -> Any:
    """Tensor.addmm_ counts nothing, though addmm does.

    3 · 6 · 5 multiply-adds."""
    return _count(Does(lambda m, x: torch.ones(3, 5).addmm_(x, m.b), b=weight(6, 5)), 3, 6)


def matrix_vector() -> Any:
    """A matrix by a vector counts nothing.

    64 · 32 multiply-adds."""
    return _count(Does(lambda m, x: torch.matmul(x, m.right), right=weight(32)), 64, 32)


def bilinear() -> Any:
    """nn.Bilinear counts nothing.

    2 rows · 24 · 24 · 10 multiply-adds."""
    return _count(Does(lambda m, x: m.layer(x, x), layer=nn.Bilinear(24, 24, 10)), 2, 24)


def inference_mode() -> Any:
    """In inference mode a linear layer on a sequence counts nothing: it is not taken apart.

    2 · 3 · 16 · 16 multiply-adds."""
    with torch.inference_mode():
        return _count(nn.Sequential(nn.Linear(16, 16, bias=False)), 2, 3, 16)


def inference_mode_convolution() -> Any:
    """In inference mode a convolution counts nothing.

    4 · 36 outputs of 3 · 9 taps."""
    with torch.inference_mode():
        return _count(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False)), 1, 3, 8, 8)


def hooks_are_left_behind() -> int:
    """Each count leaves hooks on the model's children.

    Three counts of a model with two children should leave none."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for _ in range(3):
        _count(model, 1, 4)
    return sum(len(child._forward_hooks) + len(child._forward_pre_hooks) for child in model.children())


MISSING = ("missing operation", "no formula")

FAULTS = (
    Fault(attention, *MISSING, 0, 2 * 65_536),
    Fault(fused_attention, "missing operation", "fused path", 0, 278_528),
    Fault(put_to(reproductions_shared.baddbmm, _count), *MISSING, 0, 4 * 3 * 6 * 5),
    Fault(put_to(reproductions_shared.addbmm, _count), *MISSING, 0, 4 * 3 * 6 * 5),
    Fault(addmm_in_place, *MISSING, 0, 3 * 6 * 5),
    Fault(matrix_vector, *MISSING, 0, 64 * 32),
    Fault(put_to(reproductions_shared.lstm, _count), *MISSING, 0, 7_680),
    Fault(bilinear, *MISSING, 0, 2 * 24 * 24 * 10),
    Fault(put_to(reproductions_shared.distances, _count), *MISSING, 0, 50 * 50 * 32),
    Fault(inference_mode, *MISSING, 0, 2 * 3 * 256),
    Fault(inference_mode_convolution, *MISSING, 0, 4 * 36 * 27),
    Fault(hooks_are_left_behind, "side effect", "left behind", 12, 0),
    Fault(put_to(reproductions_shared.left_in_evaluation, _count), "side effect", "left behind", True, False),
)
