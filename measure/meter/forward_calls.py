"""Which forward and backward passes of a model a training loop runs, by the shapes of their inputs.

One forward hook on the model sees each of its calls: with gradients or without, in the forward direction or again
inside of a backward pass (a checkpoint around the whole model). A tensor hook on the output sees each backward pass
that reaches it, so that a forward pass without one counts as such. Nothing here waits for the device or reads a value.

In a step of 10 ms this code is in no cache: each function called and each object looked at costs more than what is done
with it. So the hook only notes what it saw; `passes_of` adds it up later, many steps at once.

Not claimed: passes of submodules that are called without the model; what a captured CUDA graph replays, since no Python
code runs then; the shapes inside of a nested tensor, which are data.
"""

import contextlib
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from measure.meter.calls import (
    OUTSIDE,
    Call,
    CallFields,
    CallKey,
    EndedCall,
    GeneralCall,
    OpenStep,
    SeenCall,
    signature,
)
from measure.meter.model_state import ModelState
from measure.model.state_snapshot import tensors

_graph_task = torch._C._current_graph_task_id
_any_autocast = torch._C._is_any_autocast_enabled
_grad_enabled = torch.is_grad_enabled
_transformed = torch._C._functorch.maybe_current_level
TRANSFORMED = "torch.func"
"""The inputs of a call inside of a transform of torch.func, where tensors have other sizes than what runs."""


