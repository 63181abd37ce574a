"""Ends a command: defines its exit codes, and turns any exception that it raises into one line on stderr.

A command's `main` parses its arguments, gives `guarded` a function that does the rest, and returns the exit code. The
command's file ends with `sys.exit(exit_code(main))`. This module knows no command and imports no third-party package.
"""

import contextlib
import errno
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO, cast

from results.errors import StoreFault
from results.printable import printable, shortened
from runners.cli.output import say, with_install_hint

FAILED = 1
"""Something in the request is unavailable, or an unforeseen error happened."""

MISTAKE = 2
"""The caller's mistake."""

UNWRITABLE = 3
"""A file could not be made or written."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The system's error numbers for an output that takes no more."""

LONGEST_LINE = 2_000
"""Maximum number of characters of an error line."""

GATE = 5
"""Run B may not replace run A: a condition of `report --fail-if` is met."""

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of Ctrl-C and SIGTERM, as in a shell."""

DEBUG = "FLOPLEDGER_DEBUG"


class Mistake(ValueError):
    """The caller asked for something impossible: the message is reported as one line, and the exit code is 2."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came: what was measured is kept, as after Ctrl-C."""


@contextlib.contextmanager
def as_mistake(*kinds: type[Exception], about: str = "") -> Iterator[None]:
    """Turn exceptions of these kinds within the context into a Mistake. about: a prefix of the message, such as "--at:
    "."""
    try:
        yield
    except kinds as fault:
        raise Mistake(f"{about}{fault}") from fault


def debugging() -> bool:
    """Return whether FLOPLEDGER_DEBUG=1 asks for tracebacks and the output of workers."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def guarded(run: Callable[[], int], about: str = "") -> int:
    """Return the exit code that `run` returns, or that of its exception, which is reported in one line.

    A `Mistake` ends the process at once, as the parser does. BrokenPipeError passes through, and so does an unforeseen
    exception while debugging. about: a prefix, such as a file's name, of the line about an unforeseen exception or an
    OSError.
    """
    try:
        return run()
    except KeyboardInterrupt:
        return _print_error("interrupted", INTERRUPTED)
    except Mistake as fault:
        if debugging():
            traceback.print_exc()
        sys.exit(_print_error(str(fault), MISTAKE))
    except StoreFault as fault:
        return _print_error(str(fault), UNWRITABLE)
    except BrokenPipeError:
        raise
    except Exception as fault:
        if isinstance(fault, OSError) and fault.errno in FULL:
            return _print_error(f"{about}the output could not be written: {fault.strerror}", UNWRITABLE)
        if debugging():
            raise
        return _print_error(f"{about}{type(fault).__name__}: {fault} ({DEBUG}=1 shows where)", FAILED)


def _print_error(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # where nobody can be told, the code still says it
        say(f"error: {printable(shortened(' '.join(with_install_hint(message).split()), LONGEST_LINE))}")
    return code


class _Stream:
    """A stream that writes a text as `shown` returns it. Text that stderr cannot take is dropped: a lost message is not
    a reason to lose a measurement."""

    def __init__(self, stream: TextIO, shown: Callable[[str], str] = str, forgives: bool = True) -> None:
        self._stream, self._shown = stream, shown
        self._guarded = _unless_full if forgives else contextlib.nullcontext

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._guarded():
            self._stream.write(self._shown(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        with self._guarded():
            self._stream.flush()


def _without_steering(text: str) -> str:
    """Escape control characters except colours, because tables and JSON contain names from foreign files unchanged."""
    parts = _COLOUR.split(text)
    parts[::2] = map(printable, parts[::2])
    return "".join(parts)


_COLOUR = re.compile(r"(\x1b\[[\d;]*m)")


@contextlib.contextmanager
def _unless_full() -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        if fault.errno not in FULL:
            raise


def open_streams() -> None:
    """Make sure that stdin, stdout and stderr exist, even if the caller closed them.

    Characters that an encoding lacks are written as \\xNN. A full stderr loses only messages. Control characters in
    names are escaped on a terminal.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, so that no file of ours is taken for it
            os.set_inheritable(opened, True)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = cast(TextIO, _Stream(sys.stderr))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.isatty():
        sys.stdout = cast(TextIO, _Stream(sys.stdout, _without_steering, forgives=False))


def exit_code(main: Callable[[], int]) -> int:
    """Return what `main` returns; 130 if Ctrl-C came before it had begun; 141, as in a shell, if the reader of stdout
    has gone (`… | head`); 3 if stdout takes no more; 1, with what to install, if a requirement is missing."""
    open_streams()
    try:
        code = main()
        sys.stdout.flush()
    except ModuleNotFoundError as fault:
        if with_install_hint(str(fault)) == str(fault):
            raise
        return _print_error(str(fault), FAILED)
    except KeyboardInterrupt:  # before the command had an answer of its own
        return 128 + signal.SIGINT
    except BrokenPipeError:
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as fault:
        if fault.errno not in FULL:
            raise
        _drop_output()
        return _print_error(f"the output could not be written: {fault.strerror}", UNWRITABLE)
    return code


def _drop_output() -> None:
    """Discard the rest of stdout, so that the exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
