"""Operators with tiny tensors, each a call of torch without arguments, and the program that runs them under valgrind.

`NAME.backward` is the backward pass of a product: the gradients of all its tensors, given that of its output.

Sizes are tiny because a call runs some fifty times slower there. Some are multiples of a vector (8 lanes of fp32), some
are not: those show what is executed on lanes that hold nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from measure.instructions.callgrind import CALLS, MAKER

Call = Callable[[], Any]

VALGRINDS = 1 << 36
"""Where valgrind's own memory begins, on 64 bits (`aspacem_vStart` of its aspacemgr-linux.c, half of 128 GiB)."""

BACKWARD = ".backward"
"""How the name of a product's backward pass ends."""

_MADE: list[torch.Tensor] = []
"""The tensors of the operator that is being made."""


def _t(*sizes: int) -> torch.Tensor:
    """Positive values, so that logarithms and roots are of numbers."""
    _MADE.append(torch.rand(*sizes) + 0.5)
    return _MADE[-1]


def _of(function: Callable[..., Any], *shapes: tuple[int, ...], **options: Any) -> Callable[[], Call]:
    """A call of the function on tensors of these shapes."""

    def make() -> Call:
        tensors = [_t(*shape) for shape in shapes]
        return lambda: function(*tensors, **options)

    return make


def _loss(function: Callable[..., Any], *sizes: int) -> Callable[[], Call]:
    """A loss of scores against the numbers of classes."""

    def make() -> Call:
        scores, target = _t(*sizes), torch.zeros(sizes[0], dtype=torch.int64)
        return lambda: function(scores, target)

    return make


def _optimizer(name: str, **options: Any) -> Callable[[], Call]:
    """One step of torch's optimizer on 1024 parameters."""

    def make() -> Call:
        parameter = torch.nn.Parameter(_t(1024))
        parameter.grad = _t(1024)
        kind: Any = getattr(torch.optim, name)
        return kind([parameter], lr=0.01, foreach=False, **options).step  # type: ignore[no-any-return]

    return make


_IMAGE = (2, 16, 8, 8)
_F = functional

_PRODUCTS: dict[str, Callable[[], Call]] = {
    **{
        f"mm_{m}x{k}x{n}": _of(torch.mm, (m, k), (k, n))
        for m, k, n in ((16, 16, 16), (16, 24, 32), (32, 32, 32), (64, 64, 64), (48, 48, 48), (16, 128, 64))
    },
    **{f"mm_{m}x{k}x{n}": _of(torch.mm, (m, k), (k, n)) for m, k, n in ((5, 7, 9), (17, 33, 31), (1, 64, 64))},
    "addmm": _of(torch.addmm, (32, 32), (32, 32), (32, 32)),
    "mv": _of(torch.mv, (32, 32), (32,)),
    "dot": _of(torch.dot, (256,), (256,)),
    "outer": _of(torch.outer, (32,), (32,)),
    "bmm": _of(torch.bmm, (4, 16, 16), (4, 16, 16)),
    "bmm_32": _of(torch.bmm, (2, 32, 32), (2, 32, 32)),
    "baddbmm": _of(torch.baddbmm, (4, 16, 16), (4, 16, 16), (4, 16, 16)),
    "matmul_3d": _of(torch.matmul, (2, 16, 32), (32, 16)),
    "einsum": _of(lambda a, b: torch.einsum("bij,bjk->bik", a, b), (4, 16, 16), (4, 16, 16)),
    "linear": _of(_F.linear, (16, 32), (32, 32)),
    "linear_bias": _of(_F.linear, (16, 32), (32, 32), (32,)),
    "bilinear": _of(_F.bilinear, (8, 8), (8, 8), (8, 8, 8)),
    "conv2d_1x1": _of(_F.conv2d, _IMAGE, (16, 16, 1, 1)),
    "conv2d_3x3": _of(_F.conv2d, _IMAGE, (16, 16, 3, 3)),
    "conv2d_3x3_padded": _of(_F.conv2d, _IMAGE, (16, 16, 3, 3), padding=1),
    "conv2d_3x3_bias": _of(_F.conv2d, _IMAGE, (16, 16, 3, 3), (16,)),
    "conv2d_3x3_stride": _of(_F.conv2d, _IMAGE, (16, 16, 3, 3), stride=2),
    "conv2d_3x3_dilated": _of(_F.conv2d, _IMAGE, (16, 16, 3, 3), dilation=2),
    "conv2d_5x5": _of(_F.conv2d, _IMAGE, (16, 16, 5, 5)),
    "conv2d_groups": _of(_F.conv2d, _IMAGE, (16, 8, 3, 3), groups=2),
    "conv2d_depthwise": _of(_F.conv2d, _IMAGE, (16, 1, 3, 3), groups=16),
    "conv2d_3_channels": _of(_F.conv2d, (2, 3, 8, 8), (16, 3, 3, 3)),
    "conv2d_5_channels_out": _of(_F.conv2d, _IMAGE, (5, 16, 3, 3)),
    "conv1d": _of(_F.conv1d, (2, 16, 16), (16, 16, 3)),
    "conv3d": _of(_F.conv3d, (1, 16, 4, 6, 6), (16, 16, 2, 3, 3)),
    "conv_transpose2d": _of(_F.conv_transpose2d, _IMAGE, (16, 16, 3, 3)),
    "attention": _of(_F.scaled_dot_product_attention, *[(1, 2, 32, 16)] * 3),
    "attention_causal": _of(_F.scaled_dot_product_attention, *[(1, 2, 32, 16)] * 3, is_causal=True),
}

