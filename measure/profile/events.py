"""Turns the events of torch's profiler into records: each operator call of a step, with its phase and module.

`to_operations` takes a recording and returns `ProfiledOperation` rows and notes about missing data. A call's phase is
the phase range that was open on any thread when the call began: CUDA's backward pass runs on autograd's own thread. A
module's forward inside an autograd node is recomputation. A call's module is the innermost range around the call on its
thread. A backward call has the module of the forward call whose gradient it calculates. Limits: a call that raises is
recorded like any other. On a CPU, the kernel that runs may depend on the number of threads. Recomputing a plain
function looks like backward. Events of torch 2.11 have no shapes for TensorList arguments.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, cast

from torch._C._autograd import DeviceType

from measure.model.module_paths import MODULE
from measure.timing.profiler_ranges import DOMAIN
from results.errors import Unavailable
from results.records.counts import PHASES, ProfiledOperation
from results.records.rows import tuples

FLOP_RULES = frozenset(f"aten::{name}" for name in ("conv2d", "mm", "addmm", "bmm", "baddbmm", "mul", "add"))
"""Names that the profiler has a rule for: `computeFlops` in torch/csrc/profiler/util.cpp, the same in 2.11 and 2.15. A
0 by these rules is a result: a convolution whose padding is a word ("same") counts as 0."""

FUNCTION, BACKWARD, ANNOTATION = 0, 1, 7
"""Scopes of events: FUNCTION, BACKWARD_FUNCTION and USER_SCOPE of at::RecordScope."""

ENGINE = "autograd::engine::"
_OPERATOR = re.compile(r"(?!profiler::|prim::)\w+::\w+")
"""Namespace and name. The engine's frames and C++ nodes (torch::autograd::AccumulateGrad) have more parts."""


class Frame:
    """An event on a host thread, with its position in the program. Times are in ns of the recording's clock."""

    __slots__ = (
        "above", "end_ns", "event", "index", "module", "name", "node", "nodes", "number", "parent", "phase", "scope",
        "start_ns", "thread",
    )  # fmt: skip

    def __init__(self, event: Any) -> None:
        self.event = event
        self.name: str = event.name()
        self.scope: int = event.scope()
        self.thread: int = event.start_thread_id()
        self.start_ns: int = event.start_ns()
        self.end_ns: int = self.start_ns + event.duration_ns()
        self.number: int = event.sequence_nr()  # -1: none
        self.index: int | None = None  # among the operator calls; None: not an operator call
        self.parent: Frame | None = None
        self.above: Frame | None = None  # the nearest operator call around it
        self.node: Frame | None = None  # the autograd node that runs it; None: none, or the forward pass is recomputed
        self.module = ""
        self.phase = ""
        self.nodes = 0  # how many nodes that took part in the backward pass were made in it

    @property
    def inside_of_all(self) -> Iterator[Frame]:
        """This frame and the frames around it, from the innermost outwards."""
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.parent


def to_operations(
    recording: Any, pass_name: str, *, cuda: bool
) -> tuple[tuple[ProfiledOperation, ...], tuple[str, ...]]:
    """Return the operator calls of the last step in a recording, in the order of their start, and notes about missing
    data.

    recording: torch's `_ProfilerResult`. cuda: whether calls get a device time. Raises Unavailable if the recording
    has no step under `Ranges`.
    """
    events = recording.events()
    (frames,) = step_frames(events, last=True)
    calls = [frame for frame in frames if frame.index is not None]
    device_s, notes = _device_times(events, calls, frames) if cuda else ((None,) * len(calls), ())
    makers = _Makers(frames)
    threads: dict[int, int] = {}
    operations = []
    for frame, spent_s in zip(calls, device_s, strict=True):
        maker, forward = makers.of(frame.node)
        event = frame.event
        shapes = event.structured_input_shapes() if hasattr(event, "structured_input_shapes") else event.shapes()
        operations.append(
            ProfiledOperation(
                work=pass_name,
                index=cast("int", frame.index),  # of every call
                parent=None if frame.above is None else frame.above.index,
                name=frame.name,
                phase=frame.phase,
                module=frame.module if maker is None else maker.module,
                sequence_nr=makers.number(frame),
                forward_index=None if forward is None else forward.index,
                thread=threads.setdefault(frame.thread, len(threads) + 1),
                input_shapes=tuples(shapes),
                input_dtypes=tuple(event.dtypes()),
                concrete_inputs=tuples(event.concrete_inputs()),
                found_flop=int(event.flops()) if frame.name in FLOP_RULES else None,
                start_s=(frame.start_ns - frames[0].start_ns) / 1e9,
                time_s=(frame.end_ns - frame.start_ns) / 1e9,
                device_time_s=spent_s,
            )
        )
    return tuple(operations), notes


