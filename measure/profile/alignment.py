"""Joining a step's table of operations with the calls that torch's profiler recorded of the same step.

The table is what reached the dispatcher; the recording has every call, composite ones around and a kernel's own inside.
So the calls that matter are the outermost of a name that the table has in this pass, in the order of their start; of a
call that autocast makes again with cast arguments, the inner one. Both lists are aligned by name, in order, pass by
pass (recomputation runs within the backward pass). A call that one of them lacks shifts nothing behind it. What is left
over of the table is looked for in the calls around its place: an autograd kernel clones inside of the call it belongs
to. In-place forms count as their bare name, since the engine adds gradients in place where no mode watches.

Not claimed: shapes are not compared. `aten.detach` is in no step that nobody watches (a mode makes autograd call it),
so that it is not joined; and what else a mode alone makes torch call stays without a call.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from measure.profiler.events import Frame
from results.records.operations import Operation

MOST = 200
"""Differences that one stretch of an alignment may have; the next begins where it ends."""

WATCHED_ONLY = frozenset(("aten.detach", "aten.detach_"))

SAME = {"aten._index_put_impl": "aten.index_put"}
"""What the gradient of indexing calls → what it calls where a mode watches."""


@dataclass(frozen=True)
class Alignment:
    """frames: index of an operation → its call. spare: outermost calls of known names that are of no operation."""

    frames: dict[int, Frame]
    spare: tuple[Frame, ...]


def join(frames: Sequence[Frame], operations: Sequence[Operation]) -> Alignment:
    """The call of each operation in one step. frames: from `profiled_calls.step_frames`."""
    wanted: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.name not in WATCHED_ONLY:
            wanted[_pass(operation.phase)].append(operation)
    found: dict[int, Frame] = {}
    spare: list[Frame] = []
    for name, rows in wanted.items():
        # Pass by pass: the backward pass runs on another thread, so that order by start holds within a pass alone.
        names = [bare(row.name) for row in rows]
        calls = [frame for frame in frames if frame.index is not None and _pass(frame.phase) == name]
        outer, joined = _aligned(calls, names)
        joined |= _inside(calls, names, joined)
        found |= {rows[row].index: frame for row, frame in joined.items()}
        taken = {id(frame) for frame in joined.values()}
        spare += [frame for frame in outer if id(frame) not in taken]
    return Alignment(found, tuple(spare))


def bare(name: str) -> str:
    """One name for both sides: "aten::add_" and "aten.add" are "aten.add"."""
    found = name.replace("::", ".").rstrip("_")
    return SAME.get(found, found)


def common(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Places of the same name in both, in order: a longest such list, as long as a stretch has few differences."""
    pairs: list[tuple[int, int]] = []
    at = (0, 0)
    while at[0] < len(left) and at[1] < len(right):
        found, at = _stretch(left, right, at)
        pairs += found
    return pairs


