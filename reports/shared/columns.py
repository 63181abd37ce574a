"""Text in columns that no terminal's width cuts: aligned, for files and pipes, and as CSV.

What a terminal shows is laid out by `layout`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from results.printable import printable
from results.records.rows import cell_text

GAP = "  "


def csv_text(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A line of names and a line for each row. Unknown is empty; text that begins like a formula has an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell_text(value) for value in row] for row in rows)
    return file.getvalue()


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """`csv_text` of rows that all have the names of the first; "" without rows."""
    return csv_text(list(rows[0]), (row.values() for row in rows)) if rows else ""


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """One line a row, each column as wide as its longest text. left: columns of words; the others are aligned right.
    What steers a terminal is written out."""
    rows = [[printable(text) for text in row] for row in rows]
    count = max((len(row) for row in rows), default=0)
    widths = [max((len(row[column]) for row in rows if column < len(row)), default=0) for column in range(count)]
    return [
        GAP.join(
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    ]
