"""Worker processes, from the parent's side: start, ask, wait no longer than a limit, learn how they ended, replace.

A worker is forked from a server that has torch imported, so that a new one costs a fraction of a second. It survives
nothing: whatever it raises, whatever kills it and whatever hangs becomes a `Fault`, and the next call starts another.
The parent itself never touches torch or a device.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

LAST_WORDS = 300
"""Characters of a dead worker's output that its fault quotes."""

SIGNALS = {"SIGKILL": ", as the kernel does when memory runs out"}


@dataclass(frozen=True)
class Fault:
    """Why a call gave no result. status: one of results.records.STATUSES. detail: a traceback, where there is one."""

    status: str
    reason: str
    detail: str = ""


def context() -> BaseContext:
    """forkserver where there is one: a fork of a process with threads is not safe, and spawn imports torch again."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")


class Worker:
    """One process that runs tasks, named "module:function", one at a time.

    It is started by the first call and by the first call after a fault. quiet: what it prints is kept for its last
    words and shown to nobody.
    """

    def __init__(self, name: str, quiet: bool = True) -> None:
        self.name = name
        self.started = 0
        self._quiet = quiet
        self._process: Any = None
        self._connection: Connection | None = None
        self._lifeline: Connection | None = None
        self._noise: Any = None

    def call(self, task: str, *arguments: Any, timeout_s: float) -> Any:
        """The task's result, or a Fault. After a Fault the process is gone; `KeyboardInterrupt` passes through."""
        try:
            if self._process is None:
                self._start()
            assert self._connection is not None
            self._connection.send((task, arguments))
            if not self._connection.poll(timeout_s):
                words = self._words()
                self.stop()
                return Fault("timeout", f"killed at its limit of {timeout_s:g} s{words}")
            answer = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return self._ended()
        if isinstance(answer, Fault):
            self.stop()
        return answer

    def stop(self) -> None:
        """Ends the process now, whatever it does; a second time does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()
        for end in (self._connection, self._lifeline, self._noise):
            if end is not None:
                end.close()
        self._connection = self._lifeline = self._noise = None

    def _start(self) -> None:
        from runners.worker import serve

        ctx = context()
        self._noise = tempfile.NamedTemporaryFile(prefix="worker-")  # noqa: SIM115  lives as long as the process
        self._connection, theirs = ctx.Pipe()
        their_lifeline, self._lifeline = ctx.Pipe(duplex=False)
        path = self._noise.name if self._quiet else ""
        self._process = ctx.Process(target=serve, args=(theirs, their_lifeline, path), name=self.name, daemon=True)
        self._process.start()
        theirs.close()
        their_lifeline.close()
        self.started += 1

    def _ended(self) -> Fault:
        """The process died by itself."""
        process = self._process
        if process is not None:
            process.join(10)
        code = process.exitcode if process is not None else None
        words = self._words()
        self.stop()
        return Fault("crashed", f"{_end_of(code)}{words}")

    def _words(self) -> str:
        """The end of what the process printed."""
        with contextlib.suppress(OSError), open(self._noise.name, errors="replace") as noise:
            text = " ".join(noise.read().split())
            return f"; it printed: {text[-LAST_WORDS:]}" if text else ""
        return ""


def _end_of(code: int | None) -> str:
    if code is None or code >= 0:
        return f"the worker ended with status {code} before it answered"
    name = signal.Signals(-code).name
    return f"the worker died of {name}{SIGNALS.get(name, '')}"


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._origin_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._origin_s
