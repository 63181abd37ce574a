"""Recorded steps by operation type: the time of all calls of one name, each instant counted once, step by step.

On a CPU a call has the time that it runs and no call inside of it does; on a device an operation has its kernels',
copies' and fills', given to the innermost call that launched them. On a CPU a launch is a call of no view that has
no such call inside: about what would launch kernels on a device. What is left of a step is between operations. A
call inside of `Optimizer.step` or `Optimizer.zero_grad` says so (its scope), for torch puts a range around both.

Not claimed: calls are timed under the profiler, which costs each a microsecond or so, a part of it between operations.
"""

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from analysis.operators.registry import kind_of
from measure.profile.time_shares import shares
from measure.profiler.events import ANNOTATION, Frame, launched, step_frames

_OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#(\w+)\.")
_NO_CALL = "unlinked"


@dataclass(frozen=True, order=True)
class Typed:
    """What calls are distinguished by. scope: "step" or "zero_grad" of an optimizer of this class, or empty."""

    name: str
    phase: str
    scope: str = ""
    optimizer: str = ""


@dataclass(frozen=True)
class TypedStep:
    """One step, in s: its length, and of each type its own time, calls and launches. Sorted by type."""

    step_s: float
    own_s: dict[Typed, float]
    calls: dict[Typed, int]
    launches: dict[Typed, int]
    each: tuple[tuple[Typed, float], ...] = ()  # every call, on a device every kernel, with its own time

    @property
    def operations_s(self) -> float:
        return sum(self.own_s.values())


def typed_steps(recording: Any, *, cuda: bool) -> list[TypedStep]:
    """The steps of torch's `_ProfilerResult`, in order. Raises Unavailable if it holds none."""
    events = recording.events()
    steps = step_frames(events)
    untils = [frames[0].start_ns for frames in steps[1:]] + [None]
    return [
        _on_device(events, frames, until) if cuda else _on_host(frames)
        for frames, until in zip(steps, untils, strict=True)
    ]


def _on_host(frames: Sequence[Frame]) -> TypedStep:
    types = _types(frames)
    calls = [frame for frame in frames if frame.index is not None]
    working = [frame for frame in calls if not _is_view(frame.name)]
    around = {id(frame.above) for frame in working}
    intervals = ((frame.start_ns, frame.end_ns, place) for place, frame in enumerate(calls))
    leaves = (types[id(frame)] for frame in working if id(frame) not in around)
    return _step(intervals, frames[0].start_ns, frames[0].end_ns, [types[id(frame)] for frame in calls], calls, leaves)


def _on_device(events: Sequence[Any], frames: Sequence[Frame], until_ns: int | None) -> TypedStep:
    types = _types(frames)
    calls = [frame for frame in frames if frame.index is not None]
    found = [(event, _typed(frame, types)) for event, frame in launched(events, frames, until_ns)]
    intervals = [
        (event.start_ns(), event.start_ns() + event.duration_ns(), place) for place, (event, _) in enumerate(found)
    ]
    end_ns = max([frames[0].end_ns, *(end for _, end, _ in intervals)])
    of_kernels = [typed for _, typed in found]
    made = _step(intervals, frames[0].start_ns, end_ns, of_kernels, [], of_kernels)
    called = Counter(types[id(frame)] for frame in calls)
    return replace(made, calls=dict(called))


@functools.cache
def _is_view(name: str) -> bool:
    """Whether a call only gives another view of memory, gets some, or asks about it."""
    return kind_of(name.replace("::", ".")) == "view"


def _step(
    intervals: Any,
    start_ns: int,
    end_ns: int,
    types: Sequence[Typed],
    calls: Sequence[Frame],
    launches: Any,
) -> TypedStep:
    """types: of each interval by its place."""
    own = shares(iter(intervals), start_ns, end_ns).own
    spent: dict[Typed, int] = {}
    for place, ns in own.items():
        spent[types[place]] = spent.get(types[place], 0) + ns
    return TypedStep(
        step_s=(end_ns - start_ns) / 1e9,
        own_s={typed: spent[typed] / 1e9 for typed in sorted(spent)},
        calls=dict(Counter(types[: len(calls)])),
        launches=dict(Counter(launches)),
        each=tuple((types[place], ns / 1e9) for place, ns in own.items()),
    )


def _types(frames: Sequence[Frame]) -> dict[int, Typed]:
    """id of a frame → its type; a frame inside of an optimizer's range has that scope, whatever its own parent."""
    scopes: dict[int, tuple[str, str]] = {}
    types = {}
    for frame in frames:  # parents first
        scope = scopes.get(id(frame.parent), ("", ""))
        if frame.scope == ANNOTATION and (found := _OPTIMIZER.match(frame.name)):
            scope = (found[1], found[2])
        scopes[id(frame)] = scope
        types[id(frame)] = Typed(frame.name, frame.phase, *scope)
    return types


def _typed(frame: Frame | None, types: dict[int, Typed]) -> Typed:
    """The innermost call around what launched a kernel; of one that no call launched, a name that says so."""
    if frame is not None:
        call = next((each for each in frame.inside_of_all if each.index is not None), None)
        if call is not None:
            return types[id(call)]
        around = types[id(frame)]
        return Typed(_NO_CALL, around.phase, around.scope, around.optimizer)
    return Typed(_NO_CALL, "")


@functools.cache
def tags_of(name: str) -> tuple[str, ...]:
    """What torch says of an operator of any overload: names of `torch.Tag`, and "alias" where it gives a view."""
    space, _, short = name.partition("::")
    packet = getattr(getattr(torch.ops, space, None), short, None) if short else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return ()
    found: set[str] = set()
    for overload in packet.overloads():
        operator = getattr(packet, overload)
        found |= {str(tag).rpartition(".")[2] for tag in operator.tags}
        alias = next((value.alias_info for value in operator._schema.returns), None)
        if alias is not None and not alias.is_write:
            found.add("alias")
    return tuple(sorted(found))
