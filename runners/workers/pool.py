"""Runs tasks in worker processes: `Worker.call` takes a task's name and arguments, and returns its result or fault.

A worker is forked from a server that has torch imported, so that a new worker costs a fraction of a second. An
exception, a signal or a time limit ends the worker. The call then returns a `WorkerFault`, which says why, and the next
call starts another worker. The parent itself never touches torch or a device. `serve` is the loop inside a worker: it
receives a task, runs it, and sends the result or fault. A worker never outlives its parent, and ignores Ctrl-C, which
the parent handles. A worker is the first process to be killed when memory runs out, and its output stays out of the
parent's terminal.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any

from measure.device import processes
from measure.device.processes import end_with_parent, redirect
from results.errors import Inconsistent, Unavailable, one_line, plain_message
from results.process import load
from runners.cli.exits import debugging


@dataclass(frozen=True)
class WorkerFault:
    """Why a call gave no result. status: one of `results.records.cell.STATUSES`. detail: a traceback, where there is
    one."""

    status: str
    reason: str
    detail: str = ""


PACKAGES = ("analysis", "cleaning", "flopledger", "measure", "reports", "results", "runners", "workloads")

CALLER_MISTAKES = ("invalid", "unavailable")
"""Statuses of a fault that are the caller's mistake."""


@dataclass(frozen=True)
class Message:
    """A line about the progress of a task, sent before its result."""

    text: str


_PARENTS: list[Connection] = []
"""The connection to the parent; empty where the task runs in its caller's process."""


def send_message(text: str) -> None:
    """Send the parent a line about the progress of the task."""
    for parent in _PARENTS:
        with contextlib.suppress(OSError):
            parent.send(Message(text))


OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "ALLOC_FAILED", "bad_alloc")
NO_ENGINE = "unable to find an engine to execute this computation"
"""torch's message when every algorithm of cuDNN failed: none is able, none had room, or the device failed."""

LIBRARIES = ("cuDNN error", "CUDNN_STATUS", "CUBLAS_STATUS", "CUFFT")
"""Parts of messages by libraries that met an error of the device: they tell that it failed, and not why."""

DEVICE = ("CUDA error", *LIBRARIES, "NCCL error", "device-side assert")
LONGEST_REASON = 400
ROOT = Path(__file__).resolve().parents[2]

_SACRIFICE = "500"  # of 1000: a worker is killed long before the process that keeps the rows


def serve(connection: Connection, lifeline: Connection, noise_path: str) -> None:
    """Run tasks until the parent hangs up: the target of the process. noise_path: where its output goes; "": stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(lifeline)
    with contextlib.suppress(OSError):  # not Linux, or not allowed: the largest process goes, most likely this one
        Path("/proc/self/oom_score_adj").write_text(_SACRIFICE)
    redirect(noise_path)
    _PARENTS.append(connection)
    while True:
        try:
            task, arguments = connection.recv()
            connection.send(run(task, arguments))
        except (EOFError, OSError):
            return


def run(task: str, arguments: tuple[Any, ...]) -> Any:
    """Return the result of "module:function" on these arguments, or the WorkerFault that it ended in."""
    try:
        return load(task)(*arguments)
    except Exception as fault:  # noqa: BLE001  the edge: whatever a cell raises becomes its row
        worker_fault, location = classify(fault), user_location(fault)
        reason = one_line(worker_fault.reason, LONGEST_REASON - len(location))
        return replace(worker_fault, reason=f"{reason}{location}")


def user_location(fault: BaseException | None) -> str:
    """Return the last call in a file of neither a library nor this program, as " (net.py:8 in forward)"; "" without
    one."""
    paths = sysconfig.get_paths()
    libraries = [paths["stdlib"], paths["purelib"], paths["platlib"], *(str(ROOT / package) for package in PACKAGES)]
    while fault is not None:
        for frame in reversed(traceback.extract_tb(fault.__traceback__)):
            path = Path(frame.filename)
            if path.is_file() and not any(path.is_relative_to(library) for library in libraries):
                return f" ({path.name}:{frame.lineno} in {frame.name})"
        fault = fault.__cause__
    return ""


def classify(fault: BaseException) -> WorkerFault:
    """Turn an exception into a cell's status, and one line that says why."""
    text = plain_message(" ".join(str(fault).split()))
    name = type(fault).__name__
    detail = "".join(traceback.format_exception(fault))
    if isinstance(fault, (Unavailable, ValueError, Inconsistent)):
        status = "unavailable" if isinstance(fault, Unavailable) else "invalid"
        return WorkerFault(status, one_line(text, LONGEST_REASON), detail)
    line = one_line(plain_message(f"{name}: {' '.join(str(fault).split())}"), LONGEST_REASON)
    if isinstance(fault, MemoryError) or "OutOfMemory" in name or any(sign in text for sign in OUT_OF_MEMORY):
        return WorkerFault("out_of_memory", line, detail)
    torch: Any = sys.modules.get("torch")
    device_message = _device_message(text)
    on_cuda = torch is not None and torch.cuda.is_initialized()
    if NO_ENGINE in text and not device_message and on_cuda and torch.cuda.memory_stats().get("num_ooms"):
        line = one_line(f"{line} (no workspace fitted: the device refused memory)", LONGEST_REASON)
        return WorkerFault("out_of_memory", line, detail)
    if device_message or name == "AcceleratorError" or any(sign in text for sign in DEVICE):
        return WorkerFault("device_error", one_line(f"{line}{device_message}", LONGEST_REASON), detail)
    return WorkerFault("crashed", line, detail)


