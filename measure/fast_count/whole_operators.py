"""Attention and LSTM as a CPU runs them, on meta tensors, where PyTorch would take them apart.

The reference trace is that of fake CPU tensors: attention is one fused operator wherever a CPU has a kernel for it, and
a layer of an LSTM is oneDNN's. On meta tensors both fall into products and scalar work: as many FLOP forward, but other
gradients, because the fused operators return all. So the same question is asked of fake CPU tensors, once for each
signature, and what they would run is called by name. Kernels that only a GPU has are not considered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import _VF

from measure.fake.mode import fake_mode

_FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_LAYER = torch.ops.aten.mkldnn_rnn_layer
_LSTM = 2
"""What oneDNN's argument `mode` means."""

_fused: dict[Any, bool] = {}
_layered: dict[Any, bool] = {}


class _Names:
    """Watches a fake mode: which operators ran."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def before(self, func: Any, _args: Any, _kwargs: Any, _seen: Any = None) -> None:
        self.seen.add(func)

    def after(self, *_: Any) -> None: ...


def clear_cache() -> None:
    """Forget what fake CPU tensors answered. Only benchmarks need it."""
    _fused.clear()
    _layered.clear()


def attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch.nn.functional.scaled_dot_product_attention that keeps whole what a CPU keeps whole."""

    def attend(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        rest = (dropout_p, is_causal, scale, enable_gqa)
        if not (
            query.is_meta and key.is_meta and value.is_meta and _is_fused(original, query, key, value, attn_mask, rest)
        ):
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        return _FUSED(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]

    return attend


def _is_fused(original: Any, query: Any, key: Any, value: Any, mask: Any, rest: tuple[Any, ...]) -> bool:
    tensors = [query, key, value] + ([] if mask is None else [mask])
    backends = torch.backends.cuda
    signature = (
        tuple((t.shape, t.stride(), t.dtype, t.requires_grad) for t in tensors),
        rest,
        torch.is_grad_enabled(),
        backends.flash_sdp_enabled(),
        backends.math_sdp_enabled(),
    )
    found = _fused.get(signature)
    if found is None:
        dropout_p, is_causal, scale, enable_gqa = rest
        seen = _ran_on_fake(
            lambda q, k, v, m=None: original(q, k, v, m, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa),
            tensors,
        )
        found = _fused[signature] = _FUSED.default in seen
    return found


def _ran_on_fake(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> set[Any]:
    """The operators that a function of tensors runs on a CPU, by their sizes, strides and dtypes."""
    mode, names = fake_mode(), _Names()
    with torch.utils._python_dispatch._disable_current_modes(), mode:
        fakes = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).requires_grad_(t.requires_grad) for t in tensors
        ]
        with mode.watched_by(names):
            function(*fakes)
    return names.seen


def lstm(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch._VF.lstm that keeps whole each layer that a CPU gives to oneDNN. Packed sequences are not."""

    def recur(*args: Any) -> Any:
        if isinstance(args[1], torch.Tensor) or not args[0].is_meta:
            return original(*args)
        source, (state, cell), weights, bias = args[:4]
        per_cell = 4 if bias else 2
        projected = len(weights) % per_cell or state.shape[-1] != cell.shape[-1]
        if projected or not source.numel() or not _is_layered(original, source.dtype):
            return original(*args)
        return _layers(source, (state, cell), weights, *args[3:])

    return recur


def _is_layered(original: Any, dtype: torch.dtype) -> bool:
    signature = (dtype, torch._C._get_mkldnn_enabled())
    found = _layered.get(signature)
    if found is None:
        sizes = [(1, 1, 1), (1, 1, 1), (1, 1, 1), (4, 1), (4, 1)]
        tensors = [torch.empty(size, dtype=dtype, device="meta") for size in sizes]
        seen = _ran_on_fake(
            lambda x, h, c, w, u: original(x, (h, c), [w, u], False, 1, 0.0, True, False, False), tensors
        )
        found = _layered[signature] = _LAYER.default in seen
    return found


def _layers(
    source: Any, states: Any, weights: Any, bias: bool, num_layers: int, dropout: float, train: bool, both: bool,
    batch_first: bool,
) -> Any:  # fmt: skip
    """Layer after layer, direction beside direction, as PyTorch calls oneDNN's."""
    per_cell, directions = (4 if bias else 2), (2 if both else 1)
    hidden = states[0].shape[-1]
    x = source.transpose(0, 1) if batch_first else source
    ends: list[Any] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            own = list(weights[index * per_cell : (index + 1) * per_cell])
            own += [torch.zeros(own[0].shape[:1], dtype=own[0].dtype, device="meta")] * (4 - per_cell)
            begin = [state[index] for state in states]
            settings: tuple[Any, ...] = (direction > 0, [], _LSTM, hidden, num_layers, bias, both, batch_first, train)
            out, state, cell, _ = _LAYER(x, *own, *begin, *settings)
            outputs.append(out)
            ends.append((state, cell))
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout and train and layer < num_layers - 1:
            x = F.dropout(x, dropout, True)
    out = x.transpose(0, 1) if batch_first else x
    return out, torch.stack([state for state, _ in ends]), torch.stack([cell for _, cell in ends])


PATCHES: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (F, "scaled_dot_product_attention", attention),
    (_VF, "lstm", lstm),
)
"""(where, name, what takes its place while a model is counted)"""
