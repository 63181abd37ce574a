"""A graph or a configuration is read once in a process that can do little else, before the command itself reads it.

That process has no network, may write no file and start no program, where the system offers that, and limited memory
and time (`graph_seconds`, `graph_bytes`); it dies with its parent. What it read is thrown away: a file that uses up all
memory or time costs this process alone, and the command ends with a line. What is wrong with a file in other ways is
left to the reader that follows, with its own words. Not claimed: that the second reading is confined everywhere; it is
in the processes that count (`measure/counters/harness/child.py`), not in those that time or that derive formulas.
"""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from measure.device import PRELOAD, context, end_with, redirect
from results import LIMITS, VARIABLE, Rights, confine, free_bytes, limit
from runners.cli.exits import Mistake
from runners.cli.terminal import say

REAP_S = 5.0


def check_files(models: Sequence[str]) -> None:
    """Reads each file in a process of its own, and builds its modules. Raises Mistake for one that needs more than the
    limits, or whose reader dies; says on stderr what this system does not offer."""
    missing: set[str] = set()
    for model in dict.fromkeys(models):
        missing |= set(_read_apart(model))
    for line in sorted(missing):
        say(f"note: this system does not let a process give up its rights: {line}")


def _read_apart(model: str) -> list[str]:
    """What the system does not offer. Raises Mistake."""
    forking = context(PRELOAD)
    ours, theirs = forking.Pipe(duplex=False)
    their_lifeline, lifeline = forking.Pipe(duplex=False)
    with ours, lifeline, tempfile.NamedTemporaryFile(prefix="graph-") as noise:
        with theirs, their_lifeline:
            most = limit("graph_bytes"), limit("graph_seconds")
            told_to = (theirs, their_lifeline, model, noise.name, *most)
            process: Any = forking.Process(target=read, args=told_to, daemon=True)
            process.start()
        try:
            if not wait([ours, process.sentinel], limit("graph_seconds")):
                raise Mistake(f"{model} took too long to read: {_raised('graph_seconds')}")
            answer = _answer(ours)
            if answer is None:
                process.join(REAP_S)
                raise Mistake(_died(model, process.exitcode))
        finally:
            process.kill()
            process.join(REAP_S)
    if answer["memory"]:
        raise Mistake(f"{model} takes too much memory to read: {_raised('graph_bytes')}")
    return list(map(str, answer["missing"]))


def _answer(ours: Connection) -> dict[str, Any] | None:
    """What the process says, as JSON: a pickle of one that read a hostile file might run code here."""
    try:
        return dict(json.loads(ours.recv_bytes(1 << 20))) if ours.poll(0) else None
    except (EOFError, OSError, ValueError):
        return None


def _died(model: str, code: int | None) -> str:
    if code == -signal.SIGXCPU:
        return f"{model} took too long to read: {_raised('graph_seconds')}"
    how = f"died of {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with status {code}"
    return f"{model} cannot be read: its reader {how}, as it does without memory; {_raised('graph_bytes')}"


def _raised(name: str) -> str:
    return f"the limit is {limit(name)} ({LIMITS[name].of}); {VARIABLE}={name}=N raises it"


def read(
    connection: Connection, lifeline: Connection, model: str, noise_path: str, most_bytes: int, most_s: int
) -> None:
    """The child: reads the file, builds its modules and throws them away, and says whether memory was enough."""
    redirect(noise_path)
    free = free_bytes()
    rights = Rights(
        memory_bytes=most_bytes if free is None else min(most_bytes, free),
        cpu_s=most_s,
        file_bytes=1 << 20,  # of noise
        writable=(Path("/dev/null"),),
        programs=False,
        network=False,
    )
    missing = confine(rights)  # first of all, while the process has one thread
    end_with(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection.send_bytes(json.dumps({"missing": missing, "memory": _lacks_memory(model)}).encode())


def _lacks_memory(model: str) -> bool:
    import torch

    from workloads.sources import get

    torch.set_num_threads(1)
    try:
        workload = get(model)
        with torch.device("meta" if model.startswith("hf:") else "cpu"):  # of a configuration the weights are ours
            workload.build(**workload.hyper)
    except MemoryError:
        return True
    except Exception as fault:  # noqa: BLE001  whatever else is wrong is said by the reader that follows
        return "can't allocate memory" in str(fault)
    return False
