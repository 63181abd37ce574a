"""Text in aligned columns that no terminal's width cuts: what goes to files, and what a pipe takes apart. What a
terminal shows is laid out by `layout`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from results.printable import printable

GAP = "  "


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """One line a row, each column as wide as its longest text. left: columns of words; the others end alike. What
    steers a terminal is written out."""
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
