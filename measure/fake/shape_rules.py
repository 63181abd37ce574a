"""What operators return on fake tensors, from sizes and dtypes alone: no kernel of PyTorch's runs for it.

Many of PyTorch's fake kernels are decompositions in Python that take milliseconds, to find that a sum is as large as
what is added. `FORMS` is a literal table, operator → rule: a function of the call's arguments that gives (sizes,
strides, dtype) of each output, None for an output that is None, `SELF` for a call that returns its first argument, or
`UNKNOWN` where a call is not as plain as the rule expects (strides that are not contiguous, mixed dtypes, sizes that do
not fit): then the kernel runs, and says what is wrong. All tensors are fake ones of the CPU, without values. A test
holds every rule against the kernel, strides included.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch._prims_common import compute_elementwise_output_strides

SELF = "self"
"""What a call returned that returned its first argument."""

UNKNOWN = "unknown"

FLOATS = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
_NUMBERS = (int, float)
_CPU = torch.device("cpu")

Part = tuple[Sequence[int], Sequence[int], torch.dtype]
Rule = Callable[..., Any]


@lru_cache(maxsize=1 << 16)
def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def part(shape: Sequence[int], dtype: torch.dtype) -> Part:
    """A contiguous output."""
    return shape, dense(tuple(shape)), dtype


def plain(*tensors: Any) -> bool:
    """Whether all are contiguous, and have the strides that say so."""
    return all(tensor.stride() == dense(tensor.shape) for tensor in tensors)


def ordered(x: torch.Tensor) -> bool:
    """Whether it is contiguous or a part of such a tensor (a gate of four): what is made elementwise is contiguous."""
    strides = x.stride()
    return plain(x) or (
        all(size > 1 for size in x.shape)
        and all(a > b for a, b in pairwise(strides))
        and bool(strides)
        and strides[-1] > 0
    )


def _like(x: torch.Tensor, *_args: Any, **_kwargs: Any) -> Any:
    """Floating-point numbers by floating-point numbers of the same dtype, one at a time."""
    return part(x.shape, x.dtype) if x.dtype in FLOATS and ordered(x) else UNKNOWN


def _same_form(x: torch.Tensor, y: torch.Tensor, *_args: Any, **_kwargs: Any) -> Any:
    """Two tensors of one form, as a gradient and what it is the gradient of."""
    same = isinstance(y, torch.Tensor) and x.shape == y.shape and x.dtype is y.dtype
    return _like(x) if same and ordered(y) else UNKNOWN


def _softmax(x: torch.Tensor, dim: int, widened: bool = False) -> Any:
    return _like(x) if not widened and has(x, dim) and plain(x) else UNKNOWN


def _softmax_backward(grad: torch.Tensor, out: torch.Tensor, dim: int, dtype: torch.dtype) -> Any:
    return _same_form(grad, out) if dtype is grad.dtype and has(grad, dim) and plain(grad, out) else UNKNOWN


def has(x: torch.Tensor, dim: int) -> bool:
    return -x.dim() <= dim < x.dim()


def _scaled(x: torch.Tensor, number: Any, *_args: Any) -> Any:
    return _like(x) if type(number) in _NUMBERS else UNKNOWN


def _pair(x: Any, y: Any, **kwargs: Any) -> Any:
    """Two tensors of one floating dtype that are broadcast, or a tensor and a number."""
    if kwargs.keys() - {"alpha"} or not isinstance(x, torch.Tensor):
        return UNKNOWN
    if type(y) in _NUMBERS:
        return _like(x)
    if isinstance(y, torch.Tensor) and x.shape == y.shape and (alike := _same_form(x, y)) is not UNKNOWN:
        return alike
    if not isinstance(y, torch.Tensor) or x.dtype is not y.dtype or x.dtype not in FLOATS:
        return UNKNOWN
    shape = _broadcast(x.shape, y.shape)
    if shape is None:
        return UNKNOWN
    return part(shape, x.dtype) if plain(x, y) else _strided(shape, x, y)


def _strided(shape: tuple[int, ...], *tensors: torch.Tensor) -> Any:
    """What is made elementwise of tensors of which not all are contiguous, by PyTorch's own rule of strides."""
    if 0 in shape or any(not tensor.dim() for tensor in tensors):
        return UNKNOWN
    with torch._C._DisableTorchDispatch():
        strides = compute_elementwise_output_strides(*(tensor.expand(shape) for tensor in tensors))
    return shape, strides, tensors[0].dtype


