"""Runs one counter on one workload in a process of its own, and turns whatever becomes of it into rows.

Counters patch torch, print, warn, crash and hang; none of that reaches the caller. The process is forked from a server
that has torch imported already, so that each costs its own work only, and is killed at its limit. This module imports
no torch itself. It knows workloads only as `factory`, a "module:function" with function(name, **hyper), whose value
has build, batch, hyper and task as `workloads/base.py` says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from measure.counters.batch_law import extrapolate
from measure.counters.registry import COUNTERS, Registry, check_counter, install_line
from results.errors import Inconsistent, Unavailable
from results.records import FlopCount

__all__ = ["batches_to_count", "count_isolated", "extrapolate", "prepare"]

PRELOAD = ("torch", "torchvision")
"""What the server imports once, so that the processes forked from it need not. Nothing that touches a device."""

REAP_S = 5.0
"""How long a dead child's exit status is waited for."""

LAST_WORDS = 300
"""Characters of a dead counter's output that its row quotes."""

THREADS = 1
"""Of torch in the child. Counting is many small operations and few seconds of arithmetic: on a busy machine threads
that wait for each other cost more than they bring."""

COUNTED_BATCHES = (1, 2, 16)
"""Two decide an affine law and the third checks it; a counter on real tensors is slow and large beyond that."""


@dataclass(frozen=True)
class Task:
    """What the child process is told."""

    counter: str
    target: str
    requirement: str
    factory: str
    workload: str
    hyper: Mapping[str, int]
    batch_sizes: tuple[int, ...]
    timeout_s: float
    noise_path: str


@dataclass(frozen=True)
class Failure:
    """Why a count did not come to be."""

    status: str
    reason: str


def batches_to_count(batch_size: int) -> tuple[int, ...]:
    """The batches a counter is run at, so that a law of the batch follows: 1, 2 and min(batch_size, 16)."""
    first, second, largest = COUNTED_BATCHES
    return tuple(sorted({first, second, min(batch_size, largest)}))


def prepare(preload: Sequence[str] = PRELOAD) -> None:
    """Starts the server and its imports; returns at once. Calling it early hides the seconds they take.

    The server belongs to the whole process: if one runs already, it keeps its own imports.
    """
    context = _context()
    if context.get_start_method() != "forkserver":
        return
    context.set_forkserver_preload(list(preload))
    from multiprocessing import forkserver

    forkserver.ensure_running()


def count_isolated(
    counter: str,
    workload_name: str,
    hyper: Mapping[str, int],
    batch_sizes: Sequence[int],
    timeout_s: float,
    *,
    factory: str,
    registry: Registry = COUNTERS,
) -> list[FlopCount]:
    """The rows of one counter at each batch size, forward pass; a batch that failed is one row with the reason.

    timeout_s: for all batch sizes together. factory: "module:function" of the workload. Raises ValueError for a
    counter that is not in the registry.
    """
    check_counter(counter, registry)
    target, requirement = registry[counter]
    with tempfile.NamedTemporaryFile(prefix="counter-") as noise:
        task = Task(
            counter=counter,
            target=target,
            requirement=requirement,
            factory=factory,
            workload=workload_name,
            hyper=dict(hyper),
            batch_sizes=tuple(batch_sizes),
            timeout_s=timeout_s,
            noise_path=noise.name,
        )
        rows, failure = _supervise(task)
    return rows + _failed(task, rows, failure)


def _supervise(task: Task) -> tuple[list[FlopCount], Failure | None]:
    """Starts the child, collects its rows until it is done, dead or late, and leaves no process behind."""
    context = _context()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, task), name=f"counter {task.counter} {task.workload}")
    process.start()
    theirs.close()
    try:
        return _collect(ours, task, process)
    finally:
        ours.close()
        _end(process)


def _collect(ours: Connection, task: Task, process: BaseProcess) -> tuple[list[FlopCount], Failure | None]:
    rows: list[FlopCount] = []
    deadline = time.monotonic() + task.timeout_s
    for _ in task.batch_sizes:
        ready = wait([ours, process.sentinel], max(0.0, deadline - time.monotonic()))
        if not ready:
            return rows, Failure("timeout", f"killed at its limit of {task.timeout_s:g} s{_words(task)}")
        try:
            message = ours.recv() if ours.poll(0) else None
        except (EOFError, OSError):
            message = None
        if message is None:
            process.join(REAP_S)
            return rows, Failure("crashed", f"{_end_of(process.exitcode)}{_words(task)}")
        if isinstance(message, Failure):
            return rows, message
        rows += message
    return rows, None


def _failed(task: Task, rows: Sequence[FlopCount], failure: Failure | None) -> list[FlopCount]:
    """A row for each batch size that gave none: the first with the failure, those after it not tried."""
    done = {row.batch_size for row in rows}
    missing = [size for size in task.batch_sizes if size not in done]
    if failure is None or not missing:
        return []
    tried = missing[0]
    return [
        FlopCount(
            counter=task.counter,
            workload=task.workload,
            batch_size=size,
            phase="forward",
            status=failure.status,
            reason=failure.reason if size == tried else f"not tried after a batch of {tried}: {failure.reason}",
        )
        for size in missing
    ]


