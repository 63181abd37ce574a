"""Collectives timed alone, as text: a row for each size, a column for each collective."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.parallel.collective_rates import CollectiveRate
from reports.shared.layout import Column, Part, TextTable, page, strong
from reports.shared.numbers import DASH, si, si_time


def collectives_text(rows: Sequence[CollectiveRate], width: int, colour: bool) -> str:
    """The link rate of each collective and size, the time of the smallest, and what failed. Empty rows are refused."""
    first, operations = rows[0], list(dict.fromkeys(row.operation for row in rows))
    sizes = sorted({row.nbytes for row in rows})
    found = {(row.operation, row.nbytes): row for row in rows}
    cells = [[si(size, "B"), *(_rate(found.get((each, size))) for each in operations)] for size in sizes]
    columns = [Column("buffer", right=True), *(Column(each, right=True) for each in operations)]
    parts: list[Part] = [
        strong(f"{first.ranks} ranks over {first.backend} ({first.device}): bytes/s that each rank sends at least"),
        "",
        TextTable(columns, cells),
        "",
    ]
    smallest = [row for row in rows if row.nbytes == sizes[0] and row.median_s is not None]
    if smallest:
        times = ", ".join(f"{row.operation} {si_time(row.median_s or 0.0)}" for row in smallest)
        parts.append(f"{si(sizes[0], 'B')} takes: {times}")
    parts += list(dict.fromkeys(f"{row.operation}: {row.status}: {row.reason}" for row in rows if row.status != "ok"))
    return page(parts, width, colour)


def _rate(row: CollectiveRate | None) -> str:
    if row is None or row.link_bytes_per_s is None:
        return DASH
    return si(row.link_bytes_per_s, "B/s")
