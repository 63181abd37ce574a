"""From torch's recording of some steps to the times of each operation in each of them.

On a CPU an operation's time is that of its call, on a device that of the kernels, copies and fills launched in it; in
both cases shared out so that each instant counts once (`time_shares.py`). Only operations that have their call in
every step get times, so that means over the steps add up; the rest is time between operations, and reported.

Not claimed: calls and kernels are timed under the profiler, which costs each call a microsecond or so.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from measure.profile.alignment import Alignment, join
from measure.profile.rows import StepTimes
from measure.profile.time_shares import Interval, shares
from measure.profiler.events import Frame, launched, step_frames
from results.records.operations import Operation


@dataclass(frozen=True)
class OperationTimings:
    """The times of the steps. unrecorded: indices of operations that no step has a call of. notes: what is missing."""

    steps: tuple[StepTimes, ...]
    unrecorded: frozenset[int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Step:
    """One step as it was recorded. kernels: (event of the device, index of its operation or None)."""

    frames: Sequence[Frame]
    joined: Alignment
    kernels: Sequence[tuple[Any, int | None]]

    @property
    def end_ns(self) -> int:
        """When the host had ended it, and the device what the host gave it."""
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
    """recording: torch's `_ProfilerResult` of steps. only: places of the steps that do these operations; None: all do.

    ignored: indices of operations that are left out of the steps' times. Raises Unavailable if it holds no step.
    """
    events = recording.events()
    found = list(_steps(events, step_frames(events), operations, cuda, only))
    everywhere = set.intersection(*(set(step.joined.frames) for step in found))
    anywhere = set[int]().union(*(step.joined.frames for step in found))
    expected = {operation.index for operation in operations if operation.kind != "view"}
    kernels = any(step.kernels for step in found)
    timed = everywhere if kernels or not cuda else set[int]()
    times = tuple(_times(step, timed, frozenset(ignored), cuda) for step in found)
    notes = [*_unjoined(operations, expected - anywhere, "in no recorded step")]
    notes += _unjoined(operations, expected & (anywhere - everywhere), "not in every recorded step")
    notes += _spare(found, kernels and cuda)
    if cuda and not kernels:
        notes.append("no kernels: CUPTI gave the profiler none, so that no operation has a time")
    unrecorded = frozenset(operation.index for operation in operations) - anywhere
    return OperationTimings(times, unrecorded, tuple(notes))


def _steps(
    events: Sequence[Any],
    steps: Sequence[list[Frame]],
    operations: Sequence[Operation],
    cuda: bool,
    only: Collection[int] | None,
) -> Iterator[_Step]:
    for place, frames in enumerate(steps):
        if only is not None and place not in only:
            continue
        joined = join(frames, operations)
        until = steps[place + 1][0].start_ns if place + 1 < len(steps) else None
        of_frame = {id(frame): index for index, frame in joined.frames.items()}
        kernels = [(event, _of(frame, of_frame)) for event, frame in launched(events, frames, until)] if cuda else []
        yield _Step(frames, joined, kernels)


def _of(frame: Frame | None, of_frame: dict[int, int]) -> int | None:
    """The operation of the innermost joined call around what launched a kernel."""
    if frame is None:
        return None
    return next((of_frame[id(each)] for each in frame.inside_of_all if id(each) in of_frame), None)


def _times(step: _Step, timed: set[int], ignored: frozenset[int], cuda: bool) -> StepTimes:
    calls = {index: frame for index, frame in step.joined.frames.items() if index in timed}
    found = shares(_intervals(step, calls, cuda), step.frames[0].start_ns, step.end_ns)
    left_out = sum(ns for index, ns in found.own.items() if index in ignored)
    total = step.end_ns - step.frames[0].start_ns
    launches = Counter(index for _, index in step.kernels) if cuda else Counter(calls.keys())
    return StepTimes(
        step_s=(total - left_out) / 1e9,
        own_s={index: found.own.get(index, 0) / 1e9 for index in calls},
        host_s={index: (frame.end_ns - frame.start_ns) / 1e9 for index, frame in calls.items()},
        waited_s={index: found.waited.get(index, 0) / 1e9 for index in calls},
        kernels={index: launches[index] for index in calls},
        end_s=found.end / 1e9,
        left_out_s=left_out / 1e9,
    )


def _intervals(step: _Step, calls: dict[int, Frame], cuda: bool) -> Iterator[Interval]:
    if not cuda:
        yield from ((frame.start_ns, frame.end_ns, index) for index, frame in calls.items())
        return
    for event, index in step.kernels:
        if index in calls:
            yield event.start_ns(), event.start_ns() + event.duration_ns(), index


def _unjoined(operations: Sequence[Operation], missing: set[int], where: str) -> Iterator[str]:
    if missing:
        names = Counter(operation.name for operation in operations if operation.index in missing)
        text = ", ".join(f"{name} × {count}" for name, count in names.most_common(5))
        yield f"{len(missing)} of {len(operations)} operations have no time, being {where}: {text}"


def _spare(steps: Sequence[_Step], kernels: bool) -> Iterator[str]:
    """What was recorded and is of no operation."""
    spare = [frame for step in steps for frame in step.joined.spare]
    if spare:
        text = ", ".join(name for name, _ in Counter(frame.name for frame in spare).most_common(5))
        spent_s = sum(frame.end_ns - frame.start_ns for frame in spare) / len(steps) / 1e9
        yield f"{len(spare)} calls in {len(steps)} steps are of no operation ({text}); a step {spent_s:.3g} s"
    if kernels:
        lost = [event.duration_ns() for step in steps for event, index in step.kernels if index is None]
        if lost:
            yield f"{len(lost)} kernels in {len(steps)} steps, {sum(lost) / 1e9:.3g} s, are of no operation"
