"""What a sweep kept beside its rows, read for a report: recordings, and operation tables in other processes."""

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

if TYPE_CHECKING:
    from pandas import DataFrame

    from cleaning.reconcile.run import Each

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
    from measure.trace.attribution.last_step import last_step
    from runners.cli.model_options import MALFORMED, read_recording

    try:
        recording = read_recording(path / file, last_step)
    except MALFORMED as fault:
        raise ValueError(f"{file}: {type(fault).__name__}: {' '.join(str(fault).split())}") from fault
    if recording.missing:
        raise ValueError(f"{file}: calls are missing from it: {recording.missing[0].reason}")
    return recording.calls, recording.kernels