def step_frames(events: Sequence[Any], *, last: bool = False) -> list[list[Frame]]:
    """Return, for each step under `Ranges`, the step's frame, then the frames that begin within its time on any thread.

    Frames are nested, and in the order of their start, the outer first. last: return only the last step. Raises
    Unavailable if there is no step.
    """
    on_host = [event for event in events if event.device_type() == DeviceType.CPU and not event.is_async()]
    steps = sorted((Frame(e) for e in on_host if e.name() == f"{DOMAIN}.step"), key=lambda frame: frame.start_ns)
    if not steps:
        raise Unavailable("torch's profiler recorded no step")
    placed = [[step] for step in (steps[-1:] if last else steps)]
    starts = [frames[0].start_ns for frames in placed]
    for event in on_host:
        index = bisect_right(starts, event.start_ns()) - 1
        if index >= 0 and event.start_ns() < placed[index][0].end_ns:
            frame = Frame(event)
            # leave out calls of CUDA's runtime, whose threads and numbers are not torch's
            is_step_part = frame.scope != FUNCTION or frame.number >= 0 or "::" in frame.name
            if is_step_part and frame.name != f"{DOMAIN}.step":
                placed[index].append(frame)
    for frames in placed:
        frames[1:] = sorted(frames[1:], key=lambda frame: (frame.start_ns, -frame.end_ns))
        _nest(frames)
    return placed


def _nest(frames: Sequence[Frame]) -> None:
    """Set each frame's parent, and from it its call, module, node and phase; set each call's index."""
    named = [(frame, frame.name.removeprefix(f"{DOMAIN}.")) for frame in frames if frame.scope == ANNOTATION]
    spans = [(frame.start_ns, frame.end_ns, name) for frame, name in named if name in PHASES]
    starts = [start_ns for start_ns, _, _ in spans]
    open_frames: dict[int, list[Frame]] = {}
    calls = 0
    for frame in frames:
        stack = open_frames.setdefault(frame.thread, [])
        while stack and stack[-1].end_ns <= frame.start_ns:
            stack.pop()
        latest = bisect_right(starts, frame.start_ns) - 1
        if latest >= 0 and frame.start_ns < spans[latest][1]:
            frame.phase = spans[latest][2]
        _inherit(frame, stack[-1] if stack else None)
        if frame.scope == FUNCTION and _OPERATOR.fullmatch(frame.name):
            frame.index = calls
            calls += 1
        stack.append(frame)


def _inherit(frame: Frame, parent: Frame | None) -> None:
    recomputed = False
    if parent is not None:
        frame.parent = parent
        frame.above = parent if parent.index is not None else parent.above
        frame.module, frame.node = parent.module, parent.node
        recomputed = parent.phase == "recompute"
    if _is_node(frame):
        frame.node = frame
    elif frame.scope == ANNOTATION and frame.name.startswith(MODULE):
        frame.module = frame.name.removeprefix(MODULE)
        recomputed = recomputed or frame.node is not None
        frame.node = None
    if recomputed:
        frame.phase = "recompute"


def _is_node(frame: Frame) -> bool:
    """Return whether a frame is a running node of the autograd graph, or the engine around one. Both have the node's
    number."""
    return frame.scope == BACKWARD or frame.name.startswith(ENGINE)


