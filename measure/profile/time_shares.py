"""A step's time shared out: each instant belongs to one operation, or to the time before one, and nothing is lost.

An instant in which several run belongs to the one that began last: of calls inside one another the innermost, of
kernels side by side the later. An instant in which none runs is waited for by the next to begin; after the last of all
it is the step's end. Whole nanoseconds: the shares add up to the step exactly.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

Interval = tuple[int, int, int]
"""(start, end, index of the operation that it is of), in ns."""


@dataclass(frozen=True)
class Shares:
    """In ns: own and waited by index of operation, and what follows after the last."""

    own: dict[int, int]
    waited: dict[int, int]
    end: int


def shares(intervals: Iterable[Interval], start_ns: int, end_ns: int) -> Shares:
    """Share out the time from start to end; what of an interval lies outside of it does not count."""
    own: defaultdict[int, int] = defaultdict(int)
    waited: defaultdict[int, int] = defaultdict(int)
    running: list[tuple[int, int]] = []  # (end, index), the last begun at the end
    now = start_ns
    for begins, ends, index in sorted(intervals, key=lambda interval: (interval[0], -interval[1])):
        begins = min(max(begins, start_ns), end_ns)
        now = _spend(running, now, begins, own)
        waited[index] += begins - now
        own[index] += 0
        now = begins
        running.append((min(ends, end_ns), index))
    now = _spend(running, now, end_ns, own)
    return Shares(dict(own), dict(waited), end_ns - now)


def _spend(running: list[tuple[int, int]], now: int, until: int, own: defaultdict[int, int]) -> int:
    """Give the time up to `until` to what runs, the last begun first; when that ended, or `until`."""
    while running and now < until:
        ends, index = running[-1]
        if ends <= now:
            running.pop()
            continue
        own[index] += min(ends, until) - now
        now = min(ends, until)
    return now
