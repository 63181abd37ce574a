"""Turns torch's recording of some steps into the times of each operation in each of the steps.

`read` takes the recording and the table of operations; `type_rows` adds up the calls of each name without a table. On a
CPU an operation's time is that of its call. On a device it is that of the kernels, copies and fills launched in the
call. Only operations that have their call in every step get times, so that means over the steps add up. The rest is
reported as time between operations. Not claimed: times without the profiler, which costs each call a microsecond or so.
"""

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from analysis.operators.registry import kind_of
from measure.profile.events import ANNOTATION, Frame, launched, step_frames
from measure.profile.matching import join
from results.records.characterization import PROFILED, CallTime, Characterization, OperationTime, RecordedStep
from results.records.counts import Operation

Interval = tuple[int, int, int]
"""(start in ns, end in ns, index of the operation)."""


@dataclass(frozen=True)
class Shares:
    """Times in ns. own, waited: by index of the operation; end: the time after the last operation."""

    own: dict[int, int]
    waited: dict[int, int]
    end: int


def shares(intervals: Iterable[Interval], start_ns: int, end_ns: int) -> Shares:
    """Divide the time from start to end among the operations; parts of intervals outside this time do not count.

    Each instant belongs to the running operation that began last: to the innermost of nested calls, to the later of
    concurrent kernels. An instant in which no operation runs is waiting before the next operation, or the end of the
    step after the last operation. Times are whole nanoseconds, so the shares add up to the step exactly.
    """
    own: defaultdict[int, int] = defaultdict(int)
    waited: defaultdict[int, int] = defaultdict(int)
    running: list[tuple[int, int]] = []  # (end, index), the last begun at the end
    now = start_ns
    for begins, ends, index in sorted(intervals, key=lambda interval: (interval[0], -interval[1])):
        begins = min(max(begins, start_ns), end_ns)
        now = _spend(running, now, begins, own)
        waited[index] += begins - now
        own[index] += 0
        now = begins
        running.append((min(ends, end_ns), index))
    now = _spend(running, now, end_ns, own)
    return Shares(dict(own), dict(waited), end_ns - now)


def _spend(running: list[tuple[int, int]], now: int, until: int, own: defaultdict[int, int]) -> int:
    """Assign the time from `now` to `until` to the running operations, the last begun first. Return the time up to
    which one ran, at most `until`."""
    while running and now < until:
        ends, index = running[-1]
        if ends <= now:
            running.pop()
            continue
        own[index] += min(ends, until) - now
        now = min(ends, until)
    return now


@dataclass(frozen=True)
class OperationStepTimes:
    """The times of one recorded step in s, by index of the operation. All steps have the same operations.

    own_s: on a CPU of the call, on a device of its kernels. host_s: of the call on the host. waited_s: before the
    operation. kernels: number of launches. step_s: the sum of own_s, waited_s and end_s, without the own time of
    ignored operations (left_out_s).
    """

    step_s: float
    own_s: Mapping[int, float]
    host_s: Mapping[int, float]
    waited_s: Mapping[int, float]
    kernels: Mapping[int, int] = field(default_factory=dict)
    end_s: float = 0.0  # after the last operation
    left_out_s: float = 0.0  # own time of ignored operations, which step_s leaves out


