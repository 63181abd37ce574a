"""What a cleaning step is: records in, records and a log of every change out.

A step has one job and says so in its first line. It edits nothing in place and invents no record: whatever came in is
either kept (perhaps with a field changed, which is logged) or dropped (which is logged with its size).

Sums of numbers some of which are unknown.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic

from results.records.counts import CleaningLog
from results.records.rows import R


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What a step made of its records. kept + dropped are as many records as came in, in their order."""

    kept: tuple[R, ...]
    dropped: tuple[R, ...] = ()
    log: tuple[CleaningLog, ...] = ()


@dataclass(frozen=True)
class CleaningStep:
    """One named step over the records of one raw file."""

    name: str
    file: str
    apply: Callable[[tuple[Any, ...]], Outcome[Any]]


def known_sum(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None if nothing is. What a recorder that leaves numbers out gives as its total."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def whole_sum(values: Iterable[int | None]) -> int | None:
    """The sum; None if one of the values is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
