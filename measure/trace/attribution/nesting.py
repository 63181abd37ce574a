"""Which call lies inside which, by time on each thread, and what a call takes from those around it.

One sweep over a thread's calls and ranges of modules in the order of start, the outer first, with a stack of those
still open. In whole microseconds a call may seem to begin where the one around it ends: one without length at the very
end of another counts as inside.

Not claimed: that calls which overlap without nesting are distinguished; the later is taken to lie inside the earlier
while that lasts.

A forward call is recorded with the number that the *next* node of its thread will get, so several calls carry the same:
the last of them to begin made the node. The call that this amounts to is that one or the outermost around it that has
the same number and module, another name, and made no other node that took part (aten::conv2d around aten::convolution;
of a linear layer aten::addmm): the rule of `measure/profile/events.py`, here on columns. The recorder numbers forward
threads by itself: a number is taken for the thread that has most of its nodes' numbers. Nothing is claimed for
recordings without sequence numbers; there, the recorder's own flows decide.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

ENGINE = "autograd::engine::"
NODE = re.compile(
    r"autograd::engine::.*"  # the engine around a node
    r"|(?:struct )?torch::autograd::\w+"  # AccumulateGrad, CopySlices
    r"|(?!aten::)(?:\w+::)*\w*[A-Za-z0-9]Backwards?\d*"  # ConvolutionBackward0, TBackward, MyFunctionBackward
)
"""Names of the frames of the backward pass: nodes of the autograd graph, and the engine that runs them."""

OPERATOR = re.compile(r"(?!profiler::|prim::)\w+::\w+")
"""Namespace and name of an operator; frames of the engine and bare names ("detach") are none."""

FORWARD_ONLY = frozenset(
    (
        "aten::conv1d",
        "aten::conv2d",
        "aten::conv3d",
        "aten::linear",
        "aten::batch_norm",
        "aten::layer_norm",
        "aten::group_norm",
        "aten::max_pool2d",
        "aten::dropout",
        "aten::scaled_dot_product_attention",
    )
)
"""Operators that no node of autograd calls: inside of one they recalculate the forward pass."""


@dataclass(frozen=True)
class CallNesting:
    """For each call: `parent`, the call around it; `module`, of the innermost range; `node`, the frame of autograd that
    runs it, itself if it is one (-1: none, or the forward pass is recalculated in it); `recomputed`."""

    parent: Ints
    module: NDArray[Any]
    node: Ints
    recomputed: Flags


def ints(table: pd.DataFrame, name: str) -> Ints:
    """A column of whole numbers."""
    return table[name].to_numpy(np.int64)


def one_by_one(values: Ints) -> memoryview[int]:
    """Values that are Python's ints where they are asked for: a list of them takes five times the memory."""
    return memoryview(np.ascontiguousarray(values))  # type: ignore[arg-type]


def matches(pattern: re.Pattern[str], names: pd.Series) -> Flags:
    """Which names a pattern matches whole; each different name is looked at once."""
    codes, unique = pd.factorize(names)
    known = np.fromiter((pattern.fullmatch(str(name)) is not None for name in unique), bool, len(unique))
    return known[codes] if len(unique) else np.zeros(len(names), bool)


def lanes(*tables: pd.DataFrame) -> list[Ints]:
    """One number for each (process, thread), the same in all tables; a column each."""
    processes, threads = (
        pd.factorize(np.concatenate([table[name].to_numpy(np.int64) for table in tables]), sort=True)
        for name in ("process", "thread")
    )
    codes = np.asarray(processes[0], np.int64) * max(len(threads[1]), 1) + threads[0]
    cuts = np.cumsum([len(table) for table in tables])[:-1]
    return list(np.split(codes, cuts))


def place(calls: pd.DataFrame, modules: pd.DataFrame, node: Flags, fresh: Flags) -> CallNesting:
    """Where every call lies. calls: in the order of start; modules: ranges with a column `module`.

    node: which calls are frames of autograd. fresh: which, inside of such a frame, recalculate the forward pass.
    """
    lane_of = np.concatenate(lanes(calls, modules))
    start = np.concatenate([calls["start_ns"].to_numpy(np.int64), modules["start_ns"].to_numpy(np.int64)])
    length = np.concatenate([calls["time_ns"].to_numpy(np.int64), modules["time_ns"].to_numpy(np.int64)])
    count = len(calls)
    row = np.arange(len(start))
    order = np.lexsort((row, row < count, -length, start, lane_of))  # a range lies around a call of the same time
    return _sweep(order, lane_of, start, start + length, node, fresh, modules["module"].tolist())


