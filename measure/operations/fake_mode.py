"""Makes fake CPU tensors: a model and a batch with sizes and dtypes, but no values and no memory.

`fake_copy` takes a model and its inputs, and returns fake copies; `fake_mode` returns the mode in which they run. A
step on the copies dispatches the operations of the same step on a CPU, autocast included; attention is one operation.
An operation whose result depends on values raises Unavailable. In the phase "optimizer" a scalar read returns 0
instead, and a note says so. Every fp16 step needs that: 0 is GradScaler's found_inf of a good step.
`reading_scalars_as` gives another number. torch has no rule for the CTC loss on fake tensors, since its kernels exist
for the CPU and cuDNN only. `SHAPES` has the results of this loss if its lengths are tensors. A step with lists of
lengths is traced on real tensors.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    in_kernel_invocation_manager,
)
from torch.nn.utils.rnn import PackedSequence
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map

from measure.operations.control_flow import replaced_attribute
from measure.operations.fake_results import ResultCache, Signature
from measure.operations.schemas import plan_of
from results.errors import Unavailable

_NOT_ON_FAKE = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
_DEVICE = torch.ops.prim.device.default
_SCALAR = torch.ops.aten._local_scalar_dense.default
_READS = frozenset((_SCALAR, torch.ops.aten.select.int))
NOT_ON_FAKE = (Unavailable, RuntimeError, TypeError)
"""Exceptions of a model that fake tensors cannot run: the mode's own refusal, or torch's (`numpy()`, no kernel)."""

_MODULE_OWN = frozenset(vars(torch.nn.Module()))
"""Attributes that every module has: its parameters, buffers, children and hooks."""
Bare = Callable[[torch.Tensor], torch.Tensor]
"""A function that makes a tensor with the form of another one."""
_CPU = torch.device("cpu")
_PROFILER = torch.ops.profiler
_MARKERS = frozenset((_PROFILER._record_function_enter_new.default, _PROFILER._record_function_exit._RecordFunction))
"""Operators that mark a range for a profiler and have no tensors. They run directly: torch's mode takes longer."""
_VIEW, _UNSAFE_VIEW = torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default


_SEPARATE = frozenset((torch.ops.aten.mkldnn_rnn_layer_backward.default,))
"""Operators whose rule for fake tensors returns one tensor twice (both bias gradients). The kernel returns two, and so
does torch's cache of results from the second call on."""


_STATISTICS = {torch.ops.aten.native_batch_norm.default: 1, torch.ops.aten.native_layer_norm.default: 2}
"""Normalisations → which argument is the weight. Where the input has half precision and the weight does not, the kernel
gives means and deviations the weight's dtype, and the rule for fake tensors the input's."""


