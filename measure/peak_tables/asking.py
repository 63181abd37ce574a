"""Asks a package's table about many devices, in a process of its own: limited in time and memory, without network.

The process starts anew, knows nothing of the caller, may start no program, open no connection and write no file. Not
claimed: that this would hold against code that wants out; it keeps a table's accidents from the caller.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from measure.peak_tables.definitions import SourceText, check, source_text
from measure.peak_tables.questions import AskedDevice, answer
from measure.peak_tables.sources import ABSENT, TABLES
from results import Unavailable

LIMIT_S = 60.0
CPU_S, MEMORY_BYTES = 60, 4 << 30

REFUSED_EVENTS = (
    "socket.connect",
    "socket.bind",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
)


@dataclass(frozen=True)
class TableAnswer:
    """What a package says of a device in a format. said: FLOP/s; None: no figure. reason: why there is no answer."""

    package: str
    version: str | None
    device_name: str | None
    dtype: str | None
    said_flop_per_s: float | None
    reason: str = ""


def ask(package: str, devices: Sequence[AskedDevice], folder: Path) -> list[TableAnswer]:
    """A package's answers for each device and each format that it tells apart; where it has none, a row that says why.

    folder: with wheels and checkouts. Raises ValueError for a package that is in neither table.
    """
    if package in ABSENT:
        return [TableAnswer(package, None, None, None, None, ABSENT[package])]
    if package not in TABLES:
        raise ValueError(f"expected one of {', '.join((*TABLES, *ABSENT))}, got {package!r}")
    try:
        source = source_text(TABLES[package], folder)
        if names := TABLES[package].names:
            check(source.text, names)
        return _in_process(package, source, devices)
    except Unavailable as fault:
        return [TableAnswer(package, None, None, None, None, str(fault))]


def _in_process(package: str, source: SourceText, devices: Sequence[AskedDevice]) -> list[TableAnswer]:
    starting = multiprocessing.get_context("spawn")
    ours, theirs = starting.Pipe(duplex=False)
    process = starting.Process(target=_child, args=(theirs, package, source, tuple(devices)), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(LIMIT_S):
            raise Unavailable(f"no answer in {LIMIT_S:g} s")
        rows: list[TableAnswer] = ours.recv()
        return rows
    except EOFError as fault:
        process.join(LIMIT_S)
        raise Unavailable(f"the process that asked it ended with {process.exitcode}") from fault
    finally:
        ours.close()
        process.kill()
        process.join()


def _child(pipe: Connection, package: str, source: SourceText, devices: Sequence[AskedDevice]) -> None:
    _confine()
    pipe.send(list(_answers(package, source, devices)))
    pipe.close()


def _confine() -> None:
    os.environ.clear()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if event in REFUSED_EVENTS or writes:
        raise PermissionError(f"{event} is not allowed to a table of peaks")


def _answers(package: str, source: SourceText, devices: Sequence[AskedDevice]) -> Iterator[TableAnswer]:
    for device in devices:
        for dtype in TABLES[package].dtypes:
            said, reason = None, ""
            try:
                said = answer(package, source.text, device, dtype)
            except Unavailable as fault:
                reason = str(fault)
            except Exception as fault:  # noqa: BLE001 - whatever a package's own function raises is its answer
                reason = f"{type(fault).__name__}: {fault}".splitlines()[0]
            yield TableAnswer(package, source.version, device.name, dtype, said, reason)
