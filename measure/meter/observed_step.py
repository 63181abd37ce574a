"""Records the products (convolutions, matrix products) of one real step, to compare them with the counts of its calls.

`StepObserver` is a dispatch mode around a step that sees each product with its sizes, and returns an `ObservedStep`.
Autograd's sequence numbers tell to which call of the model a product of the backward pass belongs. The step computes
the same results as without the observer. A count assumes one backward pass from all outputs to all parameters, but a
loop may do otherwise. It may ask for the gradients of a few parameters, ignore an output, differentiate twice, call the
model through a function, or exchange parameters. Not claimed: the time of such a step; products in compiled code (a
compiled model is not observed), in the loop's own threads, or in kernels without an operator's name.
"""

import functools
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass_type,
)

from analysis.operators import registry
from measure.meter.calls import Hook, ModelCall
from measure.model.module_paths import in_checkpoint, next_number
from measure.operations.schemas import Gradients, Plan, dtype_name, tensors_in

_current_node: Callable[[], Any] = torch._C._current_autograd_node  # None outside of a backward pass
_modes = torch._C._len_torch_dispatch_stack

Amounts = Counter[tuple[str, str]]
"""(kind of product, dtype of its first operand) → model FLOP."""


@dataclass(slots=True)
class ObservedCall:
    """The products of one call of the model.

    ran: phase → products. "forward" has those of the call itself, or "again" if the call was inside of a backward pass.
    "backward" has those in nodes that the call made. "recompute" has those that checkpoints in the model computed again
    for its backward passes.
    """

    call: ModelCall
    ran: dict[str, Amounts]


@dataclass(frozen=True)
class ObservedStep:
    """The products of one step.

    outside_flop: outside of all calls, with their backward passes. elsewhere: in backward passes, by nodes that were
    made neither in a call of the model nor outside of the calls, as for gradients of gradients. host_s: the host time
    of the step.
    """

    calls: tuple[ObservedCall, ...]
    outside_flop: int
    elsewhere: Amounts
    host_s: float


