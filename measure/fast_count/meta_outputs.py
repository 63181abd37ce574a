"""What operators return on meta tensors, without running their kernels: sizes, strides and dtype.

PyTorch's meta kernels of normalisations and activations are Python decompositions that take up to a millisecond; their
outputs are known from their inputs. `SHORT` is a literal table, operator → function of a call that returns its output,
or None where a call is not as simple as it expects (mixed dtypes, strides that are neither contiguous nor channels
last): then the kernel runs. A test holds every line against the kernel. Values are nowhere, and products are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

META = torch.device("meta")
LAST = torch.channels_last
_FLOATS = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
_NUMBERS = (int, float)

Short = Callable[..., Any]


def empty(size: Any, dtype: torch.dtype) -> torch.Tensor:
    """A contiguous tensor."""
    return torch.empty(size, dtype=dtype, device=META)


def like(x: torch.Tensor, *_args: Any, **kwargs: Any) -> Any:
    """Sizes, strides and dtype of the first argument, which holds floating-point numbers."""
    if kwargs or x.dtype not in _FLOATS or not x.is_meta:
        return None
    if x.is_contiguous():
        return torch.empty(x.shape, dtype=x.dtype, device=META)
    if x.dim() == 4 and x.is_contiguous(memory_format=LAST):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=META)
    return None


def pair(x: Any, y: Any, *_args: Any, **kwargs: Any) -> Any:
    """Two tensors of one floating dtype that are broadcast, or a tensor and a number."""
    if type(y) in _NUMBERS:
        return like(x) if not kwargs or set(kwargs) == {"alpha"} else None
    if not isinstance(y, torch.Tensor) or x.dtype is not y.dtype or (kwargs and set(kwargs) != {"alpha"}):
        return None
    if x.shape == y.shape:
        return like(x) if x.is_meta and y.is_meta and x.stride() == y.stride() else None
    simple = x.is_meta and y.is_meta and x.dtype in _FLOATS and x.is_contiguous() and y.is_contiguous()
    size = _broadcast(x.shape, y.shape) if simple else None
    return None if size is None else torch.empty(size, dtype=x.dtype, device=META)


def _broadcast(one: Any, other: Any) -> list[int] | None:
    """The size of both together; None where they do not fit. torch.broadcast_shapes takes thirty times as long."""
    size = list(one) if len(one) >= len(other) else list(other)
    shorter = other if len(one) >= len(other) else one
    for d, n in enumerate(reversed(shorter), start=1):
        if size[-d] != n:
            if size[-d] != 1 and n != 1:
                return None
            size[-d] = n if size[-d] == 1 else size[-d]
    return size


def batch_norm(x: Any, weight: Any, _bias: Any, mean: Any, *_args: Any, **kwargs: Any) -> Any:
    """native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)."""
    if kwargs or any(given is not None and given.dtype is not x.dtype for given in (weight, mean)):
        return None
    if x.dtype is not torch.float32 or not x.is_contiguous():
        return None
    out = like(x)
    channels = x.shape[1]
    return None if out is None else (out, empty(channels, x.dtype), empty(channels, x.dtype))


def layer_norm(x: Any, normalized: Any, weight: Any, *_args: Any, **kwargs: Any) -> Any:
    """native_layer_norm(input, normalized_shape, weight, bias, eps)."""
    outer = x.dim() - len(normalized)
    same = x.dtype is torch.float32 and (weight is None or weight.dtype is x.dtype)
    if kwargs or not same or not x.is_meta or not x.is_contiguous() or list(x.shape[outer:]) != list(normalized):
        return None
    kept = (*x.shape[:outer], *(1 for _ in normalized))
    return empty(x.shape, x.dtype), empty(kept, x.dtype), empty(kept, x.dtype)


def mean(x: Any, dims: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    """mean.dim of a contiguous tensor."""
    if kwargs or dims is None or len(dims) == 0 or x.dtype not in _FLOATS or not x.is_meta or not x.is_contiguous():
        return None
    gone = {d % x.dim() for d in dims}
    if keepdim:
        return empty([1 if d in gone else n for d, n in enumerate(x.shape)], x.dtype)
    return empty([n for d, n in enumerate(x.shape) if d not in gone], x.dtype)


def cat_output(tensors: Any, dim: int = 0, **kwargs: Any) -> Any:
    """cat of contiguous tensors of one dtype and as many dimensions."""
    first = tensors[0]
    form, dtype = list(first.shape), first.dtype
    rank = len(form)
    if kwargs or rank == 0 or not -rank <= dim < rank:
        return None
    dim %= rank
    total, form[dim] = 0, 0
    for tensor in tensors:
        if not (tensor.is_meta and tensor.is_contiguous() and tensor.dtype is dtype):
            return None
        other = list(tensor.shape)
        if len(other) != rank:
            return None
        total += other[dim]
        other[dim] = 0
        if other != form:
            return None
    form[dim] = total
    return empty(form, dtype)


_ELEMENTWISE = """
    abs atan ceil celu cos elu erf erfc exp expm1 floor gelu hardsigmoid hardswish hardtanh leaky_relu log log1p log2
    mish neg reciprocal relu round rsqrt selu sigmoid sign silu sin softplus sqrt square tanh
    threshold trunc clamp clamp_min clamp_max
"""


def _overloads() -> dict[Any, Short]:
    aten = torch.ops.aten
    return {
        **{getattr(aten, name).default: like for name in _ELEMENTWISE.split()},
        aten.mul.Scalar: like,
        aten.pow.Tensor_Scalar: _power,
        aten._softmax.default: _softmax,
        aten._log_softmax.default: _softmax,
        aten._safe_softmax.default: _contiguous,
        aten.roll.default: _contiguous,
        aten.add.Tensor: pair,
        aten.sub.Tensor: pair,
        aten.mul.Tensor: pair,
        aten.div.Tensor: pair,
        aten.native_batch_norm.default: batch_norm,
        aten.native_layer_norm.default: layer_norm,
        aten.mean.dim: mean,
        aten.cat.default: cat_output,
    }


def _power(x: Any, exponent: Any, **kwargs: Any) -> Any:
    return like(x) if type(exponent) in _NUMBERS and not kwargs else None


def _softmax(x: Any, _dim: Any, to_float: Any = False, **kwargs: Any) -> Any:
    return None if to_float else _contiguous(x, **kwargs)


def _contiguous(x: Any, *_args: Any, **kwargs: Any) -> Any:
    """A new contiguous tensor, where the argument is one."""
    return like(x) if not kwargs and x.is_contiguous() else None


SHORT: dict[Any, Short] = _overloads()