def _broadcast(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """The sizes of both together; None where they do not fit."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    sizes = list(longer)
    for place, size in enumerate(shorter, start=len(longer) - len(shorter)):
        if sizes[place] != size:
            if sizes[place] != 1 and size != 1:
                return None
            sizes[place] = size if sizes[place] == 1 else sizes[place]
    return tuple(sizes)


def _written(x: torch.Tensor, *others: Any, **kwargs: Any) -> Any:
    """In place, with tensors of the same dtype that are as large or hold one number, and with numbers."""
    for other in others:
        if isinstance(other, torch.Tensor):
            if other.dtype is not x.dtype or (other.dim() and other.shape != x.shape):
                return UNKNOWN
        elif type(other) not in _NUMBERS:
            return UNKNOWN
    known = kwargs.keys() <= {"alpha", "value"} and all(type(number) in _NUMBERS for number in kwargs.values())
    return SELF if known and x.dtype in FLOATS and plain(x) else UNKNOWN


def _filled(x: torch.Tensor, *_args: Any, generator: None = None) -> Any:
    return SELF if plain(x) and x.dtype in FLOATS else UNKNOWN


def _copied(x: torch.Tensor, other: Any, *_args: Any) -> Any:
    return SELF if isinstance(other, torch.Tensor) and other.shape == x.shape and plain(x) else UNKNOWN


def _anew(x: torch.Tensor, *, memory_format: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    """clone, empty_like and the like: of any dtype."""
    if not _on_cpu(kwargs) or kwargs.pop("non_blocking", False) or kwargs:
        return UNKNOWN
    kept = memory_format in (None, torch.preserve_format) and ordered(x)
    return part(x.shape, dtype or x.dtype) if kept or memory_format is torch.contiguous_format else UNKNOWN


def _cast(x: torch.Tensor, **kwargs: Any) -> Any:
    """_to_copy, which keeps strides with gaps."""
    return _anew(x, **kwargs) if plain(x) else UNKNOWN


def _drawn_like(x: torch.Tensor, **kwargs: Any) -> Any:
    """randn_like and rand_like."""
    return _anew(x, **kwargs) if x.dtype in FLOATS and kwargs.get("dtype") is None else UNKNOWN


def _on_cpu(kwargs: dict[str, Any]) -> bool:
    """Whether a tensor is made where all are, and as all are; takes out what says so."""
    device, layout = kwargs.pop("device", None), kwargs.pop("layout", None)
    return device in (None, _CPU) and layout in (None, torch.strided) and not kwargs.pop("pin_memory", False)


def _filled_form(shape: Sequence[int], *, dtype: Any = None, **kwargs: Any) -> Any:
    """empty, zeros, ones."""
    kwargs.pop("generator", None)
    if not _on_cpu(kwargs) or any(value is not None for value in kwargs.values()) or min(shape, default=0) < 0:
        return UNKNOWN
    return part(tuple(shape), dtype or torch.get_default_dtype())


def _random_form(shape: Sequence[int], *, dtype: Any = None, **kwargs: Any) -> Any:
    """randn and rand."""
    return _filled_form(shape, dtype=dtype, **kwargs) if dtype is None or dtype in FLOATS else UNKNOWN


def _numbers_below(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """randint: (low, )high, shape."""
    return _filled_form(args[-1], dtype=dtype or torch.int64, **kwargs)


def _made_beside(x: torch.Tensor, shape: Sequence[int], *, dtype: Any = None, **kwargs: Any) -> Any:
    """new_zeros, new_empty."""
    return _filled_form(shape, dtype=dtype or x.dtype, **kwargs)


def _product(a: torch.Tensor, b: torch.Tensor) -> Any:
    """mm and bmm, of any strides."""
    rank = a.dim()
    if b.dim() != rank or rank not in (2, 3) or a.dtype is not b.dtype or a.dtype not in FLOATS:
        return UNKNOWN
    if a.shape[-1] != b.shape[-2] or a.shape[: rank - 2] != b.shape[: rank - 2]:
        return UNKNOWN
    return part((*a.shape[:-1], b.shape[-1]), a.dtype)


def _product_and_sum(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **kwargs: Any) -> Any:
    """addmm with a bias for each column."""
    out = _product(a, b) if a.dim() == 2 and not kwargs else UNKNOWN
    fits = out != UNKNOWN and bias.shape == out[0][1:] and bias.dtype is a.dtype and plain(bias)
    return out if fits and 1 not in out[0] and 0 not in out[0] else UNKNOWN


def _reduced(x: torch.Tensor, dims: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """sum and mean over some dimensions."""
    if x.dtype not in FLOATS or dtype not in (None, x.dtype) or not dims or not ordered(x):
        return UNKNOWN
    if not all(has(x, dim) for dim in dims) or len({dim % x.dim() for dim in dims}) != len(dims):
        return UNKNOWN
    gone = {dim % x.dim() for dim in dims}
    if keepdim:
        return part(tuple(1 if d in gone else n for d, n in enumerate(x.shape)), x.dtype)
    return part(tuple(n for d, n in enumerate(x.shape) if d not in gone), x.dtype)


def _summed(x: torch.Tensor, *, dtype: Any = None) -> Any:
    return part((), x.dtype) if x.dtype in FLOATS and dtype is None else UNKNOWN


def _table() -> dict[Any, Rule]:
    aten = torch.ops.aten
    one = "gelu neg relu sigmoid tanh exp log sqrt rsqrt silu"
    two = "tanh_backward sigmoid_backward gelu_backward threshold_backward"
    new = "clone empty_like zeros_like ones_like"
    return {
        **{getattr(aten, name).default: _like for name in one.split()},
        **{getattr(aten, name).default: _same_form for name in two.split()},
        **{getattr(aten, name).default: _anew for name in new.split()},
        **{getattr(aten, name).Tensor: _pair for name in ("add", "sub", "mul", "div")},
        **{getattr(aten, name).Scalar: _scaled for name in ("add", "sub", "mul", "div")},
        **{getattr(aten, f"{name}_").Tensor: _written for name in ("add", "sub", "mul", "div")},
        **{getattr(aten, f"{name}_").Scalar: _written for name in ("add", "sub", "mul", "div")},
        **{getattr(aten, f"{name}_").default: _written for name in ("relu", "sqrt", "addcmul", "addcdiv", "neg")},
        aten._to_copy.default: _cast,
        aten.pow.Tensor_Scalar: _scaled,
        aten.lerp_.Scalar: _written,
        aten.zero_.default: _filled,
        aten.fill_.Scalar: _filled,
        aten.copy_.default: _copied,
        aten._softmax.default: _softmax,
        aten._log_softmax.default: _softmax,
        aten._softmax_backward_data.default: _softmax_backward,
        aten._log_softmax_backward_data.default: _softmax_backward,
        aten.empty.memory_format: _filled_form,
        aten.zeros.default: _filled_form,
        aten.ones.default: _filled_form,
        aten.randn.default: _random_form,
        aten.randn.generator: _random_form,
        aten.rand.default: _random_form,
        aten.randn_like.default: _drawn_like,
        aten.rand_like.default: _drawn_like,
        aten.randint.default: _numbers_below,
        aten.randint.generator: _numbers_below,
        aten.randint.low: _numbers_below,
        aten.randint.low_generator: _numbers_below,
        aten.new_zeros.default: _made_beside,
        aten.new_empty.default: _made_beside,
        aten.mm.default: _product,
        aten.bmm.default: _product,
        aten.addmm.default: _product_and_sum,
        aten.sum.dim_IntList: _reduced,
        aten.mean.dim: _reduced,
        aten.sum.default: _summed,
        aten.mean.default: _summed,
    }


FORMS: dict[Any, Rule] = _table()
