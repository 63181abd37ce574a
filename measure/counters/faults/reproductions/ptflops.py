"""Faults of ptflops' default backend (`pytorch`), whose number is multiply-adds a sample, with a bias and an
element counted as one each."""

from __future__ import annotations

import contextlib
import functools
import io
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import shared as reproductions_shared
from measure.counters.faults.reproductions.nets import Does, under_two_parents, weight


def complexity(backend: str, model: nn.Module, *shape: int) -> Any:
    """The multiply-adds that ptflops gives for model(ones(shape)) with a backend."""
    from ptflops import get_model_complexity_info

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return get_model_complexity_info(
            model,
            (1,),
            print_per_layer_stat=False,
            as_strings=False,
            input_constructor=lambda _: torch.ones(shape),
            backend=backend,
        )[0]


_count = functools.partial(complexity, "pytorch")


def relu_twice() -> Any:
    """A ReLU module counts twice: its hook, and the F.relu that it calls.

    1 · 2 · 10 multiply-adds without a bias and 10 elements of ReLU."""
    return _count(nn.Sequential(nn.Linear(2, 10, bias=False), nn.ReLU()), 1, 2)


def pooling_twice() -> Any:
    """A pooling module counts twice: its hook, and the function that it calls.

    1 · 4 · 8 · 8 elements, as ptflops counts a pooling."""
    return _count(nn.Sequential(nn.MaxPool2d(2)), 1, 4, 8, 8)


def functions_are_not_divided_by_the_batch() -> list[Any]:
    """What modules did is divided by the batch, what functions did is not.

    Linear 10 · 10 multiply-adds and 100 elements of F.relu a sample: 10 · 10 without a bias, and 10 of ReLU."""
    model = Does(lambda m, x: F.relu(m.layer(x)), layer=nn.Linear(10, 10, bias=False))
    return [_count(model, batch, 10) for batch in (1, 2, 8)]


def matmul_operator() -> Any:
    """The operator @ counts nothing, though torch.matmul does.

    16 · 16 multiply-adds."""
    return _count(Does(lambda m, x: x @ m.weight, weight=weight(16, 16)), 1, 16)


def shared_module() -> Any:
    """A module that two others share counts its work twice.

    Two calls of 16 · 16 multiply-adds."""
    return _count(under_two_parents(), 1, 16)


def interpolation_twice() -> Any:
    """Upsampling as a module counts twice: its hook, and the F.interpolate that it calls.

    1 · 4 · 16 · 16 elements, as ptflops counts them."""
    return _count(nn.Sequential(nn.Upsample(scale_factor=2)), 1, 4, 8, 8)


def gelu_twice() -> Any:
    """A GELU module counts twice: its hook, and the F.gelu that it calls.

    10 elements."""
    return _count(nn.Sequential(nn.GELU()), 1, 10)


def adaptive_pooling_twice() -> Any:
    """An adaptive pooling module counts twice: its hook, and the function that it calls.

    1 · 4 · 8 · 8 elements, as ptflops counts a pooling."""
    return _count(nn.Sequential(nn.AdaptiveAvgPool2d(1)), 1, 4, 8, 8)


def relu_by_three_names() -> list[Any]:
    """F.relu counts, torch.relu and Tensor.relu do not.

    10 elements each."""
    functions = (lambda m, x: F.relu(x), lambda m, x: torch.relu(x), lambda m, x: x.relu())
    return [_count(Does(function), 1, 10) for function in functions]


def attention_by_keywords() -> list[Any]:
    """nn.MultiheadAttention called with keywords cannot be counted: there is no number, for the whole model.

    The same call by position has one."""
    layer = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    by_name = Does(lambda m, x: m.layer(query=x, key=x, value=x)[0], layer=layer)
    by_position = Does(lambda m, x: m.layer(x, x, x)[0], layer=layer)
    return [_count(by_name, 1, 4, 8), _count(by_position, 1, 4, 8)]


def matmul_broadcast() -> Any:
    """torch.matmul of a matrix by a batch of matrices counts one of them.

    (5, 7) @ (4, 7, 3): 4 · 5 · 7 · 3 multiply-adds; functions are not divided by the batch."""
    return _count(Does(lambda m, x: torch.matmul(m.left, x), left=weight(5, 7)), 4, 7, 3)


def matmul_vector() -> Any:
    """torch.matmul by a vector counts as by a square matrix.

    64 · 32 multiply-adds; functions are not divided by the batch."""
    return _count(Does(lambda m, x: torch.matmul(x, m.right), right=weight(32)), 64, 32)


