"""Starts the server that child processes are forked from, ends children with their parent, and reports how they ended.

`context` and `start_context` give a multiprocessing context; `end_with_parent` ties a child to its parent; `end_of` and
`output_tail` return text about an exit. The processes of counters (`measure/counters/isolation.py`) and the workers
(`runners/workers/pool.py`) use these functions. Sending tasks, waiting and killing is left to them. This module does
not import torch; the server does.
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
"""Modules that the server imports once for all that are forked from it. None of them touches a device."""

SERVER_OF = "FLOPLEDGER_SERVER_OF"
"""Variable with the id of the process whose main thread starts the server, for `measure/device/server_end.py`."""

TAIL_CHARACTERS = 300
"""Characters of a dead child's output that are quoted."""

IDLE = "USDT:"
"""Beginning of lines that torch's profiler prints whenever it starts or stops; they do not explain an end."""


def context(preload: Sequence[str] = ()) -> ForkServerContext | SpawnContext:
    """Return the context "forkserver" where the system has it, else "spawn", which imports torch in each process. A
    plain fork of a process that has threads or used torch is not safe. preload: modules that the server imports; no
    effect once it runs."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    forking = multiprocessing.get_context("forkserver")
    if preload:
        forking.set_forkserver_preload(list(preload))
    return forking


def prepare() -> None:
    """Start the server and its imports; returns at once. Calling it early hides the seconds they take.

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
    """End the server, if one runs. Its children must have ended. The next server takes the environment at its start."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@contextlib.contextmanager
def start_context(environ: Mapping[str, str]) -> Iterator[ForkServerContext | SpawnContext]:
    """Yield the context in which to start a process: the server's, or "spawn" if the process needs variables that the
    server lacks. environ: these variables, which are set only within the block."""
    os.environ.update(environ)
    try:
        with _without_interrupts():
            yield multiprocessing.get_context("spawn") if environ else context()
    finally:
        for name in environ:
            os.environ.pop(name)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C within the context. Processes that are started meanwhile inherit that
    (`measure/device/server_end.py`)."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def accept_interrupts() -> None:
    """Unblock Ctrl-C in a child: a server that could not import `measure/device/server_end.py` still blocks it, and its
    children inherit that."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent(lifeline: Connection) -> None:
    """Have this process and its children killed when the other end of the lifeline closes, which happens however the
    parent ends. The process becomes the leader of a new session.

    On Linux the kernel sends the signal, because no thread of ours runs while a hanging library holds the interpreter.
    A sandbox's kernel may refuse; then a thread does it.
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
    """Wait until the other end of the lifeline closes, then kill the process group."""
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
            stream.reconfigure(line_buffering=True)  # so that a crash loses no line


def end_of(who: str, code: int | None) -> str:
    """Return how a process ended, in words. who: such as "the worker"; code: its exit code, negative for a signal,
    None if unknown."""
    if code is None or code >= 0:
        return f"{who} ended with status {code} before it answered"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        name = f"signal {-code}"
    return f"{who} died of {name}{', as the kernel does when memory runs out' if name == 'SIGKILL' else ''}"


def output_tail(printed: str) -> str:
    """Return the end of a process's output, as text to append to `end_of`; "" if it printed nothing."""
    text = " ".join(" ".join(line for line in printed.splitlines() if not line.startswith(IDLE)).split())
    return f"; it printed: {text[-TAIL_CHARACTERS:]}" if text else ""
