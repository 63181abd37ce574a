"""Runs the reproductions of a counter's faults against the version that is installed, and says which are still there.

Counters patch torch, leave that behind, print, hang and crash; so each counter has a process of its own and each
reproduction a fork of it, which ends with its answer. What was counted is compared with the catalogue to the last unit;
nothing here judges by how much it differs.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from measure.counters.faults.catalogue.catalogue import COUNTERS, faults_of, installed
from measure.counters.faults.catalogue.fault import Fault
from measure.device import PRELOAD, accept_interrupts, context, redirect

STATUSES = {
    "there": "the installed version gives what the catalogue says",
    "mended": "it gives the right value",
    "other": "it gives neither",
    "not here": "the catalogue says that this version does not have it, and it does not",
    "timeout": "it gave nothing in its time",
    "unavailable": "the counter is not installed",
}

EACH_S = 30.0
"""Time limit of one reproduction; most take milliseconds."""

IMPORT_S = 120.0
"""Time limit of a counter's import, which on a cold disk takes many seconds."""

GRACE_S = 2.0
"""How long a child that has answered everything may take to end by itself."""

MESSAGE = 200
"""Characters of an exception that are kept."""


@dataclass(frozen=True)
class Outcome:
    """One reproduction on the installed version. found: what it gave; detail: an exception's message."""

    counter: str
    name: str
    version: str
    status: str
    found: Any = None
    detail: str = ""
    duration_s: float = 0.0


def run(counter: str, each_s: float = EACH_S, module: str = "") -> list[Outcome]:
    """The outcomes of a counter's faults, in the order of its file. each_s: limit of one. module: where its table is,
    if not in this package."""
    faults = faults_of(counter, module)
    version = installed(counter)
    if not version:
        return [Outcome(counter, fault.name, "", "unavailable") for fault in faults]
    forking = context(PRELOAD)
    ours, theirs = forking.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile(prefix="faults-") as noise:
        arguments = (theirs, counter, module, each_s, noise.name)
        process = forking.Process(target=_serve, args=arguments, name=f"faults of {counter}")
        process.start()
        theirs.close()
        try:
            outcomes = [_outcome(counter, version, fault, answer) for fault, answer in _answers(ours, faults, each_s)]
            process.join(GRACE_S)  # what it shares with others (tqdm has a lock) would else be reported as leaked
            return outcomes
        finally:
            ours.close()
            process.kill()
            with contextlib.suppress(ProcessLookupError):  # nothing is left of its session
                os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()


def _answers(ours: Connection, faults: Sequence[Fault], each_s: float) -> list[tuple[Fault, dict[str, Any]]]:
    """What each reproduction gave; {} where nothing came."""
    answers: list[tuple[Fault, dict[str, Any]]] = []
    limit_s = IMPORT_S + each_s
    for fault in faults:
        answer: dict[str, Any] = {}
        with contextlib.suppress(EOFError, OSError):  # the process ended: what it did not answer has no answer
            answer = json.loads(ours.recv()) if ours.poll(limit_s) else {}
        answers.append((fault, answer))
        limit_s = each_s + 5 * GRACE_S
    return answers


def _outcome(counter: str, version: str, fault: Fault, answer: dict[str, Any]) -> Outcome:
    if not answer:
        return Outcome(counter, fault.name, version, "timeout")
    status = verdict(fault, answer["found"], version)
    return Outcome(counter, fault.name, version, status, answer["found"], answer["detail"], answer["duration_s"])


def verdict(fault: Fault, found: Any, version: str) -> str:
    """Which of STATUSES it is that a version of the counter's package gives `found`."""
    if not fault.concerns(version):
        return "not here" if found != plain(fault.seen) else "other"
    if found == plain(fault.seen):
        return "there"
    return "mended" if found == plain(fault.right) else "other"


def plain(value: Any) -> Any:
    """A value as it is after a passage through JSON: tuples are lists, keys text."""
    return json.loads(json.dumps(value))


# --- in the counter's own process ------------------------------------------------------------------------------------


def _serve(connection: Connection, counter: str, module: str, each_s: float, noise: str) -> None:
    """Imports the counter, and answers for one reproduction after the other, each in a fork."""
    import torch

    os.setsid()  # so that whatever is started here can be killed with it
    accept_interrupts()
    redirect(noise)
    warnings.simplefilter("ignore")  # forks of a process with threads, peers' own
    torch.set_num_threads(1)
    for needed in (*PRELOAD, COUNTERS[counter].imports):  # once, not in every fork
        importlib.import_module(needed)
    for fault in faults_of(counter, module):
        connection.send(json.dumps(_forked(fault, each_s)))
    connection.close()


def _forked(fault: Fault, each_s: float) -> dict[str, Any]:
    """What a reproduction gave in a fork; {} if it gave nothing in time, or died."""
    forking = multiprocessing.get_context("fork")  # nothing was computed here yet: torch has no threads to lose
    ours, theirs = forking.Pipe(duplex=False)
    process = forking.Process(target=_reproduce, args=(theirs, fault), name=fault.name)
    process.start()
    theirs.close()
    answer: dict[str, Any] = {}
    with contextlib.suppress(EOFError):  # it died
        answer = json.loads(ours.recv()) if ours.poll(each_s) else {}
    if answer:  # what it shares with others (tqdm has a lock) would else be reported as leaked
        process.join(GRACE_S)
    process.kill()
    process.join()
    ours.close()
    return answer


def _reproduce(connection: Connection, fault: Fault) -> None:
    connection.send(json.dumps(_answer(fault)))
    connection.close()


def _answer(fault: Fault) -> dict[str, Any]:
    start_s = time.perf_counter()
    detail = ""
    try:
        found = plain(fault.reproduce())
    except Exception as raised:  # noqa: BLE001  the edge: what a counter raises is what is looked for
        found = f"raises {type(raised).__name__}"
        detail = " ".join(str(raised).split())[:MESSAGE]
    return {"found": found, "detail": detail, "duration_s": time.perf_counter() - start_s}
