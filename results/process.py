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


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Python's cyclic collector does not run inside."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
