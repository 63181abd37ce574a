"""Runs one counter on one workload in a separate process. A count, an error or a crash becomes rows for the caller.

Counters patch torch, print, warn, crash and hang; none of that reaches the caller. `count_isolated` returns a counter's
rows; `record_isolated` returns recordings of the model's calls. The counter's process is forked from a server that has
already imported torch, so that it starts fast, and is killed at its time limit. The process leaves the caller's
session, redirects its output, and sets torch to few threads and no initial weights. Then it builds the workload, counts
or records at each batch size, and sends the results. Importing this module does not import torch. A workload is passed
as `factory`, a "module:function". `function(name, **hyper)` returns an object with build, batch, hyper and task, as a
`Workload` (`workloads/catalogue/base.py`) has.
"""

import contextlib
import dataclasses
import functools
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from analysis.counters import COUNTERS, CounterEntry, install_line
from measure.device.processes import (
    PRELOAD,
    TAIL_CHARACTERS,
    accept_interrupts,
    context,
    end_of,
    end_with_parent,
    output_tail,
    prepare,
    redirect,
)
from results.errors import Inconsistent, Unavailable
from results.process import free_bytes, load
from results.records.calls import CallRecording, PlainCall
from results.records.counts import FlopCount

__all__ = ["count_isolated", "prepare", "record_isolated"]

REAP_S = 5.0
"""Limit for a dead child's exit status to arrive."""

GRACE_S = 2.0
"""Time that a child has to end by itself after it reported everything."""

THREADS = 1
"""torch's threads in the child. Counting is many small operations and few seconds of arithmetic: on a busy machine
threads that wait for each other cost more than they bring."""

ON_SIZES = ("measure.counters.adapters.dispatched:flopledger", "runners.workers.any_model:exact_counter")
"""Counters that need no weights: the model's tensors have only sizes, unless the step cannot be run on those."""


@dataclass(frozen=True)
class Task:
    """The task of the child process.

    hyper: the factory's arguments besides the name. target: "module:function" of a counter; without one the process
    records the model's calls, and counts nothing. trainer, explainer: as in `record_isolated`.
    """

    counter: str
    factory: str
    workload: str
    hyper: Mapping[str, Any]
    batch_sizes: tuple[int, ...]
    timeout_s: float
    target: str = ""
    requirement: str = ""
    trainer: str = ""
    explainer: str = ""


@dataclass(frozen=True)
class Failure:
    """Why there is no count."""

    status: str
    reason: str


def count_isolated(
    counter: str,
    workload_name: str,
    hyper: Mapping[str, Any],
    batch_sizes: Sequence[int],
    timeout_s: float,
    *,
    factory: str,
    registry: Mapping[str, CounterEntry] = COUNTERS,
) -> list[FlopCount]:
    """Return the rows of one counter at each batch size; a batch that failed is one row, of phase forward, with the
    reason.

    timeout_s: for all batch sizes together. factory: "module:function" of the workload.
    """
    entry = registry[counter]
    task = Task(
        counter, factory, workload_name, dict(hyper), tuple(batch_sizes), timeout_s, entry.adapter, entry.requires
    )
    rows: list[FlopCount]
    rows, failure = _supervise(task)
    done = {row.batch_size for row in rows}
    missing = [size for size in batch_sizes if size not in done]
    for size in missing:
        failure = failure or Failure("invalid", "no row")
        reason = failure.reason if size == missing[0] else f"not tried after a batch of {missing[0]}: {failure.reason}"
        failed = FlopCount(counter=counter, workload=workload_name, batch_size=size, phase="forward")
        rows.append(dataclasses.replace(failed, status=failure.status, reason=reason))
    return rows


def record_isolated(
    workload_name: str,
    hyper: Mapping[str, Any],
    batch_sizes: Sequence[int],
    timeout_s: float,
    *,
    factory: str,
    trainer: str = "",
    explainer: str = "",
) -> tuple[dict[int, CallRecording], Failure | None]:
    """Return the recorded calls of a model, as counters run it, by batch size, and the failure after which no batch was
    recorded; None if there was none.

    trainer: "module:function" with function(workload, batch_size) -> the operations of a training step. explainer:
    "module:function" with function(model, inputs) -> why the model does not take the inputs, or "".
    """
    task = Task("recording", factory, workload_name, dict(hyper), tuple(batch_sizes), timeout_s)
    recordings, failure = _supervise(dataclasses.replace(task, trainer=trainer, explainer=explainer))
    return dict(zip(batch_sizes, recordings, strict=False)), failure


