"""From counts at small batches to the count at a large one, by the affine law a·b + c, checked wherever it can be.

Exact: counts are whole numbers, and a law that misses one of them by a single unit is no law. A count that follows
none says so; nothing is fitted. c is not 0 in models with a part that does not see the batch (swin_v2).
"""

import dataclasses
from collections.abc import Sequence

from results.records.counts import FlopCount

Series = dict[int, FlopCount]
"""Batch size → one operator's count (or the total's)."""


def extrapolate(rows: Sequence[FlopCount], batch_size: int) -> list[FlopCount]:
    """One counter's rows at `batch_size`: as counted where it was, else by the law, marked `extrapolated`.

    rows: of one counter and workload at several batch sizes, forward and backward. An operator that breaks the law, or
    was not counted at every size that the total was, gives a row of status `invalid`; fewer than two counted sizes give
    the failure's row, or one of status `unavailable` for each phase.
    """
    here = [row for row in rows if row.batch_size == batch_size and row.status == "ok"]
    if here or not rows:
        return here
    counted = [row for row in rows if row.status == "ok"]
    sizes = sorted({row.batch_size for row in counted})
    if len(sizes) < 2:
        return _no_law(rows, batch_size)
    return [_extrapolated(series, sizes, batch_size) for series in _series(counted)]


def _series(counted: Sequence[FlopCount]) -> list[Series]:
    """The rows by what they count, in the order they came."""
    found: dict[tuple[str, str, str], Series] = {}
    for row in counted:
        found.setdefault((row.phase, row.operator, row.native_unit), {})[row.batch_size] = row
    return list(found.values())


def _extrapolated(series: Series, sizes: Sequence[int], batch_size: int) -> FlopCount:
    """One operator's row at a batch that was not counted."""
    largest = series[max(series)]
    reasons = {row.reason for row in series.values()}
    row = dataclasses.replace(
        largest,
        batch_size=batch_size,
        extrapolated=True,
        attention={},
        mixture={},
        reason=largest.reason if len(reasons) == 1 else "",  # what was said of one batch is not true of another
        duration_s=None,
        peak_memory_bytes=None,
        printed=None,
    )
    missing = [size for size in sizes if size not in series]
    native = None if missing else _law(series, "native_value", batch_size)
    flop = None if missing else _law(series, "flop", batch_size)
    if native is not None and (flop is not None or largest.flop is None):
        return dataclasses.replace(row, native_value=native, flop=flop)
    counts = ", ".join(f"{size}: {series[size].native_value}" for size in sorted(series))
    gap = f", none at {missing}" if missing else ""
    reason = f"not affine in the batch: counted {counts}{gap}"
    return dataclasses.replace(row, native_value=None, flop=None, status="invalid", reason=reason)


def _law(series: Series, column: str, batch_size: int) -> int | None:
    values = [(size, getattr(series[size], column)) for size in sorted(series)]
    if any(value is None for _, value in values):
        return None
    from analysis.stats.summary import affine

    return affine(values, batch_size)


def _no_law(rows: Sequence[FlopCount], batch_size: int) -> list[FlopCount]:
    """The rows where too few batches were counted: the failure that kept the others from being, or each total."""
    failed = next((row for row in rows if row.status != "ok"), None)
    if failed is not None:
        return [dataclasses.replace(failed, batch_size=batch_size, extrapolated=False)]
    reason = f"counted at a batch of {rows[0].batch_size} only; a law of the batch needs two"
    totals = [row for row in rows if not row.operator] or [dataclasses.replace(rows[0], operator="")]
    return [
        dataclasses.replace(
            row,
            batch_size=batch_size,
            status="unavailable",
            reason=reason,
            native_value=None,
            flop=None,
            duration_s=None,
            peak_memory_bytes=None,
            parameters=None,
            printed=None,
        )
        for row in totals
    ]
