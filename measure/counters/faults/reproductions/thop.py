"""Faults of thop, which counts multiply-adds by hooks on modules it knows by their exact type."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import shared as reproductions_shared
from measure.counters.faults.reproductions.nets import Does, Subclass, under_two_parents, weight


def _profile(model: nn.Module, *shape: int) -> list[int]:
    """[multiply-adds, parameters]."""
    from thop import profile

    return [int(value) for value in profile(model, (torch.ones(shape),), verbose=False)]


def _count(model: nn.Module, *shape: int) -> int:
    return _profile(model, *shape)[0]


def matmul() -> int:
    """torch.matmul, and the operator @, count nothing.

    16 · 16 multiply-adds."""
    return _count(Does(lambda m, x: torch.matmul(x, m.weight), weight=weight(16, 16)), 1, 16)


def normalisation_among_multiply_adds() -> int:
    """Batch normalisation adds 4 an element to a total of multiply-adds.

    4 · 64 elements, none of which is in a product."""
    return _count(nn.Sequential(nn.BatchNorm2d(4)).eval(), 1, 4, 8, 8)


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


def exception_leaves_hooks() -> list[Any]:
    """A model that raises keeps its hooks, and is in evaluation mode afterwards.

    No hook, and training mode, as before."""
    model: Any = Does(lambda m, x: m.layer(x).view(7), layer=nn.Linear(4, 4))
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
    Fault(
        put_to(reproductions_shared.transposed_convolution, _count), "wrong count", "formula", 4 * 1_600, 1_600, ("92",)
    ),
    Fault(
        put_to(reproductions_shared.unbatched_convolution, _count), "wrong count", "calling form", 20_736, 8 * 36 * 27
    ),
    Fault(normalisation_among_multiply_adds, "inconsistency", "unit", 4 * 256, 0),
    Fault(shared_module, "wrong count", "counted twice", [4 * 512, 2 * 256], [2 * 512, 256]),
    Fault(parameters_of_a_single_layer, "wrong count", "formula", [100, 0], [100, 110]),
    Fault(put_to(reproductions_shared.functional_linear, _count), *MISSING, 0, 100),
    Fault(put_to(reproductions_shared.functional_convolution, _count), *MISSING, 0, 4 * 36 * 27),
    Fault(matmul, *MISSING, 0, 256),
    Fault(put_to(reproductions_shared.attention, _count), *MISSING, 0, 2 * 4 * 16 * 16 * 32),
    Fault(put_to(reproductions_shared.multi_head_attention, _count), *MISSING, 0, 278_528),
    Fault(put_to(reproductions_shared.forward_called_directly, _count), *MISSING, 0, 256),
    Fault(put_to(reproductions_shared.bilinear, _count), "missing operation", "no formula", 0, 5_760),
    Fault(subclass, "missing operation", "type match", [0, 0], [100, 110]),
    Fault(put_to(reproductions_shared.parametrised, _count), "missing operation", "type match", 0, 256),
    Fault(put_to(reproductions_shared.compiled, _count), "crash", "tracing", "raises KeyError", 256),
    Fault(put_to(reproductions_shared.scripted, _count), "crash", "tracing", "raises RuntimeError", 256),
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
