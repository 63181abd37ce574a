"""Which forward call made which node of the autograd graph: by the node's number and the thread that made it.

A forward call is recorded with the number that the *next* node of its thread will get, so several calls carry the same:
the last of them to begin made the node. The call that this amounts to is that one or the outermost around it that has
the same number and module, another name, and made no other node that took part (aten::conv2d around aten::convolution;
of a linear layer aten::addmm): the rule of `measure/profiler/events.py`, here on columns.

The recorder numbers forward threads by itself: a number is taken for the thread that has most of its nodes' numbers.

Not claimed: anything for recordings without sequence numbers; there, the recorder's own flows decide.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from measure.trace.attribution.nesting import CallNesting, Flags, Ints, ints, lanes, one_by_one


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
