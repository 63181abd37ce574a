"""A Kineto annotation around each module's forward, with the module's path, while a profiler listens.

torch's own module events carry a number a class ("nn.Module: Conv2d_3"), no path, and cost a Python stack each; these
carry the path ("flopledger.module.features.0"), one hook before and one after each forward. The root has none.

Not claimed: a module whose forward is called by name (`module.forward(x)`) runs no hooks, so that its calls belong to
the module around it. A compiled model runs no hooks of its parts: it gets no ranges at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from measure.model.module_paths import ModulePaths
from measure.timing.profiler_ranges import DOMAIN

MODULE = f"{DOMAIN}.module."
"""What the name of a module's annotation begins with; its path follows."""


class ModuleRanges(ModulePaths):
    """While this is entered, each forward of a submodule opens a range and closes it, also when it raises.

    A module with several names gets the one by which its caller names it, as in the tracer (`places.ModulePaths`).
    record: a factory of annotations; None: torch's. On leaving, all hooks are gone and no range is open.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        record: Callable[[str], contextlib.AbstractContextManager[Any]] | None = None,
    ) -> None:
        super().__init__(model)
        self.compiled = is_compiled(model)
        self._record = torch.profiler.record_function if record is None else record
        self._modules = [] if self.compiled else [module for path, module in model.named_modules() if path]
        self._open: list[contextlib.AbstractContextManager[Any]] = []

    def __enter__(self) -> ModuleRanges:
        for module in self._modules:
            self._handles += [
                module.register_forward_pre_hook(self._enter_module, prepend=True),
                module.register_forward_hook(self._leave_module, prepend=True, always_call=True),
            ]
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        while self._open:
            self._open.pop().__exit__(None, None, None)

    def _enter_module(self, module: torch.nn.Module, inputs: Any) -> None:
        super()._enter_module(module, inputs)
        annotation = self._record(MODULE + self.current)
        annotation.__enter__()  # type: ignore[no-untyped-call]
        self._open.append(annotation)

    def _leave_module(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        super()._leave_module(module, inputs, output)
        self._open.pop().__exit__(None, None, None)


def is_compiled(model: torch.nn.Module) -> bool:
    """Whether torch.compile has had this model, as a wrapper around it or in place."""
    return hasattr(model, "_orig_mod") or any(
        getattr(module, "_compiled_call_impl", None) is not None for module in model.modules()
    )
