"""Selects the model FLOP in counters' rows, and extrapolates counts at small batches to a large batch.

`model_operators` takes `FlopCount`s. It returns the totals, the rows of products (convolution, matrix product,
attention, recurrent layer), and a log of the rows left out. fvcore, for example, adds 2 to 5 FLOP per element of a
normalisation. The number in the counter's own unit stays in each row. `extrapolate` takes one counter's rows at several
batch sizes b, and returns rows at another by the exact law a·b + c. A third size checks the law; a count that misses it
by a single unit makes the row invalid. c is not 0 where a part of the model does not depend on the batch (swin_v2).
This file does not judge which counter is right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from analysis.counters import COUNTERS, kind_of_operator
from analysis.operators.registry import PRODUCTS
from results.records.counts import WHOLE, CleaningLog, FlopCount
from results.records.rows import replace_fields, to_text
from results.store.layout import FLOP_COUNTS


def model_operators(counts: Iterable[FlopCount]) -> tuple[list[FlopCount], list[CleaningLog]]:
    """Return totals and the rows of operators that are model FLOP, and a log entry for each row that is left out.

    Counters that report no operators pass through unchanged. A second application leaves out nothing.
    """
    products, log = [], []
    entry = CleaningLog(
        **dict.fromkeys(("cell_id", "subject", "before", "after", "reason"), ""),
        attempt=0,
        step="model_operators",
        file=FLOP_COUNTS,
        field="flop",
    )
    for count in counts:
        why = _why_left_out(count)
        if why is None:
            products.append(count)
            continue
        where = f"{count.scope} " if count.scope != WHOLE else ""
        own = {
            "cell_id": count.cell_id,
            "attempt": count.attempt,
            "subject": f"{count.counter} {count.phase} batch {count.batch_size} {where}{count.operator}",
            "before": to_text(count.flop),
            "reason": f"left out: {why}",
        }
        log.append(replace_fields(entry, own))
    return products, log


def _why_left_out(count: FlopCount) -> str | None:
    if not count.operator or count.counter not in COUNTERS:
        return None
    kind = kind_of_operator(count.counter, count.operator, count.native_unit)
    if kind is None:
        return "not understood: the operator is in no table, so it is not counted"
    return None if kind in PRODUCTS else f"{kind} is neither a convolution nor a matrix product"


def known_sum(values: Iterable[int | None]) -> int | None:
    """Sum the known values; None if there are none. This is how a recorder with missing numbers totals them."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def whole_sum(values: Iterable[int | None]) -> int | None:
    """Sum the values; None if one of them is unknown."""
    every = list(values)
    return None if None in every else known_sum(every) or 0


Point = tuple[int, int | float]
"""(batch size, count); a float is taken at its exact value."""


def line(points: Iterable[Point]) -> tuple[Fraction, Fraction] | None:
    """Return a and c of the line through all points; None if there is none, or for fewer than two batch sizes."""
    exact = {(x, Fraction(y) if isinstance(y, float) else y) for x, y in points}
    if not exact:
        return None
    (x0, y0), (x1, y1) = min(exact), max(exact)
    if x0 == x1 or any((y - y0) * (x1 - x0) != (y1 - y0) * (x - x0) for x, y in exact):
        return None
    slope = Fraction(y1 - y0, x1 - x0)
    return slope, y0 - slope * x0


def affine(points: Iterable[Point], batch_size: int) -> int | None:
    """Return the value at `batch_size` of the line through all points; None if there is none, or it is not an integer
    there."""
    law = line(points)
    if law is None:
        return None
    value = law[0] * batch_size + law[1]
    return int(value) if value.denominator == 1 else None


COUNTED_BATCHES = (1, 2, 16)
"""Two batch sizes decide an affine law and the third checks it; a counter on real tensors is slow and large beyond
that."""


def batches_to_count(batch_size: int) -> tuple[int, ...]:
    """Return the batch sizes at which to run a counter so that a law follows: 1, 2 and min(batch_size, 16)."""
    first, second, largest = COUNTED_BATCHES
    return tuple(sorted({first, second, min(batch_size, largest)}))


Series = dict[int, FlopCount]
"""Batch size → one operator's count (or the total's)."""


def extrapolate(rows: Sequence[FlopCount], batch_size: int) -> list[FlopCount]:
    """Return one counter's rows at `batch_size`: as counted where it was, else by the law, marked `extrapolated`.

    rows: of one counter and workload at several batch sizes, forward and backward. An operator that breaks the law, or
    was not counted at every size of the total, gives a row of status `invalid`; fewer than two counted sizes give the
    failure's row, or one of status `unavailable` for each phase.
    """
    counted = [row for row in rows if row.status == "ok"]
    here = [row for row in counted if row.batch_size == batch_size]
    if here or not rows:
        return here
    sizes = sorted({row.batch_size for row in counted})
    if len(sizes) < 2:
        return _no_law(rows, batch_size)
    by_operator: dict[tuple[str, str, str], Series] = {}
    for row in counted:
        by_operator.setdefault((row.phase, row.operator, row.native_unit), {})[row.batch_size] = row
    return [_extrapolated(series, sizes, batch_size) for series in by_operator.values()]


def _extrapolated(series: Series, sizes: Sequence[int], batch_size: int) -> FlopCount:
    """Return one operator's row at a batch that was not counted."""
    largest = series[max(series)]
    reasons = {row.reason for row in series.values()}
    row = replace(
        largest,
        batch_size=batch_size,
        extrapolated=True,
        attention={},
        reason=largest.reason if len(reasons) == 1 else "",  # what was said of one batch is not true of another
        duration_s=None,
        peak_memory_bytes=None,
        printed=None,
    )
    missing = [size for size in sizes if size not in series]
    ordered = sorted(series)
    columns = ([getattr(series[size], column) for size in ordered] for column in ("native_value", "flop"))
    native, flop = (  # by the line through all that were counted
        None if missing or None in values else affine([*zip(ordered, values, strict=True)], batch_size)
        for values in columns
    )
    if native is not None and (flop is not None or largest.flop is None):
        return replace(row, native_value=native, flop=flop)
    counts = ", ".join(f"{size}: {series[size].native_value}" for size in ordered)
    reason = f"not affine in the batch: counted {counts}{f', none at {missing}' if missing else ''}"
    return replace(row, native_value=None, flop=None, status="invalid", reason=reason)


def _no_law(rows: Sequence[FlopCount], batch_size: int) -> list[FlopCount]:
    """Return the rows where too few batches were counted: the failure that prevented the others, or each total."""
    failed = next((row for row in rows if row.status != "ok"), None)
    if failed is not None:
        return [replace(failed, batch_size=batch_size, extrapolated=False)]
    reason = f"counted at a batch of {rows[0].batch_size} only; a law of the batch needs two"
    totals = [row for row in rows if not row.operator] or [replace(rows[0], operator="")]
    return [
        replace(
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