class ForwardCalls:
    """The calls of one model, from `attach` to `detach`.

    children: whether its direct children are watched, too, for a loop that calls them instead of the model; a call of a
    child inside of the model's own is part of that.
    step: where calls are noted while one is open.
    on_new: called with the key, the arguments and the keyword arguments of each call whose key `known` has not.
    on_fault: called with what went wrong in here; the model's own call goes on.
    on_late: called with the key of a call of a step that has ended, for each backward pass of it while no step is open.
    state: of the model, looked at in each call.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        device_type: str,
        step: OpenStep,
        state: ModelState,
        on_new: Callable[[CallKey, tuple[Any, ...], dict[str, Any]], None],
        on_fault: Callable[[BaseException], None],
        on_late: Callable[[CallKey], None],
        children: bool = False,
    ) -> None:
        self._model = model
        self._device_type = device_type
        self._on_new = torch.compiler.disable(on_new)
        self._on_fault = torch.compiler.disable(on_fault)
        self._on_late = torch.compiler.disable(on_late)
        self._known: dict[CallFields, SeenCall] = {}
        self._handles: list[Any] = []
        self._children = children
        self._inside = 0
        self._step = step
        self._look = state.look

    def attach(self) -> None:
        """Begin to see calls. Compiled code leaves its graph for the hook, which is never part of one."""
        if self._handles:
            return
        _never_compiled()
        self._inside = 0
        if self._children:
            self._handles.append(self._model.register_forward_pre_hook(Hook(self._enters)))
        for path, module in _watched(self._model, self._children):
            hook = Hook(self._hook_at(path) if self._children else self._hook())
            # always: a checkpoint ends what it computes again by an exception, as soon as it has all it needs
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True, always_call=True))

    @property
    def watched_modules(self) -> list[torch.nn.Module]:
        """The modules whose calls are seen."""
        return [module for _, module in _watched(self._model, self._children)]

    def detach(self) -> bool:
        """See none any more. Whether any were seen before."""
        was_attached = bool(self._handles)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        return was_attached

    def drop(self) -> None:
        """The step that is open is none: it may have ended inside of a call."""
        self._step.begun = None
        self._inside = 0

    def assumed(self, inputs: tuple[Any, ...]) -> list[Call]:
        """The calls of a step in which none was seen: one forward and one backward pass of these inputs."""
        key = "", (signature(inputs), ()), self._autocast(), self._look()
        call = GeneralCall(self._known.get(key) or self._meet(key, inputs, {}), False)
        call.backward = 1
        return [call]

    def _autocast(self) -> torch.dtype | None:
        kind = self._device_type
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None

    def _meet(self, fields: CallFields, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SeenCall:
        seen = SeenCall(CallKey(*fields), _batch_size(args, kwargs), self._later_backward, self._on_fault)
        self._known[fields] = seen
        self._on_new(seen.key, args, kwargs)
        return seen

    def _later_backward(self, seen: SeenCall) -> None:
        """A backward pass of a call whose step has ended: of the step that is open, if one is."""
        if self._step.begun is None:
            self._on_late(seen.key)
            return
        call = GeneralCall(seen, False)
        call.forward, call.backward = False, 1
        self._step.calls.append(call)

    def _enters(self, _model: torch.nn.Module, _args: Any) -> None:
        try:
            self._inside += 1
        except Exception as fault:  # noqa: BLE001  as above
            self._on_fault(fault)

    def _hook(self) -> Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any], Any], None]:
        """The forward hook of the model.

        Most calls have one tensor of the size of the call before, and give one. They are noted here, without another
        Python function; what is called is a local variable, since each look-up of a name costs memory that is in no
        cache.
        """

        def on_call(
            _module: torch.nn.Module,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
            output: Any,
            step: OpenStep = self._step,
            kind: Any = type,
            length: Any = len,
            tensor_type: Any = torch.Tensor,
            call_type: type[Call] = Call,
            mapping: type = OrderedDict,
            transformed: Any = _transformed,
            autocast: Any = _any_autocast,
            task: Any = _graph_task,
            look: Any = self._look,
        ) -> None:
            try:
                if step.begun is None:
                    return
                if kind(output) is tensor_type and not kwargs and length(args) == 1:
                    one = args[0]
                    if (
                        kind(one) is tensor_type
                        and one.shape == step.shape
                        and one.dtype is step.dtype
                        and one.requires_grad is step.needs_grad
                        and look() == step.version
                        and not autocast()
                        and task() == -1  # OUTSIDE
                        and transformed() is None
                    ):
                        call = call_type()
                        call.backward = 0
                        call.seen = step.seen  # type: ignore[assignment]  # there is one where there is a shape
                        step.calls.append(call)
                        node = output.grad_fn
                        if node is None or output._backward_hooks is not None:
                            _hook_gradients(output, call)
                        else:  # as register_hook does it, but for the handle to remove the hook by
                            output._backward_hooks = mapping(((-1, call),))
                            node._register_hook_dict(output)
                        return
                self._note("", args, kwargs, output)
            except Exception as fault:  # noqa: BLE001  the user's training goes on whatever happens in here
                self._on_fault(fault)

        _skip_in_dynamo(on_call)
        return on_call

    def _hook_at(self, path: str) -> Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any], Any], None]:
        """The forward hook of the module at a path, where children are watched, too."""

        def on_call(_module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            try:
                if self._inside:
                    if path:
                        return
                    self._inside -= 1
                if self._step.begun is not None:
                    self._note(path, args, kwargs, output)
            except Exception as fault:  # noqa: BLE001  as above
                self._on_fault(fault)

        _skip_in_dynamo(on_call)
        return on_call

    def _note(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """A call of any kind; the next one is compared with it."""
        step = self._step
        calls = step.calls
        recomputed = _graph_task() != OUTSIDE
        if _transformed() is not None:
            calls.append(GeneralCall(self._transformed_kind(path), recomputed))
            return
        call = GeneralCall(self._call_kind(path, args, kwargs), recomputed)
        calls.append(call)
        if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor and not path and not call.seen.key.autocast:
            one = args[0]
            step.shape, step.dtype, step.needs_grad = one.shape, one.dtype, one.requires_grad
            step.version, step.seen = call.seen.key.version, call.seen
        if _grad_enabled():
            for each in (output,) if type(output) is torch.Tensor else _tensors(output, call):
                _hook_gradients(each, call)

    def _transformed_kind(self, path: str) -> SeenCall:
        key = path, TRANSFORMED, None, self._look()
        return self._known.get(key) or self._meet(key, (), {})

    def _call_kind(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SeenCall:
        inputs = signature(args), signature(kwargs) if kwargs else ()
        autocast = self._autocast() if _any_autocast() else None
        key = path, inputs, autocast, self._look()
        return self._known.get(key) or self._meet(key, args, kwargs)


class Hook(functools.partial[Any]):
    """A hook of the meter in a model: a copy of that model, or the model read from a file, is not measured.

    A partial, because calling one runs no Python code.
    """

    def __deepcopy__(self, _memo: dict[int, Any]) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        """A hook that does nothing, by names of the standard library: a file is read without flopledger, too."""
        return getattr, (contextlib.nullcontext(), "__exit__")


def _watched(model: torch.nn.Module, children: bool) -> Iterator[tuple[str, torch.nn.Module]]:
    yield "", model
    if children:
        yield from model.named_children()


def _hook_gradients(tensor: torch.Tensor, call: Call) -> None:
    """Have the call see the gradients of a tensor that the model gave."""
    node = tensor.grad_fn
    if node is None and not tensor.requires_grad:
        return
    if node is None or type(tensor) is not torch.Tensor or tensor._backward_hooks is not None:
        tensor.register_hook(call)
    else:  # as register_hook does it, but for the handle to remove the hook by, which costs more than all of this
        tensor._backward_hooks = OrderedDict(((OUTSIDE, call),))
        node._register_hook_dict(tensor)


def _tensors(output: Any, call: GeneralCall) -> list[torch.Tensor]:
    """Each tensor of an output once. All of them: a trainer may leave the loss that a model gives, and make its own.

    Without any, the call of a model is `hidden`: its backward pass cannot be seen. (A child may well give none.)
    """
    found = {id(each): each for each in tensors(output)}
    if not found and not call.recomputed and not call.seen.key.module:
        call.hidden = True
    return list(found.values())


def _batch_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Length of the first dimension of the first tensor; 0 without one."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.ndim:
            return int(value.shape[0])
        if isinstance(value, (tuple, list)) and (size := _batch_size(tuple(value), {})):
            return size
        if isinstance(value, Mapping) and (size := _batch_size((), dict(value))):
            return size
    return 0


@functools.cache
def _never_compiled() -> None:
    """Have torch.compile leave alone what runs at each call. A wrapper (torch.compiler.disable) would cost as much as
    the rest, and is used only for what runs once for each shape."""
    each_call = (
        ForwardCalls._call_kind,
        ForwardCalls._transformed_kind,
        ForwardCalls._enters,
        ForwardCalls._autocast,
        ForwardCalls._later_backward,
        ForwardCalls._meet,
        ForwardCalls._note,
        ModelState.look,
        signature,
    )
    backward = (Call.__call__, EndedCall.__call__)
    for function in (*each_call, _batch_size, _hook_gradients, _tensors, tensors, *backward):
        _skip_in_dynamo(function)


def _skip_in_dynamo(function: Callable[..., Any]) -> None:
    from torch._dynamo.decorators import skip

    skip(function)