def _supervise(task: Task) -> tuple[list[Any], Failure | None]:
    """Start the child and collect its answers until it is done, dead or late. No process is left behind."""
    forking = context(PRELOAD)
    receiver, sender = forking.Pipe(duplex=False)
    child_lifeline, lifeline = forking.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile(prefix="counter-") as noise:
        with sender, child_lifeline:
            name = f"counter {task.counter} {task.workload}"
            process = forking.Process(target=run, args=(sender, task, child_lifeline, noise.name), name=name)
            process.start()
        try:
            rows, failure = _collect(receiver, task, process)
            if failure is None:  # a killed process would be reported to leak what it shares (tqdm's lock)
                process.join(GRACE_S)
            elif failure.status in ("timeout", "crashed"):
                with open(noise.name, errors="replace") as printed:
                    failure = Failure(failure.status, f"{failure.reason}{output_tail(printed.read())}")
            return rows, failure
        finally:
            receiver.close()
            process.kill()
            with contextlib.suppress(ProcessLookupError):  # end what the child started; its session may be gone
                os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
            lifeline.close()


def _collect(receiver: Connection, task: Task, process: BaseProcess) -> tuple[list[Any], Failure | None]:
    rows: list[Any] = []
    deadline = time.monotonic() + task.timeout_s
    for _ in task.batch_sizes:
        ready = wait([receiver, process.sentinel], max(0.0, deadline - time.monotonic()))
        if not ready:
            return rows, Failure("timeout", f"killed at its limit of {task.timeout_s:g} s")
        try:
            message = receiver.recv() if receiver.poll(0) else None
        except (EOFError, OSError):
            message = None
        if message is None:
            process.join(REAP_S)
            return rows, Failure("crashed", end_of("the process", process.exitcode))
        if isinstance(message, Failure):
            return rows, message
        rows += message
    return rows, None


def run(connection: Connection, task: Task, lifeline: Connection, noise_path: str) -> None:
    """Count, or record, at each batch size and send the results, or else one Failure."""
    accept_interrupts()
    end_with_parent(lifeline)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(task.timeout_s) + 10)  # ends this process even if the parent was killed
    redirect(noise_path)
    # an allocation beyond the machine's memory fails here, before the kernel ends another process for it
    free = free_bytes()
    if sys.platform == "linux" and free is not None:
        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([used + free, *limits]), hard))
    baseline_bytes = _peak_bytes()
    left = list(task.batch_sizes)
    try:
        if not task.target or task.target in ON_SIZES:
            with contextlib.suppress(Exception):  # the model may run with weights where it fails without them
                _answer(connection, task, left, baseline_bytes, has_weights=False)
        if left:
            _answer(connection, task, left, baseline_bytes, has_weights=True)
    except Exception as fault:  # noqa: BLE001  the edge: anything a counter raises becomes its row
        connection.send(_failure(fault))
    finally:
        connection.close()


def _answer(connection: Connection, task: Task, left: list[int], baseline_bytes: int, has_weights: bool) -> None:
    """Count or record at each batch size in `left`, send the result, and remove the size from the list."""
    import torch

    torch.set_num_threads(THREADS)
    workload, model = _build(task, has_weights)
    while left:
        if not task.target:
            connection.send([_record_calls(task, workload, model, left[0], has_weights)])
        else:
            connection.send(_count(task, workload, model, left[0], baseline_bytes))
        del left[0]


def _build(task: Task, has_weights: bool) -> tuple[Any, Any]:
    """Return the workload and its model in evaluation mode. has_weights: False: the model's tensors have sizes but no
    values."""
    from measure.operations.fake_results import built_on_meta, modules_on_meta

    with contextlib.nullcontext() if has_weights else modules_on_meta():
        workload = load(task.factory)(task.workload, **task.hyper)
    build = functools.partial(workload.build, **workload.hyper)
    with _weights_unset():
        return workload, (build() if has_weights else built_on_meta(build)).eval()


