"""Controls this process: a signal when its parent ends, free memory, a pause of the cyclic collector, loading by name.

`die_with_parent` takes a signal and returns whether the operating system will send it. `free_bytes` returns bytes, or
None where the operating system does not report them. `collector_off` is a context. `load` takes "module:function".
"""

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> bool:
    """Have the kernel send this process a signal when the thread that started it ends; return False where it cannot."""
    if sys.platform != "linux":
        return False
    before = os.getppid()
    done = bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)
    if os.getppid() != before:  # the parent ended meanwhile
        os.kill(os.getpid(), number)
    return done


def free_bytes(kernel: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes of memory that the machine and this process's control group can still give; None if neither is
    known."""
    limits = []
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(":", 1) for line in kernel.read_text(encoding="ascii").splitlines())
        limits.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # "max" is not a number: no limit
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        limits.append(limit - used)
    return max(0, min(limits)) if limits else None


def load(target: str) -> Any:
    """Import the module of a "module:name", and return the function or class of this name."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Disable Python's cyclic collector within the context."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
