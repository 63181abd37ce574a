"""Notes which forward and backward passes of a model a training loop runs, by the shapes of their inputs.

`ForwardCalls` takes a model and adds a `ModelCall` to the open step for each call; `passes_of` returns the `Passes` of
many calls. One forward hook sees each call of the model, with or without gradients. The hook also sees a forward pass
again inside a backward pass (a checkpoint around the whole model). A `ModelCall` is itself the hook on the call's
output tensors that sees each backward pass. A forward pass that returns no tensor is noted as "hidden". Nothing here
waits for the device or reads a value. Not claimed: passes of submodules that are called without the model; calls that a
captured CUDA graph replays, since no Python code runs then; the shapes inside a nested tensor, which are data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from measure.model.state_snapshot import tensors

_graph_task = torch._C._current_graph_task_id
_any_autocast = torch._C._is_any_autocast_enabled
_transform = torch._C._functorch.maybe_current_level
_trains: Any = operator.attrgetter("requires_grad")
_mode: Any = operator.attrgetter("training")
_chained = itertools.chain.from_iterable
OUTSIDE = -1
"""`torch._C._current_graph_task_id()` where no backward pass runs."""

TRANSFORMED = "torch.func"
"""Stands for the inputs of a call inside of a transform of torch.func, where tensors have other sizes than those of the
operations that run."""


@dataclass(frozen=True, slots=True, eq=False)
class CallKey:
    """A kind of call: everything that its count depends on. Each kind has one object, equal only to itself.

    module: path of the module that was called, "" for the model. autocast: dtype, or None where autocast is off.
    version: number of the state that the model was in (`ModelState`). samples: length of the first
    dimension of the first input. owner: the `ForwardCalls` that handles late backward passes and faults.
    """

    module: str
    inputs: Hashable
    autocast: torch.dtype | None
    version: int
    samples: int = 0
    owner: Any = None


Passes = dict[tuple[CallKey, str], int]
"""(kind of call, what) → how often. what: "forward" and "backward" passes; "again": forward passes inside of a backward
pass; "hidden": forward passes that returned no tensor, so that their backward pass would not be seen; "late": backward
passes while no step was open; "steps": steps with such calls."""


class ModelCall:
    """One call in a step, and the hook on the tensors that it returned.

    A run of autograd's engine is one backward pass, however many of the tensors it reaches. forward: False for a
    backward pass of a call of an earlier step. again, hidden: as in `Passes`. is_over: whether its step has ended, so
    that a later backward pass does not belong to it.
    """

    __slots__ = ("_last", "again", "backward", "forward", "hidden", "is_over", "key")

    def __init__(self, key: CallKey, again: bool = False) -> None:
        self.key = key
        self.forward, self.again = not again, again
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


class ModelState:
    """Numbers the states of a model. States that look alike have equal numbers, as long as the modules are the same.

    `look` takes a microsecond: it compares which modules and parameters there are, which parameters need a gradient,
    and the mode of each module. It holds those of the last look, so that none of their addresses is used again. Not
    claimed: changes inside of a module (a method or a number that it reads, another size of the same parameter), which
    only an observed step shows (`measure/meter/observations.py`).
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._known: dict[Hashable, int] = {}
        self._numbers = itertools.count(1)
        self._modules: list[torch.nn.Module] = []
        self._parameters: list[torch.Tensor] = []
        self._held: list[dict[str, Any]] = []
        self._addresses: list[int] | None = None
        self._flags: list[bool] | None = None
        self._sizes: Hashable = None
        self._version = 0
        self._collect_outside = torch.compiler.disable(self._collect)

    def look(self) -> int:
        """Return the number of the state that the model is in."""
        if [*map(id, _chained(map(dict.values, self._held)))] != self._addresses:
            self._collect_outside()
        flags = [*map(_trains, self._parameters), *map(_mode, self._modules)]
        if flags != self._flags:
            self._flags = flags
            key = self._sizes, tuple(flags)
            self._version = self._known[key] = self._known.get(key) or next(self._numbers)
        return self._version

    def renumber(self) -> None:
        """Give new numbers to all states from now on: the model has changed, although it looks the same."""
        self._known.clear()
        self._flags = None

    def _collect(self) -> None:
        modules = list(self._model.modules())
        if list(map(id, modules)) != list(map(id, self._modules)):
            self._known.clear()
        self._modules = modules
        self._held = [held for module in modules for held in (module._modules, module._parameters)]
        self._addresses = [id(value) for held in self._held for value in held.values()]
        self._parameters = [
            parameter for module in modules for parameter in module._parameters.values() if parameter is not None
        ]
        self._sizes = tuple([(parameter.shape, parameter.dtype) for parameter in self._parameters])
        self._flags = None


