"""Prints a command's answer on stdout, its messages and progress on stderr, and writes the files that it derives.

An answer comes in as functions that return a page, JSON or CSV. COLUMNS sets the width of a page. Without COLUMNS, a
page is as wide as the terminal, or has 100 columns in a pipe or a file. A terminal gets colours unless NO_COLOR or
TERM=dumb forbid them. With TERM=dumb, as in notebooks, progress is written as lines of a log.

Each derived file is replaced at once or not at all. No raw row of a run is written here.
"""

import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TextIO, TypeVar

from results.errors import StoreFault
from results.printable import printable, wrap
from results.records.cell import Cell, Run
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
    """Return the width of a page on this stream in columns. None: stdout."""
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


def show_page(page: Page, file: Path | None = None) -> None:
    """Print a page on stdout in the stream's width; write it to a file, if one is given, in a pipe's width. Raises
    StoreFault."""
    if file is not None:
        write_file(file, page(PIPE_WIDTH, False))
    has_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    print(page(page_width(), has_colour), end="")


def show_answer(
    form: str, page: Page, document: Callable[[], Any], csv: Callable[[], str], file: Path | None = None
) -> None:
    """Print an answer as csv, json or else as a page, and write it to a file, if one is given. form: the one that was
    asked for; no other is made. Raises StoreFault."""
    if form not in ("csv", "json"):
        show_page(page, file)
        return
    text = json_text(document()) if form == "json" else csv()
    if file is not None:
        write_file(file, text)
    print(text, end="")


def json_text(document: Any) -> str:
    """Return a document as JSON that ends with a newline. Raises ValueError for NaN or an infinite number."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def say(message: str) -> None:
    """Print a line about the answer on stderr: one line in a log, broken between words on a terminal."""
    if sys.stderr.isatty():
        message = "\n".join(wrap(message, min(page_width(sys.stderr), MOST_PROSE), rest="  "))
    print(message, file=sys.stderr, flush=True)


T = TypeVar("T")


@contextlib.contextmanager
def writing(path: Path, other_files: str = "") -> Iterator[None]:
    """Turn an OSError within this context into a StoreFault of `path`. other_files: what to add about other files."""
    try:
        yield
    except OSError as fault:
        raise StoreFault(f"{path} could not be written: {fault.strerror or fault}{other_files}") from fault


def make_directory(out: Path) -> None:
    """Make the directory, before anything is counted for it. Raises StoreFault."""
    with writing(out):
        disk.make_directory(disk.DISK, out)


def reserve(path: Path) -> None:
    """Make sure, before its content is computed, that a file can be written here. Raises StoreFault."""
    with writing(path):
        disk.make_directory(disk.DISK, path.parent)
        tempfile.TemporaryFile(dir=path.parent).close()


def write_file(path: Path, content: str | bytes, other_files: str = "") -> None:
    """Write one file, and make the directories above it; a file of equal content stays as it is. Raises StoreFault."""
    data = content.encode() if isinstance(content, str) else content
    with writing(path, other_files):
        disk.make_directory(disk.DISK, path.parent)
        if not (path.is_file() and path.read_bytes() == data):
            disk.replace(disk.DISK, path, data)


def attempt(what: str, make: Callable[[], T], faults: list[str]) -> T | None:
    """Return what `make` returns; None, with a line in `faults` about `what`, if it raises."""
    try:
        return make()
    except Exception as fault:  # noqa: BLE001  the edge: what is drawn is not a reason to lose what was counted
        faults.append(f"{what} could not be made: {type(fault).__name__}: {' '.join(str(fault).split())}")
        return None


def put_figures(
    folder: Path, draw: Callable[[], Mapping[str, bytes]], faults: list[str], other_files: str = ""
) -> dict[str, str]:
    """Draw figures, write them in their folder in place of an earlier report's, and return name → SVG text. If they
    cannot be drawn, `faults` gets a line and the earlier figures stay. Raises StoreFault."""
    drawn = attempt("figures", draw, faults) or {}
    for name, content in drawn.items():
        write_file(folder / name, content, other_files)
    if not faults:
        remove_others(folder, drawn)
    return {name.removesuffix(".svg"): svg.decode() for name, svg in drawn.items() if name.endswith(".svg")}


def remove_others(folder: Path, drawn: Iterable[str]) -> None:
    """Remove figures of an earlier report that are no longer drawn: pairs of a PNG and an SVG, as we write them."""
    stale = {path.stem for path in folder.glob("*.svg") if path.with_suffix(".png").is_file()}
    stale -= {Path(name).stem for name in drawn}
    for path in (folder / f"{name}.{ending}" for name in sorted(stale) for ending in ("png", "svg")):
        with writing(path):
            disk.DISK.unlink(path)


WITHOUT_TORCH = [
    "numpy",
    "pandas",
    "scipy",
    "sympy",
    "matplotlib",
    "seaborn",
    "rich",
    "jinja2",
    "argcomplete",
]
WITH_TORCH = ["torch", "torchvision", "nvtx", "pynvml", "fvcore", "ptflops"]
"""Modules that the requirements bring, by their name at import."""


def with_install_hint(message: str) -> str:
    """Return what to install if a message says that one of our requirements is missing; else the message."""
    name = match[1] if (match := re.search(r"No module named '(\w+)", message)) else ""
    if name in WITHOUT_TORCH:
        also = "; requirements-report.txt is enough for what needs no torch"
        return f"{name} is not installed: python -m pip install -r requirements.txt{also}"
    if name in WITH_TORCH:
        return f"{name} is not installed: python -m pip install -r requirements.txt"
    return message


def title(cell: Cell | Run) -> str:
    """Name a cell in a few words: model, batch size, precision, and what is not the default."""
    extra = [cell.layout] if cell.layout != Cell.layout else []
    extra += ["compiled"] if cell.compile else []
    extra += [cell.optimizer] if cell.optimizer != Cell.optimizer else []
    extra += [cell.parallel] if cell.parallel else []
    extra += [f"repeat {cell.repeat}"] if cell.repeat else []
    return " ".join([cell.model, f"batch {cell.batch_size}", cell.precision, *extra])


def replaces(stream: TextIO) -> bool:
    """Return whether a line on this stream can be replaced: on a terminal that is not a dumb one."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def show_transient(message: str) -> None:
    """Print a line that the next one replaces, on a terminal only; "" removes it."""
    if replaces(sys.stderr):
        fitting = wrap(message, page_width(sys.stderr) - 1)[:1]
        print(f"\r\033[K{''.join(fitting)}", end="", file=sys.stderr, flush=True)


