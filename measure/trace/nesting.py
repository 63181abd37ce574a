"""Finds each call's enclosing call, by time on each thread, and the forward call that each autograd node belongs to.

`nest` takes the tables of calls and of modules' ranges, and returns a `CallNesting`. `nest` sweeps once over a thread's
calls and ranges in the order of start, the outer first, with a stack of those still open. With timestamps rounded to
microseconds, a call may seem to begin where its enclosing call ends. So a call without length at the very end of
another counts as inside. Of two calls that overlap without nesting, the later is taken to lie inside the earlier.
`makers` and `forward_calls` pair nodes with forward calls, as `measure/profile/events.py` does, and return row numbers
of the table of calls.
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
"""Operators that no node of autograd calls: inside of a node they recompute the forward pass."""


@dataclass(frozen=True)
class CallNesting:
    """For each call: `parent`, the call around it; `module`, of the innermost range; `node`, the frame of autograd that
    runs it, itself if it is one (-1: none, or the forward pass is recalculated in it); `recomputed`."""

    parent: Ints
    module: NDArray[Any]
    node: Ints
    recomputed: Flags


def ints(table: pd.DataFrame, name: str) -> Ints:
    """Return a column of whole numbers."""
    return table[name].to_numpy(np.int64)


def as_python_ints(values: Ints) -> memoryview[int]:
    """Return a view whose items are Python's ints when read; a list of ints would take five times the memory."""
    return memoryview(np.ascontiguousarray(values))  # type: ignore[arg-type]


def lanes(*tables: pd.DataFrame) -> list[Ints]:
    """Return a column for each table with one number for each (process, thread), the same in all tables."""
    threads = pd.concat([table[["process", "thread"]] for table in tables], ignore_index=True)
    codes = threads.groupby(["process", "thread"]).ngroup().to_numpy(np.int64)
    return list(np.split(codes, np.cumsum([len(table) for table in tables])[:-1]))


def latest(points: pd.DataFrame, starts: pd.DataFrame, by: list[str], on: str = "start_ns") -> Ints:
    """Return for each point the last row of `starts` that is not after it in column `on`, among rows with equal values
    in the columns `by`; -1: none. starts: in the order of `on`."""
    order = np.argsort(ints(points, on), kind="stable")
    left, right = points.iloc[order][[*by, on]], starts[[*by, on]].assign(row=np.arange(len(starts)))
    row_of = np.empty(len(points), np.int64)
    row_of[order] = pd.merge_asof(left, right, on=on, by=by)["row"].fillna(-1)
    return row_of


def nest(calls: pd.DataFrame, modules: pd.DataFrame, is_node: Flags, is_fresh: Flags) -> CallNesting:
    """Find what each call lies in. calls: in the order of start; modules: ranges with a column `module`.

    is_node: which calls are frames of autograd. is_fresh: which calls, inside of such a frame, recompute the forward
    pass.
    """
    count, paths = len(calls), modules["module"].tolist()
    lane_of = np.concatenate(lanes(calls, modules))
    starts, lengths = (np.concatenate([ints(calls, name), ints(modules, name)]) for name in ("start_ns", "time_ns"))
    row = np.arange(len(starts))
    order = np.lexsort((row, row < count, -lengths, starts, lane_of))  # a range lies around a call of the same time
    lane, start, end = as_python_ints(lane_of), as_python_ints(starts), as_python_ints(starts + lengths)
    node_flags, fresh_flags = is_node.tolist(), is_fresh.tolist()
    parent, node = array("q", [-1]) * count, array("q", [-1]) * count
    recomputed, module = [False] * count, [""] * count
    stack: list[tuple[int, int, int, str, int, bool]] = []  # end, start, call, module, node, recomputed
    current = -1
    for item in as_python_ints(order):
        if lane[item] != current:
            current = lane[item]
            stack.clear()
        begins, ends_at = start[item], end[item]
        while stack and stack[-1][0] <= begins and not (stack[-1][0] == ends_at and stack[-1][1] < begins):
            stack.pop()
        above, path, runs, again = stack[-1][2:] if stack else (-1, "", -1, False)
        while above >= 0 and end[above] < begins:  # the call ended under a module's range that overlaps it
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
    """Return the row of the innermost call around each point in time on its thread; -1: none.

    points: process, thread, start_ns. A point at the very end of a call lies in it.
    """
    point_ns, end = ints(points, "start_ns"), ints(calls, "start_ns") + ints(calls, "time_ns")
    around = latest(points, calls, ["process", "thread"])
    while True:
        ended = np.flatnonzero(around >= 0)
        ended = ended[end[around[ended]] < point_ns[ended]]
        if not len(ended):
            return around
        around[ended] = parent[around[ended]]