class ForwardCalls:
    """The calls of one model, from `attach` to `detach`.

    children: whether the model's direct children are watched, too, for a loop that calls them instead of the model; a
    call of a child inside a call of the model is part of that. meter: has three methods. `meet` is called with the key,
    the arguments and the keyword arguments of each call of a new kind; `late` with the key of a call for each backward
    pass that runs after the call's step while no step is open; `fail` with an exception raised here, after which the
    model's call goes on. step: the `MeteredStep` where calls are noted. state: of the model, looked at in each call.
    modules: path → the modules whose calls are seen.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        state: ModelState,
        device_type: str,
        step: Any,
        meter: Any,
        children: bool,
    ) -> None:
        self.modules = {"": model, **(dict(model.named_children()) if children else {})}
        self._device_type = device_type
        self._on_new, self._on_late = torch.compiler.disable(meter.meet), torch.compiler.disable(meter.late)
        self.on_fault = torch.compiler.disable(meter.fail)
        self._known: dict[tuple[Hashable, ...], CallKey] = {}
        self._handles: list[Any] = []
        self._inside = 0
        self._step = step
        self.state, self._look = state, state.look

    def attach(self) -> None:
        """Begin to see calls. Compiled code leaves its graph for the hook, which is never part of one."""
        if self._handles:
            return
        from torch._dynamo.decorators import skip  # a wrapper would cost as much as these, which run at each call

        for function in (
            ForwardCalls._key, ForwardCalls._enters, ForwardCalls._note, ForwardCalls._on_call,
            ForwardCalls.later_backward, ModelState.look, signature, _batch_size, tensors, ModelCall.__call__,
        ):  # fmt: skip
            skip(function)
        self._inside = 0
        if len(self.modules) > 1:
            self._handles.append(self.modules[""].register_forward_pre_hook(Hook(self._enters)))
        for path, module in self.modules.items():
            # always_call: a checkpoint ends its recomputation by an exception as soon as it has all tensors
            hook = Hook(self._on_call, path)
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True, always_call=True))

    def detach(self) -> None:
        """Stop seeing calls."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def drop(self) -> None:
        """Drop the step that is open: it may have ended inside of a call."""
        self._step.begun = None
        self._inside = 0

    def assumed(self, inputs: tuple[Any, ...]) -> list[ModelCall]:
        """Return the calls of a step in which none was seen: one forward and one backward pass of these inputs."""
        call = ModelCall(self._key("", inputs, {}))
        call.backward = 1
        return [call]

    def later_backward(self, key: CallKey) -> None:
        """Note a backward pass of a call whose step has ended; it belongs to the step that is open, if one is."""
        if self._step.begun is None:
            self._on_late(key)
            return
        call = ModelCall(key)
        call.forward, call.backward = False, 1
        self._step.calls.append(call)

    def _key(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKey:
        """Return the kind of a call."""
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

    def _on_call(
        self, path: str, _module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Run as the forward hook of the module at a path."""
        try:
            if self._inside:
                if path:
                    return
                self._inside -= 1
            if self._step.begun is not None:
                self._note(path, args, kwargs, output)
        except Exception as fault:  # noqa: BLE001  as above
            self.on_fault(fault)

    def _note(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Note a call. All its output tensors are hooked: a trainer may ignore a model's own loss and compute another.

        A call of the model that returns none is `hidden`: its backward pass cannot be seen. (A child may return none.)
        """
        call = ModelCall(self._key(path, args, kwargs), _graph_task() != OUTSIDE)
        self._step.calls.append(call)
        if not torch.is_grad_enabled() or call.key.inputs is TRANSFORMED:
            return
        outputs = (
            (output,) if type(output) is torch.Tensor else {id(tensor): tensor for tensor in tensors(output)}.values()
        )
        call.hidden = not outputs and not call.again and not path
        for tensor in outputs:
            if tensor.requires_grad:
                tensor.register_hook(call)


class Hook(functools.partial[Any]):
    """A hook of the meter in a model. In a copy of the model, or the model read from a file, it does nothing.

    It is a partial, because calling a partial runs no Python code.
    """

    def __deepcopy__(self, _memo: dict[int, Any]) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a hook of the standard library that does nothing, so that the file can be read without flopledger."""
        return getattr, (contextlib.nullcontext(), "__exit__")


def passes_of(calls: Sequence[ModelCall]) -> Passes:
    """Return the passes of a step's calls, added up."""
    passes: Passes = {}
    for call in calls:
        key = call.key
        passes[key, "steps"] = 1
        for what, times in (
            ("forward", call.forward),
            ("backward", call.backward),
            ("again", call.again),
            ("hidden", call.hidden),
        ):
            if times:
                passes[key, what] = passes.get((key, what), 0) + times
    return passes


def add_passes(total: Passes, passes: Passes) -> None:
    """Add passes to others."""
    for call_phase, times in passes.items():
        total[call_phase] = total.get(call_phase, 0) + times


def samples_of(calls: Sequence[ModelCall]) -> int:
    """Return samples of a step: the sum of the first dimensions of its inputs; of several modules, the largest sum."""
    by_module: dict[str, int] = {}
    for call in calls:
        if call.forward:
            by_module[call.key.module] = by_module.get(call.key.module, 0) + call.key.samples
    return max(by_module.values(), default=0)


def signature(value: Any) -> Hashable:
    """Return the properties of an input that may change a count: sizes, dtype and requires_grad of tensors; integers,
    flags and texts.

    Of floating-point numbers only the type matters. Raises ValueError for a nested tensor.
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
        return tuple([signature(item) for item in value])
    if isinstance(value, Mapping):
        return tuple([(key, signature(item)) for key, item in value.items()])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple([signature(getattr(value, field.name, None)) for field in dataclasses.fields(value)])
    return str(type(value))


def _batch_size(values: Iterable[Any]) -> int:
    """Return the length of the first dimension of the first tensor; 0 without one."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.ndim:
            return int(value.shape[0])
        inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
        if size := _batch_size(inside):
            return size
    return 0
