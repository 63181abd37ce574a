"""Which of its numbered events a Kineto trace lacks: torch.profiler numbers every call and annotation that it keeps.

"External id" counts calls and annotations from 1: in PyTorch 1.8 to 1.10 all of them, since then in blocks of at least
512 for each thread (torch/csrc/profiler/collection.h, containers.h: AppendOnlyList). So of each 512 numbers the
recorded ones are the first, and all 512 if a later block of their thread is recorded. "Ev Idx" counts what is exported,
thread by thread: between the last call of a thread and the first of the next no number is left out. Recorders without
"Ev Idx" count on in the second recording of a process: there, the first number may be any.

Not claimed: that the last calls of the last thread are there; nothing is numbered after them. Nor, without "Ev Idx",
that the first ones are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from measure.trace.attribution.nesting import Ints
from measure.trace.attribution.recording import gaps_table

BLOCK = 512
"""Numbers of a block, or a divisor of how many there are."""


def is_numbered(events: Mapping[str, Ints]) -> bool:
    """Whether each call and annotation has a number of its own, so that one which is left out leaves a gap. events: as
    of `gaps`."""
    ids = events["external_id"]
    return bool(len(ids)) and bool((ids >= 0).all()) and len(np.unique(ids)) == len(ids)


def gaps(events: Mapping[str, Ints], base_ns: int) -> pd.DataFrame:
    """A row for each gap in the numbers. events: external_id, event_index (-1: none), process, thread, start_ns of all
    calls and annotations. None if numbers are there twice: then several recordings are in one file."""
    ids = events["external_id"]
    rows = np.flatnonzero(ids >= 0)
    rows = rows[np.argsort(ids[rows], kind="stable")]
    if len(np.unique(ids[rows])) < len(rows):
        return gaps_table()
    if len(rows) and (events["event_index"] < 0).all():
        ids = ids - ids[rows[0]] + 1
    found = [*_between(ids, rows, events["thread"]), *_of_threads(events, ids)]
    columns: dict[str, list[int]] = {name: [] for name in gaps_table().columns}
    for count, before, after in found:
        columns["count"].append(count)
        for side, at in (("before", before), ("after", after)):
            columns[f"{side}_process"].append(int(events["process"][at]) if at >= 0 else -1)
            columns[f"{side}_thread"].append(int(events["thread"][at]) if at >= 0 else -1)
            columns[f"{side}_ns"].append(int(events["start_ns"][at]) + base_ns if at >= 0 else -1)
    return gaps_table(**columns)


Gap = tuple[int, int, int]
"""How many numbers are missing, row of the event before (-1: none is) and of the one after."""


def _between(ids: Ints, rows: Ints, thread: Any) -> Iterator[Gap]:
    """Gaps within blocks, and at the end of those that should be full."""
    block = (ids[rows] - 1) // BLOCK
    last_of_thread: dict[int, int] = {}
    for who, number in zip(thread[rows].tolist(), block.tolist(), strict=True):
        last_of_thread[who] = number
    before = -1
    for place, at in enumerate(rows.tolist()):
        expected = BLOCK * int(block[place]) + 1
        same = before >= 0 and (int(ids[before]) - 1) // BLOCK == block[place]
        if same:
            expected = int(ids[before]) + 1
        elif before >= 0:
            lost = BLOCK * ((int(ids[before]) - 1) // BLOCK + 1) - int(ids[before])
            if lost and last_of_thread[int(thread[before])] > (int(ids[before]) - 1) // BLOCK:
                yield lost, before, at if thread[at] == thread[before] else -1
        if ids[at] > expected:
            yield int(ids[at]) - expected, before if same else -1, at
        before = at


def _of_threads(events: Mapping[str, Ints], ids: Ints) -> Iterator[Gap]:
    """Gaps in the order of export between two threads: the last calls of the one or the first of the other."""
    index, thread = events["event_index"], events["thread"]
    rows = np.flatnonzero(index >= 0)
    rows = rows[np.argsort(index[rows], kind="stable")]
    number = index[rows]
    if not len(rows) or len(np.unique(number)) < len(rows):
        return
    wide = np.flatnonzero(np.diff(number) > 1)
    changes = thread[rows[wide]] != thread[rows[wide + 1]]
    inside = int((np.diff(number)[wide[~changes]] - 1).sum())
    if inside > int((np.diff(np.sort(ids[ids >= 0])) - 1).sum()):
        return  # what is no call is numbered among the calls, and was left out of the file
    for place in wide[changes].tolist():
        yield int(number[place + 1] - number[place] - 1), int(rows[place]), int(rows[place + 1])