class FakeMode(FakeTensorMode):
    """PyTorch's fake tensor mode, which shows the operations it runs to a watcher.

    One mode in place of two on the stack: a second one costs 5 µs a call. What an operation runs inside itself (a
    decomposition) is not shown. Views, and calls whose signature is known (`fake_results.py`), are answered without
    torch's kernels and bookkeeping.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self.phase = "optimizer"
        self.notes: list[str] = []
        self._scalar: int | None = None
        self._watcher: Any = None  # a `Recorder`
        self._memo = ResultCache(self)
        self.cache_enabled = False  # torch's own cache: its keys cost more than most of what it keeps

    def enter_phase(self, phase: str) -> None:
        """Set the phase of the step that begins; the end of a step is part of "optimizer"."""
        self.phase = "optimizer" if phase == "end" else phase

    @property
    def busy(self) -> bool:
        """Whether operations are not shown to a watcher: an operation that was shown still runs, or there is none."""
        return self._watcher is None

    def wrapped(self, bare: torch.Tensor) -> torch.Tensor:
        """Return a fake CPU tensor with the form and the memory of a meta tensor: as the mode itself would, in less
        time."""
        return self._memo.wrapped(bare)

    def watched_by(self, watcher: Any) -> contextlib.AbstractContextManager[None]:
        """Return a context in which all operations are shown to `watcher`, a `Recorder`; None: no watcher."""
        return replaced_attribute(self, "_watcher", watcher)

    def reading_scalars_as(self, value: int) -> contextlib.AbstractContextManager[None]:
        """Return a context in which every tensor reads as this number."""
        return replaced_attribute(self, "_scalar", value)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the guard costs more than an operation that is known

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation; called by torch for each that reaches the mode."""
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device  # autograd queries it for each tensor
        if func in _READS and type(args[0]) is torch.Tensor:  # sizes of a PackedSequence's batches
            with no_dispatch():
                return func(*args, **(kwargs or {}))
        watcher = self._watcher
        kwargs = kwargs or {}
        if func in _MARKERS:
            return func(*args, **kwargs)
        plan = plan_of(func)
        if plan.composes:
            with self:
                return func.decompose(*args, **kwargs)
        seen = None
        if plan.again or plan.returns_self or plan.is_view:
            seen = self._memo.signature(plan, args, kwargs)
        if watcher is None:
            return self._answer(plan, seen, func, types, args, kwargs)
        self._watcher = None
        try:
            call = watcher.before(func, args, kwargs, seen)
            out = self._answer(plan, seen, func, types, args, kwargs)
            if call is not None and out is not NotImplemented:
                watcher.after(call, args, kwargs, out)
            return out
        finally:
            self._watcher = watcher

    def _answer(self, plan: Any, seen: Signature | None, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operation: the cached one of its signature; of a view, the wrapped result of the
        operator's kernel; otherwise that of torch's mode."""
        if seen is None:
            return self._run(func, types, args, kwargs)
        known = plan.returned.get(seen.key)
        if known is not None:
            return self._memo.make(known, args)
        if plan.is_view:
            with in_kernel_invocation_manager(self):
                out = _VIEW(*args, **kwargs) if func is _UNSAFE_VIEW else func(*args, **kwargs)
            wrapped = self._memo.wrapped
            return wrapped(out) if isinstance(out, torch.Tensor) else [wrapped(tensor) for tensor in out]
        out = self._run(func, types, args, kwargs)
        self._memo.remember(plan, seen, args, out)
        return out

    def _run(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is _UNSAFE_VIEW:  # torch's cache of results gives it a new storage (seen in 2.11)
            func = _VIEW
        try:
            out: Any = self.dispatch(func, types, args, kwargs)
            if func in _STATISTICS and (weight := args[_STATISTICS[func]]) is not None and out[1].dtype != weight.dtype:
                bare = [torch.empty(tensor.shape, dtype=weight.dtype, device="meta") for tensor in out[1:]]
                return (out[0], *(FakeTensor(self, tensor, _CPU) for tensor in bare))
            return self._separate_storages(out) if func in _SEPARATE else out
        except _NOT_ON_FAKE as fault:
            if func is _SCALAR and self._scalar is not None:
                return self._scalar
            if func is _SCALAR and self.phase == "optimizer":
                return self._zero(args[0])
            if func in SHAPES:
                return SHAPES[func](*args, **kwargs)
            raise Unavailable(f"fake tensors cannot run {func}") from fault

    def _separate_storages(self, out: tuple[Any, ...]) -> tuple[Any, ...]:
        """Give each of several tensors that share a storage, except the first, a new storage."""
        seen: set[int] = set()
        tensors = []
        for tensor in out:
            if id(tensor.untyped_storage()) in seen:
                bare = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
                tensor = FakeTensor(self, bare, tensor.fake_device)
            seen.add(id(tensor.untyped_storage()))
            tensors.append(tensor)
        return tuple(tensors)

    def _zero(self, tensor: torch.Tensor) -> int | float:
        note = "scalars read in the optimizer were taken to be 0"
        if note not in self.notes:
            self.notes.append(note)
        return 0.0 if tensor.is_floating_point() else 0


def fake_mode() -> FakeMode:
    """Return a mode for fake CPU tensors, to be entered with `with`."""
    return FakeMode()


def quiet_logs() -> contextlib.AbstractContextManager[None]:
    """Return a context without torch's logs of fake tensors, which log each operation that they cannot run as an error
    with a traceback."""
    return replaced_attribute(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)


def to_fake(tree: Any, mode: FakeTensorMode) -> Any:
    """Return a module, in place, or a tree of tensors, turned into fake CPU tensors of this mode.

    The module may have been built on meta, or really; its parameters and buffers are replaced, with their sizes,
    strides, dtypes, requires_grad and hooks on gradients; the gradients that they hold are dropped. Tensors that
    are shared stay shared. What a module keeps outside of parameters and buffers is replaced where it is a tensor,
    or a list, tuple or dict of tensors.
    """
    fake = _copier(_fakes(mode), hooked=True)
    if not isinstance(tree, torch.nn.Module):
        return tree_map(fake, tree, is_leaf=_is_packed)
    for module in tree.modules():
        for held in (module._parameters, module._buffers):
            held.update({name: fake(tensor) for name, tensor in held.items()})
        for name, value in vars(module).items():
            if name not in _MODULE_OWN and any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value)):
                vars(module)[name] = tree_map(fake, value)
    return tree


def fake_copy(model: torch.nn.Module, tree: Any, mode: FakeTensorMode | None) -> tuple[torch.nn.Module, Any]:
    """Return a copy of the model and of a tree of tensors, made of fake tensors of this mode, without copying data.

    mode: None: the copy has real tensors with the same values. The caller's model and tensors stay as they are.
    """
    bare = (lambda tensor: tensor.detach().clone()) if mode is None else _fakes(mode)
    copied: tuple[torch.nn.Module, Any] = copy_with(bare, (model, tree), True)
    return copied


def copy_with(bare: Bare, tree: Any, hooked: bool = False) -> Any:
    """Return a copy of models and tensors, with each tensor replaced by `bare(tensor)`; shared tensors stay shared.

    hooked: whether hooks on gradients are copied, too.
    """
    copier = _copier(bare, hooked)
    models = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.nn.Module)]
    instead = {id(tensor): copier(tensor) for model in models for tensor in tensors_of(model)}
    return tree_map(
        lambda leaf: copy.deepcopy(leaf, instead) if isinstance(leaf, torch.nn.Module) else copier(leaf),
        tree,
        is_leaf=_is_packed,
    )


def tensors_of(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the tensors that a model's modules hold: parameters, buffers, and other attributes."""
    return [leaf for module in model.modules() for leaf in tree_leaves(vars(module)) if isinstance(leaf, torch.Tensor)]


def meta_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a meta tensor with the sizes, strides and dtype of a tensor. Raises Unavailable for one that is not dense,
    whose numbers of values are not known from its sizes."""
    if tensor.layout is not torch.strided:
        raise Unavailable(f"expected a dense tensor, got one of layout {tensor.layout}, whose sizes do not describe it")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _fakes(mode: FakeTensorMode) -> Bare:
    if isinstance(mode, FakeMode):
        return lambda tensor: mode.wrapped(meta_like(tensor))
    return lambda tensor: FakeTensor(mode, meta_like(tensor), _CPU)


def _copier(bare: Bare, hooked: bool) -> Callable[[Any], Any]:
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # holds the originals, so that no id comes twice

    def copied(value: Any) -> Any:
        if _is_packed(value):  # its batch sizes control the step, and stay real
            data, order, back = map(copied, (value.data, value.sorted_indices, value.unsorted_indices))
            return PackedSequence(data, value.batch_sizes, order, back)
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in copies:
            copies[id(value)] = (value, _as_parameter(bare(value), value, hooked))
        return copies[id(value)][1]

    return copied


def _is_packed(value: Any) -> bool:
    return isinstance(value, PackedSequence)


def _as_parameter(copied: torch.Tensor, original: torch.Tensor, hooked: bool) -> torch.Tensor:
    """Give a copy the other properties of the original tensor, and return it: requires_grad, whether it is a parameter,
    and if `hooked` the hooks on its gradient."""
    copied.requires_grad_(original.requires_grad)
    if original.requires_grad and not original.is_leaf:  # made no leaf, so that it may be written in place
        with torch.enable_grad():
            copied = copied.clone(memory_format=torch.preserve_format)
    if isinstance(original, torch.nn.Parameter):
        copied._is_param = True  # all that torch.nn.Parameter makes of a tensor subclass
    if hooked:
        for hook in (original._backward_hooks or {}).values():
            copied.register_hook(_on_fake(hook))
        for hook in (original._post_accumulate_grad_hooks or {}).values():
            copied.register_post_accumulate_grad_hook(_on_fake(hook))
    return copied


def _on_fake(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook on a gradient that raises Unavailable if it cannot run on fake tensors, such as a hook that looks
    up the real parameter."""

    @functools.wraps(hook)
    def run(*arguments: Any) -> Any:
        try:
            return hook(*arguments)
        except NOT_ON_FAKE:
            raise
        except Exception as fault:
            reason = " ".join(f"{type(fault).__name__}: {fault}".split())
            raise Unavailable(f"a hook on gradients cannot run on fake tensors: {reason}") from fault

    return run


_aten = torch.ops.aten


def ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor, *_rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each sample, and a tensor for the backward pass: batch × frames × (2 labels + 1).

    Each sample is taken to have the maximum number of labels. log_probs: frames × batch × classes; targets: batch ×
    labels. Raises Unavailable for targets in one dimension, where only values tell how many labels a sample has.
    """
    frames, size = log_probs.shape[0], log_probs.shape[1]
    if targets.dim() != 2:
        raise Unavailable("fake tensors cannot run a CTC loss of labels in one dimension")
    return log_probs.new_empty(size), log_probs.new_empty(size, frames, 2 * targets.shape[1] + 1)


SHAPES: Mapping[Any, Callable[..., Any]] = {
    _aten._ctc_loss.Tensor: ctc_loss,
    _aten._ctc_loss_backward.Tensor: lambda _grad, log_probs, *_rest: torch.empty_like(log_probs),
}
"""Operator → function that returns its results on fake tensors."""
