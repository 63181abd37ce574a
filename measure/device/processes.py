"""Starts and ends child processes: the server that they are forked from, a file for their output, how they ended.

Used for counters (`measure/counters/isolation.py`) and workers (`runners/workers/pool.py`), where it is said who asks,
waits and kills. No torch is imported here: the server does that.
"""

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext

PRELOAD = ("measure.device.server_end", "torch", "torchvision")
"""What the server imports once, so that those forked from it need not. Nothing that touches a device."""

SERVER_OF = "FLOPLEDGER_SERVER_OF"
"""The process whose main thread starts the server, for `measure/device/server_end.py`."""

TAIL_CHARACTERS = 300
"""Characters of a dead child's output that are quoted."""


IDLE = "USDT:"
"""How a line begins that torch's profiler prints whenever it starts or stops: it says nothing of an end."""


def context(preload: Sequence[str] = ()) -> ForkServerContext | SpawnContext:
    """Return forkserver where there is one: a fork of a process that has threads or used torch is not safe, and spawn
    imports torch again. preload: what a server that does not run yet will import."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    forking = multiprocessing.get_context("forkserver")
    if preload:
        forking.set_forkserver_preload(list(preload))  # without effect once the server runs
    return forking


def prepare() -> None:
    """Starts the server and its imports; returns at once. Calling it early hides the seconds they take.

    The server belongs to the whole process: if one runs already, it keeps its own imports.
    """
    if context(PRELOAD).get_start_method() != "forkserver":
        return
    if threading.current_thread() is not threading.main_thread():  # the server would end with a thread
        forkserver.ensure_running()
        return
    resource_tracker.ensure_running()  # before, because its own start unblocks the signal
    os.environ[SERVER_OF] = str(os.getpid())
    try:
        with _without_interrupts():
            forkserver.ensure_running()
    finally:
        os.environ.pop(SERVER_OF, None)


def stop_server() -> None:
    """Ends the server, if one runs: the next one has the environment of that moment. Its children must have ended."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@contextlib.contextmanager
def start_context(environ: Mapping[str, str]) -> Iterator[ForkServerContext | SpawnContext]:
    """Give the context that starts a process within the block: the server's, or with variables that are not set here
    that of a process which imports torch itself."""
    os.environ.update(environ)
    try:
        with _without_interrupts():
            yield multiprocessing.get_context("spawn") if environ else context()
    finally:
        for name in environ:
            os.environ.pop(name)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block, and what starts in it has it blocked:
    `measure/device/server_end.py`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def accept_interrupts() -> None:
    """Let Ctrl-C into a child: a server that could not import `measure/device/server_end.py` has it blocked, and hands
    that on."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent(lifeline: Connection) -> None:
    """Have this process, and what it starts, killed when the other end of the lifeline closes, as it does when its
    parent ends in whatever way. The process leads a session of its own afterwards.

    Linux does it itself: while a library that hangs holds the interpreter, no thread of ours runs. A sandbox's kernel
    may refuse; the thread is left then.
    """
    os.setsid()
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpid())
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_wait_for_end, args=(lifeline,), name="lifeline", daemon=True).start()


def _wait_for_end(lifeline: Connection) -> None:
    """Wait until the other end closes, and kill the group."""
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os.killpg(os.getpid(), signal.SIGKILL)


def redirect(path: str) -> None:
    """Send what this process and its libraries print to a file, line by line; without a path, to stderr."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if path else os.dup(2)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # so that a crash leaves its last words


def end_of(who: str, code: int | None) -> str:
    """Return how a process ended, in words. who: "the worker"; code: its exit code, negative for a signal; None: not
    known."""
    if code is None or code >= 0:
        return f"{who} ended with status {code} before it answered"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        name = f"signal {-code}"
    return f"{who} died of {name}{', as the kernel does when memory runs out' if name == 'SIGKILL' else ''}"


def output_tail(printed: str) -> str:
    """Return the end of what a process printed, to follow how it ended; "" if it printed nothing."""
    text = " ".join(" ".join(line for line in printed.splitlines() if not line.startswith(IDLE)).split())
    return f"; it printed: {text[-TAIL_CHARACTERS:]}" if text else ""