def addition_operator() -> list[Any]:
    """torch.add counts, a + b does not.

    10 additions each."""
    return [_count(Does(f, w=weight(1, 10)), 1, 10) for f in (lambda m, x: torch.add(x, m.w), lambda m, x: x + m.w)]


def broadcast_addition() -> Any:
    """torch.add of a matrix of one row and a vector counts as an outer sum.

    10 additions."""
    return _count(Does(lambda m, x: torch.add(x, m.w), w=weight(10)), 1, 10)


def attributes_are_left_behind() -> int:
    """The model keeps five attributes that ptflops gave it.

    It should have none more than before."""
    model = nn.Sequential(nn.Linear(4, 4))
    before = set(vars(model))
    _count(model, 1, 4)
    return len(set(vars(model)) - before)


def batch_is_the_first_dimension() -> list[Any]:
    """The first dimension of an input is taken for the batch: an LSTM on a sequence is divided by its length.

    5 tokens of one sample, whichever dimension comes first."""
    first = nn.Sequential(nn.LSTM(16, 8, bias=False, batch_first=True))
    return [_count(first, 2, 5, 16), _count(nn.Sequential(nn.LSTM(16, 8, bias=False)), 5, 2, 16)]


MISSING, TWICE = ("missing operation", "not seen"), ("wrong count", "counted twice")

FAULTS = (
    Fault(relu_twice, *TWICE, 20 + 2 * 10, 20 + 10),
    Fault(gelu_twice, *TWICE, 2 * 10, 10),
    Fault(pooling_twice, *TWICE, 2 * 256, 256),
    Fault(adaptive_pooling_twice, *TWICE, 2 * 256, 256),
    Fault(interpolation_twice, *TWICE, 2 * 1_024, 1_024),
    Fault(shared_module, *TWICE, 4 * 256, 2 * 256, ("106",)),
    Fault(functions_are_not_divided_by_the_batch, "wrong count", "batch", [110, 120, 180], [110, 110, 110]),
    Fault(put_to(reproductions_shared.functional_linear, _count), *MISSING, 0, 100, ("65", "77")),
    Fault(put_to(reproductions_shared.functional_convolution, _count), *MISSING, 0, 4 * 36 * 27, ("65", "77")),
    Fault(matmul_operator, *MISSING, 0, 256, ("78", "101")),
    Fault(put_to(reproductions_shared.einsum, _count), *MISSING, 0, 256, ("78", "101")),
    Fault(put_to(reproductions_shared.attention, _count), *MISSING, 0, 2 * 4 * 16 * 16 * 32, ("78", "101")),
    Fault(relu_by_three_names, "inconsistency", "not seen", [10, 0, 0], [10, 10, 10]),
    Fault(addition_operator, "inconsistency", "not seen", [10, 0], [10, 10]),
    Fault(put_to(reproductions_shared.forward_called_directly, _count), *MISSING, 0, 256),
    Fault(put_to(reproductions_shared.bilinear, _count), "missing operation", "no formula", 0, 24 * 24 * 10),
    Fault(put_to(reproductions_shared.subclass, _count), "missing operation", "type match", 0, 100),
    Fault(put_to(reproductions_shared.parametrised, _count), "missing operation", "type match", 0, 256),
    Fault(broadcast_addition, "wrong count", "formula", 100, 10),
    Fault(matmul_broadcast, "wrong count", "formula", 105, 420),
    Fault(matmul_vector, "wrong count", "formula", 64 * 32 * 32, 64 * 32),
    Fault(
        put_to(reproductions_shared.unbatched_convolution, _count),
        "wrong count",
        "calling form",
        8 * 6 * 27,
        8 * 36 * 27,
    ),
    Fault(attention_by_keywords, "crash", "calling form", [None, 1_664], [1_664, 1_664]),
    Fault(put_to(reproductions_shared.compiled, _count), "crash", "tracing", None, 256, ("110",)),
    Fault(put_to(reproductions_shared.left_in_evaluation, _count), "side effect", "left behind", True, False),
    Fault(attributes_are_left_behind, "side effect", "left behind", 5, 0),
    Fault(batch_is_the_first_dimension, "wrong count", "batch", [4_240, 1_696], [4_240, 4_240]),
    Fault(put_to(reproductions_shared.scripted, _count), "crash", "tracing", "raises RuntimeError", 256),
)
