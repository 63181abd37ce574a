"""Normalisations and activations that are passed through: the output is a copy of the input, nothing is dispatched.

Such a layer returns a tensor like its input. What a gradient of it reaches is what one of its input reaches, and its
own parameters, behind which there is nothing; so does a copy, by two calls of C++, where the layer's own way through
autograd and the dispatch mode takes ten times as long. In place, the input is returned and its version counted on, so
that who asks whether it was written learns of it.

The layer goes its own way wherever that may not be all: input that is no plain contiguous tensor of floating-point
numbers on meta, sizes or dtypes that do not fit, weights that are no parameters (products may be behind them), layers
that are more than PyTorch's own, anybody's hooks on saved tensors (a checkpoint computes again up to the last of them),
modes that somebody else entered, derivatives taken inside of the forward pass. Values are nowhere: running statistics
and counts of batches stay.
"""

# ruff: noqa: A002  who calls PyTorch's functions may name their arguments
from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad

from measure.fast_count.dispatch_mode import PredictMode

_FLOATS = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
_DIMENSIONS = {nn.BatchNorm1d: (2, 3), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (5,)}

_Parameter = nn.Parameter
_unseen = torch._C._DisableTorchDispatch
_function_modes = torch._C._len_torch_function_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
_current_node = torch._C._current_autograd_node
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_grad = torch.is_grad_enabled
_written = torch._C._increment_version


def _is_simple(mode: PredictMode, x: Any) -> bool:
    """Whether a copy of this says all that its layer's output would, and nobody but the count looks on."""
    return (
        type(x) is torch.Tensor
        and x.is_meta
        and x.dtype in _FLOATS
        and x.is_contiguous()
        and mode.phase == "forward"
        and not mode.engine_ran
        and _dispatch_modes() == 1
        and not _function_modes()
        and _top_hooks(True) is None
        and _current_node() is None
        and forward_ad._current_level < 0
    )


def _skip_layer(mode: PredictMode, x: torch.Tensor, *weights: torch.Tensor | None) -> torch.Tensor:
    """A tensor like x that leads where x leads. It needs a gradient if x does, or any weight."""
    mode.left_out = True
    with _unseen():
        if not x.requires_grad and _grad() and any(w is not None and w.requires_grad for w in weights):
            return torch.empty_like(x, requires_grad=True).clone()  # no leaf: what follows may work in place on it
        return x.clone()


def activation(original: Callable[..., Any], mode: PredictMode) -> Callable[..., Any]:
    """torch.nn.functional's relu and its like: function(input, inplace)."""

    def activated(input: Any, inplace: bool = False) -> Any:
        found = _activated(mode, input, inplace)
        return original(input, inplace) if found is None else found

    return activated


def hardtanh(original: Callable[..., Any], mode: PredictMode) -> Callable[..., Any]:
    """torch.nn.functional.hardtanh, which ReLU6 is, too."""

    def activated(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
        found = None if min_val > max_val else _activated(mode, input, inplace)
        return original(input, min_val, max_val, inplace) if found is None else found

    return activated


def gelu(original: Callable[..., Any], mode: PredictMode) -> Callable[..., Any]:
    """torch.nn.functional.gelu."""

    def activated(input: Any, *, approximate: str = "none") -> Any:
        found = _activated(mode, input, False) if approximate in ("none", "tanh") else None
        return original(input, approximate=approximate) if found is None else found

    return activated


def _activated(mode: PredictMode, x: Any, inplace: bool) -> Any:
    """The output of an activation; None for a call that takes its own way. A leaf must not be written, nor a view."""
    if not _is_simple(mode, x) or (inplace and (x._base is not None or (x.requires_grad and x.is_leaf))):
        return None
    if not inplace:
        return _skip_layer(mode, x)
    mode.left_out = True
    _written((x,))
    return x


def layer_norm(original: Callable[..., Any], mode: PredictMode) -> Callable[..., Any]:
    """torch.nn.functional.layer_norm."""

    def normalised(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        size = tuple(normalized_shape)
        fits = _is_simple(mode, input) and size and input.shape[-len(size) :] == size
        if fits and _are_of(size, input, weight, bias):
            return _skip_layer(mode, input, weight, bias)
        return original(input, normalized_shape, weight, bias, eps)

    return normalised


def batch_norm(original: Callable[..., Any], mode: PredictMode) -> Callable[..., Any]:
    """The forward of PyTorch's batch normalisations."""

    def normalised(module: Any, input: Any) -> Any:
        if type(module) in _DIMENSIONS and _is_simple(mode, input):
            weights = _weights(module, input)
            if weights is not None:
                return _skip_layer(mode, input, *weights)
        return original(module, input)

    return normalised


def _weights(module: Any, x: Any) -> tuple[Any, Any] | None:
    """The weight and bias of a batch normalisation that takes x: of as many channels, more than one value of each."""
    parameters, buffers, size = module._parameters, module._buffers, x.shape
    if len(size) not in _DIMENSIONS[type(module)] or len(parameters) != 2 or len(buffers) != 3 or module.eps <= 0:
        return None
    try:
        weights = parameters["weight"], parameters["bias"]
        held = *weights, buffers["running_mean"], buffers["running_var"]
    except KeyError:  # a weight that is computed
        return None
    return weights if _are_of(size[1:2], x, *held) and prod(size) > size[1] else None


def _are_of(size: Any, x: Any, *tensors: Any) -> bool:
    """Whether these tensors, where there are any, have this size and the dtype of x, and lead to nothing."""
    dtype = x.dtype
    return all(
        t is None or (t.shape == size and t.dtype is dtype and (type(t) is _Parameter or not t.requires_grad))
        for t in tensors
    )


PASSED: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (F, "relu", activation),
    (F, "silu", activation),
    (F, "hardswish", activation),
    (F, "hardsigmoid", activation),
    (F, "hardtanh", hardtanh),
    (F, "gelu", gelu),
    (F, "layer_norm", layer_norm),
    (nn.modules.batchnorm._BatchNorm, "forward", batch_norm),
)
"""(where, name, what takes its place while a model is counted)"""