def starting_at(calls: pd.DataFrame, flows: pd.DataFrame, side: str) -> Ints:
    """Return the row of the innermost call that begins where this side of each flow does; -1: none."""
    names = [f"{side}_process", f"{side}_thread", f"{side}_ns"]
    points = flows[names].set_axis(["process", "thread", "start_ns"], axis=1)
    row_of = latest(points, calls, ["process", "thread"])
    starts = np.append(ints(calls, "start_ns"), -1)[row_of]
    return np.where(starts == ints(points, "start_ns"), row_of, -1)


def makers(calls: pd.DataFrame, is_node: Flags, flows: pd.DataFrame) -> Ints:
    """Return for each frame of autograd the call that made its node; -1: none is recorded, or the call is not a frame.

    A forward call is recorded with the sequence number that the *next* node of its thread will get, so several calls
    have the same number: the last of them to begin made the node. A recorder's number of a forward thread is taken to
    mean the thread with which its nodes share most sequence numbers. Without numbers the recorder's flows decide.
    """
    names = ["process", "sequence_nr", "forward_thread", "step"]
    (lane,) = lanes(calls)
    rows = calls[names].assign(lane=lane, row=np.arange(len(calls)))[calls["sequence_nr"] >= 0]
    is_frame = is_node[rows["row"]]
    numbered = rows[~is_frame].drop_duplicates(["lane", "sequence_nr"], keep="last").sort_values("sequence_nr")
    nodes, of_thread = rows[is_frame].drop(columns="lane"), ["process", "forward_thread"]
    # the lane in which most of the numbers of a forward thread were made
    numbers = nodes.drop_duplicates([*of_thread, "sequence_nr"])[[*of_thread, "sequence_nr"]]
    shared = numbers.merge(numbered[["process", "sequence_nr", "lane"]], on=["process", "sequence_nr"])
    hits = shared.groupby([*of_thread, "lane"], as_index=False).size()
    home = hits.sort_values("size", ascending=False, kind="stable").drop_duplicates(of_thread)
    nodes = nodes.merge(home[[*of_thread, "lane"]], on=of_thread)
    chosen = latest(nodes, numbered, ["lane"], "sequence_nr")
    maker, step = (np.append(ints(numbered, name), -1)[chosen] for name in ("row", "step"))
    own_step = ints(nodes, "step")
    maker_of = np.full(len(calls), -1, np.int64)
    maker_of[nodes["row"]] = np.where((step >= 0) & (own_step >= 0) & (step != own_step), -1, maker)
    # where numbers give no maker, the recorder's flows do; of two flows to one call the first counts
    forward, backward = starting_at(calls, flows, "forward")[::-1], starting_at(calls, flows, "backward")[::-1]
    drawn = (forward >= 0) & (backward >= 0)
    drawn[drawn] = is_node[backward[drawn]] & (maker_of[backward[drawn]] < 0)
    maker_of[backward[drawn]] = forward[drawn]
    return maker_of


def forward_calls(maker_of: Ints, calls: pd.DataFrame, nested: CallNesting, operator: Flags) -> Ints:
    """Return for each frame of autograd its forward call; -1: none.

    It is the call that made the node, or the outermost around it with the same number and module, another name, and no
    other node (aten::conv2d around aten::convolution).
    """
    columns = (nested.parent, nested.node, ints(calls, "sequence_nr"), ints(calls, "forward_thread"))
    parent, node, number, thread = map(as_python_ints, columns)
    name, module = calls["name"].to_numpy(), nested.module
    frames = np.flatnonzero(maker_of >= 0)
    pairs = list(zip(frames.tolist(), maker_of[frames].tolist(), strict=True))
    node_count = [0] * len(calls)
    maker_of_node = {(thread[row], number[row], maker): maker for row, maker in pairs}
    for maker in maker_of_node.values():
        while maker >= 0:
            node_count[maker] += 1
            maker = parent[maker]
    outermost: dict[int, int] = {}
    for maker in {*maker_of_node.values()}:
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
            and node_count[above] == 1
        ):
            call, above = above, parent[above]
        outermost[maker] = call
    forward = np.full(len(calls), -1, np.int64)
    forward[frames] = [outermost.get(maker, -1) for _, maker in pairs]
    return forward
