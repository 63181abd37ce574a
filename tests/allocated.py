"""What a CPU really allocates in one training step: the memory events of torch's profiler, and torch's MemTracker.

The profiler records from before the model is made, so that every free finds what it frees.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from small_steps import Build
from torch._C._profiler import _RecordFunctionFast
from torch.distributed._tools.mem_tracker import MemTracker
from torch.profiler import ProfilerActivity, profile, record_function

from measure.operations import Recorder, StepParts, Trace

_STEP = "the measured step"
_OPERATION = "the measured operation "


@dataclass(frozen=True)
class Moment:
    """Bytes allocated as an operation begins, and the most while it runs."""

    begins: int
    highest: int


class _Ranges(Recorder):
    """A recorder that puts each operation into a range named by its index."""

    def before(self, func: Any, args: Any, kwargs: Any) -> Any:
        call = super().before(func, args, kwargs)
        if call is not None:
            self._range = _RecordFunctionFast(f"{_OPERATION}{self.position}")
            self._range.__enter__()
        return call

    def after(self, call: Any, args: Any, kwargs: Any, out: Any) -> None:
        self._range.__exit__(None, None, None)
        super().after(call, args, kwargs, out)


def peak_allocated(build: Build) -> int:
    """The most bytes that are allocated in the second step of a net, with nobody watching but the profiler."""
    with _recorded() as recorded:
        built = _warm(build)
        with record_function(_STEP):
            built.step(_ignore)
    events = _events(recorded)
    (span,) = (each for each in events if each.name == _STEP)
    return _moment(_allocations(events), span).highest


def moments(build: Build) -> tuple[Trace, list[Moment]]:
    """The trace of the second step of a net on real tensors, and what was allocated at each of its operations."""
    with _recorded() as recorded:
        built = _warm(build)
        recorder = _Ranges(built.model, built.optimizer, built.inputs)
        with recorder.recording(None):
            built.step(recorder.mark)
    trace, events = recorder.trace(), _events(recorded)
    spans = {each.name: each for each in events if each.name.startswith(_OPERATION)}
    allocations = _allocations(events)
    return trace, [_moment(allocations, spans[f"{_OPERATION}{i}"]) for i in range(len(trace.operations))]


def tracked(build: Build) -> int:
    """Bytes of storages at the highest in the second step of a net, by torch's MemTracker."""
    built = _warm(build)
    tracker = MemTracker()
    tracker.track_external(built.model, built.optimizer, *built.inputs)
    with tracker:
        built.step(_ignore)
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return int(snapshot["Total"])


def _warm(build: Build) -> StepParts:
    built = build(None)
    built.step(_ignore)
    return built


def _recorded() -> profile:
    gc.collect()  # what another test left would be freed in the middle of the step
    return profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)


def _ignore(_phase: str) -> None:
    """Nobody listens."""


def _events(recorded: profile) -> list[Any]:
    return list(_flat(recorded.profiler.kineto_results.experimental_event_tree()))


def _flat(events: Any) -> Iterator[Any]:
    for event in events:
        yield event
        yield from _flat(event.children)


def _allocations(events: list[Any]) -> list[tuple[int, int]]:
    """(time, bytes that come or go) in order of time."""
    found = [(each.start_time_ns, each.typed[1].alloc_size) for each in events if each.name == "[memory]"]
    return sorted(found, key=lambda pair: pair[0])


def _moment(allocations: list[tuple[int, int]], span: Any) -> Moment:
    begins = sum(size for time, size in allocations if time < span.start_time_ns)
    live = highest = begins
    for _time, size in (pair for pair in allocations if span.start_time_ns <= pair[0] <= span.end_time_ns):
        live += size
        highest = max(highest, live)
    return Moment(begins, highest)
