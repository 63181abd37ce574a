"""Progress on stderr: of a sweep a line with what narrows and the time left on a terminal, a line a cell elsewhere; of
other commands one line on a terminal, which the next one replaces. A terminal that says TERM=dumb, as notebooks do,
gets a log's lines."""

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
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

    Before the first cell has ended the rest takes at least what the plan says (`expect`); from then on each of the
    others as long as those that are done.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._total = total
        self._done = 0
        self._origin_s = time.monotonic()
        self._planned_s = 0.0
        self._doing: tuple[str, ...] = ("starting",)
        self._bar: Any = None

    def __enter__(self) -> Self:
        if replaces(self._stream) and self._total:
            self._bar = _bar(self._total, self._stream, self.line)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, planned_s: float) -> None:
        """The least that all cells take together, by the plan; a log is told it."""
        self._planned_s = planned_s
        if self._bar is None and planned_s:
            cells = f"{self._total} cell{'s' * (self._total != 1)}"
            self._print(f"{cells}, at least {_words(planned_s)} by the plan")

    def stage(self, cell: Cell, doing: str) -> None:
        """What happens to a cell now; a terminal shows it, a log does not."""
        self._doing = (f"{title(cell)}: {doing}", f"{cell.model}: {doing}", doing, title(cell))

    def done(self, run: Run) -> None:
        """A cell is committed."""
        self._done += 1
        line = printable(f"{title(run)}: {run.status}{f' ({instructed(run.reason)})' if run.reason else ''}")
        if self._bar is not None:
            self._say_above(line)
            self._bar.update(0, completed=self._done)
            return
        took = f"{run.duration_s:.0f} s" if run.duration_s is not None else ""
        self._print(f"[{self._done}/{self._total}] {line}; {took}, {self._time_left()}")

    def say(self, text: str) -> None:
        """A line about the sweep itself."""
        text = printable(text)
        if self._bar is not None:
            self._say_above(text)
        else:
            self._print(text)

    def left_s(self) -> tuple[float, bool] | None:
        """(seconds that the rest takes, whether at least so many); None where nothing is known."""
        passed_s = time.monotonic() - self._origin_s
        if self._done:
            return passed_s / self._done * (self._total - self._done), False
        return (max(0.0, self._planned_s - passed_s), True) if self._planned_s else None

    def line(self, width: int) -> str:
        """What is done now, how many cells are, the time since the beginning and the time left, in so many columns."""
        left = self.left_s()
        eta = "–" if left is None or not left[0] else f"{'≥ ' if left[1] else ''}{_clock(left[0])}"
        numbers = f"{self._done}/{self._total} {_clock(time.monotonic() - self._origin_s)} ETA {eta}"
        room = width - len(numbers) - 1
        doing = next((each for each in self._doing if len(each) <= room), "")
        return f"{doing} {numbers}".strip()

    def _say_above(self, text: str) -> None:
        """A line above the bar, broken between words."""
        width = self._bar.console.width
        self._bar.console.print("\n".join(wrap(text, width, rest="  ")), highlight=False, markup=False, soft_wrap=True)

    def _time_left(self) -> str:
        left = self.left_s()
        if self._done >= self._total or left is None:
            return "none left"
        return f"about {_words(left[0])} left"

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _words(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _bar(total: int, stream: TextIO, line: Callable[[int], str]) -> Any:
    """A line of rich that is drawn again several times a second."""
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    console = Console(file=stream)

    class Line(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(line(console.width - 1), no_wrap=True)

    bar = RichProgress(Line(), console=console, transient=True)
    bar.add_task("", total=total)
    return bar
