"""Which forward and backward passes of a model a training loop runs, by the shapes of their inputs.

One forward hook on the model sees each of its calls: with gradients or without, in the forward direction or again
inside of a backward pass (a checkpoint around the whole model). A call is itself the hook on the tensors that it gave,
which sees each backward pass, so that a forward pass without one counts as such. Nothing here waits for the device or
reads a value; `passes_of` adds calls up later, many steps at once.

Not claimed: passes of submodules that are called without the model; what a captured CUDA graph replays, since no Python
code runs then; the shapes inside of a nested tensor, which are data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from measure.meter.model_state import ModelState
from measure.model.state_snapshot import tensors

_graph_task = torch._C._current_graph_task_id
_any_autocast = torch._C._is_any_autocast_enabled
_transform = torch._C._functorch.maybe_current_level
OUTSIDE = -1
"""`torch._C._current_graph_task_id()` where no backward pass runs."""

TRANSFORMED = "torch.func"
"""The inputs of a call inside of a transform of torch.func, where tensors have other sizes than what runs."""


@dataclass(frozen=True, slots=True, eq=False)
class CallKey:
    """A kind of call: what its count depends on. One object for each, which equals no other.

    module: path of the module that was called, "" for the model. autocast: dtype, or None where autocast is off.
    version: number of the state that the model was in (`measure/meter/model_state.py`). samples: length of the first
    dimension of the first input. owner: who is told of late backward passes and of faults.
    """

    module: str
    inputs: Hashable
    autocast: torch.dtype | None
    version: int
    samples: int = 0
    owner: Any = None


@dataclass(slots=True)
class Passes:
    """How often the calls of one key ran. recomputed: forward passes inside of a backward pass. hidden: forward passes
    that gave no tensor, so that their backward pass would not be seen. late: backward passes while no step was open.
    steps: that have such calls."""

    forward: int = 0
    backward: int = 0
    recomputed: int = 0
    hidden: int = 0
    late: int = 0
    steps: int = 0

    def add(self, other: Passes) -> None:
        self.forward += other.forward
        self.backward += other.backward
        self.recomputed += other.recomputed
        self.hidden += other.hidden
        self.late += other.late
        self.steps += other.steps


class Call:
    """One call in a step, and the hook on the tensors that it gave.

    A run of autograd's engine is one backward pass, however many of them it reaches. forward: False for a backward pass
    of a call of an earlier step. is_over: whether its step has ended, so that a later backward pass is none of it.
    """

    __slots__ = ("_last", "backward", "forward", "hidden", "is_over", "key", "recomputed")

    def __init__(self, key: CallKey, recomputed: bool = False) -> None:
        self.key = key
        self.forward, self.recomputed = not recomputed, recomputed
        self.hidden = self.is_over = False
        self.backward, self._last = 0, OUTSIDE

    def __call__(self, _gradient: torch.Tensor) -> None:
        try:
            task = _graph_task()
            if task != self._last:
                self._last = task
                if self.is_over:
                    self.key.owner.later_backward(self.key)
                else:
                    self.backward += 1
        except Exception as fault:  # noqa: BLE001  the user's training goes on whatever happens in here
            self.key.owner.on_fault(fault)


class ForwardCalls:
    """The calls of one model, from `attach` to `detach`.

    children: whether its direct children are watched, too, for a loop that calls them instead of the model; a call of a
    child inside of the model's own is part of that.
    on_new: called with the key, the arguments and the keyword arguments of each call of a new kind.
    on_fault: called with what went wrong in here; the model's own call goes on.
    on_late: called with the key of a call of a step that has ended, for each backward pass of it while no step is open.
    step: the `MeteredStep` where calls are noted. state: of the model, looked at in each call.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        device_type: str,
        step: Any,
        state: ModelState,
        on_new: Callable[[CallKey, tuple[Any, ...], dict[str, Any]], None],
        on_fault: Callable[[BaseException], None],
        on_late: Callable[[CallKey], None],
        children: bool = False,
    ) -> None:
        self._modules = [("", model), *(model.named_children() if children else ())]
        self._device_type = device_type
        self._on_new = torch.compiler.disable(on_new)
        self.on_fault = torch.compiler.disable(on_fault)
        self._on_late = torch.compiler.disable(on_late)
        self._known: dict[tuple[Hashable, ...], CallKey] = {}
        self._handles: list[Any] = []
        self._inside = 0
        self._step = step
        self._look = state.look

    def attach(self) -> None:
        """Begin to see calls. Compiled code leaves its graph for the hook, which is never part of one."""
        if self._handles:
            return
        _never_compiled()
        self._inside = 0
        if len(self._modules) > 1:
            self._handles.append(self._modules[0][1].register_forward_pre_hook(Hook(self._enters)))
        for path, module in self._modules:
            # always: a checkpoint ends what it computes again by an exception, as soon as it has all it needs
            hook = Hook(self._hook_at(path))
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True, always_call=True))

    @property
    def watched_modules(self) -> list[torch.nn.Module]:
        """The modules whose calls are seen."""
        return [module for _, module in self._modules]

    def detach(self) -> None:
        """See none any more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def drop(self) -> None:
        """The step that is open is none: it may have ended inside of a call."""
        self._step.begun = None
        self._inside = 0

    def assumed(self, inputs: tuple[Any, ...]) -> list[Call]:
        """The calls of a step in which none was seen: one forward and one backward pass of these inputs."""
        call = Call(self._key("", inputs, {}))
        call.backward = 1
        return [call]

    def later_backward(self, key: CallKey) -> None:
        """A backward pass of a call whose step has ended: of the step that is open, if one is."""
        if self._step.begun is None:
            self._on_late(key)
            return
        call = Call(key)
        call.forward, call.backward = False, 1
        self._step.calls.append(call)

    def _key(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKey:
        """The kind of a call."""
        kind = self._device_type
        autocast = torch.get_autocast_dtype(kind) if _any_autocast() and torch.is_autocast_enabled(kind) else None
        inputs: Hashable = TRANSFORMED
        if _transform() is None:
            inputs = tuple(map(signature, args)), signature(kwargs) if kwargs else ()
        fields = path, inputs, autocast, self._look()
        key = self._known.get(fields)
        if key is None:
            key = self._known[fields] = CallKey(*fields, _batch_size((*args, *kwargs.values())), self)
            self._on_new(key, args, kwargs)
        return key

    def _enters(self, _model: torch.nn.Module, _args: Any) -> None:
        try:
            self._inside += 1
        except Exception as fault:  # noqa: BLE001  as above
            self.on_fault(fault)

    def _hook_at(self, path: str) -> Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any], Any], None]:
        """The forward hook of the module at a path."""

        def on_call(_module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            try:
                if self._inside:
                    if path:
                        return
                    self._inside -= 1
                if self._step.begun is not None:
                    self._note(path, args, kwargs, output)
            except Exception as fault:  # noqa: BLE001  as above
                self.on_fault(fault)

        _skip_in_dynamo(on_call)
        return on_call

    def _note(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """A call. All its tensors are hooked: a trainer may leave the loss that a model gives, and make its own.

        Without any, the call of a model is `hidden`: its backward pass cannot be seen. (A child may well give none.)
        """
        call = Call(self._key(path, args, kwargs), _graph_task() != OUTSIDE)
        self._step.calls.append(call)
        if not torch.is_grad_enabled() or call.key.inputs is TRANSFORMED:
            return
        given = (output,) if type(output) is torch.Tensor else {id(each): each for each in tensors(output)}.values()
        call.hidden = not given and not call.recomputed and not path
        for tensor in given:
            if tensor.requires_grad:
                tensor.register_hook(call)


class Hook(functools.partial[Any]):
    """A hook of the meter in a model: a copy of that model, or the model read from a file, is not measured.

    A partial, because calling one runs no Python code.
    """

    def __deepcopy__(self, _memo: dict[int, Any]) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        """A hook that does nothing, by names of the standard library: a file is read without flopledger, too."""
        return getattr, (contextlib.nullcontext(), "__exit__")


def passes_of(calls: Sequence[Call]) -> dict[CallKey, Passes]:
    """The passes of a step's calls, added up by key."""
    passes: dict[CallKey, Passes] = {}
    for call in calls:
        total = passes.get(call.key)
        if total is None:
            total = passes[call.key] = Passes(steps=1)
        total.backward += call.backward
        total.hidden += call.hidden
        total.recomputed += call.recomputed
        total.forward += call.forward
    return passes


