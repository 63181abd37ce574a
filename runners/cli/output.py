"""Where a command's answer goes: to a terminal as a page, and into files that it derives.

COLUMNS sets the width. Without it a terminal gets pages of its own width, a pipe or a file 100 columns. A terminal gets
colours unless NO_COLOR or TERM=dumb forbid them.

Each derived file is replaced at once or not at all. Nothing of a run's raw rows is written here.
"""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO, TypeVar

from results.errors import StoreFault
from results.printable import wrap
from results.store import disk

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
        put(file, page(PIPE_WIDTH, False))
    print(page(page_width(), has_colour()), end="")


def show_answer(
    form: str, page: Page, document: Callable[[], Any], csv: Callable[[], str], file: Path | None = None
) -> None:
    """Print an answer in the form that was asked for: csv, json, else a page; in a file, too, if one is given. Only
    that form is made. Raises StoreFault."""
    if form not in ("csv", "json"):
        show_page(page, file)
        return
    text = json_text(document()) if form == "json" else csv()
    if file is not None:
        put(file, text)
    print(text, end="")


def json_text(document: Any) -> str:
    """A document as JSON with the end of its last line. Raises ValueError for a number that is none or infinite."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def say(words: str) -> None:
    """Print a line about the answer on stderr: one line in a log, broken between words on a terminal."""
    if sys.stderr.isatty():
        words = "\n".join(wrap(words, min(page_width(sys.stderr), MOST_PROSE), rest="  "))
    print(words, file=sys.stderr, flush=True)


T = TypeVar("T")


@contextlib.contextmanager
def writing(path: Path, beside: str = "") -> Iterator[None]:
    """Turns what the system says meanwhile into a StoreFault. beside: what there is to say of other files."""
    try:
        yield
    except OSError as fault:
        raise StoreFault(f"{path} could not be written: {fault.strerror or fault}{beside}") from fault


def make(out: Path) -> None:
    """The directory, before anything is counted for it. Raises StoreFault."""
    try:
        disk.make_directory(disk.DISK, out)
    except OSError as fault:
        raise StoreFault(f"--out {out} could not be made: {fault.strerror or fault}") from fault


def reserve(path: Path) -> None:
    """Make sure, before it is worth anything, that a file can be put here. Raises StoreFault."""
    with writing(path):
        disk.make_directory(disk.DISK, path.parent)
        tempfile.TemporaryFile(dir=path.parent).close()


def put(path: Path, content: str | bytes, beside: str = "") -> None:
    """One file, and the directories above it; an equal one is left alone. Raises StoreFault."""
    data = content.encode() if isinstance(content, str) else content
    with writing(path, beside):
        disk.make_directory(disk.DISK, path.parent)
        if not (path.is_file() and path.read_bytes() == data):
            disk.replace(disk.DISK, path, data)


def attempt(what: str, make: Callable[[], T], faults: list[str]) -> T | None:
    """What `make` gives; None and a line in `faults` if it fails."""
    try:
        return make()
    except Exception as fault:  # noqa: BLE001  the edge: what is drawn is no reason to lose what was counted
        faults.append(f"{what} could not be made: {type(fault).__name__}: {' '.join(str(fault).split())}")
        return None


def put_figures(
    folder: Path, draw: Callable[[], Mapping[str, bytes]], faults: list[str], beside: str = ""
) -> dict[str, str]:
    """Figures in their folder, in place of those of an earlier report; name → SVG text. Where they cannot be drawn
    there is a line in `faults`, and earlier ones stay. Raises StoreFault."""
    drawn = attempt("figures", draw, faults) or {}
    for name, content in drawn.items():
        put(folder / name, content, beside)
    if not faults:
        remove_others(folder, drawn)
    return {name.removesuffix(".svg"): svg.decode() for name, svg in drawn.items() if name.endswith(".svg")}


def remove_others(folder: Path, drawn: Iterable[str]) -> None:
    """Removes figures of an earlier report that are no longer drawn: pairs of a PNG and an SVG, as we write them."""
    stale = {path.stem for path in folder.glob("*.svg") if path.with_suffix(".png").is_file()}
    stale -= {Path(name).stem for name in drawn}
    for path in (folder / f"{name}.{ending}" for name in sorted(stale) for ending in ("png", "svg")):
        try:
            disk.DISK.unlink(path)
        except OSError as fault:
            raise StoreFault(f"{path} could not be removed: {fault.strerror or fault}") from fault
