"""Faults of ptflops' default backend (`pytorch`), whose number is multiply-adds a sample, with a bias and an
element counted as one each."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.fault import Fault
from measure.counters.faults.nets import Does, Subclass, under_two_parents, weight


def _mac(model: nn.Module, *shape: int) -> Any:
    from ptflops import get_model_complexity_info

    with contextlib.redirect_stdout(io.StringIO()):
        return get_model_complexity_info(
            model,
            (1,),
            print_per_layer_stat=False,
            as_strings=False,
            input_constructor=lambda _: torch.ones(shape),
            backend="pytorch",
        )[0]


def relu_twice() -> Any:
    """A ReLU module counts twice: its hook, and the F.relu that it calls.

    1 · 2 · 10 multiply-adds without a bias and 10 elements of ReLU."""
    return _mac(nn.Sequential(nn.Linear(2, 10, bias=False), nn.ReLU()), 1, 2)


def pooling_twice() -> Any:
    """A pooling module counts twice: its hook, and the function that it calls.

    1 · 4 · 8 · 8 elements, as ptflops counts a pooling."""
    return _mac(nn.Sequential(nn.MaxPool2d(2)), 1, 4, 8, 8)


def functions_are_not_divided_by_the_batch() -> list[Any]:
    """What modules did is divided by the batch, what functions did is not.

    Linear 10 · 10 multiply-adds and 100 elements of F.relu a sample: 10 · 10 without a bias, and 10 of ReLU."""
    model = Does(lambda m, x: F.relu(m.layer(x)), layer=nn.Linear(10, 10, bias=False))
    return [_mac(model, batch, 10) for batch in (1, 2, 8)]


def functional_linear() -> Any:
    """F.linear counts nothing.

    10 · 10 multiply-adds."""
    return _mac(Does(lambda m, x: F.linear(x, m.weight), weight=weight(10, 10)), 1, 10)


def functional_convolution() -> Any:
    """F.conv2d counts nothing.

    4 · 36 outputs of 3 · 9 taps."""
    return _mac(Does(lambda m, x: F.conv2d(x, m.weight), weight=weight(4, 3, 3, 3)), 1, 3, 8, 8)


def matmul_operator() -> Any:
    """The operator @ counts nothing, though torch.matmul does.

    16 · 16 multiply-adds."""
    return _mac(Does(lambda m, x: x @ m.weight, weight=weight(16, 16)), 1, 16)


def einsum() -> Any:
    """torch.einsum counts nothing.

    16 · 16 multiply-adds."""
    return _mac(Does(lambda m, x: torch.einsum("bi,ij->bj", x, m.weight), weight=weight(16, 16)), 1, 16)


def attention() -> Any:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 4 · 16 · 16 · 32 multiply-adds."""
    return _mac(Does(lambda m, x: F.scaled_dot_product_attention(x, x, x)), 1, 4, 16, 32)


def subclass() -> Any:
    """A subclass of nn.Linear counts nothing: modules are looked up by their exact type.

    10 · 10 multiply-adds."""
    return _mac(nn.Sequential(Subclass(10, 10, bias=False)), 1, 10)