def samples_of(calls: Sequence[Call]) -> int:
    """Samples of a step: the sum of the first dimensions of its inputs; of several modules, the largest sum."""
    by_module: Counter[str] = Counter()
    for call in calls:
        if call.forward:
            by_module[call.key.module] += call.key.samples
    return max(by_module.values(), default=0)


def signature(value: Any) -> Hashable:
    """What of an input may change a count: sizes, dtype and requires_grad of tensors; integers, flags and words.

    Floating-point numbers count by their type alone. Raises ValueError for a nested tensor.
    """
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            raise ValueError("expected dense tensors as inputs of the model, got a nested tensor, whose sizes are data")
        return value.shape, value.dtype, value.requires_grad
    if isinstance(value, (bool, int, str, type(None))):
        return value
    if isinstance(value, enum.Enum):
        return type(value), value.name
    if isinstance(value, PackedSequence):
        batches = value.batch_sizes  # on the CPU: rows in all, longest sequence, and rows of the first step
        return PackedSequence, signature(value.data), len(batches), int(batches[0])
    if isinstance(value, (tuple, list)):
        return tuple([signature(each) for each in value])
    if isinstance(value, Mapping):
        return tuple([(key, signature(each)) for key, each in value.items()])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple([signature(getattr(value, each.name, None)) for each in dataclasses.fields(value)])
    return str(type(value))


def _batch_size(values: Iterable[Any]) -> int:
    """Length of the first dimension of the first tensor; 0 without one."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.ndim:
            return int(value.shape[0])
        inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
        if size := _batch_size(inside):
            return size
    return 0


@functools.cache
def _never_compiled() -> None:
    """Have torch.compile leave alone what runs at each call. A wrapper (torch.compiler.disable) would cost as much as
    the rest, and is used only for what runs once for each shape."""
    for function in (ForwardCalls._key, ForwardCalls._enters, ForwardCalls.later_backward, ForwardCalls._note,
                     ModelState.look, signature, _batch_size, tensors, Call.__call__):  # fmt: skip
        _skip_in_dynamo(function)


def _skip_in_dynamo(function: Callable[..., Any]) -> None:
    from torch._dynamo.decorators import skip

    skip(function)
