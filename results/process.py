"""What a process asks of the kernel (its parent's end, free memory) and of the interpreter (no cyclic collector)."""

import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> bool:
    """Has the kernel send this process a signal when the thread that started it ends; False where it does not offer
    that."""
    if sys.platform != "linux":
        return False
    before = os.getppid()
    done = bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)
    if os.getppid() != before:  # it ended meanwhile
        os.kill(os.getpid(), number)
    return done


def free_bytes(kernel: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory that the machine, and the control group of this process, can still give; None where neither says."""
    limits = []
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(":", 1) for line in kernel.read_text(encoding="ascii").splitlines())
        limits.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        limits.append(limit - used)
    return max(0, min(limits)) if limits else None


MANY = 100_000
"""Objects that were made and not freed. Below it the next collection is short, and counting what is frozen may take
longer, since Python counts them one by one."""

BY_PYTHON = 1000
"""Fewer frozen objects are those of Python 3.12 itself, a few hundred."""


@contextlib.contextmanager
def collector_off(keeps: bool = False) -> Iterator[None]:
    """Python's cyclic collector does not run inside.

    keeps: what is made inside is kept, such as a million rows: it counts as old afterwards, so that the next collection
    of what is young does not pass over all of it.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if keeps and gc.get_count()[0] > MANY and gc.get_freeze_count() < BY_PYTHON:
                gc.freeze()
                gc.unfreeze()  # to the oldest
            gc.enable()
