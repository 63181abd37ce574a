"""While a model is counted: module calls pass through the count, and attention and LSTM are kept whole.

`nn.Module.__call__` and the functions of `whole.PATCHES` are exchanged for the time of one count, as torch.fx does to
trace; other threads get the originals. One count at a time in a process: the next one waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from measure.places import ModulePaths
from measure.predict.blocks import Blocks
from measure.predict.mode import PredictMode
from measure.predict.whole import PATCHES

_one_at_a_time = threading.RLock()
_ident = threading.get_ident


@contextlib.contextmanager
def watched(mode: PredictMode, blocks: Blocks | None, paths: ModulePaths | None) -> Iterator[None]:
    """Calls of modules may be answered by `blocks`; `paths` says where in the model they are, if that is asked for."""
    with _one_at_a_time, contextlib.ExitStack() as undo:
        undo.enter_context(_patched(torch.nn.Module, "__call__", lambda run: _call(run, mode, blocks, paths)))
        for where, name, instead in PATCHES:
            undo.enter_context(_patched(where, name, lambda run, instead=instead: _here(run, instead(run))))
        yield


@contextlib.contextmanager
def _patched(where: Any, name: str, instead: Callable[[Any], Any]) -> Iterator[None]:
    original = getattr(where, name)
    setattr(where, name, instead(original))
    try:
        yield
    finally:
        setattr(where, name, original)


def _here(run: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """`instead` on this thread, `run` on all others."""
    home = _ident()

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (instead if _ident() == home else run)(*args, **kwargs)

    return chosen


def _call(run: Any, mode: PredictMode, blocks: Blocks | None, paths: ModulePaths | None) -> Any:
    hints, home = (blocks.hints if blocks is not None else {}), _ident()

    def inner(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if mode.phase == "forward":
            return blocks.call(run, module, args, kwargs) if id(module) in hints else run(module, *args, **kwargs)
        mode.depth += 1
        try:
            return run(module, *args, **kwargs)
        finally:
            mode.depth -= 1

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if _ident() != home:
            return run(module, *args, **kwargs)
        if paths is None:
            return inner(module, args, kwargs)
        with paths.inside(module):
            mode.path, before = paths.current, mode.path
            try:
                return inner(module, args, kwargs)
            finally:
                mode.path = before

    return call
