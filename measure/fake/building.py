"""Models without weights: what their modules hold has sizes and dtypes, and takes no memory.

Not claimed: a model whose construction reads values of its tensors, which is built with them.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors


def built_on_meta(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """The model that `build` makes, without values if it can be built so."""
    try:
        with torch.device("meta"):
            return build()
    except Exception:  # noqa: BLE001  code of others, which reads values
        return build()


class modules_on_meta(TorchFunctionMode):
    """Tensors that modules make when they are built are on meta; all others, such as inputs, have their values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _device_constructors() and kwargs.get("device") is None and _is_in_module():
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


def _is_in_module() -> bool:
    """Whether a module is being built."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and isinstance(frame.f_locals.get(code.co_varnames[0]), torch.nn.Module):
            return True
        frame = frame.f_back
    return False
