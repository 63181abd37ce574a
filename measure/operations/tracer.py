"""Traces one training step: returns a table of operations and a ledger of storages (`Trace`).

A step is a callable that takes a `mark` function and calls it with "forward", "loss", "backward", "optimizer" and "end"
as each begins. Anything before the first mark (zero_grad) belongs to the optimizer. `trace_step` runs the step once, on
fake tensors (`fake_mode.py`) or real ones; `trace` tries fake ones and falls back to real ones. Each ATen call that
reaches the dispatcher below autograd and autocast is an Operation, views included. A call that its own kernel
decomposes is one Operation. Recomputation is a module's forward, or torch's checkpoint, inside an autograd node; a
user's own checkpoint over a function counts as backward. Python's collector is off, so memory that only the collector
frees counts as alive. Not claimed: times and kernels; compiled code (trace a model before it is compiled).
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves

from analysis.operators.attention_conventions import BLOCK_PAIRS
from analysis.operators.registry import PRODUCTS
from measure.model.attention_masks import Masks
from measure.model.module_paths import Links, ModulePaths, in_checkpoint, in_gradient_hook
from measure.model.work_outside import watch_work_outside
from measure.operations.control_flow import inlined_operators, stand_in
from measure.operations.fake_mode import FakeMode, fake_mode, to_fake
from measure.operations.fake_results import Signature
from measure.operations.schemas import (
    Description,
    Gradients,
    Plan,
    clear_cache,
    plan_of,
    sparse,
    tensors_in,
    with_stored,
)
from measure.operations.storages import BEFORE, Storages, owner_of
from results.errors import Unavailable, one_line
from results.process import collector_off
from results.records.counts import PHASES, Operation, Storage

__all__ = ["FakeMode", "Recorder", "StepParts", "Trace", "clear_cache", "fake_mode", "to_fake", "trace", "trace_step"]

Step = Callable[[Callable[[str], None]], Any]

_current_node: Callable[[], Any] = torch._C._current_autograd_node  # None outside of a backward pass
Origin = tuple[str, str, int | None, int | None, bool]
"""Phase, module, sequence number, forward index, and whether a hook on a gradient makes the call."""
PRODUCTS_OR_NONE = (*PRODUCTS, "")
"""Kinds of operations that become other products with sparse tensors."""
Call = tuple[Plan, Any, Description | None, list[torch.Tensor], list[torch.Size], tuple[int, ...], Origin]


@dataclass(frozen=True)
class Trace:
    """One training step. Operations are in order of execution, storages in order of number. Two traces of one step are
    equal."""

    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepParts:
    """The arguments of `trace_step`: a step and the module, optimizer and input tensors whose storages it uses."""

    step: Step
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | None = None
    inputs: Any = ()


def trace(build: Callable[[FakeMode | None], StepParts]) -> Trace:
    """Return the trace of a step on fake tensors, or, where those cannot run it, on real ones.

    build(mode) makes the step on fake tensors of that mode, build(None) a small one on real tensors: its sizes are
    the caller's choice. The notes of a trace on real tensors begin with the reason.
    """
    try:
        mode = fake_mode()
        return trace_step(**vars(build(mode)), mode=mode)
    except Unavailable as reason:
        real = trace_step(**vars(build(None)))
        return replace(real, notes=(str(reason), *real.notes))


def trace_step(
    step: Step,
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    inputs: Any = (),
    mode: FakeMode | None = None,
    steps_before: int = 1,
    batch: bool | None = None,
) -> Trace:
    """Run `step` once and return its operations and storages.

    mode: the fake mode whose tensors the step works on; None for real tensors, on whatever device they are. inputs:
    tensors of the batch, in any nesting of tuples, lists and dicts. steps_before: steps that are run first and not
    recorded, so that the recorded one finds its optimizer's state. batch: whether the inputs have attention masks of
    their own; None: the inputs are searched. Raises Unavailable where fake tensors cannot run an operation (its output
    depends on data), ValueError for a step that announces no phase or an unknown one.
    """
    with contextlib.nullcontext() if mode is None else mode:
        for _ in range(steps_before):
            step((lambda _phase: None) if mode is None else mode.enter_phase)
        recorder = Recorder(model, optimizer, inputs, batch)
        with recorder.recording(mode):
            step(recorder.mark)
        return recorder.trace()


class Recorder:
    """Records the operations of one step. A dispatch mode calls `before` and `after` around each."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any = None,
        inputs: Any = (),
        batch: bool | None = None,
    ) -> None:
        self.phase = "optimizer"
        self.active = False
        self._rows: list[tuple[Any, ...]] = []
        self._parameters = list(model.parameters())
        self._optimizer = optimizer
        self._paths = ModulePaths(model)
        self._masks = Masks(model, inputs, batch)
        self._links = Links()
        self._storages = Storages(lambda: len(self._rows) - 1)
        self._forward_began = 0
        self._depth = 0
        self._step: CodeType | None = None
        self._marked = False
        self._mode: FakeMode | None = None
        self._hidden: list[str] = []
        self._masked_rows: set[int] = set()
        self._gradients = Gradients()
        self._storages.claim(self._parameters, "weight")
        self._storages.claim(model.buffers(), "buffer")
        self._storages.claim([p.grad for p in self._parameters], "gradient")
        self._storages.claim(self._state(), "optimizer_state")
        self._storages.claim(tree_leaves(inputs), "input")

    @property
    def position(self) -> int:
        """The index that the next operation will have."""
        return len(self._rows)

    @property
    def busy(self) -> bool:
        """Whether an operation runs now: calls meanwhile are a fake kernel's, and not the step's."""
        return self._mode is not None and self._mode.busy

    def storage_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor's storage; None if it is unknown."""
        return self._storages.numbers.get(id(owner_of(tensor)))

    @contextlib.contextmanager
    def recording(self, mode: FakeMode | None) -> Iterator[None]:
        """Record all operations within the context. mode: the fake mode that is active; None: operations on real
        tensors are recorded."""
        self._mode = mode
        if mode is not None:
            mode.notes.clear()
        with collector_off():
            try:
                flex = contextlib.nullcontext() if mode is None else stand_in(self._under_mask)
                with (
                    inlined_operators(),
                    flex,
                    self._paths,
                    watch_work_outside(self._outside),
                    _Watch(self) if mode is None else mode.watched_by(self),
                ):
                    self.active = True
                    yield
            except Exception as fault:
                if self._hidden:
                    raise Unavailable(
                        f"work that is not shown ({self._hidden[-1]}): {one_line(str(fault), 200)}"
                    ) from fault
                raise
            finally:
                self.active = False
                self._storages.close()

    def mark(self, phase: str) -> None:
        """Begin a phase of the step; "end" ends the recording. Raises ValueError for an unknown phase."""
        if phase not in PHASES and phase != "end":
            raise ValueError(f"expected a phase ({', '.join(PHASES)} or end), got {phase!r}")
        self._marked = True
        if self.phase == "backward":
            self._storages.claim([p.grad for p in self._parameters], "gradient")
        if phase == "forward":
            self._forward_began = len(self._rows)
        elif phase == "backward":
            self._storages.keep(self._forward_began, "activation")
            self._links.backward_begins()
            self._depth, self._step = self._paths.depth, sys._getframe(1).f_code
        elif phase == "end":
            self.active = False
            self._storages.claim(self._state(), "optimizer_state")
        self.phase = phase
        if self._mode is not None:
            self._mode.enter_phase(phase)

    @contextlib.contextmanager
    def _under_mask(self) -> Iterator[None]:
        """Mark operations within the context as an attention whose block mask is not known."""
        first = len(self._rows)
        yield
        self._masked_rows.update(range(first, len(self._rows)))

    def trace(self) -> Trace:
        """Return the recorded operations and storages. Raises ValueError if the step announced no phase."""
        if not self._marked:
            raise ValueError("expected a step that calls mark('forward'), mark('loss'), …; it announced no phase")
        operations = []
        for index, (d, (phase, module, number, forward_index, in_hook), reads, writes) in enumerate(self._rows):
            operation = Operation(
                index, d.name, d.kind, phase, module, number, forward_index, d.input_names, d.input_shapes,
                d.input_dtypes, d.output_shapes, d.output_dtypes, d.attributes, reads, writes, in_hook,
            )  # fmt: skip
            if d.kind == "attention" and (index if forward_index is None else forward_index) in self._masked_rows:
                operations.append(replace(operation, attributes={**d.attributes, BLOCK_PAIRS: None}))
            else:
                operations.append(self._masks.with_mask(operation))
        if self._mode is not None:
            notes = list(self._mode.notes)
        else:
            devices = ", ".join(sorted({str(p.device) for p in self._parameters}))
            notes = [f"real tensors ({devices})" if devices else "real tensors"]
        return Trace(tuple(operations), self._storages.records(), tuple(notes))

    def before(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], seen: Signature | None = None
    ) -> Call | None:
        """Note a call before it runs, and return it for `after`; None if it is not recorded. seen: its signature, if
        known."""
        plan = plan_of(func)
        if not plan.recorded or not self.active:
            return None
        tensors = tensors_in((*args, *kwargs.values())) if seen is None else seen.tensors
        role = "input" if self.phase in ("forward", "loss") else "optimizer_state"  # of storages from before the step
        reads = tuple([self._storages.number(tensor, BEFORE, role) for tensor in tensors])
        described = None if seen is None else plan.described.get(seen.key)
        shapes = [tensor.shape for tensor in tensors] if described is None else []
        return plan, seen and seen.key, described, tensors, shapes, reads, self._origin(plan, args)

    def after(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Append the call to the table, once its outputs exist."""
        plan, key, described, tensors, shapes, reads, origin = call
        written = [*tensors_in((out,)), *plan.also_written(args, kwargs)]
        writes = tuple(dict.fromkeys([self._storages.number(tensor, len(self._rows)) for tensor in written]))
        if described is None:
            described = plan.describe(args, kwargs, shapes, out)
            if key is not None:
                plan.described[key] = described
        if plan.resizes:
            for tensor in tensors_in((out,)):
                self._storages.resized(tensor)
        if described.kind in PRODUCTS_OR_NONE and sparse(tensors):
            described = with_stored(described, tensors)
        if origin[3] is None:
            self._gradients.note(len(self._rows), described, tensors)
        else:
            described = self._gradients.of_backward(origin[3], described)
        if described is not None:
            self._rows.append((described, origin, reads, writes))

    def _outside(self, name: str) -> None:
        """Note work that no dispatch mode sees as a call without a rule, unless a kernel of torch does it."""
        if self.active and not self.busy:
            self._hidden.append(name)
            described = Description(name, "", (), (), (), (), (), {})
            self._rows.append((described, (self.phase, self._paths.current, None, None, False), (), ()))

    def _origin(self, plan: Plan, args: Sequence[Any]) -> Origin:
        """Return the origin of the operation about to run."""
        node = _current_node()
        if node is None:
            return self.phase, self._paths.current, self._node_number(plan, args), None, False
        if self.phase == "backward" and (self._paths.depth > self._depth or in_checkpoint(self._step)):
            self._links.note_task()
            return "recompute", self._paths.current, self._node_number(plan, args), None, False
        number, forward_index = self._links.follow(node)
        hook = self.phase == "backward" and in_gradient_hook()
        if forward_index is not None:
            return self.phase, self._rows[forward_index][1][1], number, forward_index, hook
        parameter = getattr(node, "variable", None) if number is None else None  # AccumulateGrad
        return self.phase, self._paths.of_parameter(parameter), number, None, hook

    def _node_number(self, plan: Plan, args: Sequence[Any]) -> int | None:
        if not self._links.pending():
            return None
        seen = plan.makes_node and any(tensor.requires_grad for tensor in tensors_in(args))
        return self._links.node_number(len(self._rows), seen)

    def _state(self) -> list[Any]:
        """Return the tensors that the optimizer keeps from step to step, and those among its settings (a learning
        rate)."""
        if self._optimizer is None:
            return []
        settings = [{k: v for k, v in group.items() if k != "params"} for group in self._optimizer.param_groups]
        return tree_leaves([list(self._optimizer.state.values()), settings])


class _Watch(TorchDispatchMode):
    """Shows a recorder the operations on real tensors. Subclasses that wrap tensors (DTensor) run their operation
    first, so that the recorded operations are those on this device."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(is_traceable_wrapper_subclass_type(kind) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if plan_of(func).composes:
            with self:
                return func.decompose(*args, **kwargs)
        call = self._recorder.before(func, args, kwargs)
        out = func(*args, **kwargs)
        if call is not None:
            self._recorder.after(call, args, kwargs, out)
        return out