class _Makers:
    """Which forward call made which node of the autograd graph.

    A node knows its number and the thread that made it; a call inside of a node has the node's number. A forward call
    is recorded with the number that the *next* node of its thread will get, so several carry the same one: calls inside
    one another, and earlier calls that made no node. The last of them to begin made the node. `of` returns that call,
    or instead the outermost call around it that has the same number, made no other node of the backward pass, and has
    another name. So it returns aten::conv2d around aten::convolution; the inner one, with cast arguments, of the two
    aten::conv2d that autocast makes; and aten::addmm of a linear layer, whose transpose makes another node. What the
    engine does with a node's results (sums of gradients) belongs to that node; what AccumulateGrad does belongs to no
    forward call. A node that an unrecorded call made is assigned to the last recorded call before it.
    """

    def __init__(self, frames: Sequence[Frame]) -> None:
        last: dict[int, dict[int, Frame]] = {}
        for frame in frames:
            if frame.scope == FUNCTION and frame.number >= 0 and not _is_node(frame):
                last.setdefault(frame.thread, {})[frame.number] = frame  # the last to begin stays
        self._makers = {thread: (sorted(of_number), of_number) for thread, of_number in last.items()}
        nodes = {_key(frame): frame for frame in frames if _is_node(frame)}
        for node in nodes.values():
            if (maker := self._maker(node)) is not None:
                for frame in maker.inside_of_all:
                    frame.nodes += 1

    def of(self, node: Frame | None) -> tuple[Frame | None, Frame | None]:
        """Return the frame that made a node, and the call that stands for it; None where there is none."""
        maker = None if node is None else self._maker(node)
        if maker is None or maker.index is None:
            return maker, None
        call = maker
        while (parent := call.parent) is not None and (
            parent.index is not None and parent.number == call.number and parent.name != call.name and parent.nodes == 1
        ):
            call = parent
        return maker, call

    def number(self, frame: Frame) -> int | None:
        """Return the number of a frame or of the node that runs it, counted from the first number of the thread in the
        step; None if it has none."""
        thread, number = (frame.thread, frame.number) if frame.number >= 0 or frame.node is None else _key(frame.node)
        numbers, _ = self._makers.get(thread, ([], {}))
        return number - numbers[0] if numbers and number >= numbers[0] else None

    def _maker(self, node: Frame) -> Frame | None:
        thread, number = _key(node)
        numbers, of_number = self._makers.get(thread, ([], {}))
        index = bisect_right(numbers, number) - 1
        return of_number[numbers[index]] if index >= 0 else None


def _key(node: Frame) -> tuple[int, int]:
    """Return the thread that made a node, and its number there."""
    return node.event.fwd_thread_id(), node.number


def launched(
    events: Sequence[Any], frames: Sequence[Frame], end_ns: int | None = None
) -> Iterator[tuple[Any, Frame | None]]:
    """Yield the kernels, copies and fills of a step, each with the innermost frame that launched it.

    An event of the device names the innermost event of the host that launched it. Annotations mirrored to the device
    are left out. An event without a recorded launch is yielded with None, if it began after the step's start and before
    `end_ns` (None: no limit). An event that was recorded twice, with equal name, launch, start and duration, is yielded
    once.
    """
    by_number = {frame.event.correlation_id(): frame for frame in frames}
    annotations = {frame.name for frame in frames if frame.scope == ANNOTATION}
    known: set[tuple[Any, ...]] = set()
    for event in events:
        if event.device_type() == DeviceType.CPU or event.is_user_annotation() or event.name() in annotations:
            continue
        record = (event.name(), event.correlation_id(), event.start_ns(), event.duration_ns())
        if record in known:
            continue
        known.add(record)
        frame = by_number.get(event.linked_correlation_id())
        outside = event.start_ns() < frames[0].start_ns or (end_ns is not None and event.start_ns() >= end_ns)
        if frame is not None or not outside:
            yield event, frame


def _device_times(
    events: Sequence[Any], calls: Sequence[Frame], frames: Sequence[Frame]
) -> tuple[Sequence[float | None], tuple[str, ...]]:
    """Return the device time of each call's launches in s, and notes about missing data."""
    spent_ns, lost_ns = [0] * len(calls), []
    count = 0
    for event, frame in launched(events, frames):
        count += 1
        call = frame if frame is None or frame.index is not None else frame.above
        if call is None:
            lost_ns.append(event.duration_ns())
        while call is not None:
            spent_ns[cast("int", call.index)] += event.duration_ns()
            call = call.above
    if not count:
        return (None,) * len(calls), ("no kernels: the profiler got none from CUPTI, so no call has a device time",)
    lost = f"{len(lost_ns)} of {count} kernels and copies, {sum(lost_ns) / 1e9:.3g} s, have no recorded call"
    return [ns / 1e9 for ns in spent_ns], (lost,) if lost_ns else ()
