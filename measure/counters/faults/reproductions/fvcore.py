"""Faults of fvcore's FlopCountAnalysis, which counts multiply-adds along a trace by torch.jit."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import shared as reproductions_shared
from measure.counters.faults.reproductions.nets import TOKENS, Does, Parent, frozen_attention, weight


def _analysis(model: nn.Module, inputs: Any) -> Any:
    from fvcore.nn import FlopCountAnalysis

    found = FlopCountAnalysis(model, inputs)
    return found.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")


def _count(model: nn.Module, *shape: int) -> Any:
    return _analysis(model.eval(), torch.ones(shape)).total()


def attention() -> Any:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 8 · 16 · 16 · 32 multiply-adds."""
    return _count(Does(lambda m, x: F.scaled_dot_product_attention(x, x, x)), 2, 4, 16, 32)


def fused_attention() -> Any:
    """nn.MultiheadAttention in evaluation without gradients counts nothing, its projections neither.

    278,528 multiply-adds (see nets.TOKENS)."""
    return _count(frozen_attention(), *TOKENS)


def encoder_layer() -> Any:
    """A transformer layer in evaluation without gradients counts its linear layers and nothing of its attention.

    278,528 of its attention (see nets.TOKENS), 2 · 16 · 64 · 128 of its linear layers, and what fvcore takes for two
    normalisations, 5 for each of 16 · 64 elements."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval().requires_grad_(False)
    return _count(layer, *TOKENS)


def padding_same() -> Any:
    """A convolution with padding="same" counts nothing: aten::_convolution_mode is not in its table.

    4 channels · 64 outputs of 4 · 9 taps."""
    return _count(nn.Conv2d(4, 4, 3, padding="same", bias=False), 1, 4, 8, 8)


def gru() -> Any:
    """A GRU counts nothing.

    5 · 2 tokens, 3 gates of 8 · (16 + 8) weights each: 10 · 576 multiply-adds."""
    return _count(nn.GRU(16, 8), 5, 2, 16)


def broadcast_left_operand() -> Any:
    """matmul of a matrix by a batch of matrices counts one of them.

    (5, 7) @ (4, 7, 3): 4 · 5 · 7 · 3 multiply-adds."""
    return _count(Does(lambda m, x: torch.matmul(m.left, x), left=weight(5, 7)), 4, 7, 3)


def matrix_vector() -> Any:
    """matmul by a vector raises.

    64 · 32 multiply-adds."""
    return _count(Does(lambda m, x: torch.matmul(x, m.right), right=weight(32)), 64, 32)


def einsum_batched() -> Any:
    """einsum of two operands is rounded to what numpy prints of its cost.

    bij,bjk->bik of (3, 7, 12), (3, 12, 28): 3 · 7 · 12 · 28 multiply-adds."""
    return _count(Does(lambda m, x: torch.einsum("bij,bjk->bki", x, m.b), b=weight(3, 12, 28)), 3, 7, 12)


def addmv() -> Any:
    """torch.addmv counts nothing, though addmm does.

    3 · 6 multiply-adds."""
    return _count(Does(lambda m, x: torch.addmv(m.a, x, m.b), a=weight(3), b=weight(6)), 3, 6)


def bilinear() -> Any:
    """nn.Bilinear counts nothing.

    2 rows · 24 · 24 · 10 multiply-adds."""
    return _count(Does(lambda m, x: m.layer(x, x), layer=nn.Bilinear(24, 24, 10)), 2, 24)


def deformable_convolution() -> Any:
    """torchvision's deform_conv2d counts nothing.

    4 · 36 outputs of 27 taps."""
    from torchvision.ops import deform_conv2d

    return _count(Does(lambda m, x: deform_conv2d(x, torch.ones(1, 18, 6, 6), m.w), w=weight(4, 3, 3, 3)), 1, 3, 8, 8)


def normalisation_among_multiply_adds() -> dict[str, Any]:
    """Batch normalisation adds 2 an element in evaluation and 5 in training to a total of multiply-adds.

    64 · 56 · 56 elements; none of its operations is a multiply-add of a product, and one number for one model."""
    x = torch.ones(1, 64, 56, 56)
    layer = nn.BatchNorm2d(64)
    return {"eval": _analysis(layer.eval(), x).total(), "train": _analysis(layer.train(), x).total()}


def statistics_move() -> bool:
    """Counting a model in training mode changes its running statistics.

    A count should leave a model as it was."""
    model = nn.BatchNorm2d(4).train()
    _analysis(model, torch.ones(2, 4, 3, 3)).total()
    mean: Any = model.running_mean
    return not torch.equal(mean, torch.zeros(4))


def meta_tensors() -> Any:
    """A model on meta tensors raises.

    8 · 36 outputs of 3 · 9 taps."""
    return _analysis(nn.Conv2d(3, 8, 3, device="meta"), torch.ones(1, 3, 8, 8, device="meta")).total()


def fake_tensors() -> Any:
    """A model on fake tensors raises.

    8 · 36 outputs of 3 · 9 taps."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return _analysis(nn.Conv2d(3, 8, 3), torch.ones(1, 3, 8, 8)).total()


