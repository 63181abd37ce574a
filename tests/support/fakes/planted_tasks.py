"""Tasks that misbehave, for tests of workers: each is imported in the worker process by name."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def echo(*arguments):
    return arguments


def pid():
    return os.getpid()


def nothing():
    return None


def fail(name, text):
    """Raises a built-in exception."""
    raise {"ValueError": ValueError, "RuntimeError": RuntimeError, "MemoryError": MemoryError}[name](text)


def allocate(gigabytes):
    return len(bytearray(gigabytes * 10**9))


def hang(mark=""):
    """Deaf to polite signals; says its process number in a file, if given one."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mark:
        Path(mark).write_text(str(os.getpid()))
    time.sleep(600)


def hang_with_the_interpreter(mark):
    """No other thread of this process runs any more: PyDLL, unlike CDLL, keeps the interpreter's lock."""
    Path(mark).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(600)


def hang_with_a_child(mark):
    started = subprocess.Popen(["sleep", "600"])
    Path(mark).write_text(f"{os.getpid()} {started.pid}")
    time.sleep(600)


def die_leaving_a_child(mark):
    """The child holds every file open, the pipe to the parent among them."""
    started = subprocess.Popen(["sleep", "600"], close_fds=False)
    Path(mark).write_text(f"{os.getpid()} {started.pid}")
    os.kill(os.getpid(), signal.SIGABRT)


def kill_me(number, words=""):
    if words:
        print(words)
    os.kill(os.getpid(), number)
    time.sleep(60)


def null_pointer():
    print("about to read a null pointer")
    ctypes.string_at(0)


def leave(status):
    sys.exit(status)


def leave_at_once(status):
    os._exit(status)


def unpicklable():
    return lambda: None


def die_while_answering(count):
    """The answer does not fit into the pipe at once, and the process dies while it is being sent."""
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    return b"x" * count


def sacrifice():
    return int(Path("/proc/self/oom_score_adj").read_text())
