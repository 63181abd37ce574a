"""What a report reads beside a run's rows (recordings, operation tables in other processes), and its tables as CSV."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from results.kernel import die_with_parent
from results.records.rows import Record
from runners.cli.output import Page, show_answer

if TYPE_CHECKING:
    from pandas import DataFrame

    from cleaning.reconcile.run import Each
    from cleaning.reconcile.view import Built


HEADLINE = "headline.csv"
UTILIZATION = "utilization.csv"
PARALLEL = "parallel.csv"
"""Of a run with cells of several ranks alone."""


def derived_tables(built: Built) -> Iterable[tuple[str, bytes]]:
    """(file, content) of every derived table; one without rows is its header alone."""
    from reports.sweep.table import to_csv
    from results.store.layout import compress

    for file, (rows, record) in _rows_of(built).items():
        content = to_csv(rows, record).encode()
        yield file, compress(content) if file.endswith(".gz") else content


def _rows_of(built: Built) -> dict[str, tuple[Sequence[Record], type[Record]]]:
    """File → its rows, and the record that they are of."""
    from reports.sweep.headline import headline_rows
    from results.records.answers import Headline, ParallelStep, StepTime, Utilization, WorkTime
    from results.records.counts import (
        Agreement,
        BatchLaw,
        CleanedOperation,
        CleaningLog,
        FlopCount,
        ProfileCount,
        Ratio,
    )

    return {
        HEADLINE: (headline_rows(built), Headline),
        UTILIZATION: (built.utilization, Utilization),
        "utilization_post2021.csv": (built.post2021, Utilization),
        "step_times.csv": (built.step_times, StepTime),
        "work_times.csv": (built.work_times, WorkTime),
        "cleaned/profiled_operations.csv.gz": (built.cleaned_operations, CleanedOperation),
        "cleaned/profile_counts.csv": (built.profile_counts, ProfileCount),
        "cleaned/ratios.csv": (built.ratios, Ratio),
        "cleaned/agreement.csv": (built.agreement, Agreement),
        "cleaned/batch_law.csv": (built.batch_laws, BatchLaw),
        "cleaned/flop_counts.csv": (built.cleaned.flop_counts, FlopCount),
        "cleaned/cleaning_log.csv": (built.cleaned.log, CleaningLog),
        **({PARALLEL: (built.parallel_steps, ParallelStep)} if built.parallel_steps else {}),
    }


def show_rows(form: str, page: Page, rows: Sequence[Record], kind: type[Record]) -> None:
    """`show_answer` of records of one kind, which are a row of CSV and an object of JSON each."""
    from reports.sweep.table import documents, to_csv

    show_answer(form, page, lambda: documents(rows), lambda: to_csv(rows, kind))


T = TypeVar("T")
S = TypeVar("S")

LEAST = 100
"""Tables from which on a process of their own is worth its start."""

MOST_PROCESSES = 4
_TOGETHER = 4
"""Tables that a process is given at once."""


@contextlib.contextmanager
def table_processes(path: Path, least: int = LEAST) -> Iterator[Each]:
    """`each` of `build` for the run `path`: in processes of their own where it has many tables, else `map`.

    One for each further processor that this process may use; they start at once, while rows are read. What is derived
    does not depend on them: where none can be started, or one is killed, the rest is done here. The main module of the
    program has to bear to be imported.
    """
    processes = min(_processors() - 1, MOST_PROCESSES)
    if processes < 1 or sum(1 for _ in path.glob("operations/*.csv.gz")) < 2 * least:  # with its storages
        yield map
        return
    with contextlib.ExitStack() as stack:
        try:
            pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_begin)
            stack.callback(pool.shutdown, cancel_futures=True)
            for _ in range(processes):
                pool.submit(_import)
        except (OSError, RuntimeError):  # no semaphores (NotImplementedError), no further thread, a process that ended
            yield map
            return
        yield partial(_each, pool)


def _each(pool: ProcessPoolExecutor, do: Callable[[S], T], given: Iterable[S]) -> Iterator[T]:
    """As `map`; the processes begin at once, before the first is asked for."""
    every = list(given)
    try:
        return _or_here(pool.map(do, every, chunksize=_TOGETHER), do, every)
    except (BrokenProcessPool, OSError):
        return map(do, every)


def _or_here(found: Iterator[T], do: Callable[[S], T], every: Sequence[S]) -> Iterator[T]:
    done = 0
    try:
        for each in found:
            yield each
            done += 1
    except (BrokenProcessPool, OSError):
        yield from map(do, every[done:])


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin() -> None:
    """In a new process: it ends with its parent, and an interrupt is the parent's to tell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()


def _import() -> None:
    """What the work of a table needs, before there is work."""
    from cleaning.reconcile.run import build  # noqa: F401


def recording(path: Path, file: str) -> tuple[DataFrame, DataFrame]:
    """Calls and kernels of the last step of a recording in the run `path`. Raises ValueError if it is damaged
    or cut."""
    from measure.trace.attribution.phases import last_step
    from runners.cli.model_options import read_recording

    recording = read_recording(path / file, last_step)
    if recording.missing:
        raise ValueError(f"{file}: calls are missing from it: {recording.missing[0].reason}")
    return recording.calls, recording.kernels
