"""What a CPU really allocates in a training step of a small net, by `measure.profiler.allocations` and for each
operation."""

from dataclasses import dataclass
from typing import Any

from torch._C._profiler import _RecordFunctionFast

from measure.operations.tracer import Recorder, Trace
from measure.profiler import allocations
from measure.profiler.allocations import events, memory_profiler, warm
from tests.support.nets.small_steps import Build

_OPERATION = "the measured operation "


@dataclass(frozen=True)
class Moment:
    """Bytes allocated as an operation begins, and the most while it runs."""

    begins: int
    highest: int


class _Ranges(Recorder):
    """A recorder that puts each operation into a range named by its index."""

    def before(self, func: Any, args: Any, kwargs: Any, seen: Any = None) -> Any:
        call = super().before(func, args, kwargs, seen)
        if call is not None:
            self._range = _RecordFunctionFast(f"{_OPERATION}{self.position}")
            self._range.__enter__()
        return call

    def after(self, call: Any, args: Any, kwargs: Any, out: Any) -> None:
        self._range.__exit__(None, None, None)
        super().after(call, args, kwargs, out)


def peak_allocated(build: Build) -> int:
    """The most bytes that are allocated in the second step of a net, with nobody watching but the profiler."""
    return allocations.on_cpu(lambda: build(None), ()).peak_bytes


def moments(build: Build) -> tuple[Trace, list[Moment]]:
    """The trace of the second step of a net on real tensors, and what was allocated at each of its operations."""
    with memory_profiler() as recording:
        built = warm(lambda: build(None))
        recorder = _Ranges(built.model, built.optimizer, built.inputs)
        with recorder.recording(None):
            built.step(recorder.mark)
    trace, found = recorder.trace(), events(recording)
    spans = {each.name: each for each in found if each.name.startswith(_OPERATION)}
    pairs = allocations.allocations(found)
    return trace, [_moment(pairs, spans[f"{_OPERATION}{i}"]) for i in range(len(trace.operations))]


def _moment(pairs: list[tuple[int, int]], span: Any) -> Moment:
    begins = sum(size for time, size in pairs if time < span.start_time_ns)
    live = highest = begins
    for _time, size in (pair for pair in pairs if span.start_time_ns <= pair[0] <= span.end_time_ns):
        live += size
        highest = max(highest, live)
    return Moment(begins, highest)
