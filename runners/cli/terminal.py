"""How wide the place is that a command writes to, and the one function through which its pages get there.

COLUMNS sets the width. Without it a terminal gets pages of its own width, a pipe or a file 100 columns. A terminal gets
colours unless NO_COLOR or TERM=dumb forbid them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from results.wrapping import wrap

LEAST_WIDTH = 60
"""Columns that a page has at least."""

PIPE_WIDTH = 100
"""Columns of a page in a pipe or a file."""

MOST_PROSE = 120
"""Columns of a note, however wide the terminal."""

Page = Callable[[int, bool], str]
"""(columns, whether colours are shown) → a page of text."""


def page_width(stream: TextIO | None = None) -> int:
    """Columns of a page on this stream, stdout where none is given."""
    stream = sys.stdout if stream is None else stream
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted):
        return max(LEAST_WIDTH, int(wanted))
    if not stream.isatty():
        return PIPE_WIDTH
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(LEAST_WIDTH, columns or PIPE_WIDTH)


def has_colour(stream: TextIO | None = None) -> bool:
    """Whether colours are shown there."""
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show_page(page: Page, file: Path | None = None) -> None:
    """Print a page on stdout, as wide as that is; in a file, if one is given, as in a pipe. Raises StoreFault."""
    if file is not None:
        from runners.cli.output_files import put

        put(file, page(PIPE_WIDTH, False))
    print(page(page_width(), has_colour()), end="")


def say(words: str) -> None:
    """Print a line about the answer on stderr: one line in a log, broken between words on a terminal."""
    if sys.stderr.isatty():
        words = "\n".join(wrap(words, min(page_width(sys.stderr), MOST_PROSE), rest="  "))
    print(words, file=sys.stderr, flush=True)
