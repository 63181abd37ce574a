"""Which call lies inside which, by time on each thread, and what a call takes from those around it.

One sweep over a thread's calls and ranges of modules in the order of start, the outer first, with a stack of those
still open. In whole microseconds a call may seem to begin where the one around it ends: one without length at the very
end of another counts as inside.

Not claimed: that calls which overlap without nesting are distinguished; the later is taken to lie inside the earlier
while that lasts.
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