def _end(process: BaseProcess) -> None:
    """Kills the child and whatever it started, as far as they still live."""
    process.kill()
    with contextlib.suppress(ProcessLookupError):  # nothing is left of its session
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()


def _end_of(exitcode: int | None) -> str:
    """How a process ended, in words."""
    if exitcode is None or exitcode >= 0:
        return f"the process ended with status {exitcode} before it answered"
    name = signal.Signals(-exitcode).name
    hint = ", as the kernel does when memory runs out" if name == "SIGKILL" else ""
    return f"the process died of {name}{hint}"


def _words(task: Task) -> str:
    """The end of what the counter printed, for its row."""
    with open(task.noise_path, errors="replace") as noise:
        text = " ".join(noise.read().split())
    return f"; it printed: {text[-LAST_WORDS:]}" if text else ""


def _context() -> BaseContext:
    """forkserver where there is one: a fork of a process that used torch is not safe, and spawn imports it again."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")


# In the child process.


def _child(connection: Connection, task: Task) -> None:
    """Counts at each batch size and sends its rows, or one Failure and nothing more."""
    os.setsid()  # so that whatever the counter starts can be killed with it
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(task.timeout_s) + 10)  # ends it even if the parent was killed
    _silence(task.noise_path)
    baseline_bytes = _peak_bytes()
    try:
        adapter = _adapter(task)
        workload = _load(task.factory)(task.workload, **task.hyper)
        with _weights_unset():
            model = workload.build(**workload.hyper).eval()
        for size in task.batch_sizes:
            connection.send(_count(adapter, workload, model, size, baseline_bytes))
    except Exception as fault:  # noqa: BLE001  the edge: anything a counter raises becomes its row
        connection.send(_failure(fault))
    finally:
        connection.close()


@contextlib.contextmanager
def _weights_unset() -> Iterator[None]:
    """Leaves out torch's initialisation of weights, which takes longer than counting; counters see shapes alone.

    In a process that counts and ends, so that nothing else meets it. Zeros, not what memory held: denormals are slow.
    """
    import torch

    names = [name for name in dir(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    original = {name: getattr(torch.nn.init, name) for name in names}
    for name in names:
        setattr(torch.nn.init, name, _zeros)
    try:
        yield
    finally:
        for name, function in original.items():
            setattr(torch.nn.init, name, function)


def _zeros(tensor: Any, *_: Any, **__: Any) -> Any:
    return tensor.detach().zero_()


def _count(adapter: Any, workload: Any, model: Any, size: int, baseline_bytes: int) -> list[FlopCount]:
    """One batch size: the adapter's rows, with its time and the growth of the process's peak memory on the total."""
    import torch

    torch.set_num_threads(THREADS)
    inputs = workload.batch(workload.hyper, size, torch.device("cpu"), torch.Generator().manual_seed(0)).inputs
    if workload.task == "detection":
        inputs = inputs[:1]  # in eval mode a detector takes images and no targets
    start_s = time.perf_counter()
    rows: list[FlopCount] = adapter(model, inputs, workload=workload.name, batch_size=size)
    duration_s = time.perf_counter() - start_s
    grown_bytes = max(0, _peak_bytes() - baseline_bytes)
    if not rows:
        raise Inconsistent(f"the counter gave no row at a batch of {size}")
    return [
        row if row.operator else dataclasses.replace(row, duration_s=duration_s, peak_memory_bytes=grown_bytes)
        for row in rows
    ]


def _adapter(task: Task) -> Any:
    """The counter's function. Raises Unavailable, with what to type, if its package is not installed."""
    try:
        return _load(task.target)
    except ImportError as fault:
        raise Unavailable(f"{task.counter} cannot be imported ({fault}): {install_line(task.requirement)}") from fault


def _load(target: str) -> Any:
    module, _, function = target.partition(":")
    return getattr(importlib.import_module(module), function)


def _failure(fault: Exception) -> Failure:
    """What an exception means for the row."""
    line = " ".join(str(fault).split())[:LAST_WORDS]
    if isinstance(fault, Unavailable):
        return Failure("unavailable", line)
    if isinstance(fault, MemoryError) or "can't allocate memory" in line or "OutOfMemory" in type(fault).__name__:
        return Failure("out_of_memory", f"{type(fault).__name__}: {line}")
    return Failure("invalid", f"{type(fault).__name__}: {line}")


def _silence(path: str) -> None:
    """What the counter and its libraries print goes to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # so that a crash leaves its last words


def _peak_bytes() -> int:
    """Largest resident set of this process so far; ru_maxrss is in kibibytes on Linux, in bytes on macOS."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