class Progress:
    """Shows how many cells are done and how long the others may take. total: cells to measure.

    Each of the others is taken to last as long as the mean of those that are done. Before the first has ended, a log
    has the plan's estimate (`expect`).
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total, self._done = total, 0
        self._origin_s = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if replaces(self._stream) and self._total:
            from rich import progress
            from rich.console import Console
            from rich.table import Column

            doing = Column(no_wrap=True, overflow="ellipsis", ratio=1)
            self._bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False, table_column=doing),
                progress.MofNCompleteColumn(),
                progress.TimeElapsedColumn(),
                progress.TextColumn("ETA"),
                progress.TimeRemainingColumn(),
                console=Console(file=self._stream),
                transient=True,
                expand=True,
            )
            self._bar.add_task("starting", total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, planned_s: float) -> None:
        """Print in a log the least time that all cells take by the plan."""
        if self._bar is None and planned_s:
            self.say(f"{self._total} cell{'s' * (self._total != 1)}, at least {_duration_text(planned_s)} by the plan")

    def stage(self, cell: Cell, doing: str) -> None:
        """Show on a terminal what happens to a cell now; a log gets no line."""
        if self._bar is not None:
            self._bar.update(0, description=f"{title(cell)}: {doing}")

    def done(self, run: Run) -> None:
        """Count a committed cell, and print its line."""
        self._done += 1
        line = f"{title(run)}: {run.status}{f' ({with_install_hint(run.reason)})' if run.reason else ''}"
        if self._bar is not None:
            self._bar.update(0, completed=self._done)
            self.say(line)
            return
        took, waiting = f"{run.duration_s:.0f} s" if run.duration_s is not None else "", self._total - self._done
        left = (
            f"about {_duration_text((time.monotonic() - self._origin_s) / self._done * waiting)}"
            if waiting > 0
            else "none"
        )
        self.say(f"[{self._done}/{self._total}] {line}; {took}, {left} left")

    def say(self, text: str) -> None:
        """Print a line about the sweep itself; on a terminal above the bar."""
        if self._bar is None:
            print(printable(text), file=self._stream, flush=True)
        else:
            self._bar.console.print(printable(text), highlight=False, markup=False)


def _duration_text(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
