"""What layers return on fake tensors, from sizes and dtypes alone: the second half of `measure/fake/shape_rules.py`."""

from collections.abc import Sequence
from typing import Any

import torch

from measure.fake.shape_rules import FLOATS, UNKNOWN, Rule, part, plain

_LSTM = 2
"""How PyTorch calls an LSTM in the arguments of a recurrent layer."""

_LONGEST = 3


def _convolution(x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
                 output_padding: Any, groups: int) -> Any:  # fmt: skip
    """convolution, of contiguous tensors with one or two sides, not transposed."""
    if transposed or not _convolved(x, w, groups) or (bias is not None and bias.shape != w.shape[:1]):
        return UNKNOWN
    sides = []
    for place, (size, kernel) in enumerate(zip(x.shape[2:], w.shape[2:], strict=True)):
        step, pad, gap = ((each[place] if len(each) > 1 else each[0]) for each in (stride, padding, dilation))
        span = size + 2 * pad - gap * (kernel - 1) - 1
        if span < 0 or step < 1 or pad < 0 or gap < 1:
            return UNKNOWN
        sides.append(span // step + 1)
    return part((x.shape[0], w.shape[0], *sides), x.dtype)


def _convolved(x: Any, w: Any, groups: int) -> bool:
    """Whether the layout of a convolution's output is contiguous beyond doubt, and its sizes fit."""
    alike = x.dtype is w.dtype and x.dtype in FLOATS and x.dim() == w.dim() and 3 <= x.dim() <= 1 + _LONGEST
    if not alike or not plain(x, w) or 0 in x.shape or 0 in w.shape:
        return False
    return bool(x.shape[1] == w.shape[1] * groups and w.shape[0] % groups == 0)


def _convolution_backward(grad: Any, x: Any, w: Any, bias_sizes: Any, _stride: Any, _padding: Any, _dilation: Any,
                          transposed: bool, _output: Any, groups: int, mask: Sequence[bool]) -> Any:  # fmt: skip
    if transposed or not _convolved(x, w, groups) or grad.shape[:2] != (x.shape[0], w.shape[0]):
        return UNKNOWN
    if grad.dtype is not x.dtype or not plain(grad) or (mask[2] and not bias_sizes):
        return UNKNOWN
    shapes = (x.shape, w.shape, tuple(bias_sizes or ()))
    return [part(shape, x.dtype) if asked else None for shape, asked in zip(shapes, mask, strict=True)]


def _batch_norm(x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, _momentum: float, _eps: float) -> Any:
    """native_batch_norm; what it keeps for the backward pass has the dtype of the weight."""
    if x.dim() < 2 or x.dtype not in FLOATS or not plain(x) or 0 in x.shape or x.numel() == x.shape[1]:
        return UNKNOWN
    channels = x.shape[1:2]
    if any(each is not None and (each.shape != channels or each.dtype not in FLOATS) for each in (w, b, mean, var)):
        return UNKNOWN
    if not training and (mean is None or var is None):
        return UNKNOWN
    kept = part(channels if training else (0,), x.dtype if w is None else w.dtype)
    return [part(x.shape, x.dtype), kept, kept]


def _batch_norm_backward(grad: Any, x: Any, w: Any, _mean: Any, _var: Any, kept_mean: Any, _kept: Any, train: bool,
                         _eps: float, mask: Sequence[bool]) -> Any:  # fmt: skip
    fits = x.dim() >= 2 and grad.shape == x.shape and grad.dtype is x.dtype and x.dtype in FLOATS and plain(grad, x)
    if not fits or not train or 0 in x.shape or kept_mean.shape != x.shape[1:2]:
        return UNKNOWN
    if w is not None and w.shape != x.shape[1:2]:
        return UNKNOWN
    of_weight = part(x.shape[1:2], x.dtype if w is None else w.dtype)
    return [part(x.shape, x.dtype), of_weight if mask[1] else None, of_weight if mask[2] else None]


def _layer_norm(x: Any, sizes: Sequence[int], w: Any, b: Any, _eps: float) -> Any:
    """native_layer_norm."""
    outer, given = x.dim() - len(sizes), [each for each in (w, b) if each is not None]
    if x.dtype not in FLOATS or not plain(x) or outer < 0 or not sizes or tuple(x.shape[outer:]) != tuple(sizes):
        return UNKNOWN
    if 0 in x.shape or any(each.dtype is not x.dtype or tuple(each.shape) != tuple(sizes) for each in given):
        return UNKNOWN
    kept = part((*x.shape[:outer], *(1 for _ in sizes)), x.dtype)
    return [part(x.shape, x.dtype), kept, kept]


def _layer_norm_backward(grad: Any, x: Any, sizes: Sequence[int], _mean: Any, _rstd: Any, w: Any, b: Any,
                         mask: Sequence[bool]) -> Any:  # fmt: skip
    if grad.shape != x.shape or grad.dtype is not x.dtype or not plain(grad, x) or 0 in x.shape:
        return UNKNOWN
    if w is None or b is None:
        return UNKNOWN
    if x.dtype not in FLOATS or w.dtype is not x.dtype or b.dtype is not x.dtype or len(sizes) >= x.dim():
        return UNKNOWN
    parts = (part(x.shape, x.dtype), part(w.shape, x.dtype), part(b.shape, x.dtype))
    return [each if asked else None for each, asked in zip(parts, mask, strict=True)]


def _nll(x: Any, target: Any, weight: Any, reduction: int, _ignored: int) -> Any:
    """nll_loss_forward of a batch."""
    if not _chosen(x, target, weight):
        return UNKNOWN
    return [part(() if reduction else target.shape, x.dtype), part((), x.dtype)]


def _nll_backward(grad: Any, x: Any, target: Any, weight: Any, reduction: int, _ignored: int, _total: Any) -> Any:
    if not _chosen(x, target, weight) or grad.dtype is not x.dtype or not reduction or grad.dim():
        return UNKNOWN
    return part(x.shape, x.dtype)


def _chosen(x: Any, target: Any, weight: Any) -> bool:
    fits = x.dim() == 2 and tuple(target.shape) == tuple(x.shape[:1]) and target.dtype is torch.int64
    return bool(fits and weight is None and x.dtype in FLOATS and plain(x, target) and 0 not in x.shape)


def _embedding(w: Any, indices: Any, *_args: Any) -> Any:
    if w.dim() != 2 or indices.dtype not in (torch.int64, torch.int32) or not plain(w):
        return UNKNOWN
    return part((*indices.shape, w.shape[1]), w.dtype)


def _embedding_backward(grad: Any, indices: Any, rows: int, *_args: Any) -> Any:
    """embedding_dense_backward."""
    if tuple(grad.shape[:-1]) != tuple(indices.shape) or grad.dtype not in FLOATS or not grad.dim():
        return UNKNOWN
    return part((rows, grad.shape[-1]), grad.dtype)


def _dropout(x: Any, _rate: float, train: Any) -> Any:
    """native_dropout."""
    return [part(x.shape, x.dtype), part(x.shape, torch.bool)] if train and x.dtype in FLOATS and plain(x) else UNKNOWN


def _lstm(x: Any, w0: Any, w1: Any, _w2: Any, _w3: Any, hx: Any, cx: Any, _reverse: bool, _batch_sizes: Any, mode: int,
          hidden_size: int, _num_layers: int, _has_biases: bool, _bidirectional: bool, _first: bool,
          _train: bool) -> Any:  # fmt: skip
    """mkldnn_rnn_layer; its workspace's size is the kernel's secret, and 0 by torch's rule."""
    if mode != _LSTM or hx is None or cx is None or x.dim() != _LONGEST or not _single(x, w0, w1, hx, cx):
        return UNKNOWN
    return [part((*x.shape[:2], hidden_size), x.dtype), part(hx.shape, x.dtype), part(cx.shape, x.dtype),
            part((0,), torch.uint8)]  # fmt: skip


def _lstm_backward(x: Any, w0: Any, w1: Any, w2: Any, w3: Any, hx: Any, cx: Any, *rest: Any) -> Any:
    """mkldnn_rnn_layer_backward; both bias gradients have memory of their own, as the kernel's have."""
    mode = rest[7]
    if mode != _LSTM or w3.shape != w2.shape or not _single(x, w0, w1, w2, w3, hx, cx):
        return UNKNOWN
    return [part(each.shape, torch.float32) for each in (x, w0, w1, w2, w3, hx, cx)]


def _single(*tensors: Any) -> bool:
    return all(tensor.dtype is torch.float32 for tensor in tensors)


def _table() -> dict[Any, Rule]:
    aten = torch.ops.aten
    return {
        aten.convolution.default: _convolution,
        aten.convolution_backward.default: _convolution_backward,
        aten.native_batch_norm.default: _batch_norm,
        aten.native_batch_norm_backward.default: _batch_norm_backward,
        aten.native_layer_norm.default: _layer_norm,
        aten.native_layer_norm_backward.default: _layer_norm_backward,
        aten.nll_loss_forward.default: _nll,
        aten.nll_loss_backward.default: _nll_backward,
        aten.embedding.default: _embedding,
        aten.embedding_dense_backward.default: _embedding_backward,
        aten.native_dropout.default: _dropout,
        aten.mkldnn_rnn_layer.default: _lstm,
        aten.mkldnn_rnn_layer_backward.default: _lstm_backward,
    }


LAYERS: dict[Any, Rule] = _table()
