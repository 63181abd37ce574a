"""Faults of thop, which counts multiply-adds by hooks on modules it knows by their exact type."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.fault import Fault
from measure.counters.faults.nets import TOKENS, Does, Subclass, frozen_attention, under_two_parents, weight


def _profile(model: nn.Module, *shape: int) -> list[int]:
    """[multiply-adds, parameters]."""
    from thop import profile

    return [int(value) for value in profile(model, (torch.ones(shape),), verbose=False)]


def _mac(model: nn.Module, *shape: int) -> int:
    return _profile(model, *shape)[0]


def transposed_convolution() -> int:
    """A transposed convolution of stride 2 counts 4 times its work: by output positions, which each weight meets once.

    4 channels · 25 inputs, each with 4 · 4 weights."""
    return _mac(nn.Sequential(nn.ConvTranspose2d(4, 4, 2, stride=2, bias=False)), 1, 4, 5, 5)


def functional_linear() -> int:
    """F.linear counts nothing.

    10 · 10 multiply-adds."""
    return _mac(Does(lambda m, x: F.linear(x, m.weight), weight=weight(10, 10)), 1, 10)


def functional_convolution() -> int:
    """F.conv2d counts nothing.

    4 · 36 outputs of 3 · 9 taps."""
    return _mac(Does(lambda m, x: F.conv2d(x, m.weight), weight=weight(4, 3, 3, 3)), 1, 3, 8, 8)


def matmul() -> int:
    """torch.matmul, and the operator @, count nothing.

    16 · 16 multiply-adds."""
    return _mac(Does(lambda m, x: torch.matmul(x, m.weight), weight=weight(16, 16)), 1, 16)


def attention() -> int:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 4 · 16 · 16 · 32 multiply-adds."""
    return _mac(Does(lambda m, x: F.scaled_dot_product_attention(x, x, x)), 1, 4, 16, 32)


def multi_head_attention() -> int:
    """nn.MultiheadAttention counts nothing, its projections neither: they are not called as modules.

    278,528 multiply-adds (see nets.TOKENS)."""
    return _mac(frozen_attention().requires_grad_(True), *TOKENS)


def normalisation_among_multiply_adds() -> int:
    """Batch normalisation adds 4 an element to a total of multiply-adds.

    4 · 64 elements, none of which is in a product."""
    return _mac(nn.Sequential(nn.BatchNorm2d(4)).eval(), 1, 4, 8, 8)


def parameters_of_a_single_layer() -> list[int]:
    """A model that is one layer has no parameters, by the second number.

    100 multiply-adds, 100 weights and 10 biases."""
    return _profile(nn.Linear(10, 10), 1, 10)


def shared_module() -> list[int]:
    """A module that two others share counts its work and its parameters twice.

    Two calls of 16 · 16 multiply-adds, 256 parameters."""
    return _profile(under_two_parents(), 1, 16)


def state_dict_is_polluted() -> list[str]:
    """Modules without a rule keep the buffers that were given them, in the model's state_dict too.

    A linear layer has weight and bias, Tanh nothing."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    _profile(model, 1, 4)
    return sorted(model.state_dict())


def subclass() -> list[int]:
    """A subclass of nn.Linear counts nothing, nor its parameters.

    100 multiply-adds, 110 parameters."""
    return _profile(nn.Sequential(Subclass(10, 10)), 1, 10)


def parametrised() -> int:
    """A linear layer with weight_norm counts nothing: its class is another one.

    16 · 16 multiply-adds."""
    return _mac(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 16, bias=False))), 1, 16)


def forward_called_directly() -> int:
    """A layer whose forward is called as a method counts nothing: its hooks do not run.

    16 · 16 multiply-adds."""
    return _mac(Does(lambda m, x: m.layer.forward(x), layer=nn.Linear(16, 16, bias=False)), 1, 16)


def compiled() -> Any:
    """A compiled model raises.

    16 · 16 multiply-adds."""
    return _mac(torch.compile(nn.Sequential(nn.Linear(16, 16, bias=False)), backend="eager"), 1, 16)


def scripted() -> Any:
    """A scripted model raises.

    16 · 16 multiply-adds."""
    return _mac(torch.jit.script(nn.Sequential(nn.Linear(16, 16, bias=False))), 1, 16)


def unbatched_convolution() -> Any:
    """A convolution of one sample without a batch counts other sizes.

    8 channels · 36 outputs of 3 · 9 taps."""
    return _mac(nn.Sequential(nn.Conv2d(3, 8, 3, bias=False)), 3, 8, 8)


def bilinear() -> int:
    """nn.Bilinear counts nothing.

    24 · 24 · 10 multiply-adds."""
    return _mac(Does(lambda m, x: m.layer(x, x), layer=nn.Bilinear(24, 24, 10, bias=False)), 1, 24)


def exception_leaves_hooks() -> list[Any]:
    """A model that raises keeps its hooks, and is in evaluation mode afterwards.

    No hook, and training mode, as before."""
    model = Does(lambda m, x: m.layer(x).view(7), layer=nn.Linear(4, 4))
    with contextlib.suppress(RuntimeError):
        _profile(model, 1, 4)
    return [len(model.layer._forward_hooks), model.training]


def needs_distutils() -> bool:
    """It imports distutils, which Python 3.12 does not have: it cannot be imported there without setuptools.

    The standard library's own names should do."""
    import thop.profile

    return "distutils" in inspect.getsource(inspect.getmodule(thop.profile) or thop.profile)


MISSING = ("missing operation", "not seen")

FAULTS = (
    Fault(transposed_convolution, "wrong count", "formula", 4 * 1_600, 1_600),
    Fault(unbatched_convolution, "wrong count", "calling form", 20_736, 8 * 36 * 27),
    Fault(normalisation_among_multiply_adds, "inconsistency", "unit", 4 * 256, 0),
    Fault(shared_module, "wrong count", "counted twice", [4 * 512, 2 * 256], [2 * 512, 256]),
    Fault(parameters_of_a_single_layer, "wrong count", "formula", [100, 0], [100, 110]),
    Fault(functional_linear, *MISSING, 0, 100),
    Fault(functional_convolution, *MISSING, 0, 4 * 36 * 27),
    Fault(matmul, *MISSING, 0, 256),
    Fault(attention, *MISSING, 0, 2 * 4 * 16 * 16 * 32),
    Fault(multi_head_attention, *MISSING, 0, 278_528),
    Fault(forward_called_directly, *MISSING, 0, 256),
    Fault(bilinear, "missing operation", "no formula", 0, 5_760),
    Fault(subclass, "missing operation", "type match", [0, 0], [100, 110]),
    Fault(parametrised, "missing operation", "type match", 0, 256),
    Fault(compiled, "crash", "tracing", "raises KeyError", 256),
    Fault(scripted, "crash", "tracing", "raises RuntimeError", 256),
    Fault(
        state_dict_is_polluted,
        "side effect",
        "left behind",
        ["0.bias", "0.weight", "1.total_ops", "1.total_params"],
        ["0.bias", "0.weight"],
    ),
    Fault(exception_leaves_hooks, "side effect", "left behind", [2, False], [0, True]),
    Fault(needs_distutils, "crash", "environment", True, False),
)