@dataclass(frozen=True)
class OperationTimings:
    """The times of the steps. unrecorded: indices of operations without a call in any step. notes: what is missing."""

    steps: tuple[OperationStepTimes, ...]
    unrecorded: frozenset[int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Step:
    """One recorded step. kernels: (event of the device, index of the operation whose call is the innermost around the
    launch, or None)."""

    frames: Sequence[Frame]
    calls: Mapping[int, Frame]
    spare: Sequence[Frame]
    kernels: Sequence[tuple[Any, int | None]]

    @property
    def end_ns(self) -> int:
        """The time at which both the host and the device had finished the step."""
        ends_ns: list[int] = [event.start_ns() + event.duration_ns() for event, _ in self.kernels]
        return max([self.frames[0].end_ns, *ends_ns])


def read(
    recording: Any,
    operations: Sequence[Operation],
    *,
    cuda: bool,
    ignored: Iterable[int] = (),
    only: Collection[int] | None = None,
) -> OperationTimings:
    """Return the times of the operations in recorded steps.

    recording: torch's `_ProfilerResult`. cuda: whether times are those of kernels. ignored: indices of operations that
    are left out of the steps' times. only: positions of the steps to read; None: all. Raises Unavailable if the
    recording has no step.
    """
    steps = list(_steps(recording.events(), operations, cuda, only))
    everywhere = set.intersection(*(set(step.calls) for step in steps))
    anywhere = set[int]().union(*(step.calls for step in steps))
    expected = {operation.index for operation in operations if operation.kind != "view"}
    kernels = any(step.kernels for step in steps)
    timed = everywhere if kernels or not cuda else set[int]()
    times = tuple(_times(step, timed, frozenset(ignored), cuda) for step in steps)
    notes = [*_unjoined(operations, expected - anywhere, "no recorded step has them")]
    notes += _unjoined(operations, expected & (anywhere - everywhere), "not every recorded step has them")
    notes += _spare(steps, kernels and cuda)
    if cuda and not kernels:
        notes.append("no kernels: the profiler got none from CUPTI, so no operation has a time")
    unrecorded = frozenset(operation.index for operation in operations) - anywhere
    return OperationTimings(times, unrecorded, tuple(notes))


def _steps(
    events: Sequence[Any], operations: Sequence[Operation], cuda: bool, only: Collection[int] | None
) -> Iterator[_Step]:
    steps = step_frames(events)
    untils = [*(frames[0].start_ns for frames in steps[1:]), None]
    for index, (frames, until) in enumerate(zip(steps, untils, strict=True)):
        if only is None or index in only:
            calls, spare = join(frames, operations)
            of_frame = {id(frame): index for index, frame in calls.items()}
            kernels = []
            for event, frame in launched(events, frames, until) if cuda else ():
                around = () if frame is None else frame.inside_of_all
                kernels.append((event, next((of_frame[id(f)] for f in around if id(f) in of_frame), None)))
            yield _Step(frames, calls, spare, kernels)


def _times(step: _Step, timed: set[int], ignored: frozenset[int], cuda: bool) -> OperationStepTimes:
    calls = {index: frame for index, frame in step.calls.items() if index in timed}
    spans = [(frame.start_ns, frame.end_ns, index) for index, frame in calls.items()]
    if cuda:
        kernels = [(event, index) for event, index in step.kernels if index is not None and index in calls]
        spans = [(event.start_ns(), event.start_ns() + event.duration_ns(), index) for event, index in kernels]
    shared = shares(spans, step.frames[0].start_ns, step.end_ns)
    left_out = sum(ns for index, ns in shared.own.items() if index in ignored)
    total = step.end_ns - step.frames[0].start_ns
    launches = Counter(index for _, index in step.kernels) if cuda else Counter(calls.keys())
    return OperationStepTimes(
        step_s=(total - left_out) / 1e9,
        own_s={index: shared.own.get(index, 0) / 1e9 for index in calls},
        host_s={index: (frame.end_ns - frame.start_ns) / 1e9 for index, frame in calls.items()},
        waited_s={index: shared.waited.get(index, 0) / 1e9 for index in calls},
        kernels={index: launches[index] for index in calls},
        end_s=shared.end / 1e9,
        left_out_s=left_out / 1e9,
    )


def _unjoined(operations: Sequence[Operation], missing: set[int], why: str) -> Iterator[str]:
    if missing:
        names = Counter(operation.name for operation in operations if operation.index in missing)
        text = ", ".join(f"{name} × {count}" for name, count in names.most_common(5))
        yield f"{len(missing)} of {len(operations)} operations have no time, since {why}: {text}"


def _spare(steps: Sequence[_Step], kernels: bool) -> Iterator[str]:
    """Yield notes on recorded calls that belong to no operation."""
    spare = [frame for step in steps for frame in step.spare]
    if spare:
        text = ", ".join(name for name, _ in Counter(frame.name for frame in spare).most_common(5))
        spent_s = sum(frame.end_ns - frame.start_ns for frame in spare) / len(steps) / 1e9
        yield f"{len(spare)} calls in {len(steps)} steps belong to no operation ({text}): {spent_s:.3g} s of a step"
    lost = [event.duration_ns() for step in steps for event, index in step.kernels if index is None]
    if kernels and lost:
        yield f"{len(lost)} kernels in {len(steps)} steps belong to no operation: {sum(lost) / 1e9:.3g} s"


_OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#(\w+)\.")

CallType = tuple[str, str, str, str]
"""Name, phase, scope ("step" or "zero_grad" of an optimizer, or empty) and the optimizer's class."""


def type_rows(recorded: Any, recording: int, *, cuda: bool) -> Characterization:
    """Return the steps of torch's `_ProfilerResult`, in order, each type's times in them, and the calls of the middle
    step.

    On a CPU a launch is a call that is not a view and has no such call inside. This is about what would launch kernels
    on a device. A call inside of `Optimizer.step` or `Optimizer.zero_grad` has that scope, because torch puts a range
    around both.

    recording: its number, for the rows. Raises Unavailable if it has no step.
    """
    events = recorded.events()
    steps = step_frames(events)
    rows, times, calls = [], list[OperationTime](), list[list[CallTime]]()
    for step_index, frames in enumerate(steps):
        types = _types(frames)
        until_ns = steps[step_index + 1][0].start_ns if step_index + 1 < len(steps) else None
        spans, launches = _on_device(events, frames, types, until_ns) if cuda else _on_host(frames, types)
        start_ns, end_ns = frames[0].start_ns, max([frames[0].end_ns, *(end for _, end, _ in spans if cuda)])
        indexed = ((start, end, index) for index, (start, end, _) in enumerate(spans))
        own = shares(indexed, start_ns, end_ns).own
        spent_ns: Counter[CallType] = Counter()
        for index, ns in own.items():
            spent_ns[spans[index][2]] += ns
        by_type = Counter(types[id(frame)] for frame in frames if frame.index is not None)
        rows.append(
            RecordedStep(
                recording=recording,
                part=PROFILED,
                step=step_index,
                time_s=(end_ns - start_ns) / 1e9,
                operations_s=sum(own.values()) / 1e9,
                calls=by_type.total(),
                launches=launches.total(),
            )
        )
        times += [
            OperationTime(
                recording=recording,
                step=step_index,
                name=call_type[0],
                phase=call_type[1],
                scope=call_type[2],
                optimizer=call_type[3],
                tags=tags_of(call_type[0]),
                calls=by_type[call_type],
                launches=launches[call_type],
                time_s=spent_ns[call_type] / 1e9,
            )
            for call_type in sorted(spent_ns)
        ]
        ordered = sorted((spans[index][2], ns / 1e9) for index, ns in own.items())
        calls.append([CallTime(recording=recording, name=t[0], scope=t[2], time_s=own_s) for t, own_s in ordered])
    return Characterization(steps=tuple(rows), times=tuple(times), calls=tuple(calls[len(calls) // 2]))


_Spans = list[tuple[int, int, CallType]]


def _on_device(
    events: Sequence[Any], frames: Sequence[Frame], types: dict[int, CallType], until_ns: int | None
) -> tuple[_Spans, Counter[CallType]]:
    """Return (start, end, type) of each kernel, copy and fill, "unlinked" where no call launched it; and how many each
    type launched."""
    spans = []
    for event, frame in launched(events, frames, until_ns):
        around = () if frame is None else frame.inside_of_all
        call = next((outer for outer in around if outer.index is not None), None)  # the innermost operator call
        scope = ("", "", "") if frame is None else types[id(frame)][1:]
        launcher = ("unlinked", *scope) if call is None else types[id(call)]
        spans.append((event.start_ns(), event.start_ns() + event.duration_ns(), launcher))
    return spans, Counter(launcher for _, _, launcher in spans)


def _on_host(frames: Sequence[Frame], types: dict[int, CallType]) -> tuple[_Spans, Counter[CallType]]:
    """Return (start, end, type) of each call; and how many of each type are not views and have no such call inside."""
    called = [frame for frame in frames if frame.index is not None]
    working = [frame for frame in called if not _is_view(frame.name)]
    around = {id(frame.above) for frame in working}
    launches = Counter(types[id(frame)] for frame in working if id(frame) not in around)
    return [(frame.start_ns, frame.end_ns, types[id(frame)]) for frame in called], launches


@functools.cache
def _is_view(name: str) -> bool:
    """Return whether a call only makes a view, allocates memory, or queries it."""
    return kind_of(name.replace("::", ".")) == "view"


def _types(frames: Sequence[Frame]) -> dict[int, CallType]:
    """Return id of a frame → its type; all frames inside an optimizer's range have its scope."""
    types: dict[int, CallType] = {}
    for frame in frames:  # parents first
        scope = types[id(frame.parent)][2:] if id(frame.parent) in types else ("", "")
        if frame.scope == ANNOTATION and (match := _OPTIMIZER.match(frame.name)):
            scope = (match[1], match[2])
        types[id(frame)] = (frame.name, frame.phase, *scope)
    return types


@functools.cache
def tags_of(name: str) -> tuple[str, ...]:
    """Return torch's tags of an operator, over all overloads: names of `torch.Tag`, and "alias" if it returns a
    view."""
    space, _, short = name.partition("::")
    packet = getattr(getattr(torch.ops, space, None), short, None) if short else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return ()
    tags: set[str] = set()
    for overload in packet.overloads():
        operator = getattr(packet, overload)
        tags |= {str(tag).rpartition(".")[2] for tag in operator.tags}
        alias = next((value.alias_info for value in operator._schema.returns), None)
        if alias is not None and not alias.is_write:
            tags.add("alias")
    return tuple(sorted(tags))
