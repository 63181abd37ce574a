"""Runs one counter on one workload in a process of its own, and turns whatever becomes of it into rows.

Counters patch torch, print, warn, crash and hang; none of that reaches the caller. The process is forked from a server
that has torch imported already, so that each costs its own work only, and is killed at its limit. This module imports
no torch itself. It knows workloads only as `factory`, a "module:function" with function(name, **hyper), whose value has
build, batch, hyper and task as `workloads/catalogue/base.py` says.

Counts at a large batch follow from those at small ones by the affine law a·b + c, checked wherever it can be: counts
are whole numbers, and a law that misses one of them by a single unit is no law. A count that follows none says so;
nothing is fitted. c is not 0 in models with a part that does not see the batch (swin_v2).
"""

import contextlib
import dataclasses
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from measure.counters.child import Failure, Task, run
from measure.counters.registry import COUNTERS, Registry, check_counter
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
    task = Task(counter, factory, workload_name, dict(hyper), tuple(batch_sizes), timeout_s, target, requirement)
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
    """What a model calls, as counters run it, by batch size; and why there is no more, if there is not.

    trainer: "module:function" with function(workload, batch_size) -> the operations of a training step. explainer: the
    same with function(model, inputs) -> why the model does not take them.
    """
    recordings, failure = _supervise(
        Task(
            "recording",
            factory,
            workload_name,
            dict(hyper),
            tuple(batch_sizes),
            timeout_s,
            trainer=trainer,
            explainer=explainer,
        )
    )
    return dict(zip(batch_sizes, recordings, strict=False)), failure


def _supervise(task: Task) -> tuple[list[Any], Failure | None]:
    """Starts the child, collects its answers until it is done, dead or late, and leaves no process behind."""
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
            if failure is None:  # what it shares with others (tqdm has a lock) would else be reported as leaked
                process.join(GRACE_S)
            elif failure.status in ("timeout", "crashed"):
                with open(noise.name, errors="replace") as printed:
                    failure = Failure(failure.status, f"{failure.reason}{last_words(printed.read())}")
            return rows, failure
        finally:
            receiver.close()
            process.kill()
            with contextlib.suppress(ProcessLookupError):  # nothing is left of its session, with what it started
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


Series = dict[int, FlopCount]
"""Batch size → one operator's count (or the total's)."""


def extrapolate(rows: Sequence[FlopCount], batch_size: int) -> list[FlopCount]:
    """One counter's rows at `batch_size`: as counted where it was, else by the law, marked `extrapolated`.

    rows: of one counter and workload at several batch sizes, forward and backward. An operator that breaks the law, or
    was not counted at every size that the total was, gives a row of status `invalid`; fewer than two counted sizes give
    the failure's row, or one of status `unavailable` for each phase.
    """
    counted = [row for row in rows if row.status == "ok"]
    here = [row for row in counted if row.batch_size == batch_size]
    if here or not rows:
        return here
    sizes = sorted({row.batch_size for row in counted})
    if len(sizes) < 2:
        return _no_law(rows, batch_size)
    by_operator: dict[tuple[str, str, str], Series] = {}
    for row in counted:
        by_operator.setdefault((row.phase, row.operator, row.native_unit), {})[row.batch_size] = row
    return [_extrapolated(series, sizes, batch_size) for series in by_operator.values()]


def _extrapolated(series: Series, sizes: Sequence[int], batch_size: int) -> FlopCount:
    """One operator's row at a batch that was not counted."""
    largest = series[max(series)]
    reasons = {row.reason for row in series.values()}
    row = dataclasses.replace(
        largest,
        batch_size=batch_size,
        extrapolated=True,
        attention={},
        reason=largest.reason if len(reasons) == 1 else "",  # what was said of one batch is not true of another
        duration_s=None,
        peak_memory_bytes=None,
        printed=None,
    )
    missing = [size for size in sizes if size not in series]
    native, flop = (None if missing else _law(series, column, batch_size) for column in ("native_value", "flop"))
    if native is not None and (flop is not None or largest.flop is None):
        return dataclasses.replace(row, native_value=native, flop=flop)
    counts = ", ".join(f"{size}: {series[size].native_value}" for size in sorted(series))
    reason = f"not affine in the batch: counted {counts}{f', none at {missing}' if missing else ''}"
    return dataclasses.replace(row, native_value=None, flop=None, status="invalid", reason=reason)


def _law(series: Series, column: str, batch_size: int) -> int | None:
    """The value at a batch by the line through all counted ones; None where there is none."""
    from analysis.stats.summary import affine

    values = [(size, getattr(series[size], column)) for size in sorted(series)]
    return None if any(value is None for _, value in values) else affine(values, batch_size)


def _no_law(rows: Sequence[FlopCount], batch_size: int) -> list[FlopCount]:
    """The rows where too few batches were counted: the failure that kept the others from being, or each total."""
    failed = next((row for row in rows if row.status != "ok"), None)
    if failed is not None:
        return [dataclasses.replace(failed, batch_size=batch_size, extrapolated=False)]
    reason = f"counted at a batch of {rows[0].batch_size} only; a law of the batch needs two"
    totals = [row for row in rows if not row.operator] or [dataclasses.replace(rows[0], operator="")]
    return [
        dataclasses.replace(
            row,
            batch_size=batch_size,
            status="unavailable",
            reason=reason,
            native_value=None,
            flop=None,
            duration_s=None,
            peak_memory_bytes=None,
            parameters=None,
            printed=None,
        )
        for row in totals
    ]
