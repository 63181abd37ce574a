"""Brings every counter's number to one convention: one multiply-add is 2 FLOP.

The native value and its unit stay beside the converted one, so that the conversion can be repeated and is never
applied to its own result. It does not judge whether a counter is right, only what its number means.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic

from analysis.stats.summary import affine
from analysis.utilization.counter_operators import FLOP_PER_NATIVE, OPERATORS
from results.records.counts import CleaningLog, FlopCount
from results.records.rows import WHOLE, R, to_text


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


FLOP_COUNTS = "flop_counts.csv"

Points = set[tuple[int, int]]
"""(batch size, FLOP) of one series of counts."""


def one_convention(counts: tuple[FlopCount, ...]) -> Outcome[FlopCount]:
    """Every count in FLOP, from its native value alone; a count whose unit is unknown becomes invalid.

    The total of a counter that mixes multiply-adds and elements in one native number keeps the FLOP it came with, which
    its adapter added up by operator; without one it gets the sum of its operators: those of the same counter, workload,
    phase, scope and batch. A module's total holds its children's operators too, which sums never mix with its own.
    """
    kept, log = [], []
    sums = _sums_of_operators(counts)
    for count in counts:
        clean, entry = _converted(count, None if count.operator else sums.get(_total_of(count)))
        kept.append(clean)
        if entry is not None:
            log.append(entry)
    return Outcome(tuple(kept), (), tuple(log))


def extrapolation_checked(counts: tuple[FlopCount, ...]) -> Outcome[FlopCount]:
    """Every extrapolated count against the affine law a·b + c of the batches that were counted.

    One that the counted batches contradict, or counted batches that are on no line, makes it invalid. Fewer than two
    counted batches decide nothing: the count stays, and the log says that it was not checked.
    """
    if not any(count.extrapolated for count in counts):
        return Outcome(counts)
    measured: dict[tuple[str, ...], Points] = {}
    for count in counts:
        if count.status == "ok" and not count.extrapolated and count.flop is not None:
            measured.setdefault(_series(count), set()).add((count.batch_size, count.flop))
    kept, log = [], []
    for count in counts:
        clean, entry = _check_extrapolation(count, measured.get(_series(count), set()))
        kept.append(clean)
        if entry is not None:
            log.append(entry)
    return Outcome(tuple(kept), (), tuple(log))


def entry(step: str, count: FlopCount, field: str, before: object, after: object, reason: str) -> CleaningLog:
    """One row of the cleaning log about a count."""
    where = f"{count.scope} " if count.operator and count.scope != WHOLE else ""
    subject = f"{count.counter} {count.phase} batch {count.batch_size} {where}{count.operator or count.scope}"
    return CleaningLog(
        step=step,
        file=FLOP_COUNTS,
        cell_id=count.cell_id,
        attempt=count.attempt,
        subject=subject,
        field=field,
        before=to_text(before),
        after=to_text(after),
        reason=reason,
    )


def _sums_of_operators(counts: tuple[FlopCount, ...]) -> dict[tuple[str, ...], int]:
    """Total → FLOP of its operators; without those totals of which an operator has no finite number in a known unit."""
    sums: dict[tuple[str, ...], int] = {}
    broken = set()
    for count in counts:
        if count.operator:
            flop = _in_flop(count)
            sums[_total_of(count)] = sums.get(_total_of(count), 0) + (flop or 0)
            if flop is None or count.status != "ok":
                broken.add(_total_of(count))
    return {total: flop for total, flop in sums.items() if total not in broken}


def _total_of(count: FlopCount) -> tuple[str, ...]:
    """What a total and its operators have in common, and rows of no other total have."""
    named = (count.counter, count.workload, count.phase, count.scope, str(count.batch_size), str(count.extrapolated))
    return (count.cell_id, str(count.attempt), *named)


def _in_flop(count: FlopCount) -> int | None:
    factor = FLOP_PER_NATIVE.get(count.native_unit)
    if factor is None or count.native_value is None or not math.isfinite(count.native_value):
        return None
    return round(factor * count.native_value)


def _converted(count: FlopCount, operators_flop: int | None) -> tuple[FlopCount, CleaningLog | None]:
    if count.native_value is None or count.status != "ok":
        return count, None
    flop = _in_flop(count)
    if flop is None:
        came = f"{to_text(count.native_value)} {count.native_unit or 'without a unit'}"
        return _invalid("one_convention", count, f"expected a finite number of mac or flop, came {came}")
    reason = ""
    if not count.operator and count.counter in OPERATORS:
        if count.flop is not None:
            return count, None
        if operators_flop is not None:
            flop, reason = operators_flop, "the sum of its operators, each in its own unit"
    if flop == count.flop:
        return count, None
    if not reason:
        factor = FLOP_PER_NATIVE[count.native_unit]
        reason = f"one {count.native_unit} is {factor} FLOP: {factor} × {to_text(count.native_value)}"
    log = entry("one_convention", count, "flop", count.flop, flop, reason)
    return dataclasses.replace(count, flop=flop), log


def _check_extrapolation(count: FlopCount, points: Points) -> tuple[FlopCount, CleaningLog | None]:
    if count.status != "ok" or not count.extrapolated or count.flop is None:
        return count, None
    if len(points) < 2:
        reason = f"not checked: {len(points)} counted batch sizes, an affine law needs two"
        return count, entry("extrapolation_checked", count, "extrapolated", True, True, reason)
    expected = affine(points, count.batch_size)
    if expected == count.flop:
        return count, None
    words = "are on no line" if expected is None else f"give {expected}"
    reason = f"extrapolated to {count.flop} FLOP, but the counted batches {sorted(size for size, _ in points)} {words}"
    return _invalid("extrapolation_checked", count, reason)


def _invalid(step: str, count: FlopCount, reason: str) -> tuple[FlopCount, CleaningLog]:
    log = entry(step, count, "status", count.status, "invalid", reason)
    return dataclasses.replace(count, flop=None, status="invalid", reason=reason), log


def _series(count: FlopCount) -> tuple[str, ...]:
    named = (count.counter, count.workload, count.phase, count.scope, count.operator)
    return (count.cell_id, str(count.attempt), *named)
