"""While a model is counted: calls of its blocks pass through the count, and attention and LSTM are kept whole.

A block that has a likeness gets, for the time of one count, a forward of its own that asks `blocks`; the functions of
`whole.PATCHES` are exchanged, as torch.fx does to trace. `nn.Module.__call__` is exchanged only where every call has
to be seen, because that slows all modules down: for rows by module, and once code of the model may run in the backward
pass. Other threads get the originals. One count at a time in a process: the next one waits.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from measure.fast_count.block_replay import Blocks
from measure.fast_count.checkpoints import Checkpoints
from measure.fast_count.dispatch_mode import PredictMode
from measure.fast_count.skipped_layers import PASSED
from measure.fast_count.whole_operators import PATCHES
from measure.model.module_paths import ModulePaths

Exchange = tuple[Any, str, Callable[[Any], Any]]
"""(where, name, what makes of the original what takes its place)"""

_one_at_a_time = threading.RLock()
_ident = threading.get_ident


@contextlib.contextmanager
def watched(mode: PredictMode, blocks: Blocks | None, paths: ModulePaths | None) -> Iterator[None]:
    """Calls of modules may be answered by `blocks`; `paths` says where in the model they are, if that is asked for."""
    with _one_at_a_time, contextlib.ExitStack() as undo:
        undo.enter_context(_patched(_exchanges(mode, blocks is not None)))

        def every_call() -> None:
            mode.before_model_code = _nothing
            undo.enter_context(_patched([(torch.nn.Module, "__call__", lambda run: _call(run, mode, paths))]))

        mode.before_model_code = every_call
        if paths is not None:
            every_call()
        if blocks is not None:
            undo.enter_context(_answered(blocks, mode))
        yield


def _nothing() -> None: ...


def _exchanges(mode: PredictMode, reuse: bool) -> list[Exchange]:
    """What is exchanged in PyTorch for the time of a count. reuse: whether layers may be passed through."""
    found: list[Exchange] = [(where, name, partial(_instead, instead, ())) for where, name, instead in PATCHES]
    found.append((torch.autograd, "_engine_run_backward", lambda run: _here(run, _with_engine_notice(run, mode))))
    checkpoints = Checkpoints(mode)
    found += [
        (torch._C._autograd, name, partial(_instead, instead, ()))
        for name, instead in (
            ("_push_saved_tensors_default_hooks", checkpoints.begins),
            ("_pop_saved_tensors_default_hooks", checkpoints.ends),
        )
    ]
    if reuse:
        found += [(where, name, partial(_instead, passing, (mode,))) for where, name, passing in PASSED]
    return found


def _instead(make: Callable[..., Any], more: tuple[Any, ...], run: Any) -> Any:
    """What `make` makes of the original, and of more, takes its place on this thread."""
    return _here(run, make(run, *more))


@contextlib.contextmanager
def _patched(exchanges: Sequence[Exchange]) -> Iterator[None]:
    originals = [(where, name, getattr(where, name)) for where, name, _ in exchanges]
    try:
        for (where, name, original), (_, _, instead) in zip(originals, exchanges, strict=True):
            setattr(where, name, instead(original))
        yield
    finally:
        for where, name, original in originals:
            setattr(where, name, original)


def _here(run: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """`instead` on this thread, `run` on all others."""
    home = _ident()

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (instead if _ident() == home else run)(*args, **kwargs)

    return chosen


def _with_engine_notice(run: Callable[..., Any], mode: PredictMode) -> Callable[..., Any]:
    """What starts autograd's engine tells the mode first."""

    def running(*args: Any, **kwargs: Any) -> Any:
        mode.engine_runs()
        return run(*args, **kwargs)

    return running


@contextlib.contextmanager
def _answered(blocks: Blocks, mode: PredictMode) -> Iterator[None]:
    """Each block that has a likeness asks before it runs, but for one whose forward is its own already.

    The forward is a bound method, so that a copy that the model makes of a block asks for itself.
    """
    home = [_ident()]
    changed = [module for module in blocks.repeated if "forward" not in module.__dict__]
    instead = {kind: _asking(kind.forward, blocks, mode, home) for kind in {type(module) for module in changed}}
    try:
        for module in changed:
            module.__dict__["forward"] = types.MethodType(instead[type(module)], module)
        yield
    finally:
        home.clear()
        for module in changed:
            module.__dict__.pop("forward", None)


def _asking(run: Any, blocks: Blocks, mode: PredictMode, home: list[int]) -> Any:
    """The forward of one class. home: the thread that counts; none once the count is over."""

    @functools.wraps(run)
    def forward(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if mode.phase != "forward" or _ident() not in home:
            return run(module, *args, **kwargs)
        return blocks.call(run, module, args, kwargs)

    forward.stands_in_for_forward = True  # type: ignore[attr-defined]
    return forward


def _call(run: Any, mode: PredictMode, paths: ModulePaths | None) -> Any:
    """nn.Module.__call__ that keeps where in the model a call is, and how deep in modules one of the backward pass."""
    home = _ident()

    def inner(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if mode.phase == "forward":
            return run(module, *args, **kwargs)
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
