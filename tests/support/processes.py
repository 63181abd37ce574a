"""Whether processes live, waiting until they have ended, an interrupt as a terminal sends it, and what they took."""

import os
import signal
import subprocess
import time
from pathlib import Path

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


def interrupted(process: subprocess.Popen[str], started: Path, within_s: float = 120.0) -> tuple[int, str, list[str]]:
    """Interrupts the process group once it has made a file: its exit code, its output, and its lines on stderr."""
    try:
        end_s = time.monotonic() + within_s
        while not started.exists():
            assert time.monotonic() < end_s
            assert process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, [line for line in err.splitlines() if line]
