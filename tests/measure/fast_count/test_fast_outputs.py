"""What the fast count makes without running a kernel is what PyTorch's meta kernel makes: sizes, strides and dtype."""

from __future__ import annotations

import pytest
import torch

from measure.fast_count import meta_outputs
from measure.fast_count.meta_outputs import SHORT

aten = torch.ops.aten

FORMS = {
    "contiguous": lambda dtype: torch.empty(2, 3, 4, 5, dtype=dtype, device="meta"),
    "channels last": lambda dtype: torch.empty(2, 3, 4, 5, dtype=dtype, device="meta").to(
        memory_format=torch.channels_last
    ),
    "transposed": lambda dtype: torch.empty(2, 5, 4, 3, dtype=dtype, device="meta").transpose(1, 3),
    "expanded": lambda dtype: torch.empty(2, 1, 4, 5, dtype=dtype, device="meta").expand(2, 3, 4, 5),
    "sliced": lambda dtype: torch.empty(2, 3, 4, 9, dtype=dtype, device="meta")[..., ::2],
    "of one row": lambda dtype: torch.empty(1, 3, 4, 5, dtype=dtype, device="meta"),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64)


def _other(x, sizes):
    return torch.empty(sizes, dtype=x.dtype, device="meta")


def _parameters(x):
    return torch.empty(x.shape[1], device="meta"), torch.empty(x.shape[1], device="meta")


CALLS = {
    aten.clamp.default: lambda x: [(x, 0.0, 1.0)],
    aten.clamp_min.default: lambda x: [(x, 0)],
    aten.clamp_max.default: lambda x: [(x, 1)],
    aten.threshold.default: lambda x: [(x, 0, 1)],
    aten.mul.Scalar: lambda x: [(x, 2), (x, 0.5)],
    aten.pow.Tensor_Scalar: lambda x: [(x, 2), (x, 0.5)],
    aten._softmax.default: lambda x: [(x, -1, False), (x, 1, False), (x, -1, True)],
    aten._log_softmax.default: lambda x: [(x, -1, False), (x, 1, False)],
    aten._safe_softmax.default: lambda x: [(x, -1)],
    aten.roll.default: lambda x: [(x, [1, 2], [1, 2])],
    aten.mean.dim: lambda x: [(x, [1]), (x, [-1, 2], True), (x, []), (x, None)],
    aten.cat.default: lambda x: [([x, x], 1), ([x, _other(x, (2, 7, 4, 5))], 1), ([x], -1), ([x, x, x],)],
    aten.native_layer_norm.default: lambda x: [(x, [5], None, None, 1e-5), (x, [4, 5], None, None, 1e-5)],
    aten.native_batch_norm.default: lambda x: [
        (x, *_parameters(x), *_parameters(x), training, 0.1, 1e-5) for training in (True, False)
    ]
    + [(x, None, None, None, None, True, 0.1, 1e-5)],
    **dict.fromkeys(
        (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor),
        lambda x: [
            (x, x), (x, 2), (x, 0.5), (2, x), (x, True), (x, _other(x, (3, 1, 1))), (_other(x, (5,)), x),
            (x, _other(x, (2, 1, 4, 1))), (x, _other(x, ())), (x, torch.empty(2, 3, 4, 5, device="meta")),
            (x, torch.empty(5, dtype=torch.int64, device="meta")), (_other(x, (7, 1, 1, 1, 1)), x),
        ],
    ),
}  # fmt: skip


def described(out):
    """Strides of dimensions of one element mean nothing."""
    if isinstance(out, (tuple, list)):
        return [described(part) for part in out]
    strides = [s for s, n in zip(out.stride(), out.shape, strict=True) if n != 1]
    return out.shape, strides, out.dtype, out.device.type


@pytest.mark.parametrize("func", SHORT, ids=str)
def test_an_output_is_the_kernels(func):
    known = 0
    for dtype in DTYPES:
        for form in FORMS.values():
            x = form(dtype)
            for args in CALLS.get(func, lambda x: [(x,)])(x):
                known += _check(func, args)
    assert known > 0  # a line that never answers would be no use


def _check(func, args):
    try:
        out = SHORT[func](*args)
    except (TypeError, AttributeError):
        assert not isinstance(args[0], (torch.Tensor, list))
        return 0
    if out is None:
        return 0
    try:
        expected = func(*args)
    except (RuntimeError, TypeError):
        return 0  # the kernel refuses what no model can ask for
    assert described(out) == described(expected), (func, args)
    return 1


def test_what_does_not_fit_is_left_to_the_kernel():
    x = torch.empty(2, 3, device="meta")
    assert meta_outputs.pair(x, torch.empty(4, device="meta")) is None
    assert meta_outputs.cat_output([x, torch.empty(2, 3, 4, device="meta")]) is None
    assert meta_outputs.cat_output([x, torch.empty(3, 4, device="meta")], 1) is None
    assert meta_outputs.layer_norm(x, [4], None, None, 1e-5) is None
    assert meta_outputs.pair(x, torch.empty(2, 3)) is None  # a tensor of the CPU
