"""Whether processes live, and waiting until they have ended."""

from __future__ import annotations

import time

import psutil


def is_alive(pid: int) -> bool:
    """A zombie is not alive: it has ended, and only its parent has not asked."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(*pids: int, within_s: float = 20.0) -> None:
    """A signal that was sent ends a process a little later, on a busy machine more than a little.

    Raises:
        AssertionError: after `within_s` seconds, with those that are still alive.
    """
    end_s = time.monotonic() + within_s
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < end_s, f"still alive: {alive}"
        time.sleep(0.02)
