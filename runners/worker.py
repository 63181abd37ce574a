"""The inside of a worker process: receive a task, run it, send its result or the fault it ended in.

It never outlives its parent (a thread waits for the lifeline to break), ignores Ctrl-C (the parent decides), and
keeps its output out of the parent's terminal.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from results.errors import Inconsistent, Unavailable
from runners.launch import Fault

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "ALLOC_FAILED")
DEVICE = ("CUDA error", "cuDNN error", "CUDNN_STATUS", "CUBLAS_STATUS", "CUFFT", "NCCL error", "device-side assert")
LONGEST_REASON = 400


def serve(connection: Connection, lifeline: Connection, noise_path: str) -> None:
    """Runs tasks until the parent hangs up. The target of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, args=(lifeline,), name="lifeline", daemon=True).start()
    if noise_path:
        _silence(noise_path)
    while True:
        try:
            task, arguments = connection.recv()
        except EOFError:
            return
        connection.send(run(task, arguments))


def run(task: str, arguments: tuple[Any, ...]) -> Any:
    """The result of "module:function" on these arguments, or the Fault that it ended in."""
    module, _, function = task.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(*arguments)
    except Exception as fault:  # noqa: BLE001  the edge: whatever a cell raises becomes its row
        return classify(fault)


def classify(fault: BaseException) -> Fault:
    """What an exception means for a cell: its status, and one line that says why."""
    text = " ".join(str(fault).split())
    name = type(fault).__name__
    detail = "".join(traceback.format_exception(fault))
    if isinstance(fault, Unavailable):
        return Fault("unavailable", text[:LONGEST_REASON], detail)
    if isinstance(fault, (ValueError, Inconsistent)):
        return Fault("invalid", text[:LONGEST_REASON], detail)
    line = f"{name}: {text}"[:LONGEST_REASON]
    if isinstance(fault, MemoryError) or "OutOfMemory" in name or any(sign in text for sign in OUT_OF_MEMORY):
        return Fault("out_of_memory", line, detail)
    if name == "AcceleratorError" or any(sign in text for sign in DEVICE):
        return Fault("device_error", line, detail)
    return Fault("crashed", line, detail)


def _end_with_parent(lifeline: Connection) -> None:
    with contextlib.suppress(EOFError):  # the only thing that ever comes: the parent is gone
        lifeline.recv_bytes()
    os._exit(1)


def _silence(path: str) -> None:
    """What this process and its libraries print goes to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
