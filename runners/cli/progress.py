"""Progress on stderr: of a sweep a bar with the time left on a terminal, a line a cell elsewhere; of other commands one
line on a terminal, which the next one replaces. A terminal that says TERM=dumb, as notebooks do, gets a log's lines."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any, Self, TextIO

from results.printable import printable
from results.records import Cell, Run
from runners.cli.exits import instructed


def title(cell: Cell | Run) -> str:
    """A cell in a few words."""
    extra = [f"repeat {cell.repeat}"] if cell.repeat else []
    return " ".join([cell.model, f"batch {cell.batch_size}", cell.precision, *extra])


def replaces(stream: TextIO) -> bool:
    """Whether what is written there can be replaced: on a terminal that is not a dumb one."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def passing(words: str) -> None:
    """A line that the next one replaces, on a terminal only; "": none any more."""
    if replaces(sys.stderr):
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


class Progress:
    """Says what is done and how long the rest may take. total: cells to measure."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total = total
        self._done = 0
        self._origin_s = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if replaces(self._stream) and self._total:
            self._bar, self._task = _bar(self._total, self._stream)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, cell: Cell, doing: str) -> None:
        """What happens to a cell now; a terminal shows it, a log does not."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"{title(cell)}: {doing}")

    def done(self, run: Run) -> None:
        """A cell is committed."""
        self._done += 1
        line = printable(f"{title(run)}: {run.status}{f' ({instructed(run.reason)})' if run.reason else ''}")
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False)
            self._bar.advance(self._task)
            return
        took = f"{run.duration_s:.0f} s" if run.duration_s is not None else ""
        self._print(f"[{self._done}/{self._total}] {line}; {took}, {self._time_left()}")

    def say(self, text: str) -> None:
        """A line about the sweep itself."""
        text = printable(text)
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            self._print(text)

    def _time_left(self) -> str:
        left = self._total - self._done
        if not left:
            return "none left"
        seconds = (time.monotonic() - self._origin_s) / self._done * left
        return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _bar(total: int, stream: TextIO) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    bar = RichProgress(*columns, console=Console(file=stream), transient=True)
    return bar, bar.add_task("starting", total=total)
