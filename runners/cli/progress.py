"""Progress on stderr: of a sweep a line with what narrows and the time left on a terminal, a line a cell elsewhere; of
other commands one line on a terminal, which the next one replaces. A terminal that says TERM=dumb, as notebooks do,
gets a log's lines."""

import os
import sys
import time
from typing import Any, Self, TextIO

from results.printable import printable, wrap
from results.records.cell import Cell, Run
from runners.cli.exits import instructed
from runners.cli.output import page_width


def title(cell: Cell | Run) -> str:
    """A cell in a few words."""
    extra = [cell.layout] if cell.layout != Cell.layout else []
    extra += ["compiled"] if cell.compile else []
    extra += [cell.optimizer] if cell.optimizer != Cell.optimizer else []
    extra += [cell.parallel] if cell.parallel else []
    extra += [f"repeat {cell.repeat}"] if cell.repeat else []
    return " ".join([cell.model, f"batch {cell.batch_size}", cell.precision, *extra])


def replaces(stream: TextIO) -> bool:
    """Whether what is written there can be replaced: on a terminal that is not a dumb one."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def passing(words: str) -> None:
    """A line that the next one replaces, on a terminal only; "": none any more."""
    if replaces(sys.stderr):
        fitting = wrap(words, page_width(sys.stderr) - 1)[:1]
        print(f"\r\033[K{''.join(fitting)}", end="", file=sys.stderr, flush=True)


class Progress:
    """Says what is done and how long the rest may take. total: cells to measure.

    Each of the others is taken to last as long as those that are done; before the first has ended, all together at
    least what the plan says (`expect`).
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
        """The least that all cells take together, by the plan; a log is told it."""
        if self._bar is None and planned_s:
            self.say(f"{self._total} cell{'s' * (self._total != 1)}, at least {_words(planned_s)} by the plan")

    def stage(self, cell: Cell, doing: str) -> None:
        """What happens to a cell now; a terminal shows it, a log does not."""
        if self._bar is not None:
            self._bar.update(0, description=f"{title(cell)}: {doing}")

    def done(self, run: Run) -> None:
        """A cell is committed."""
        self._done += 1
        line = f"{title(run)}: {run.status}{f' ({instructed(run.reason)})' if run.reason else ''}"
        if self._bar is not None:
            self._bar.update(0, completed=self._done)
            self.say(line)
            return
        took, waiting = f"{run.duration_s:.0f} s" if run.duration_s is not None else "", self._total - self._done
        left = f"about {_words((time.monotonic() - self._origin_s) / self._done * waiting)}" if waiting > 0 else "none"
        self.say(f"[{self._done}/{self._total}] {line}; {took}, {left} left")

    def say(self, text: str) -> None:
        """A line about the sweep itself; on a terminal above what is replaced."""
        if self._bar is None:
            print(printable(text), file=self._stream, flush=True)
        else:
            self._bar.console.print(printable(text), highlight=False, markup=False)


def _words(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