def compiled() -> Any:
    """A compiled model raises.

    2 · 16 · 16 multiply-adds."""
    model: Any = torch.compile(nn.Linear(16, 16, bias=False), backend="eager")
    return _analysis(model, torch.ones(2, 16)).total()


def scripted() -> Any:
    """A scripted model raises.

    2 · 16 · 16 multiply-adds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _analysis(torch.jit.script(nn.Linear(16, 16)), torch.ones(2, 16)).total()


def keywords() -> Any:
    """Inputs by keyword cannot be given: a dictionary is passed as one argument.

    1 · 4 · 4 multiply-adds."""
    return _analysis(nn.Linear(4, 4), {"input": torch.ones(1, 4)}).total()


def shared_module() -> Any:
    """A module that two others share is shown under one name, with the work of both.

    Each parent calls the layer once: 2 rows · 16 · 16 multiply-adds for each."""
    layer = nn.Linear(16, 16, bias=False)
    by_module = _analysis(nn.Sequential(Parent(layer), Parent(layer)), torch.ones(2, 16)).by_module()
    return [by_module["0.child"], by_module["1.child"]]


MISSING = ("missing operation", "no formula")

FAULTS = (
    Fault(attention, *MISSING, 0, 2 * 65_536, ("49", "129", "153")),
    Fault(fused_attention, "missing operation", "fused path", 0, 278_528),
    Fault(encoder_layer, "missing operation", "fused path", 272_384, 272_384 + 278_528),
    Fault(padding_same, *MISSING, 0, 4 * 64 * 4 * 9),
    Fault(put_to(reproductions_shared.lstm, _count), *MISSING, 0, 7_680, ("98",)),
    Fault(gru, *MISSING, 0, 5_760, ("98",)),
    Fault(broadcast_left_operand, "wrong count", "formula", 5 * 7 * 3, 4 * 5 * 7 * 3),
    Fault(matrix_vector, "crash", "calling form", "raises IndexError", 64 * 32),
    Fault(einsum_batched, "wrong count", "report", 7_055, 3 * 7 * 12 * 28),
    Fault(put_to(reproductions_shared.baddbmm, _count), *MISSING, 0, 4 * 3 * 6 * 5),
    Fault(addmv, *MISSING, 0, 3 * 6),
    Fault(put_to(reproductions_shared.addbmm, _count), *MISSING, 0, 4 * 3 * 6 * 5),
    Fault(bilinear, *MISSING, 0, 2 * 24 * 24 * 10),
    Fault(put_to(reproductions_shared.distances, _count), *MISSING, 0, 50 * 50 * 32),
    Fault(deformable_convolution, *MISSING, 0, 4 * 36 * 27),
    Fault(
        normalisation_among_multiply_adds,
        "inconsistency",
        "unit",
        {"eval": 2 * 64 * 56 * 56, "train": 5 * 64 * 56 * 56},
        {"eval": 0, "train": 0},
    ),
    Fault(shared_module, "wrong count", "attribution", [2 * 512, 0], [512, 512]),
    Fault(statistics_move, "side effect", "left behind", True, False),
    Fault(meta_tensors, "crash", "tracing", "raises TypeError", 8 * 36 * 3 * 9),
    Fault(fake_tensors, "crash", "tracing", "raises AssertionError", 8 * 36 * 3 * 9),
    Fault(compiled, "crash", "tracing", "raises RuntimeError", 2 * 16 * 16),
    Fault(scripted, "crash", "tracing", "raises RuntimeError", 2 * 16 * 16),
    Fault(keywords, "crash", "calling form", "raises TypeError", 4 * 4),
)
