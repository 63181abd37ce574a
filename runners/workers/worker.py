"""The inside of a worker process: receive a task, run it, send its result or the fault it ended in.

It never outlives its parent (Linux and a thread wait for the lifeline to break), ignores Ctrl-C
(the parent decides), is the first to go when memory runs out, and keeps its output out of the parent's terminal.

`WorkerFault` says why a call gave no result: the one word that pool, worker and commands share.
"""

import contextlib
import importlib
import signal
import sys
import sysconfig
import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from measure.device.processes import end_with, redirect
from results.errors import Inconsistent, Unavailable, one_line
from results.library_words import plain_words
from results.store.code import PACKAGES


@dataclass(frozen=True)
class WorkerFault:
    """Why a call gave no result. status: one of `STATUSES`. detail: a traceback, where there is one."""

    status: str
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Message:
    """A line about the progress of a task, sent before its result."""

    text: str


_PARENTS: list[Connection] = []
"""Who waits for the result; nobody where the task runs in its caller's process."""


def send_message(text: str) -> None:
    """Sends the parent a line about the progress of the task."""
    for parent in _PARENTS:
        _send(parent, Message(text))


OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "ALLOC_FAILED", "bad_alloc")
NO_ENGINE = "unable to find an engine to execute this computation"
"""What torch says where every algorithm of cuDNN's failed: none can do it, none had room, or the device failed."""

LIBRARIES = ("cuDNN error", "CUDNN_STATUS", "CUBLAS_STATUS", "CUFFT")
"""In the words of a library that met an error of the device: they say that it failed, and not why."""

DEVICE = ("CUDA error", *LIBRARIES, "NCCL error", "device-side assert")
LONGEST_REASON = 400
ROOT = Path(__file__).resolve().parents[2]

_SACRIFICE = "500"  # of 1000: a worker is killed long before the process that keeps the rows


def serve(connection: Connection, lifeline: Connection, noise_path: str) -> None:
    """Runs tasks until the parent hangs up. The target of the process; an empty noise_path is the parent's stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(lifeline)
    with contextlib.suppress(OSError):  # not Linux, or not allowed: the largest process goes, most likely this one
        Path("/proc/self/oom_score_adj").write_text(_SACRIFICE)
    redirect(noise_path)
    _PARENTS.append(connection)
    while True:
        try:
            task, arguments = connection.recv()
        except EOFError:
            return
        if not _send(connection, run(task, arguments)):
            return


def run(task: str, arguments: tuple[Any, ...]) -> Any:
    """The result of "module:function" on these arguments, or the WorkerFault that it ended in."""
    module, _, function = task.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(*arguments)
    except Exception as fault:  # noqa: BLE001  the edge: whatever a cell raises becomes its row
        found, place = classify(fault), place_of_user(fault)
        return replace(found, reason=f"{one_line(found.reason, LONGEST_REASON - len(place))}{place}")


def place_of_user(fault: BaseException | None) -> str:
    """The last call in a file of neither a library nor this program, as " (net.py:8 in forward)"; "" without one."""
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
    """What an exception means for a cell: its status, and one line that says why."""
    text = plain_words(" ".join(str(fault).split()))
    name = type(fault).__name__
    detail = "".join(traceback.format_exception(fault))
    if isinstance(fault, Unavailable):
        return WorkerFault("unavailable", one_line(text, LONGEST_REASON), detail)
    if isinstance(fault, (ValueError, Inconsistent)):
        return WorkerFault("invalid", one_line(text, LONGEST_REASON), detail)
    line = one_line(plain_words(f"{name}: {' '.join(str(fault).split())}"), LONGEST_REASON)
    if isinstance(fault, MemoryError) or "OutOfMemory" in name or any(sign in text for sign in OUT_OF_MEMORY):
        return WorkerFault("out_of_memory", line, detail)
    device_message = _said_by_device(text)
    if NO_ENGINE in text and not device_message and _memory_was_refused():
        line = one_line(f"{line} (no workspace fitted: the device refused memory)", LONGEST_REASON)
        return WorkerFault("out_of_memory", line, detail)
    if device_message or name == "AcceleratorError" or any(sign in text for sign in DEVICE):
        return WorkerFault("device_error", one_line(f"{line}{device_message}", LONGEST_REASON), detail)
    return WorkerFault("crashed", line, detail)


def _memory_was_refused() -> bool:
    """Whether a CUDA device of this process has refused memory to torch."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized() and bool(torch.cuda.memory_stats().get("num_ooms"))


def _said_by_device(text: str) -> str:
    """The device's own error in brackets, where the words are a library's; empty if it has none."""
    torch = sys.modules.get("torch")
    if not any(sign in text for sign in (*LIBRARIES, NO_ENGINE)) or torch is None or not torch.cuda.is_initialized():
        return ""
    try:
        torch.cuda.synchronize()
    except RuntimeError as fault:
        return f" ({str(fault).splitlines()[0]})"
    return ""


def _send(connection: Connection, answer: Any) -> bool:
    """Sends an answer, or why it cannot be sent; False if nobody is there to receive it."""
    try:
        connection.send(answer)
    except OSError:
        return False
    except Exception as fault:  # noqa: BLE001  the edge: pickle raises anything, before a byte is sent
        connection.send(WorkerFault("crashed", f"its result cannot be sent: {classify(fault).reason}"))
    return True
