"""Faults of pthflops, which counts multiply-adds along a torch.fx graph."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import shared as reproductions_shared
from measure.counters.faults.reproductions.nets import Does, weight


def _count(model: nn.Module, *shape: int) -> Any:
    from pthflops import count_ops

    with contextlib.redirect_stdout(io.StringIO()):
        return int(count_ops(model, torch.ones(shape), print_readable=False, verbose=False)[0])


def bmm() -> Any:
    """torch.bmm counts nothing.

    2 · 3 · 4 · 5 multiply-adds."""
    return _count(Does(lambda m, x: torch.bmm(x, m.weight), weight=weight(2, 4, 5)), 2, 3, 4)


def bias_of_a_sequence() -> Any:
    """The bias of a linear layer counts once, whatever the rows.

    2 · 14 rows of 10 features to 10: 28 · 100 multiply-adds and 28 · 10 additions."""
    return _count(nn.Sequential(nn.Linear(10, 10)), 2, 14, 10)


def adaptive_pooling() -> Any:
    """Adaptive average pooling that changes nothing counts 49 an element.

    4 · 49 outputs, each the average of one element."""
    return _count(nn.Sequential(nn.AdaptiveAvgPool2d(7)), 1, 4, 7, 7)


def residual() -> Any:
    """a + b counts two an element.

    10 additions."""
    return _count(Does(lambda m, x: x + x), 1, 10)


def tuple_of_tensors() -> Any:
    """A function that returns a tuple, such as chunk, raises.

    10 multiply-adds by 5."""
    return _count(Does(lambda m, x: m.layer(x.chunk(2, -1)[0]), layer=nn.Linear(5, 10, bias=False)), 1, 10)


def lstm() -> Any:
    """An LSTM raises.

    5 · 2 tokens of 768 multiply-adds each."""
    return _count(nn.Sequential(nn.LSTM(16, 8)), 5, 2, 16)


def control_flow() -> Any:
    """A loop that depends on data raises: torch.fx cannot follow it.

    One linear layer of 16 · 16."""

    def loop(m: Any, x: Any) -> Any:
        while x.norm() > 1e9:
            x = x / 2
        return m.layer(x)

    return _count(Does(loop, layer=nn.Linear(16, 16, bias=False)), 1, 16)


def size_as_a_tuple() -> Any:
    """Tensor.size(), a tuple, raises: whatever a call returns as a tuple is taken for pthflops' own.

    10 · 10 multiply-adds."""
    model = Does(lambda m, x: m.layer(x.view(x.size()[0], -1)), layer=nn.Linear(10, 10, bias=False))
    return _count(model, 1, 10)


def product_of_sizes() -> Any:
    """A product of two sizes raises: it is taken for one of tensors. Vision transformers have it.

    20 · 10 multiply-adds."""
    model = Does(lambda m, x: m.layer(x.view(1, x.shape[0] * x.shape[1])), layer=nn.Linear(20, 10, bias=False))
    return _count(model, 2, 10)


def multi_head_attention() -> Any:
    """nn.MultiheadAttention counts nothing.

    4 rows of width 8: 4 · 4 · 8 · 8 in projections, 2 · 4 · 4 · 8 in attention."""
    layer = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    return _count(Does(lambda m, x: m.layer(x, x, x, need_weights=False)[0], layer=layer), 1, 4, 8)


def relu_by_two_names() -> list[Any]:
    """nn.ReLU counts two an element, F.relu nothing.

    10 elements either way."""
    return [_count(nn.Sequential(nn.ReLU()), 1, 10), _count(Does(lambda m, x: F.relu(x)), 1, 10)]


def mapping_as_an_input() -> Any:
    """A dictionary as an input raises.

    10 · 10 multiply-adds."""
    from pthflops import count_ops

    model = Does(lambda m, x: m.layer(x["x"]), layer=nn.Linear(10, 10, bias=False))
    return int(count_ops(model, {"x": torch.ones(1, 10)}, print_readable=False, verbose=False)[0])


MISSING = ("missing operation", "no formula")

FAULTS = (
    Fault(put_to(reproductions_shared.transposed_convolution, _count), "wrong count", "formula", 4 * 1_600, 1_600),
    Fault(bias_of_a_sequence, "wrong count", "formula", 2_810, 3_080),
    Fault(adaptive_pooling, "wrong count", "formula", 49 * 196, 196),
    Fault(residual, "wrong count", "formula", 20, 10),
    Fault(
        put_to(reproductions_shared.unbatched_convolution, _count), "wrong count", "calling form", 10_368, 8 * 36 * 27
    ),
    Fault(put_to(reproductions_shared.functional_linear, _count), *MISSING, 0, 100),
    Fault(put_to(reproductions_shared.functional_convolution, _count), *MISSING, 0, 4 * 36 * 27),
    Fault(bmm, *MISSING, 0, 120),
    Fault(put_to(reproductions_shared.einsum, _count), *MISSING, 0, 256),
    Fault(put_to(reproductions_shared.attention, _count), *MISSING, 0, 2 * 4 * 16 * 16 * 32),
    Fault(multi_head_attention, *MISSING, 0, 1_280),
    Fault(put_to(reproductions_shared.subclass, _count), "missing operation", "type match", 0, 100),
    Fault(relu_by_two_names, "inconsistency", "no formula", [20, 0], [20, 20]),
    Fault(tuple_of_tensors, "crash", "calling form", "raises IndexError", 50),
    Fault(size_as_a_tuple, "crash", "calling form", "raises IndexError", 100),
    Fault(product_of_sizes, "crash", "calling form", "raises AttributeError", 200),
    Fault(lstm, "crash", "calling form", "raises IndexError", 7_680),
    Fault(control_flow, "crash", "tracing", "raises TraceError", 256),
    Fault(put_to(reproductions_shared.left_in_evaluation, _count), "side effect", "left behind", True, False),
    Fault(mapping_as_an_input, "crash", "calling form", "raises KeyError", 100),
    Fault(put_to(reproductions_shared.scripted, _count), "crash", "tracing", "raises AssertionError", 256),
)
