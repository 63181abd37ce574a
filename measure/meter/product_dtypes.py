"""In which dtype the layers of a model compute, seen in one real step.

Autocast may be entered inside of a model's forward method, where nobody outside sees it. What a layer with a weight
matrix gives has the dtype of its products, so one step under forward hooks says it. The hooks are gone afterwards.

Not claimed: layers that turn their result into another dtype; functions that are no modules.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch

from measure.meter.forward_calls import Hook

_NO_PRODUCTS = (torch.nn.Embedding, torch.nn.EmbeddingBag, torch.nn.LayerNorm, torch.nn.RMSNorm)


class ProductDtypes:
    """Module path → dtype of what it gives, into `dtypes`, from `attach` to `detach`. on_fault: called with what went
    wrong in here."""

    def __init__(
        self, model: torch.nn.Module, dtypes: dict[str, torch.dtype], on_fault: Callable[[BaseException], None]
    ) -> None:
        self._model = model
        self._dtypes = dtypes
        self._on_fault = on_fault
        self._handles: list[Any] = []

    def attach(self) -> None:
        for path, module in self._model.named_modules():
            if not isinstance(module, _NO_PRODUCTS) and any(p.ndim > 1 for p in module.parameters(recurse=False)):
                self._handles.append(module.register_forward_hook(Hook(self._hook_at(path))))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook_at(self, path: str) -> Any:
        def record(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
            try:
                first = output[0] if isinstance(output, tuple) and output else output
                if isinstance(first, torch.Tensor) and first.is_floating_point():
                    self._dtypes[path] = first.dtype
            except Exception as fault:  # noqa: BLE001  the user's training goes on whatever happens in here
                self._on_fault(fault)

        return record


def dtype_at(path: str, dtypes: Mapping[str, torch.dtype]) -> torch.dtype | None:
    """The dtype of the products of a module: what it gave; else what most layers gave in it, or in the nearest module
    around it that holds some; None without any."""
    if path in dtypes:
        return dtypes[path]
    while dtypes:
        inside = [dtype for place, dtype in dtypes.items() if place.startswith(f"{path}.") or not path]
        if inside:
            return Counter(inside).most_common(1)[0][0]
        path = path.rpartition(".")[0]
    return None