@contextlib.contextmanager
def _weights_unset() -> Iterator[None]:
    """Skip torch's initialisation of weights, which takes longer than counting; counters only see shapes.

    Use it in a process that counts and ends, so that nothing else is affected. Weights are zeros, not uninitialised
    memory, since denormals are slow. Only a detector's operations depend on its values, and they mean nothing with
    random weights either.
    """
    import torch

    names = [name for name in dir(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    original = {name: getattr(torch.nn.init, name) for name in names}
    for name in names:
        setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor.detach().zero_())
    try:
        yield
    finally:
        for name, function in original.items():
            setattr(torch.nn.init, name, function)


def _count(task: Task, workload: Any, model: Any, size: int, baseline_bytes: int) -> list[FlopCount]:
    """Return the adapter's rows at one batch size. The total of the forward pass has the time of the count and the
    growth of the process's peak memory, for both passes together."""
    inputs = _inputs(workload, size)
    start_s = time.perf_counter()
    try:
        rows: list[FlopCount] = load(task.target)(model, inputs, workload=workload.name, batch_size=size)
    except ImportError as fault:
        raise Unavailable(f"{task.counter} cannot be imported ({fault}): {install_line(task.requirement)}") from fault
    duration_s = time.perf_counter() - start_s
    grown_bytes = max(0, _peak_bytes() - baseline_bytes)
    if not rows:
        raise Inconsistent(f"the counter gave no row at a batch of {size}")
    for row in rows:
        for value in (row.native_value, row.flop):
            if isinstance(value, float) and not math.isfinite(value):
                raise Inconsistent(
                    f"expected a count at a batch of {size}, the counter gave {value} ({row.operator or 'total'})"
                )
    return [
        dataclasses.replace(row, duration_s=duration_s, peak_memory_bytes=grown_bytes)
        if (row.phase, row.operator) == ("forward", "")
        else row
        for row in rows
    ]


def _inputs(workload: Any, size: int) -> Any:
    """Draw the model's inputs, the same in each process."""
    import torch

    inputs = workload.batch(workload.hyper, size, torch.device("cpu"), torch.Generator().manual_seed(0)).inputs
    return inputs[:1] if workload.task == "detection" else inputs  # in eval mode it takes images and no targets


def _record_calls(task: Task, workload: Any, model: Any, size: int, has_weights: bool) -> CallRecording:
    """Record the model's calls at one batch size, and the operations of a training step where a trainer gives them."""
    from measure.counters.model_calls import record

    inputs = _inputs(workload, size)
    try:
        recording = record(model, inputs, plain=has_weights)
        if not has_weights:
            recording = dataclasses.replace(recording, plain=_plain(task, inputs))
    except Exception as fault:
        if task.explainer and (why := load(task.explainer)(model, inputs)):
            raise ValueError(why) from fault
        raise
    if task.trainer:
        try:
            recording = dataclasses.replace(recording, training=tuple(load(task.trainer)(workload, size)))
        except (ValueError, RuntimeError, TypeError, Unavailable) as fault:  # such as a batch too small to normalise
            why = " ".join(f"{type(fault).__name__}: {fault}".split())[:TAIL_CHARACTERS]
            recording = dataclasses.replace(recording, untrained=why)
    return recording


def _plain(task: Task, inputs: Any) -> tuple[PlainCall, ...]:
    """Record the calls of a model with weights without listeners; return nothing if the weights do not fit into memory:
    the counter that sees these calls has no count then either."""
    from measure.counters.model_calls import plain_calls

    try:
        return plain_calls(_build(task, has_weights=True)[1], inputs)
    except Exception as fault:
        if _failure(fault).status == "invalid":
            raise
        return ()


def _failure(fault: Exception) -> Failure:
    """Turn an exception into the row's status and reason."""
    line = " ".join(str(fault).split())[:TAIL_CHARACTERS]
    if isinstance(fault, Unavailable):
        return Failure("unavailable", line)
    if isinstance(fault, MemoryError) or "can't allocate memory" in line or "OutOfMemory" in type(fault).__name__:
        return Failure("out_of_memory", f"{type(fault).__name__}: {line}")
    return Failure("invalid", f"{type(fault).__name__}: {line}")


def _peak_bytes() -> int:
    """Return largest resident set of this process so far; ru_maxrss is in kibibytes on Linux, in bytes on macOS."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