def _sweep(
    order: Ints, lane_of: Ints, starts: Ints, ends: Ints, is_node: Flags, is_fresh: Flags, paths: list[str]
) -> CallNesting:
    count = len(is_node)
    lane, start, end = one_by_one(lane_of), one_by_one(starts), one_by_one(ends)
    node_flags, fresh_flags = is_node.tolist(), is_fresh.tolist()
    parent, node = array("q", [-1]) * count, array("q", [-1]) * count
    recomputed, module = [False] * count, [""] * count
    stack: list[tuple[int, int, int, str, int, bool]] = []  # end, start, call, module, node, recomputed
    current = -1
    for item in one_by_one(order):
        if lane[item] != current:
            current = lane[item]
            stack.clear()
        begins, ends_at = start[item], end[item]
        while stack and stack[-1][0] <= begins and not (stack[-1][0] == ends_at and stack[-1][1] < begins):
            stack.pop()
        above, path, runs, again = stack[-1][2:] if stack else (-1, "", -1, False)
        while above >= 0 and end[above] < begins:  # it ended under a range of a module that overlaps it
            above = parent[above]
        if item >= count:
            path, again, runs = paths[item - count], again or runs >= 0, -1
            stack.append((ends_at, begins, above, path, runs, again))
            continue
        parent[item] = above
        if node_flags[item]:
            runs, again = item, False
        elif runs >= 0 and fresh_flags[item]:
            runs, again = -1, True
        node[item], recomputed[item], module[item] = runs, again, path
        stack.append((ends_at, begins, item, path, runs, again))
    names = np.empty(count, object)
    names[:] = module
    return CallNesting(np.asarray(parent, np.int64), names, np.asarray(node, np.int64), np.asarray(recomputed, bool))


def innermost(calls: pd.DataFrame, parent: Ints, points: pd.DataFrame) -> Ints:
    """Row of the innermost call around each point in time on its thread; -1: none.

    points: process, thread, start_ns. A point at the very end of a call lies in it.
    """
    lane_c, lane_p = lanes(calls, points)
    start = calls["start_ns"].to_numpy(np.int64)
    end = start + calls["time_ns"].to_numpy(np.int64)
    at = points["start_ns"].to_numpy(np.int64)
    order = np.lexsort((np.arange(len(start)), -end, start, lane_c))
    begin = np.searchsorted(lane_c[order], np.arange(lane_c.max(initial=-1) + 2))
    found = np.full(len(at), -1, np.int64)
    for lane in np.unique(lane_p):
        mine = np.flatnonzero(lane_p == lane)
        if lane + 1 >= len(begin) or begin[lane] == begin[lane + 1]:
            continue
        rows = order[begin[lane] : begin[lane + 1]]
        last = np.searchsorted(start[rows], at[mine], side="right") - 1
        found[mine] = np.where(last >= 0, rows[np.maximum(last, 0)], -1)
    while True:
        over = np.flatnonzero(found >= 0)
        over = over[end[found[over]] < at[over]]
        if not len(over):
            return found
        found[over] = parent[found[over]]


def makers(calls: pd.DataFrame, is_node: Flags, flows: pd.DataFrame) -> Ints:
    """For each call that is a frame of autograd the call that made its node; -1: none is recorded, or no frame."""
    (lane,) = lanes(calls)
    number, thread = ints(calls, "sequence_nr"), ints(calls, "forward_thread")
    process, step = ints(calls, "process"), ints(calls, "step")
    made_by = np.full(len(calls), -1, np.int64)
    numbered = np.flatnonzero((number >= 0) & ~is_node)
    nodes = np.flatnonzero(is_node & (number >= 0))
    tables = _last_of_each(numbered, lane, number)
    home = {int(lane[rows[0]]): int(process[rows[0]]) for rows in tables.values()}
    for who in {*zip(process[nodes].tolist(), thread[nodes].tolist(), strict=True)}:
        mine = nodes[(process[nodes] == who[0]) & (thread[nodes] == who[1])]
        candidates = {at: rows for at, rows in tables.items() if home[at] == who[0]}
        rows = forward_thread(np.unique(number[mine]), {at: (number[found], found) for at, found in candidates.items()})
        if rows is None:
            continue
        before = np.searchsorted(number[rows], number[mine], side="right") - 1
        maker = np.where(before >= 0, rows[np.maximum(before, 0)], -1)
        other_step = (maker >= 0) & (step[maker] >= 0) & (step[mine] >= 0) & (step[maker] != step[mine])
        made_by[mine] = np.where(other_step, -1, maker)
    _by_flows(made_by, calls, is_node, flows)
    return made_by


