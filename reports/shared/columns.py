"""Text in aligned columns that no terminal's width cuts: what goes to files, and what a pipe takes apart. And how wide
a page of text is, whatever the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

from results.printable import printable

WIDTH = 100
"""Characters of a line of what is told."""

GAP = "  "


def wrapped(words: str) -> list[str]:
    """A sentence in lines of the page."""
    return textwrap.wrap(printable(words), WIDTH, subsequent_indent="  ")


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
