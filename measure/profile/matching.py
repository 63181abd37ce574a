"""Matches a step's table of operations with the calls that torch's profiler recorded of the same step.

An operation gets its measured time from its call. `join` takes frames (`events.py`) and operations, and returns the
call of each operation, and the calls that belong to none. The table has the calls that reached the dispatcher. The
recording has all calls, including composite ones around them and a kernel's own inside them. Names, in order, decide
which call an operation has.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from measure.profile.events import Frame
from results.records.counts import Operation

MOST = 2000
"""Maximum number of names that are aligned at once; the names aligned next overlap with them."""

SAME = {"aten._index_put_impl": "aten.index_put"}
"""Call inside the gradient of indexing → the call that a dispatch mode sees instead."""


def join(frames: Sequence[Frame], operations: Sequence[Operation]) -> tuple[dict[int, Frame], tuple[Frame, ...]]:
    """Return (index of an operation → its call; the outermost calls of known names that belong to no operation) of one
    step. frames: from `step_frames`.

    Candidates are the outermost calls whose name the table has in this pass, in the order of their start. Both lists
    are aligned by name, in order, pass by pass. So a call that is missing in one list shifts nothing after it; shapes
    are not compared. An operation without a call is then searched among the calls around its position: an autograd
    kernel clones inside the call that it belongs to. In-place forms count as their bare name: without a dispatch mode,
    autograd adds gradients in place. `aten.detach` is not joined, because autograd calls it only under a dispatch mode.
    """
    wanted: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.name not in ("aten.detach", "aten.detach_"):
            wanted[_pass(operation.phase)].append(operation)
    calls_of: dict[int, Frame] = {}
    spare: list[Frame] = []
    for name, rows in wanted.items():
        # Pass by pass: the backward pass runs on another thread, so starts have the order of the table only in a pass.
        names = [bare_name(row.name) for row in rows]
        calls = [frame for frame in frames if frame.index is not None and _pass(frame.phase) == name]
        outer, joined = _aligned(calls, names)
        joined |= _inside(calls, names, joined)
        calls_of |= {rows[row].index: frame for row, frame in joined.items()}
        joined_ids = {id(frame) for frame in joined.values()}
        spare += [frame for frame in outer if id(frame) not in joined_ids]
    return calls_of, tuple(spare)


def bare_name(name: str) -> str:
    """Return one name for both sides: "aten.add" for "aten::add_" and "aten.add"."""
    plain = name.replace("::", ".").rstrip("_")
    return SAME.get(plain, plain)


def common_names(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of equal names in both, in order: a longest such list if they differ only within MOST
    names."""
    pairs: list[tuple[int, int]] = []
    x = y = 0
    while x < len(left) and y < len(right):
        if left[x] == right[y]:
            pairs, x, y = [*pairs, (x, y)], x + 1, y + 1
            continue
        is_last = max(len(left) - x, len(right) - y) <= MOST
        nearby = _longest(left[x : x + MOST], right[y : y + MOST])
        certain = nearby if is_last else [pair for pair in nearby if max(pair) < MOST // 2]
        pairs += [(x + a, y + b) for a, b in certain]
        ends = certain[-1] if certain else (MOST // 2, MOST // 2)
        x, y = (len(left), len(right)) if is_last else (x + ends[0] + 1, y + ends[1] + 1)
    return pairs


def _longest(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Return a longest common subsequence as pairs of positions, by dynamic programming."""
    codes = {name: code for code, name in enumerate({*left, *right})}
    numbers = np.array([codes[name] for name in right])
    lengths = np.zeros((len(left) + 1, len(right) + 1), np.int16)
    for row, name in enumerate(left):
        longer = lengths[row, :-1] + (numbers == codes[name])
        lengths[row + 1, 1:] = np.maximum.accumulate(np.maximum(longer, lengths[row, 1:]))
    pairs, x, y = [], len(left), len(right)
    while x and y:
        if lengths[x, y] == lengths[x - 1, y]:
            x -= 1
        elif lengths[x, y] == lengths[x, y - 1]:
            y -= 1
        else:
            x, y = x - 1, y - 1
            pairs.append((x, y))
    return pairs[::-1]


def _pass(phase: str) -> str:
    return "backward" if phase == "recompute" else phase


def _aligned(calls: Sequence[Frame], names: Sequence[str]) -> tuple[list[Frame], dict[int, Frame]]:
    """Return the outermost calls, and row → call. A call without a row is opened, as long as that finds more."""
    opened: set[int] = set()
    best: tuple[list[Frame], dict[int, Frame]] = ([], {})
    while True:
        outer = list(_outermost(calls, frozenset(names), opened))
        joined = {row: outer[call] for call, row in common_names([bare_name(frame.name) for frame in outer], names)}
        # A spare call may be a composite that the table lacks, with calls inside that it has. Opening it can also let
        # unrelated inner calls match, so it is kept only if more operations are joined than before.
        if opened and len(joined) <= len(best[1]):
            return best
        best = outer, joined
        joined_ids = {id(frame) for frame in joined.values()}
        spare = {id(frame) for frame in outer} - joined_ids
        if not spare:
            return best
        opened |= spare


def _outermost(calls: Sequence[Frame], names: frozenset[str], opened: set[int]) -> Iterator[Frame]:
    """Yield the calls of these names that lie in no other such call, except those opened, and a call that calls its own
    name again."""
    alike: defaultdict[int, int] = defaultdict(int)
    for frame in calls:
        if frame.above is not None and frame.above.name == frame.name:
            alike[id(frame.above)] += 1
    ends: dict[int, int] = {}
    for frame in calls:
        # Exactly one call of the same name inside is autocast's: the outer one has the arguments before they were cast,
        # the inner one is what the dispatcher saw. More than one is an operator that is defined by itself.
        known = bare_name(frame.name) in names and alike[id(frame)] != 1 and id(frame) not in opened
        if known and frame.start_ns >= ends.get(frame.thread, 0):
            ends[frame.thread] = frame.end_ns
            yield frame


def _inside(calls: Sequence[Frame], names: Sequence[str], joined: dict[int, Frame]) -> dict[int, Frame]:
    """Return calls, for operations that found none, from directly inside the calls of the operations before and
    after."""
    starts = [frame.start_ns for frame in calls]
    joined_ids = {id(frame) for frame in joined.values()}
    inside: dict[int, Frame] = {}
    for lacking, rows in itertools.groupby(range(len(names)), key=lambda row: row not in joined):
        if not lacking:
            continue
        run = list(rows)
        first, last = run[0], run[-1] + 1
        begin = 0 if first == 0 else bisect_left(starts, joined[first - 1].start_ns)
        end = len(calls) if last == len(names) else bisect_left(starts, joined[last].end_ns)
        # Only direct children of joined calls: deeper ones are the kernel's own and would match by chance.
        near = [frame for frame in calls[begin:end] if id(frame) not in joined_ids and id(frame.above) in joined_ids]
        pairs = common_names([bare_name(frame.name) for frame in near], names[first:last])
        inside |= {first + row: near[call] for call, row in pairs}
        joined_ids |= {id(near[call]) for call, _ in pairs}
    return inside