_POINTWISE: dict[str, Callable[[], Call]] = {
    **{name: _of(getattr(torch, name), (1024,), (1024,)) for name in ("add", "sub", "mul", "div", "maximum")},
    "minimum": _of(torch.minimum, (1024,), (1024,)),
    "add_1001": _of(torch.add, (1001,), (1001,)),
    "mul_1001": _of(torch.mul, (1001,), (1001,)),
    **{name: _of(getattr(torch, name), (1024,), (1024,), (1024,)) for name in ("addcmul", "addcdiv", "lerp")},
    **{
        name: _of(getattr(torch, name), (1024,))
        for name in (
            "neg", "abs", "square", "sqrt", "rsqrt", "reciprocal", "exp", "log", "sin", "cos", "erf", "tanh", "sigmoid",
            "floor", "relu",
        )
    },
    **{
        name: _of(getattr(_F, name), (1024,))
        for name in ("gelu", "silu", "elu", "leaky_relu", "hardtanh", "hardswish", "softplus", "relu6", "mish", "celu")
    },
    "pow_2": _of(lambda a: a**2, (1024,)),
    "clamp": _of(lambda a: a.clamp(0.6, 0.9), (1024,)),
    "dropout_off": _of(_F.dropout, (1024,), training=False),
    "copy": _of(torch.clone, (1024,)),
    "transpose_copy": _of(lambda a: a.t().contiguous(), (32, 32)),
    "cat": _of(lambda a, b: torch.cat([a, b]), (512,), (512,)),
}  # fmt: skip

_REDUCTIONS: dict[str, Callable[[], Call]] = {
    **{name: _of(getattr(torch, name), (1024,)) for name in ("sum", "mean", "amax", "var", "norm", "prod")},
    "sum_rows": _of(lambda a: a.sum(1), (16, 64)),
    "sum_columns": _of(lambda a: a.sum(0), (16, 64)),
    "cumsum": _of(lambda a: a.cumsum(0), (256,)),
    "softmax": _of(lambda a: a.softmax(-1), (16, 64)),
    "log_softmax": _of(lambda a: a.log_softmax(-1), (16, 64)),
    "logsumexp": _of(lambda a: a.logsumexp(-1), (16, 64)),
    "layer_norm": _of(lambda a, w, b: _F.layer_norm(a, (64,), w, b), (16, 64), (64,), (64,)),
    "rms_norm": _of(lambda a, w: _F.rms_norm(a, (64,), w), (16, 64), (64,)),
    "group_norm": _of(lambda a, w, b: _F.group_norm(a, 4, w, b), _IMAGE, (16,), (16,)),
    "batch_norm_infer": _of(_F.batch_norm, _IMAGE, (16,), (16,)),
    "batch_norm_train": _of(lambda a: _F.batch_norm(a, None, None, training=True), _IMAGE),
    "max_pool2d": _of(lambda a: _F.max_pool2d(a, 2), _IMAGE),
    "avg_pool2d": _of(lambda a: _F.avg_pool2d(a, 2), _IMAGE),
    "adaptive_avg_pool2d": _of(lambda a: _F.adaptive_avg_pool2d(a, 1), _IMAGE),
    "upsample_nearest": _of(lambda a: _F.interpolate(a, scale_factor=2), _IMAGE),
    "embedding": lambda: (lambda w, i: lambda: _F.embedding(i, w))(_t(32, 64), torch.arange(16)),
    "cross_entropy": _loss(_F.cross_entropy, 16, 64),
    "nll_loss": _loss(_F.nll_loss, 16, 64),
    "mse_loss": _of(_F.mse_loss, (1024,), (1024,)),
    "l1_loss": _of(_F.l1_loss, (1024,), (1024,)),
    "smooth_l1_loss": _of(_F.smooth_l1_loss, (1024,), (1024,)),
    "sgd": _optimizer("SGD"),
    "sgd_momentum": _optimizer("SGD", momentum=0.9),
    "adam": _optimizer("Adam"),
    "adamw": _optimizer("AdamW"),
}


