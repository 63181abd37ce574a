"""How fast the variants of a training step are, against the first of the same model and batch: a table of each form."""

from __future__ import annotations

from collections.abc import Sequence

from cleaning.reconcile.variants import Variant
from reports.shared.html_tables import Table
from reports.shared.layout import Column, Part, TextTable, strong
from reports.shared.numbers import DASH, digits

HEADING = "Variants: steps per second ÷ those of the first variant of the same model and batch, with the 95 % interval."

MOST_ROWS = 40
"""Of the table in a terminal; the page has all rows."""

NAMES = ("model", "batch", "variant", "speed", "95 % interval")
WORDS = ("model", "variant")


def variant_parts(variants: Sequence[Variant]) -> list[Part]:
    """The table for a terminal; nothing for a run without variants."""
    if not variants:
        return []
    columns = [Column(name, right=name not in WORDS, wraps=name in WORDS, least=14) for name in NAMES]
    rest = len(variants) - MOST_ROWS
    more = [f"{rest} more in report.html"] if rest > 0 else []
    return [strong(HEADING), "", TextTable(columns, [_cells(row) for row in variants[:MOST_ROWS]]), *more, ""]


def variant_table(variants: Sequence[Variant]) -> Table | None:
    """The table of the page."""
    if not variants:
        return None
    rows = tuple(tuple(_cells(row)) for row in variants)
    return Table("Steps per second ÷ those of the first variant", NAMES, rows, frozenset(WORDS))


def _cells(row: Variant) -> list[str]:
    low, high = row.low_ratio, row.high_ratio
    interval = DASH if low is None or high is None else f"{digits(low)} to {digits(high)}"
    return [row.model, str(row.batch_size), row.name, "first" if row.first else digits(row.ratio), interval]
