"""How a command ends: its exit codes, and the edge at which whatever it raises becomes one line on stderr.

A command's `main` parses, then returns `guarded(…)` of the rest; its file ends with `sys.exit(exit_code(main))`.
Nothing here knows a command, or imports more than the standard library and the names of faults.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from collections.abc import Callable

from results.errors import StoreFault

FAILED = 1
"""Something that was asked for could not be had, or something nobody foresaw happened."""

MISTAKE = 2
"""The caller's mistake."""

UNWRITABLE = 3
"""A file could not be made or written."""

INTERRUPTED, TERMINATED = 130, 143
"""Ctrl-C and SIGTERM, as a shell has them."""


WITHOUT_TORCH = ["numpy", "pandas", "scipy", "sympy", "matplotlib", "seaborn", "rich", "jinja2"]
WITH_TORCH = ["torch", "torchvision", "nvtx", "pynvml", "fvcore", "ptflops"]
"""Modules that the requirements bring, by their name at import."""


class Mistake(ValueError):
    """What the caller asked for cannot be: its words are told as one line, and the exit code is 2."""


def guarded(run: Callable[[], int], debug: bool | None = None, about: str = "") -> int:
    """The exit code that `run` returns, or that of what it raises, which is told in one line.

    A `Mistake` exits at once, as the parser does. debug: the command's --debug, with which tracebacks are shown; None:
    it has none, and what nobody foresaw passes through. about: the words before that, such as the name of a file. A
    closed pipe passes through.
    """
    try:
        return run()
    except KeyboardInterrupt:
        return _told("interrupted", INTERRUPTED)
    except Mistake as fault:
        if debug:
            traceback.print_exc()
        sys.exit(_told(str(fault), MISTAKE))
    except StoreFault as fault:
        return _told(str(fault), UNWRITABLE)
    except BrokenPipeError:
        raise
    except Exception as fault:
        if debug is not False:
            raise
        return _told(f"{about}{type(fault).__name__}: {fault} (--debug tells where)", FAILED)


def instructed(words: str) -> str:
    """What to install, where the words say that one of our requirements is missing; else the words."""
    name = found[1] if (found := re.search(r"No module named '(\w+)", words)) else ""
    if name in WITHOUT_TORCH:
        also = "; requirements-report.txt is enough for what needs no torch"
        return f"{name} is not installed: python -m pip install -r requirements.txt{also}"
    if name in WITH_TORCH:
        return f"{name} is not installed: python -m pip install -r requirements.txt"
    return words


def _told(words: str, code: int) -> int:
    print(f"error: {' '.join(instructed(words).split())}", file=sys.stderr)
    return code


def exit_code(main: Callable[[], int]) -> int:
    """What `main` returns; 141, as a shell has it, where whoever read stdout has gone (`… | head`); 1 and what to
    install where a requirement is missing."""
    try:
        code = main()
        sys.stdout.flush()
    except ModuleNotFoundError as fault:
        if instructed(str(fault)) == str(fault):
            raise
        return _told(str(fault), FAILED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the exit does not fail again
        return 128 + signal.SIGPIPE
    return code