def _stretch(
    left: Sequence[str], right: Sequence[str], start: tuple[int, int]
) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Myers' greedy algorithm (Algorithmica 1, 1986) from `start` on, up to MOST differences; what is the same, and
    where it ended."""
    reach, history = {1: 0}, []
    base_x, base_y = start
    width, height = len(left) - base_x, len(right) - base_y
    # All rounds are kept to walk back from the end. Memory grows with the square of the differences, which is why a
    # stretch ends after MOST of them and the next one begins there.
    for differences in range(MOST + 1):
        history.append(dict(reach))
        for diagonal in range(-differences, differences + 1, 2):
            down = diagonal == -differences or (
                diagonal != differences and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
            )
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            while x < width and 0 <= x - diagonal < height and left[base_x + x] == right[base_y + x - diagonal]:
                x += 1
            reach[diagonal] = x
            if diagonal == width - height and x >= width:
                return _walked(history, diagonal, x, start), (base_x + x, base_y + x - diagonal)
    # The last round wrote diagonals of MOST's parity; the others hold what the round before reached, from which no way
    # back was kept. On diagonal d, x = reach[d] and y = x - d: 2 * x - d is how much of both lists is used up.
    furthest = max(
        (d for d in reach if 0 <= reach[d] <= width and 0 <= reach[d] - d <= height and (d - MOST) % 2 == 0),
        key=lambda d: 2 * reach[d] - d,
    )
    end = reach[furthest]
    return _walked(history, furthest, end, start), (base_x + end, base_y + end - furthest)


def _walked(history: Sequence[dict[int, int]], diagonal: int, x: int, start: tuple[int, int]) -> list[tuple[int, int]]:
    """The pairs on the way that led to x on this diagonal, from the start."""
    pairs = []
    for differences in range(len(history) - 1, -1, -1):
        reach = history[differences]
        down = diagonal == -differences or (
            diagonal != differences and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
        )
        before = diagonal + 1 if down else diagonal - 1
        began = reach[before] if down else reach[before] + 1
        pairs += [(start[0] + at, start[1] + at - diagonal) for at in range(x - 1, began - 1, -1)]
        diagonal, x = before, reach[before]
    return pairs[::-1]


def _pass(phase: str) -> str:
    return "backward" if phase == "recompute" else phase


def _aligned(calls: Sequence[Frame], names: Sequence[str]) -> tuple[list[Frame], dict[int, Frame]]:
    """The outermost calls, and row → call. One without a row is looked into, as long as that finds more."""
    opened: set[int] = set()
    best: tuple[list[Frame], dict[int, Frame]] = ([], {})
    while True:
        outer = list(_outermost(calls, frozenset(names), opened))
        joined = {row: outer[call] for call, row in common([bare(frame.name) for frame in outer], names)}
        # A spare call may be a composite that the table lacks, with calls inside that it has. Opening it can also let
        # unrelated inner calls match, so it is kept only if more operations are joined than before.
        if opened and len(joined) <= len(best[1]):
            return best
        best = outer, joined
        taken = {id(frame) for frame in joined.values()}
        spare = {id(frame) for frame in outer} - taken
        if not spare:
            return best
        opened |= spare


def _outermost(calls: Sequence[Frame], names: frozenset[str], opened: set[int]) -> Iterator[Frame]:
    """The calls of these names that lie in no other such call. Not those opened, nor one that calls its like again."""
    alike: defaultdict[int, int] = defaultdict(int)
    for frame in calls:
        if frame.above is not None and frame.above.name == frame.name:
            alike[id(frame.above)] += 1
    ends: dict[int, int] = {}
    for frame in calls:
        # Exactly one call of the same name inside is autocast's: the outer one has the arguments before they were cast,
        # the inner one is what the dispatcher saw. More than one is an operator that is defined by itself.
        known = bare(frame.name) in names and alike[id(frame)] != 1 and id(frame) not in opened
        if known and frame.start_ns >= ends.get(frame.thread, 0):
            ends[frame.thread] = frame.end_ns
            yield frame


def _inside(calls: Sequence[Frame], names: Sequence[str], joined: dict[int, Frame]) -> dict[int, Frame]:
    """For operations that found no call: calls directly in those of the operations before and after."""
    starts = [frame.start_ns for frame in calls]
    taken = {id(frame) for frame in joined.values()}
    found: dict[int, Frame] = {}
    for first, last in _gaps(len(names), joined):
        begin = 0 if first == 0 else bisect_left(starts, joined[first - 1].start_ns)
        end = len(calls) if last == len(names) else bisect_left(starts, joined[last].end_ns)
        # Only direct children of joined calls: deeper ones are the kernel's own and would match by chance.
        near = [frame for frame in calls[begin:end] if id(frame) not in taken and id(frame.above) in taken]
        pairs = common([bare(frame.name) for frame in near], names[first:last])
        found |= {first + row: near[call] for call, row in pairs}
        taken |= {id(near[call]) for call, _ in pairs}
    return found


def _gaps(count: int, joined: dict[int, Frame]) -> Iterator[tuple[int, int]]:
    """(first, last + 1) of each run of rows that found no call."""
    first = None
    for row in range(count + 1):
        if row < count and row not in joined:
            first = row if first is None else first
        elif first is not None:
            yield first, row
            first = None