def forward_calls(made_by: Ints, calls: pd.DataFrame, place: CallNesting, operator: Flags) -> Ints:
    """For each frame of autograd the forward call that its maker amounts to; -1: none."""
    columns = (place.parent, place.node, ints(calls, "sequence_nr"), ints(calls, "forward_thread"))
    parent, node, number, thread = map(one_by_one, columns)
    name, module = calls["name"].to_numpy(), place.module
    made = [0] * len(calls)
    one_a_node = {(thread[at], number[at], maker): maker for at, maker in _pairs(made_by)}
    for maker in one_a_node.values():
        while maker >= 0:
            made[maker] += 1
            maker = parent[maker]
    outermost: dict[int, int] = {}
    for maker in {*one_a_node.values()}:
        if not operator[maker]:
            continue
        call, above = maker, parent[maker]
        while (
            above >= 0
            and operator[above]
            and node[above] < 0
            and number[above] == number[call]
            and module[above] == module[call]
            and name[above] != name[call]
            and made[above] == 1
        ):
            call, above = above, parent[above]
        outermost[maker] = call
    found = np.full(len(calls), -1, np.int64)
    for at, maker in _pairs(made_by):
        found[at] = outermost.get(maker, -1)
    return found


def starting_at(calls: pd.DataFrame, process: Ints, thread: Ints, start_ns: Ints) -> Ints:
    """Row of the innermost call that begins on a thread at a time; -1: none."""
    names = ["process", "thread", "start_ns"]
    last = calls.drop_duplicates(names, keep="last")
    rows = np.flatnonzero(~calls.duplicated(names, keep="last").to_numpy())
    at = pd.MultiIndex.from_frame(last[names]).get_indexer(pd.MultiIndex.from_arrays([process, thread, start_ns]))
    found: Ints = np.where(at >= 0, rows[np.maximum(at, 0)], -1) if len(rows) else np.full(len(start_ns), -1)
    return found


def _last_of_each(rows: Ints, lane: Ints, number: Ints) -> dict[int, NDArray[np.int64]]:
    """Of each thread the last call to begin with each number, in the order of numbers."""
    order = np.lexsort((rows, number[rows], lane[rows]))
    rows = rows[order]
    if not len(rows):
        return {}
    last = np.append((lane[rows][1:] != lane[rows][:-1]) | (number[rows][1:] != number[rows][:-1]), True)
    rows = rows[last]
    return {int(at): rows[lane[rows] == at] for at in np.unique(lane[rows])}


def forward_thread(numbers: Ints, candidates: dict[int, tuple[Ints, Ints]]) -> Ints | None:
    """Of threads, (numbers, rows) each, the rows of the one that has most of the numbers; None: none has one."""
    best, most = None, 0
    for known, rows in candidates.values():
        hits = int(np.isin(numbers, known).sum())
        if hits > most:
            best, most = rows, hits
    return best


def _by_flows(made_by: Ints, calls: pd.DataFrame, is_node: Flags, flows: pd.DataFrame) -> None:
    """Where numbers say nothing, what the recorder drew."""
    if not len(flows):
        return
    ends = {
        side: starting_at(calls, *(ints(flows, f"{side}_{name}") for name in ("process", "thread", "ns")))
        for side in ("forward", "backward")
    }
    for forward, backward in zip(ends["forward"].tolist(), ends["backward"].tolist(), strict=True):
        if forward >= 0 and backward >= 0 and is_node[backward] and made_by[backward] < 0:
            made_by[backward] = forward


def _pairs(made_by: Ints) -> list[tuple[int, int]]:
    rows = np.flatnonzero(made_by >= 0)
    return list(zip(rows.tolist(), made_by[rows].tolist(), strict=True))
