"""Marked training steps that lack products of another step, and are silent for the time in which these would have run.

A step may differ from others for good reasons (an evaluation, other sizes), and is then as long as its calls. One that
has the products of another step without some in a row, and in their place a time without any recorded call, lost them:
calls were taken out of the file, or its end was. So did a recording whose calls before the first marked step, or after
the last one, are the end or the beginning of a step.

Asked of recordings that number no calls, since numbers say it themselves. Not claimed: which calls beside products are
missing, nor anything of recordings with one marked step or none, or of a step of which there are more than of those
that have more: an evaluation may be in one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.trace import Missing
from measure.trace.attribution import phases
from measure.trace.attribution.forest import FORWARD, Forest

LEAST_SILENCE = 0.25
"""Of the time of the missing calls in the other step, the least that a step must be silent for."""

NAMED = ("forward", "loss", "backward", "recompute")
"""Phases that have a total."""

Key = tuple[str, str, object]


@dataclass(frozen=True)
class _Step:
    """Products of a step in the order of start: keys, and from when to when each ran. begin_ns, end_ns: its mark."""

    keys: tuple[Key, ...]
    spans: tuple[tuple[int, int], ...]
    begin_ns: int
    end_ns: int

    def gap(self, before: int, after: int) -> tuple[int, int]:
        """Time between the end of product `before` and the start of product `after`, or the step's own ends."""
        begin = self.spans[before][1] if before >= 0 else self.begin_ns
        return begin, max(self.spans[after][0] if after < len(self.spans) else self.end_ns, begin)


def silent_steps(forest: Forest, ranges: pd.DataFrame) -> Iterator[Missing]:
    """A reason for each phase of which products are missing."""
    marks, _ = phases.steps(ranges)
    if not len(marks) or not len(forest):
        return
    busy = _Busy(forest)
    rows = [at for at in forest.products if forest.phase[at] in NAMED]
    step_of = forest.column("step")
    ends = dict(zip(marks["step"].tolist(), (marks["start_ns"] + marks["time_ns"]).tolist(), strict=True))
    begins = dict(zip(marks["step"].tolist(), marks["start_ns"].tolist(), strict=True))
    steps = {
        number: _step(forest, [at for at in rows if step_of[at] == number], begins[number], ends[number])
        for number in begins
    }
    lost: dict[str, int] = {}
    often = Counter(step.keys for step in steps.values())
    for step in steps.values():
        longer = [other for other in steps.values() if often[other.keys] >= often[step.keys]]
        for phase, many in max((_lacking(step, other, busy) for other in longer), key=_size).items():
            lost[phase] = lost.get(phase, 0) + many
    for phase, many in lost.items():
        yield Missing(phase, many, f"marked steps lack {many} products of another step, and are silent in their time")
    first, last = min(begins.values()), max(ends.values())
    outside = [at for at in rows if step_of[at] < 0]
    before = _step(forest, [at for at in outside if forest.end[at] <= first], first, first)
    after = _step(forest, [at for at in outside if forest.start[at] >= last], last, last)
    yield from _torn(before, after, [*steps.values()])


def _size(lost: dict[str, int]) -> int:
    return sum(lost.values())


def _step(forest: Forest, rows: Sequence[int], begin_ns: int, end_ns: int) -> _Step:
    shapes = forest.column("input_shapes")
    keys = tuple((_phase(forest.phase[at]), forest.names[at], shapes[at]) for at in rows)
    return _Step(keys, tuple((forest.start[at], forest.end[at]) for at in rows), begin_ns, end_ns)


def _phase(phase: str) -> str:
    return "forward" if phase in FORWARD else phase


class _Busy:
    """How long any call was running."""

    def __init__(self, forest: Forest) -> None:
        outer = [at for at, above in enumerate(forest.parent) if above < 0]
        begin = np.asarray([forest.start[at] for at in outer], np.int64)
        end = np.maximum.accumulate(np.asarray([forest.end[at] for at in outer], np.int64))
        self.begin = np.maximum(begin, np.concatenate([[np.int64(-1)], end[:-1]]))
        self.end = end
        self.whole = np.concatenate([[np.int64(0)], np.cumsum(self.end - self.begin)])

    def silence(self, begin: int, end: int) -> int:
        """Time between two points in which no call was running, in ns."""
        return end - begin - (self._until(end) - self._until(begin))

    def _until(self, at: int) -> int:
        place = int(np.searchsorted(self.begin, at, side="right"))
        if not place:
            return 0
        return int(self.whole[place - 1]) + min(at, int(self.end[place - 1])) - int(self.begin[place - 1])


def _lacking(mine: _Step, other: _Step, busy: _Busy) -> dict[str, int]:
    """Phase → products in a row that the other step has and mine is silent in the place of; empty: none."""
    more = len(other.keys) - len(mine.keys)
    if more <= 0:
        return {}
    head = _common(mine.keys, other.keys)
    tail = _common(mine.keys[::-1], other.keys[::-1])
    for place in range(max(len(mine.keys) - tail, 0), head + 1):
        here = mine.gap(place - 1, place)
        there = other.gap(place - 1, place + more)
        ran = other.spans[place + more - 1][1] - other.spans[place][0]
        if busy.silence(*here) - busy.silence(*there) >= LEAST_SILENCE * ran > 0:
            lost: dict[str, int] = {}
            for phase, _, _ in other.keys[place : place + more]:
                lost[phase] = lost.get(phase, 0) + 1
            return lost
    return {}


def _common(some: Sequence[Key], others: Sequence[Key]) -> int:
    """How many of the first are equal."""
    for at, (one, other) in enumerate(zip(some, others, strict=False)):
        if one != other:
            return at
    return min(len(some), len(others))


def _torn(before: _Step, after: _Step, steps: Sequence[_Step]) -> Iterator[Missing]:
    """Products outside of all marked steps that are the end of one, or its beginning; the outermost call of the one
    that was torn may be lost, so that it has another name."""
    for outside, where in ((before.keys[::-1], "before the first"), (after.keys, "after the last")):
        for step in steps:
            whole = step.keys[::-1] if where == "before the first" else step.keys
            same = _common(outside, whole)
            if outside and len(outside) < len(whole) and same >= max(len(outside) - 1, 1):
                lost = {phase for phase, _, _ in whole[same:]}
                why = f"{len(outside)} products {where} marked step are a part of the {len(whole)} of a step"
                yield from (Missing(phase, len(whole) - len(outside), why) for phase in sorted(lost))
                break