def _device_message(text: str) -> str:
    """Return the device's own error in brackets, where the text is a library's; empty if it has none."""
    torch = sys.modules.get("torch")
    if not any(sign in text for sign in (*LIBRARIES, NO_ENGINE)) or torch is None or not torch.cuda.is_initialized():
        return ""
    try:
        torch.cuda.synchronize()
    except RuntimeError as fault:
        return f" ({str(fault).splitlines()[0]})"
    return ""


REAP_S = 10.0
"""Limit for a dead worker's exit status to arrive."""

DYING_S = 0.2
"""Time for which a killed server may still seem alive."""

GRACE_S = 5.0
"""Time that an idle worker has to end by itself."""

ONCE_S = 180.0
"""Limit of a call by `ask_once`."""


def prepare() -> None:
    """Start the server that forks the workers, and its imports; returns at once.

    The server and its workers ignore Ctrl-C, about which the parent decides: an interrupted import would print a
    traceback.
    """
    resource_tracker.ensure_running()  # else the server starts it, and unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        processes.prepare()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """One process that runs tasks, named "module:function", one at a time.

    The first call starts it, and so does a call after a fault or after it died. Its output goes to a file, of which a
    fault quotes the end; with FLOPLEDGER_DEBUG=1 it goes to stderr, never to stdout. environ: variables that it has in
    addition to those of this process.
    """

    def __init__(self, name: str, environ: Mapping[str, str] = MappingProxyType({})) -> None:
        self.name, self._environ = name, environ
        self.on_message: Callable[[str], object] = lambda text: None  # called with the messages of a task
        self._process: Any = None
        self._connection: Any = None
        self._lifeline: Any = None
        self._noise: Any = None
        self._noise_before = 0  # bytes of output before the present call
        self._busy = False

    def call(self, task: str, *arguments: Any, timeout_s: float) -> Any:
        """Return the task's result, or a WorkerFault. After a WorkerFault the process is gone.

        `KeyboardInterrupt` passes through, and ends the process too. Raises OSError if the machine has no room for
        what a process needs (a temporary file, pipes).
        """
        try:
            answer = self._sent(task, arguments) or self._answer(timeout_s)
        except BaseException:
            self.stop()
            raise
        if isinstance(answer, WorkerFault):
            self.stop()
            if debugging() and answer.detail:
                print(answer.detail, file=sys.stderr)
        self._busy = False
        return answer

    @property
    def alive(self) -> bool:
        """Whether a process is running."""
        return self._process is not None

    def stop(self) -> None:
        """End the process and its children at once, whatever they do; a second call does nothing.

        An idle process may tidy up first: else what it shares with others would be reported as leaked.
        """
        process, self._process = self._process, None
        if process is not None:
            if not self._busy:
                self._connection.close()
                process.join(GRACE_S)
            process.kill()
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing is left of its session
                os.killpg(process.pid, signal.SIGKILL)
            process.join(REAP_S)  # one that hangs in a driver is left to the kernel
        for end in (self._connection, self._lifeline, self._noise):
            if end is not None:
                with contextlib.suppress(FileNotFoundError):  # somebody tidied the temporary files
                    end.close()
        self._connection = self._lifeline = self._noise = None

    def _sent(self, task: str, arguments: tuple[Any, ...]) -> WorkerFault | None:
        """Send the task to the process, or to a new one if that died. Returns a fault if none can be started."""
        text = ""
        for _ in range(3):
            try:
                if self._process is None:
                    self._start()
                self._noise_before, self._busy = self._noise_bytes(), True
                self._connection.send((task, arguments))
                return None
            except (EOFError, ConnectionError) as fault:  # it ended, or the server is dying, or its imports failed
                text = " ".join(f"{type(fault).__name__} {fault}".split())
                self.stop()
                time.sleep(DYING_S)
        return WorkerFault("crashed", f"no worker could be started: {text}")

    def _start(self) -> None:
        self._noise = tempfile.NamedTemporaryFile(prefix=f"worker-{self.name}-")  # noqa: SIM115  as long as the process
        self._connection, child_end = multiprocessing.Pipe()
        child_lifeline, self._lifeline = multiprocessing.Pipe(duplex=False)
        path = "" if debugging() else self._noise.name
        with child_end, child_lifeline, processes.start_context(self._environ) as ctx:
            process: Any = ctx.Process(
                target=serve, args=(child_end, child_lifeline, path), name=self.name, daemon=True
            )
            process.start()
        self._process = process

    def _answer(self, timeout_s: float) -> Any:
        """Return the process's answer within the limit, or a fault."""
        watch_s = Stopwatch()
        while True:
            try:
                if not wait([self._connection, self._process.sentinel], max(0.0, timeout_s - watch_s.elapsed_s)):
                    return WorkerFault("timeout", f"killed at its limit of {timeout_s:g} s{self._last_printed()}")
                if not self._connection.poll(0):  # dead, though what it started may still hold the pipe
                    return self._ended()
                result = self._connection.recv()
            except (EOFError, OSError):
                return self._ended()
            if not isinstance(result, Message):
                return result
            self.on_message(result.text)

    def _ended(self) -> WorkerFault:
        """Return the fault of a process that died by itself."""
        self._process.join(REAP_S)
        return WorkerFault("crashed", f"{processes.end_of('the worker', self._process.exitcode)}{self._last_printed()}")

    def _last_printed(self) -> str:
        """Return the end of what the process printed during this call."""
        size = self._noise_bytes()
        start = max(self._noise_before, size - 4 * processes.TAIL_CHARACTERS)  # a character has up to four bytes
        return processes.output_tail(os.pread(self._noise.fileno(), size - start, start).decode(errors="replace"))

    def _noise_bytes(self) -> int:
        return os.fstat(self._noise.fileno()).st_size


class WorkerDied(Exception):
    """A process of `ask_once` was killed, or did not answer in time."""


def ask_once(task: str, *arguments: Any) -> Any:
    """Return a task's result from a process of its own. Raises ValueError for its fault, WorkerDied if it was killed
    or too slow."""
    worker = Worker("probe")
    try:
        answer = worker.call(task, *arguments, timeout_s=ONCE_S)
    finally:
        worker.stop()
    if isinstance(answer, WorkerFault):
        if answer.status in ("crashed", "timeout") and not answer.detail:  # its process died: nobody's mistake
            raise WorkerDied(answer.reason)
        raise ValueError(answer.reason)
    return answer


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have Ctrl-C and SIGTERM wait until the end of the block; only the main thread receives them at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda arrived, _frame: received.append(arrived))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for first in received[:1]:
        signal.raise_signal(first)


class Stopwatch:
    """Measures the seconds since it was made."""

    def __init__(self) -> None:
        self._origin_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._origin_s
