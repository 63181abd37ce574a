"""Calls of a model in a step, as the hooks of `measure/meter/forward_calls.py` note them, and what they add up to.

A kind of call is known by the shapes of its inputs (`signature`). A call is itself the hook that each backward pass of
it runs, so its classes have nothing that a step of 10 ms does not need; `passes_of` and `samples_of` add calls up
later, many steps at once.

Not claimed: which calls there are. What a captured CUDA graph replays is none, and the shapes inside of a nested tensor
are data.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence

_graph_task = torch._C._current_graph_task_id
OUTSIDE = -1
"""`torch._C._current_graph_task_id()` where no backward pass runs."""

_SCALARS = (bool, int, str, type(None))


@dataclass(frozen=True, slots=True, eq=False)
class CallKey:
    """What the count of a call depends on. One object for each kind of call of a model, which equals no other.

    A hash of its sizes would be calculated each time that passes are added up.

    module: path of the module that was called, "" for the model. autocast: dtype, or None where autocast is off.
    version: number of the state that the model was in (`measure/meter/model_state.py`).
    """

    module: str
    inputs: Hashable
    autocast: torch.dtype | None
    version: int


CallFields = tuple[str, Hashable, torch.dtype | None, int]
"""Those of a CallKey, by which the key of a call is found."""


@dataclass(slots=True)
class Passes:
    """How often the calls of one key ran. recomputed: forward passes inside of a backward pass. hidden: forward passes
    that gave no tensor, so that their backward pass would not be seen. late: backward passes while no step was open."""

    forward: int = 0
    backward: int = 0
    recomputed: int = 0
    hidden: int = 0
    late: int = 0

    def add(self, other: Passes) -> None:
        self.forward += other.forward
        self.backward += other.backward
        self.recomputed += other.recomputed
        self.hidden += other.hidden
        self.late += other.late


class SeenCall(NamedTuple):
    """A kind of call. samples: length of the first dimension of its first input. on_later_backward: called with this
    for each backward pass after the end of the call's step. on_fault: called with what went wrong in a hook."""

    key: CallKey
    samples: int
    on_later_backward: Callable[[SeenCall], None]
    on_fault: Callable[[BaseException], None]


class Call:
    """One call in a step that gave one tensor. It is the hook on that tensor, which each run of autograd's engine that
    reaches it calls once, with the gradient.

    It has no constructor, which would be one more function to run at each call: who makes one sets `seen`, `backward`.
    At the end of its step it is made one of its class `ended`, so that a later backward pass is none of this step. (A
    flag would be one more look-up in each backward pass.)
    """

    __slots__ = ("backward", "seen")
    ended: type[Call]
    seen: SeenCall
    backward: int
    forward = True
    recomputed = False
    hidden = False

    def __call__(self, _gradient: torch.Tensor) -> None:
        try:
            self.backward += 1
        except Exception as fault:  # noqa: BLE001  the user's training goes on whatever happens in here
            self.seen.on_fault(fault)


class EndedCall(Call):
    """A call whose step has ended."""

    __slots__ = ()

    def __call__(self, _gradient: torch.Tensor) -> None:
        try:
            self.seen.on_later_backward(self.seen)
        except Exception as fault:  # noqa: BLE001  as above
            self.seen.on_fault(fault)


class GeneralCall(Call):
    """A call of any kind: with several outputs or none, or in a backward pass.

    A run of the engine is one backward pass, however many outputs it reaches. forward: False for a backward pass of a
    call of an earlier step."""

    __slots__ = ("_last", "forward", "hidden", "recomputed")

    def __init__(self, seen: SeenCall, recomputed: bool) -> None:
        self.seen, self.recomputed = seen, recomputed
        self.forward, self.hidden = not recomputed, False
        self.backward, self._last = 0, OUTSIDE

    def __call__(self, _gradient: torch.Tensor) -> None:
        try:
            if self._begins():
                self.backward += 1
        except Exception as fault:  # noqa: BLE001  as above
            self.seen.on_fault(fault)

    def _begins(self) -> bool:
        """Whether this is the first gradient of a run of the engine."""
        task = _graph_task()
        before, self._last = self._last, task
        return task != before


class EndedGeneralCall(GeneralCall):
    """A call of any kind whose step has ended."""

    __slots__ = ()

    def __call__(self, _gradient: torch.Tensor) -> None:
        try:
            if self._begins():
                self.seen.on_later_backward(self.seen)
        except Exception as fault:  # noqa: BLE001  as above
            self.seen.on_fault(fault)


Call.ended, GeneralCall.ended = EndedCall, EndedGeneralCall


class OpenStep:
    """The step that is open, and what the next call is compared with. One small object, which the hooks and the marks
    of a step share, so that few lines of memory have all that a step touches.

    begun: the mark where the step began; None: no step is open, and calls are not noted. calls: of the step so far.
    shape, dtype, needs_grad, version, seen: of the latest call of one tensor; shape is None where there is none.
    """

    __slots__ = ("begun", "calls", "dtype", "needs_grad", "seen", "shape", "version")

    def __init__(self) -> None:
        self.begun: Any = None
        self.calls: list[Call] = []
        self.shape: torch.Size | None = None
        self.dtype: torch.dtype | None = None
        self.needs_grad = False
        self.version = 0
        self.seen: SeenCall | None = None


def passes_of(calls: Sequence[Call]) -> dict[CallKey, Passes]:
    """The passes of a step's calls, added up by key."""
    if len(calls) == 1:  # of most steps
        call = calls[0]
        return {call.seen.key: Passes(int(call.forward), call.backward, int(call.recomputed), int(call.hidden))}
    passes: dict[CallKey, Passes] = {}
    for call in calls:
        mine = passes.get(call.seen.key)
        if mine is None:
            mine = passes[call.seen.key] = Passes()
        mine.backward += call.backward
        mine.hidden += call.hidden
        mine.recomputed += call.recomputed
        mine.forward += call.forward
    return passes


def samples_of(calls: Sequence[Call]) -> int:
    """Samples of a step: the sum of the first dimensions of its inputs; of several modules, the largest sum."""
    if len(calls) == 1:
        return calls[0].seen.samples if calls[0].forward else 0
    by_module: Counter[str] = Counter()
    for call in calls:
        if call.forward:
            by_module[call.seen.key.module] += call.seen.samples
    return max(by_module.values(), default=0)


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
    if isinstance(value, enum.Enum):
        return type(value), value.name
    if isinstance(value, PackedSequence):
        batches = value.batch_sizes  # on the CPU: rows in all, longest sequence, and rows of the first step
        return PackedSequence, signature(value.data), len(batches), int(batches[0])
    if isinstance(value, (tuple, list)):
        sizes: list[Hashable] = []
        for each in value:
            if type(each) is torch.Tensor and not each.is_nested:
                sizes.append((each.shape, each.dtype, each.requires_grad))
            else:
                sizes.append(signature(each))
        return tuple(sizes)
    if isinstance(value, Mapping):
        named: list[Hashable] = []
        for key, each in value.items():
            named.append((key, signature(each)))
        return tuple(named)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple([signature(getattr(value, each.name, None)) for each in dataclasses.fields(value)])
    return str(type(value))
