"""Which forward and backward passes of a model a training loop runs, by the shapes of their inputs.

One forward hook on the model sees each of its calls: with gradients or without, in the forward direction or again
inside of a backward pass (a checkpoint around the whole model). A tensor hook on the output sees each backward pass
that reaches it, so that a forward pass without one counts as such. Nothing here waits for the device or reads a value.

Not claimed: passes of submodules that are called without the model; what a captured CUDA graph replays, since no Python
code runs then; the shapes inside of a nested tensor, which are data.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

_graph_task = torch._C._current_graph_task_id
_OUTSIDE = -1
_SCALARS = (bool, int, str, type(None))


class CallKey(NamedTuple):
    """What the count of a call depends on.

    module: path of the module that was called, "" for the model. autocast: dtype, or None where autocast is off.
    version: of the model, which is another one once parameters were frozen or layers replaced.
    """

    module: str
    inputs: Hashable
    training: bool
    autocast: torch.dtype | None
    version: int


@dataclass(slots=True)
class Passes:
    """How often the calls of one key ran. recomputed: forward passes inside of a backward pass."""

    forward: int = 0
    backward: int = 0
    recomputed: int = 0


def signature(value: Any) -> Hashable:
    """What of an input may change a count: sizes, dtype and requires_grad of tensors; integers, flags and words.

    Floating-point numbers count by their type alone. Raises ValueError for a nested tensor.
    """
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            raise ValueError("expected dense tensors as inputs of the model, got a nested tensor, whose sizes are data")
        return value.shape, value.dtype, value.requires_grad
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, (tuple, list)):
        return tuple([signature(each) for each in value])
    if isinstance(value, Mapping):
        return tuple([(key, signature(each)) for key, each in value.items()])
    return str(type(value))


class ForwardCalls:
    """The calls of one model, from `attach` to `detach`.

    children: whether its direct children are watched, too, for a loop that calls them instead of the model; a call of a
    child inside of the model's own is part of that.
    on_new: called with the key, the arguments and the keyword arguments of each call whose key `known` has not.
    on_fault: called with what went wrong in here; the model's own call goes on.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        device_type: str,
        on_new: Callable[[CallKey, tuple[Any, ...], dict[str, Any]], None],
        on_fault: Callable[[BaseException], None],
        children: bool = False,
    ) -> None:
        self._model = model
        self._device_type = device_type
        self._on_new = on_new
        self._on_fault = on_fault
        self._known: set[CallKey] = set()
        self._handles: list[Any] = []
        self._children = children
        self._inside = 0
        self.passes: dict[CallKey, Passes] | None = None
        self.version = 0
        self._samples: Counter[str] = Counter()

    def attach(self) -> None:
        """Begin to see calls. Compiled code leaves its graph for the hook, which is never part of one."""
        if self._handles:
            return
        self._inside = 0
        if self._children:
            self._handles.append(self._model.register_forward_pre_hook(self._enters))
        for path, module in _watched(self._model, self._children):
            hook: Any = functools.partial(self._on_call, path)
            if _compiles(module):
                hook = torch.compiler.disable(hook)
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True, always_call=True))

    def detach(self) -> None:
        """See none any more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def model_changed(self) -> None:
        """Calls from here on are those of another model: on_new is called for each shape again."""
        self._known.clear()
        self.version += 1

    def begin(self) -> None:
        """A step begins: its passes are counted from zero, those of the step before no longer."""
        self.passes = {}
        self._samples.clear()
        self._inside = 0

    @property
    def samples(self) -> int:
        """Samples of the step: the sum of the first dimensions of its inputs; of several modules, the largest sum."""
        return max(self._samples.values(), default=0)

    def end(self) -> dict[CallKey, Passes]:
        """The passes of the step that ends. Backward passes that run later still reach them."""
        passes, self.passes = self.passes, None
        return passes or {}

    def assumed(self, inputs: tuple[Any, ...]) -> tuple[dict[CallKey, Passes], int]:
        """The passes of a step in which no call was seen: one forward and one backward pass of these inputs; and how
        many samples they are."""
        key = self._key("", inputs, {})
        if key not in self._known:
            self._known.add(key)
            self._on_new(key, inputs, {})
        return {key: Passes(1, 1)}, _batch_size(inputs, {})

    def _key(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKey:
        kind = self._device_type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return CallKey(path, (signature(args), signature(kwargs)), self._model.training, autocast, self.version)

    def _enters(self, _model: torch.nn.Module, _args: Any) -> None:
        self._inside += 1

    def _on_call(
        self, path: str, _model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        if self._inside:
            if path:
                return
            self._inside -= 1
        if self.passes is None:
            return
        try:
            self._count(path, args, kwargs, output)
        except Exception as fault:  # noqa: BLE001  the user's training goes on whatever happens in here
            self._on_fault(fault)

    def _count(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        key = self._key(path, args, kwargs)
        assert self.passes is not None
        passes = self.passes.get(key)
        if passes is None:
            passes = self.passes[key] = Passes()
        if _graph_task() != _OUTSIDE:
            passes.recomputed += 1
        else:
            passes.forward += 1
            self._samples[path] += _batch_size(args, kwargs)
        if torch.is_grad_enabled():
            _count_backward(output, passes)
        if key not in self._known:
            self._known.add(key)
            self._on_new(key, args, kwargs)


def _watched(model: torch.nn.Module, children: bool) -> Iterator[tuple[str, torch.nn.Module]]:
    yield "", model
    if children:
        yield from model.named_children()


def _count_backward(output: Any, passes: Passes) -> None:
    """Add a backward pass when gradients first reach the output in one run of the engine."""
    last = _OUTSIDE

    def on_gradient(_gradient: torch.Tensor) -> None:
        nonlocal last
        task = _graph_task()
        if task != last:
            last = task
            passes.backward += 1

    for tensor in _graph_tensors(output):
        tensor.register_hook(on_gradient)


def _graph_tensors(output: Any) -> list[torch.Tensor]:
    """Tensors of an output that a backward pass can begin from; of one that names its loss, the loss."""
    if isinstance(output, torch.Tensor):
        return [output] if output.requires_grad else []
    if isinstance(output, Mapping):
        loss = output.get("loss")
        if isinstance(loss, torch.Tensor) and loss.requires_grad:
            return [loss]
        output = list(output.values())
    if isinstance(output, (tuple, list)):
        return [tensor for each in output for tensor in _graph_tensors(each)]
    return []


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


def _compiles(model: torch.nn.Module) -> bool:
    """Whether the hook may be traced: a plain model may still be given to torch.compile, a compiled one calls its hooks
    outside of its graph."""
    return not isinstance(model, torch._dynamo.OptimizedModule)
