"""In which dtype the layers of a model compute, seen in one real step.

Autocast may be entered inside of a model's forward method, where nobody outside sees it. What a layer with a weight
matrix gives has the dtype of its products, so one step under forward hooks says it. The hooks are gone afterwards.

Not claimed: layers that turn their result into another dtype; functions that are no modules.
"""

from __future__ import annotations

from typing import Any

import torch

_LAYERS = (
    torch.nn.Linear,
    torch.nn.Bilinear,
    torch.nn.modules.conv._ConvNd,
    torch.nn.RNNBase,
    torch.nn.MultiheadAttention,
)


class ProductDtypes:
    """Module path → dtype of what it gives, into `dtypes`, from `attach` to `detach`."""

    def __init__(self, model: torch.nn.Module, dtypes: dict[str, torch.dtype]) -> None:
        self._model = model
        self._dtypes = dtypes
        self._handles: list[Any] = []

    def attach(self) -> None:
        for path, module in self._model.named_modules():
            if isinstance(module, _LAYERS):
                self._handles.append(module.register_forward_hook(self._seen_at(path)))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _seen_at(self, path: str) -> Any:
        def seen(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) and output else output
            if isinstance(first, torch.Tensor) and first.is_floating_point():
                self._dtypes[path] = first.dtype

        return seen
