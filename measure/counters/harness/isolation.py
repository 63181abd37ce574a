"""Runs one counter on one workload in a process of its own, and turns whatever becomes of it into rows.

Counters patch torch, print, warn, crash and hang; none of that reaches the caller. The process is forked from a server
that has torch imported already, so that each costs its own work only, and is killed at its limit. This module imports
no torch itself. It knows workloads only as `factory`, a "module:function" with function(name, **hyper), whose value
has build, batch, hyper and task as `workloads/catalogue/base.py` says.
"""

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from measure.counters.harness.batch_law import extrapolate
from measure.counters.harness.child import Failure, Task, run
from measure.counters.harness.registry import COUNTERS, Registry, check_counter
from measure.device.processes import PRELOAD, context, end_of, last_words, prepare
from results.records.counts import CallRecording, FlopCount

__all__ = ["batches_to_count", "count_isolated", "extrapolate", "prepare", "record_isolated"]

REAP_S = 5.0
"""How long a dead child's exit status is waited for."""

GRACE_S = 2.0
"""How long a child that has reported everything may take to end by itself."""

COUNTED_BATCHES = (1, 2, 16)
"""Two decide an affine law and the third checks it; a counter on real tensors is slow and large beyond that."""


def batches_to_count(batch_size: int) -> tuple[int, ...]:
    """The batches a counter is run at, so that a law of the batch follows: 1, 2 and min(batch_size, 16)."""
    first, second, largest = COUNTED_BATCHES
    return tuple(sorted({first, second, min(batch_size, largest)}))


def count_isolated(
    counter: str,
    workload_name: str,
    hyper: Mapping[str, Any],
    batch_sizes: Sequence[int],
    timeout_s: float,
    *,
    factory: str,
    registry: Registry = COUNTERS,
) -> list[FlopCount]:
    """The rows of one counter at each batch size; a batch that failed is one row, of phase forward, with the reason.

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
    """What a model calls, as counters run it, by batch size; and why there is no more, if there is not.

    trainer: "module:function" with function(workload, batch_size) -> the operations of a training step. explainer: the
    same with function(model, inputs) -> why the model does not take them.
    """
    with tempfile.NamedTemporaryFile(prefix="recording-") as noise:
        task = Task(
            counter="recording",
            target="",
            requirement="",
            factory=factory,
            workload=workload_name,
            hyper=dict(hyper),
            batch_sizes=tuple(batch_sizes),
            timeout_s=timeout_s,
            noise_path=noise.name,
            records=True,
            trainer=trainer,
            explainer=explainer,
        )
        recordings, failure = _supervise(task)
    return dict(zip(batch_sizes, recordings, strict=False)), failure


def _supervise(task: Task) -> tuple[list[Any], Failure | None]:
    """Starts the child, collects its answers until it is done, dead or late, and leaves no process behind."""
    forking = context(PRELOAD)
    ours, theirs = forking.Pipe(duplex=False)
    their_lifeline, lifeline = forking.Pipe(duplex=False)
    with theirs, their_lifeline:
        name = f"counter {task.counter} {task.workload}"
        process = forking.Process(target=run, args=(theirs, task, their_lifeline), name=name)
        process.start()
    try:
        rows, failure = _collect(ours, task, process)
        if failure is None:  # what it shares with others (tqdm has a lock) would else be reported as leaked
            process.join(GRACE_S)
        return rows, failure
    finally:
        ours.close()
        _end(process)
        lifeline.close()


def _collect(ours: Connection, task: Task, process: BaseProcess) -> tuple[list[Any], Failure | None]:
    rows: list[Any] = []
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
            return rows, Failure("crashed", f"{end_of('the process', process.exitcode)}{_words(task)}")
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


def _words(task: Task) -> str:
    """The end of what the counter printed, for its row."""
    with open(task.noise_path, errors="replace") as noise:
        return last_words(noise.read())