def _backward(name: str) -> Callable[[], Call]:
    """The gradients of all tensors of a product, from a graph that is kept."""

    def make_call() -> Call:
        _MADE.clear()
        with torch.enable_grad():
            forward = _PRODUCTS[name]()
            leaves = tuple(each.requires_grad_() for each in _MADE)
            output = forward()
        gradient = torch.rand_like(output)
        return lambda: torch.autograd.grad(output, leaves, gradient, retain_graph=True)

    return make_call


OPERATORS: Mapping[str, Callable[[], Call]] = {
    **_PRODUCTS,
    **_POINTWISE,
    **_REDUCTIONS,
    **{f"{name}{BACKWARD}": _backward(name) for name in _PRODUCTS},
}
"""Name → what makes its tensors and returns the call."""


def make(name: str) -> Call:
    """The call of an operator on tensors of its own."""
    _MADE.clear()
    return OPERATORS[name]()


class CountedCalls(TorchDispatchMode):
    """Counts each ATen call of a step by itself: what went before it is forgotten, what it did is written down under
    its number. Of calls alike (operator, layouts of tensors, other arguments) the first is counted.

    calls: (operator, number of the first call alike) of each call, in order.
    """

    def __init__(self, switch: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._switch, self.calls = switch, list[tuple[str, int]]()
        self._first: dict[str, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        number, kwargs = len(self.calls), kwargs or {}
        first = self._first.setdefault(f"{func} {tree_map_only(torch.Tensor, _layout, (args, kwargs))}", number)
        self.calls.append((str(func.overloadpacket), first))
        if first < number:
            return func(*args, **kwargs)
        self._switch.forget()
        result = func(*args, **kwargs)
        self._switch.write_counts(str(number).encode())
        return result


def _layout(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]:
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())


def main(arguments: Sequence[str]) -> None:
    """Run what is named, and write the code that libraries generated: (switch, folder, names, maker).

    maker: "module:function", which gives the call of a name. Where it is not this module's, there is one name, and each
    ATen call is counted by itself.
    """
    switch, folder, names, maker = ctypes.CDLL(arguments[0]), Path(arguments[1]), json.loads(arguments[2]), arguments[3]
    module, _, function = maker.partition(":")
    torch.set_num_threads(1)
    for name in names:
        if maker == MAKER:
            with torch.no_grad():
                _count(switch, make(name), name)
        else:
            call = getattr(importlib.import_module(module), function)(name)
            call()
            call()
            switch.counting_on()
            with CountedCalls(switch) as counted:
                call()
            switch.counting_off(b"")
            (folder / CALLS).write_text(json.dumps(counted.calls), encoding="utf-8")
    _write_generated(folder)


def _count(switch: ctypes.CDLL, call: Call, name: str) -> None:
    call()
    call()
    switch.counting_on()
    call()
    switch.counting_off(name.encode())


def _write_generated(folder: Path) -> None:
    """Each executable mapping without a file, into START.code; not valgrind's own, a gigabyte of translations."""
    lines = Path("/proc/self/maps").read_text(encoding="ascii", errors="replace").splitlines()
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in lines:
            span, rights, _, _, inode, *_ = line.split()
            start, end = (int(each, 16) for each in span.split("-"))
            if "x" in rights and inode == "0" and start < VALGRINDS:
                try:
                    memory.seek(start)
                    (folder / f"{start:x}.code").write_bytes(memory.read(end - start))
                except OSError:  # valgrind's own, or the kernel's
                    continue


if __name__ == "__main__":
    main(sys.argv[1:])