class StepObserver(TorchDispatchMode):
    """Observes one step, from `begin` to `end`, of modules whose calls are noted by others (`ForwardCalls`).

    fault: the first exception raised by the observer; the step goes on, and its observation is lost.
    """

    supports_higher_order_operators = True

    def __init__(self, modules: Iterable[torch.nn.Module], calls: Callable[[], list[ModelCall]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._modules = modules
        self._calls = calls
        self._handles: list[Any] = []
        self._depth = 0
        self._began = 0
        self._calls_before = 0
        self._running: Amounts = Counter()
        self._outside_flop = 0
        self._outside_nodes: set[int] = set()
        self._observed: list[ObservedCall] = []
        self._ranges: list[tuple[int, int, ObservedCall]] = []
        self._recompute_owners: dict[int, ObservedCall | None] = {}
        self._backward: list[tuple[int, bool, tuple[str, str], int]] = []
        self._gradients = Gradients()
        self._is_complete = True
        self.fault: Exception | None = None
        self._is_on = False
        self._began_s = 0.0

    def begin(self) -> bool:
        """Begin to observe; return False if that is impossible, inside a dispatch mode of the caller's."""
        if any(not isinstance(mode, StepObserver) for mode in _get_current_dispatch_mode_stack()):
            return False
        for module in self._modules:
            self._handles.append(module.register_forward_pre_hook(Hook(self._before_call), prepend=True))
            self._handles.append(module.register_forward_hook(Hook(self._after_call), always_call=True))
        self._began_s = time.perf_counter()
        self._is_on = True
        self.__enter__()  # type: ignore[no-untyped-call]
        return True

    def end(self) -> ObservedStep | None:
        """End observing; `leave` comes before or after. Returns the observation, or None if it is incomplete."""
        host_s = time.perf_counter() - self._began_s
        self._is_on = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if not self._is_complete or self._depth:
            return None
        elsewhere: Amounts = Counter()
        for number, again, what, flop in self._backward:
            observed = self._owner(number)
            if observed is not None:
                observed.ran["recompute" if again else "backward"][what] += flop
            elif number in self._outside_nodes:
                self._outside_flop += flop
            else:
                elsewhere[what] += flop
        if not self._backward and any(
            observed.call.backward and any(observed.ran.values()) for observed in self._observed
        ):
            return None  # autograd's engine ran where the mode was not
        return ObservedStep(tuple(self._observed), self._outside_flop, elsewhere, host_s)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        plan, shapes = None, []
        try:
            if any(is_traceable_wrapper_subclass_type(kind) for kind in types):
                return NotImplemented  # subclasses that wrap tensors (DTensor) run first
            if self._is_on:
                plan = _plan_of(func)
                shapes = [tensor.shape for tensor in tensors_in((*args, *kwargs.values()))] if plan is not None else []
        except Exception as fault:  # noqa: BLE001  the user's step goes on, unobserved
            self._fails(fault)
        out = func(*args, **kwargs)
        try:
            if plan is not None and self._is_complete:
                self._note(plan, args, kwargs, shapes, out)
        except Exception as fault:  # noqa: BLE001  as above
            self._fails(fault)
        return out

    def _fails(self, fault: Exception) -> None:
        self._is_complete = False
        self.fault = self.fault or fault

    def _note(self, plan: Plan, args: Any, kwargs: Any, shapes: list[torch.Size], out: Any) -> None:
        if any(issubclass(type(tensor), FakeTensor) or tensor.is_meta for tensor in tensors_in((out,))):
            return  # nothing is computed: DTensor infers sizes in this way, and another meter counts on meta tensors
        node = _current_node()
        inputs = tensors_in((*args, *kwargs.values()))
        call = self._gradients.seen(plan.describe(args, kwargs, shapes, out), inputs)
        if call is None:
            return
        what, flop = (call.kind, dtype_name(inputs[0].dtype)), registry.model_flop(call.operation())
        if self._depth:
            self._running[what] += flop
        elif node is None:
            self._outside_flop += flop
            if torch.is_grad_enabled():
                self._outside_nodes.add(next_number() - 1)
        else:
            again = in_checkpoint()
            number = node._sequence_nr()
            if again and node.name() == "CheckpointFunctionBackward":
                # the operations that it computes again have other nodes, which the engine runs inside this one
                self._recompute_owners[next_number() - 1] = self._owner(number)
            self._backward.append((number, again, what, flop))

    def _owner(self, number: int) -> ObservedCall | None:
        """Return the call that made the autograd node of a number."""
        index = bisect_right(self._ranges, number, key=lambda owner_range: owner_range[0]) - 1
        if index >= 0 and number < self._ranges[index][1]:
            return self._ranges[index][2]
        return self._recompute_owners.get(number)

    def _before_call(self, _module: torch.nn.Module, _args: Any) -> None:
        try:
            if not _modes():
                self._is_complete = False  # another thread of the loop
                return
            self._depth += 1
            if self._depth == 1:
                self._began, self._running = next_number(), Counter()
                self._calls_before = len(self._calls())
        except Exception as fault:  # noqa: BLE001  as above
            self._fails(fault)

    def _after_call(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        try:
            if not _modes():
                return
            self._depth -= 1
            if self._depth:
                return
            calls = self._calls()
            if len(calls) != self._calls_before + 1:
                self._is_complete = False  # the model calls itself
                return
            phase = "again" if calls[-1].again else "forward"
            ran = {phase: self._running, "backward": Counter[Any](), "recompute": Counter[Any]()}
            observed = ObservedCall(calls[-1], ran)
            self._observed.append(observed)
            self._ranges.append((self._began, next_number(), observed))
        except Exception as fault:  # noqa: BLE001  as above
            self._fails(fault)

    def leave(self) -> bool:
        """Take this mode off the stack, if it was entered last; return whether it is off. A mode that was entered later
        has to be left first: until then this one does nothing. In a hook of a backward pass it stays, since autograd's
        engine restores its stack afterwards."""
        self._is_on = False
        if torch._C._current_graph_task_id() != -1:
            return False
        modes = _get_current_dispatch_mode_stack()
        if modes and modes[-1] is self:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            return True
        return self not in modes


@functools.cache
def _plan_of(func: Any) -> Plan | None:
    """Return the plan of an operator; None for one that is not a product."""
    if not isinstance(func, torch._ops.OpOverload):
        return None
    plan = Plan(func)
    rule = registry.rule_of(plan.name)
    is_product = rule is not None and rule.kind in registry.PRODUCTS and rule.bucket == "counted"
    return plan if is_product else None
