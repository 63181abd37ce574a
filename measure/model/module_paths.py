"""Tells in which module an operation runs (`ModulePaths.current`), and which operation made an autograd node (`Links`).

In the forward pass, global module hooks keep a stack of paths. In the backward pass, each autograd node carries the
sequence number of its forward operation, by which `Links` finds that operation. A module with several names gets the
one by which its caller on the stack names it, else the first. `ModuleRanges` puts a Kineto annotation with the path
("flopledger.module.features.0") around each submodule's forward. torch's own module events ("nn.Module: Conv2d_3") have
a number per class, and no path. Each of them also costs a Python stack. Limits: a forward that is called by name
(`module.forward(x)`) runs no hooks, so its calls belong to the module around it. A compiled model gets no ranges.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

import torch
import torch.utils.checkpoint
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from measure.timing.profiler_ranges import DOMAIN

NO_NUMBER = 2**64 - 1
"""The sequence number of nodes that no forward operation made (AccumulateGrad)."""

next_number = torch._C._autograd._get_sequence_nr


class ModulePaths:
    """While this context is entered, `current` is the path of the module whose forward runs; "" outside of all."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.current = ""
        self._stack: list[str] = []
        self._paths: dict[int, list[str]] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            self._paths.setdefault(id(module), []).append(path)
        self._owners = {id(p): path.rpartition(".")[0] for path, p in model.named_parameters()}
        self._handles: list[Any] = []

    def __enter__(self) -> ModulePaths:
        self._handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    @property
    def depth(self) -> int:
        """The number of nested modules that are running."""
        return len(self._stack)

    def of_parameter(self, parameter: Any) -> str:
        """Return the path of the module that first names this parameter; "" if none does."""
        return self._owners.get(id(parameter), "")

    def _enter_module(self, module: torch.nn.Module, _inputs: Any) -> None:
        self._stack.append(self.current)
        paths = self._paths.get(id(module))
        if paths is not None:
            caller = f"{self.current}." if self.current else ""
            self.current = next((path for path in paths if path.startswith(caller)), paths[0])

    def _leave_module(self, _module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        self.current = self._stack.pop()


class Links:
    """Which operation made which node of the autograd graph. Numbers count from the start of the recording.

    Sequence numbers are per thread: the nodes of a recomputation that runs on autograd's own thread (CUDA, reentrant)
    have numbers of that thread, and only the inner backward pass, another graph task, uses them.
    """

    def __init__(self) -> None:
        self._home = get_ident()
        self._threads = {self._home: _Numbers(next_number())}
        self._outer_task: int | None = None

    def node_number(self, index: int, requires_grad: bool) -> int | None:
        """Return the number of the node made for operation `index`, which is about to run; None if none was made.

        requires_grad: whether autograd sees it, and any input does. Of several new numbers the last is this
        operation's. The others belong to the first operation that ran after they were made (inside a custom function),
        or else to the last one that made a node (CopySlices, of an in-place write to a view).
        """
        numbers = self._threads.get(get_ident())
        if numbers is None:  # a thread's first operation: its node, if it has one, is the newest
            numbers = self._threads[get_ident()] = _Numbers(next_number() - requires_grad)
        if requires_grad:
            return numbers.take(next_number(), index)
        numbers.noticed.setdefault(next_number() - 1, index)
        return None

    def pending(self) -> bool:
        """Return whether nodes were made that belong to no operation yet."""
        numbers = self._threads.get(get_ident())
        return numbers is None or numbers.seen != next_number()

    def follow(self, node: Any) -> tuple[int | None, int | None]:
        """Return (sequence number, index of the forward operation) of the node that the engine runs now."""
        number = node._sequence_nr()
        if number == NO_NUMBER:
            return None, None
        numbers = self._threads[self._home]
        if (
            len(self._threads) > 1
            and get_ident() != self._home
            and self._outer_task not in (None, torch._C._current_graph_task_id())
        ):
            numbers = self._threads.get(get_ident(), numbers)
        return number - numbers.base, numbers.owners.get(number)

    def backward_begins(self) -> None:
        """Take the next graph task to be the outer one."""
        self._outer_task = None

    def note_task(self) -> None:
        """Note the outer graph task, before a recomputation can begin an inner one."""
        if self._outer_task is None:
            self._outer_task = torch._C._current_graph_task_id()


class _Numbers:
    """The sequence numbers of one thread."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.seen = base  # the next number at the last call of `take`
        self.owners: dict[int, int] = {}
        self.noticed: dict[int, int] = {}  # number → operation that ran when it was new, without being its own
        self._last_index = -1

    def take(self, top: int, index: int) -> int | None:
        if top == self.seen:
            return None
        for number in range(self.seen, top - 1):
            owner = self.noticed.get(number, self._last_index)
            if owner >= 0:
                self.owners[number] = owner
        self.owners[top - 1] = index
        self.seen = top
        self._last_index = index
        return top - 1 - self.base


_CHECKPOINT_FILE = torch.utils.checkpoint.__file__
_ENGINE: CodeType = torch.autograd.graph._engine_run_backward.__code__
_STARTING = (torch.autograd.__file__, torch.autograd.graph.__file__, torch._tensor.__file__)
"""The files between the caller that starts autograd's engine and the engine."""


def in_checkpoint(within: CodeType | None = None) -> bool:
    """Return whether torch's checkpointing runs on this thread, and not merely the backward pass that it starts itself.

    within: the code of a function that is known to be on the stack, outside of all checkpoints, where the search ends.
    """
    frame: FrameType | None = sys._getframe()
    by_engine = False
    while frame is not None:
        code: CodeType = frame.f_code
        if code is within:
            return False
        if code is _ENGINE:
            by_engine = True
        elif code.co_filename == _CHECKPOINT_FILE:
            return not by_engine
        elif code.co_filename not in _STARTING:
            by_engine = False
        frame = frame.f_back
    return False


_CALLED_BY_NODES = (torch._compile.__file__, torch.autograd.function.__file__, _CHECKPOINT_FILE)
"""The files whose functions a node of the autograd graph itself calls: the guard around a dispatch mode, a custom
autograd function, a checkpoint that recomputes."""


def in_gradient_hook() -> bool:
    """Return whether a user's hook on a gradient, on a module's backward pass or on a saved tensor runs on this thread.

    Call it where the engine runs a node: if the first Python function that the engine called is none of those that
    nodes call, it is a hook.
    """
    frame = sys._getframe()
    called: CodeType = frame.f_code
    while frame is not None and frame.f_code is not _ENGINE:
        called = frame.f_code
        frame = frame.f_back  # type: ignore[assignment]
    return called.co_filename not in _CALLED_BY_NODES and called.co_name != "__torch_dispatch__"


MODULE = f"{DOMAIN}.module."
"""Beginning of the name of a module's annotation; its path follows."""


class ModuleRanges(ModulePaths):
    """While this context is entered, each forward of a submodule opens a range and closes it, also when it raises.

    A module with several names gets the one by which its caller names it, as in the tracer (`ModulePaths`). record: a
    factory of annotations; None: torch's. On leaving, all hooks are gone and no range is open.
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
    """Return whether a model was compiled by torch.compile, as a wrapper around it or in place."""
    return hasattr(model, "_orig_mod") or any(
        getattr(module, "_compiled_call_impl", None) is not None for module in model.modules()
    )