def parametrised() -> Any:
    """A linear layer with weight_norm counts nothing: its class is another one.

    16 · 16 multiply-adds."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16, bias=False))
    return _mac(nn.Sequential(layer), 1, 16)


def shared_module() -> Any:
    """A module that two others share counts its work twice.

    Two calls of 16 · 16 multiply-adds."""
    return _mac(under_two_parents(), 1, 16)


def forward_called_directly() -> Any:
    """A layer whose forward is called as a method counts nothing: its hooks do not run.

    16 · 16 multiply-adds."""
    return _mac(Does(lambda m, x: m.layer.forward(x), layer=nn.Linear(16, 16, bias=False)), 1, 16)


def bilinear() -> Any:
    """nn.Bilinear counts nothing.

    24 · 24 · 10 multiply-adds."""
    return _mac(Does(lambda m, x: m.layer(x, x), layer=nn.Bilinear(24, 24, 10, bias=False)), 1, 24)


def left_in_evaluation() -> bool:
    """The model is in evaluation mode afterwards, whatever it was in before.

    It was in training mode."""
    model = nn.Sequential(nn.Linear(4, 4)).train()
    _mac(model, 1, 4)
    return not model.training


def interpolation_twice() -> Any:
    """Upsampling as a module counts twice: its hook, and the F.interpolate that it calls.

    1 · 4 · 16 · 16 elements, as ptflops counts them."""
    return _mac(nn.Sequential(nn.Upsample(scale_factor=2)), 1, 4, 8, 8)


def gelu_twice() -> Any:
    """A GELU module counts twice: its hook, and the F.gelu that it calls.

    10 elements."""
    return _mac(nn.Sequential(nn.GELU()), 1, 10)


def adaptive_pooling_twice() -> Any:
    """An adaptive pooling module counts twice: its hook, and the function that it calls.

    1 · 4 · 8 · 8 elements, as ptflops counts a pooling."""
    return _mac(nn.Sequential(nn.AdaptiveAvgPool2d(1)), 1, 4, 8, 8)


def relu_by_three_names() -> list[Any]:
    """F.relu counts, torch.relu and Tensor.relu do not.

    10 elements each."""
    functions = (lambda m, x: F.relu(x), lambda m, x: torch.relu(x), lambda m, x: x.relu())
    return [_mac(Does(function), 1, 10) for function in functions]


def attention_by_keywords() -> list[Any]:
    """nn.MultiheadAttention called with keywords cannot be counted: there is no number, for the whole model.

    The same call by position has one."""
    layer = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    by_name = Does(lambda m, x: m.layer(query=x, key=x, value=x)[0], layer=layer)
    by_position = Does(lambda m, x: m.layer(x, x, x)[0], layer=layer)
    return [_mac(by_name, 1, 4, 8), _mac(by_position, 1, 4, 8)]


def compiled() -> Any:
    """A compiled model cannot be counted: there is no number.

    16 · 16 multiply-adds."""
    return _mac(torch.compile(nn.Sequential(nn.Linear(16, 16, bias=False)), backend="eager"), 1, 16)


def unbatched_convolution() -> Any:
    """A convolution of one sample without a batch counts a sixth: one of two dimensions is taken for the channels.

    8 channels · 36 outputs of 3 · 9 taps."""
    return _mac(nn.Sequential(nn.Conv2d(3, 8, 3, bias=False)), 3, 8, 8)


def matmul_broadcast() -> Any:
    """torch.matmul of a matrix by a batch of matrices counts one of them.

    (5, 7) @ (4, 7, 3): 4 · 5 · 7 · 3 multiply-adds; functions are not divided by the batch."""
    return _mac(Does(lambda m, x: torch.matmul(m.left, x), left=weight(5, 7)), 4, 7, 3)


def matmul_vector() -> Any:
    """torch.matmul by a vector counts as by a square matrix.

    64 · 32 multiply-adds; functions are not divided by the batch."""
    return _mac(Does(lambda m, x: torch.matmul(x, m.right), right=weight(32)), 64, 32)


def addition_operator() -> list[Any]:
    """torch.add counts, a + b does not.

    10 additions each."""
    return [_mac(Does(f, w=weight(1, 10)), 1, 10) for f in (lambda m, x: torch.add(x, m.w), lambda m, x: x + m.w)]


def broadcast_addition() -> Any:
    """torch.add of a matrix of one row and a vector counts as an outer sum.

    10 additions."""
    return _mac(Does(lambda m, x: torch.add(x, m.w), w=weight(10)), 1, 10)


def attributes_are_left_behind() -> int:
    """The model keeps five attributes that ptflops gave it.

    It should have none more than before."""
    model = nn.Sequential(nn.Linear(4, 4))
    before = set(vars(model))
    _mac(model, 1, 4)
    return len(set(vars(model)) - before)


MISSING, TWICE = ("missing operation", "not seen"), ("wrong count", "counted twice")

FAULTS = (
    Fault(relu_twice, *TWICE, 20 + 2 * 10, 20 + 10),
    Fault(gelu_twice, *TWICE, 2 * 10, 10),
    Fault(pooling_twice, *TWICE, 2 * 256, 256),
    Fault(adaptive_pooling_twice, *TWICE, 2 * 256, 256),
    Fault(interpolation_twice, *TWICE, 2 * 1_024, 1_024),
    Fault(shared_module, *TWICE, 4 * 256, 2 * 256, ("106",)),
    Fault(functions_are_not_divided_by_the_batch, "wrong count", "batch", [110, 120, 180], [110, 110, 110]),
    Fault(functional_linear, *MISSING, 0, 100, ("65", "77")),
    Fault(functional_convolution, *MISSING, 0, 4 * 36 * 27, ("65", "77")),
    Fault(matmul_operator, *MISSING, 0, 256, ("78", "101")),
    Fault(einsum, *MISSING, 0, 256, ("78", "101")),
    Fault(attention, *MISSING, 0, 2 * 4 * 16 * 16 * 32, ("78", "101")),
    Fault(relu_by_three_names, "inconsistency", "not seen", [10, 0, 0], [10, 10, 10]),
    Fault(addition_operator, "inconsistency", "not seen", [10, 0], [10, 10]),
    Fault(forward_called_directly, *MISSING, 0, 256),
    Fault(bilinear, "missing operation", "no formula", 0, 24 * 24 * 10),
    Fault(subclass, "missing operation", "type match", 0, 100),
    Fault(parametrised, "missing operation", "type match", 0, 256),
    Fault(broadcast_addition, "wrong count", "formula", 100, 10),
    Fault(matmul_broadcast, "wrong count", "formula", 105, 420),
    Fault(matmul_vector, "wrong count", "formula", 64 * 32 * 32, 64 * 32),
    Fault(unbatched_convolution, "wrong count", "calling form", 8 * 6 * 27, 8 * 36 * 27),
    Fault(attention_by_keywords, "crash", "calling form", [None, 1_664], [1_664, 1_664]),
    Fault(compiled, "crash", "tracing", None, 256, ("110",)),
    Fault(left_in_evaluation, "side effect", "left behind", True, False),
    Fault(attributes_are_left_behind, "side effect", "left behind", 5, 0),
)
