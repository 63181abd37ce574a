"""A comparison of two runs as a table that a person reads: as wide as its terminal, what can be said first."""

from __future__ import annotations

from collections.abc import Sequence

from reports.shared.layout import WIDTH, Column, Part, TextTable, page
from reports.shared.numbers import DASH, digits, percent, si_time
from results.records.comparisons import FASTER, ONLY_A, ONLY_B, SAME, SLOWER, UNKNOWN, Comparison

SHOWN = 12
"""Unmatched cells of each run that are named; csv and json have all."""

_COLUMNS = (
    Column("model", right=False, wraps=True),
    Column("batch", right=True),
    Column("precision", right=False),
    Column("B is", right=False),
    Column("B ÷ A", right=True),
    Column("95 % interval", right=True),
    Column("A", right=True, rank=1),
    Column("B", right=True, rank=1),
    Column("blocks", right=True, rank=2),
)
HEADS = tuple(column.name for column in _COLUMNS)

_BASES = {
    "sessions": "where both have paired ceilings, step times are relative to them (utilization of A ÷ of B) and "
    "sessions scatter: different is different from 1",
    "processes": "where both runs have repeats, their processes scatter: different is different from 1",
    "blocks": "one process on a side does not show what processes differ by: different is beyond the margin",
}


def to_text(
    rows: Sequence[Comparison],
    a: str,
    b: str,
    across: Sequence[str] = (),
    width: int = WIDTH,
    colour: bool = False,
) -> str:
    """The table, cells of one run alone, and what the columns mean, in lines of at most `width` letters.

    a, b: what the runs are called.
    """
    matched = [row for row in rows if row.verdict not in (ONLY_A, ONLY_B)]
    parts: list[Part] = [f"A: {a}", f"B: {b}"]
    parts += [f"across: {', '.join(across)}"] if across else []
    parts += ["", TextTable(_COLUMNS, [row_cells(row) for row in matched], rule=False)]
    names = cell_names(rows)
    said: dict[str, list[str]] = {}  # reason, or the run that has the cell alone → cells
    for row, name in zip(rows, names, strict=True):
        if text := row.verdict if row.verdict in (ONLY_A, ONLY_B) else row.reason:
            said.setdefault(text, []).append(name)
    for text, cells in sorted(said.items(), key=lambda item: (ONLY_A, ONLY_B).count(item[0])):
        more = f" and {len(cells) - SHOWN} more" if len(cells) > SHOWN else ""
        parts.append(f"{text}: {', '.join(cells[:SHOWN])}{more}")
    return page([*parts, "", *closing_lines(matched)], width, colour)


def interval_text(low: float, high: float, count: int = 3) -> str:
    """From one ratio to the other; the ends of a few scattered pairs may be millions, which is "> 100"."""
    return f"{'< 0.01' if low < 0.01 else digits(low, count)} to {'> 100' if high > 100 else digits(high, count)}"


def row_cells(row: Comparison) -> list[str]:
    """The texts of a row under HEADS."""
    interval = DASH
    if row.low_ratio is not None and row.high_ratio is not None:
        interval = interval_text(row.low_ratio, row.high_ratio, 4)
    ratio = DASH if row.ratio is None else digits(row.ratio, 4)
    times = [DASH if time_s is None else si_time(time_s) for time_s in (row.time_a_s, row.time_b_s)]
    blocks = f"{row.blocks_a}, {row.blocks_b}" if row.blocks_a or row.blocks_b else DASH
    return [row.model, str(row.batch_size), row.precision, row.verdict, ratio, interval, *times, blocks]


def cell_names(rows: Sequence[Comparison]) -> list[str]:
    """Cells in a few words, each with its variant unless all have the same."""
    several = len({row.variant for row in rows}) > 1
    cells = [f"{row.model} b{row.batch_size} {row.precision}" for row in rows]
    variants = [f" ({row.variant})" if several and row.variant else "" for row in rows]
    return [cell + beside for cell, beside in zip(cells, variants, strict=True)]


def closing_lines(rows: Sequence[Comparison]) -> list[str]:
    """What became of the matched cells, and what the words mean here."""
    count = {verdict: sum(row.verdict == verdict for row in rows) for verdict in (FASTER, SLOWER, SAME, UNKNOWN)}
    counts = ", ".join(f"{number} {verdict}" for verdict, number in count.items() if number)
    margins = sorted({row.margin_ratio for row in rows if row.margin_ratio is not None})
    within = f"same is within ±{' or '.join(map(percent, margins))}" if margins else ""
    bases = [words for basis, words in _BASES.items() if any(row.basis == basis for row in rows)]
    meaning = "; ".join(filter(None, (within, *bases)))
    cells = "1 cell" if len(rows) == 1 else f"{len(rows)} cells"
    return [f"{cells} in both: {counts} (5 % for all of them together)", meaning]
