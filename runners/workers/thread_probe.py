"""How many threads make a CPU's steps fastest here, and how do they wait? Asked for a few seconds as a run begins.

Threads of one operation wait for each other. Where others take the processors, above all the host of a virtual machine,
two that wait may be slower than one, and slower than two that leave their processors while they wait. So a step of the
first model is timed with each number in turn. All processes of the session then have what was chosen in their
environment: OpenMP reads it when torch is loaded.

Not claimed: that another model or a larger batch would have another number; that the machine stays as it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median, stdev
from typing import TYPE_CHECKING, Any

from measure.device import processes
from results.records.cell import Cell
from runners.cli.output import passing, say
from runners.workers.pool import Worker, WorkerFault, prepare

if TYPE_CHECKING:
    from runners.workers.devices import ProbeResult

COUNT, WAIT = "OMP_NUM_THREADS", "OMP_WAIT_POLICY"
PASSIVE = "passive"
"""The wait policy of threads that leave their processors at once."""

PROBE_S = 4.0
"""How long rounds go on beyond the least number of them."""

STEP_S = 0.2
"""A step of the probe's batch has about that, where the cell's batch has so many samples; two at least."""

LONGEST_S, FIRST_S = 6.0, 60.0
"""What a step may take, and the first one of a process, which loads torch."""

SLOWER, ROUNDS = 2.0, 3
"""A choice whose first step took so many times that of the fastest is timed no more; the others so often at least."""

SET, WAITS = frozenset({COUNT, "MKL_NUM_THREADS"}), frozenset({WAIT, "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
"""Variables with which the user has decided about the number, and about the waiting."""

Choice = tuple[int, str]
"""Threads, wait policy."""


def adopt(threads: int | None, wait_policy: str) -> None:
    """Has all processes that are started from now on run so. None, "": as the environment says."""
    variables = {name: value for name, value in ((COUNT, str(threads or "")), (WAIT, wait_policy)) if value}
    if variables.items() - os.environ.items():
        os.environ.update(variables)
        processes.stop_server()
        prepare()


def fastest(step_s: Callable[[Choice], float], most: int, passive: bool = True) -> tuple[Choice, str]:
    """The choice of threads for a session, and why, in words. most: threads that torch takes by itself.

    step_s: the time of a step, LONGEST_S where it did not end. passive: whether threads may be made to wait so. The
    fewest threads within the scatter of the fastest choice (the standard deviation of its steps) are taken.
    """
    counts, until_s = [most >> halved for halved in range(most.bit_length())], time.monotonic() + PROBE_S
    first: dict[Choice, float] = {}
    for count in counts[:-1] if passive else []:
        first[count, PASSIVE] = step_s((count, PASSIVE))
        if first[count, PASSIVE] >= min(LONGEST_S, SLOWER * min(first.values())):
            counts = counts[: counts.index(count)]
            break
    for count in reversed(counts):
        first[count, ""] = step_s((count, ""))
    if min(first.values()) >= LONGEST_S:
        return (most, ""), f"torch's own {most}, as no step could be timed within {LONGEST_S:g} s"
    close = [choice for choice, time_s in first.items() if time_s < SLOWER * min(first.values())]
    times: dict[Choice, list[float]] = {choice: [] for choice in close}
    while len(times[close[0]]) < ROUNDS or time.monotonic() < until_s:
        for choice in close:
            times[choice].append(step_s(choice))
    typical = first | {choice: median(steps_s) for choice, steps_s in times.items()}
    best = min(close, key=lambda choice: typical[choice])
    scatter_s = stdev(times[best])
    chosen = min(choice for choice in close if typical[choice] <= typical[best] + scatter_s)
    why = "" if chosen == best else f", within the scatter of the fastest (±{scatter_s / typical[best]:.0%})"
    others = [choice for choice in sorted(typical, key=lambda choice: typical[choice]) if choice != chosen]
    texts = [f"{_named(choice)} {typical[choice] * 1e3:.4g} ms" for choice in (chosen, *others)]
    return chosen, "; ".join([f"{texts[0]} a step{why}", *texts[1:]])


def _named(choice: Choice) -> str:
    return f"{choice[0]} thread{'s' * (choice[0] > 1)}{' that wait passively' if choice[1] else ''}"


def settings(cell: Cell, probed: ProbeResult) -> dict[str, Any]:
    """The threads of a new run's cells, by their parameters: those that the environment asks for, else those of the
    fastest step of the first cell, which all processes then have. Empty where torch's own are left."""
    most = probed.properties.get("threads") or 1
    if probed.device != "cpu" or not SET.isdisjoint(os.environ) or most < 2:
        return {"threads": most} if probed.device == "cpu" and COUNT in os.environ else {}
    passing("looking for the number of threads")
    (threads, policy), why = probe(cell, most)
    passing("")
    say(why)
    if (threads, policy) == (most, ""):
        return {}
    adopt(threads, policy)
    return {"threads": threads, "wait_policy": policy}


def probe(cell: Cell, most: int) -> tuple[Choice, str]:
    """The choice for a session whose first cell this is, and a line that says it."""
    passive = WAITS.isdisjoint(os.environ)
    workers = {"": Worker("probe"), PASSIVE: Worker("probe", environ={WAIT: PASSIVE})}
    small = replace(cell, batch_size=min(2, cell.batch_size))

    def step_s(choice: Choice) -> float:
        limit_s = LONGEST_S if workers[choice[1]].alive else FIRST_S
        answer = workers[choice[1]].call("runners.sweep.cell:probe_step", small, choice[0], timeout_s=limit_s)
        return LONGEST_S if isinstance(answer, WorkerFault) else float(answer)

    try:
        first_s = step_s((most, PASSIVE if passive else ""))
        small = replace(cell, batch_size=min(cell.batch_size, max(small.batch_size, int(2 * STEP_S / first_s))))
        chosen, why = fastest(step_s, most, passive)
    finally:
        for worker in workers.values():
            worker.stop()
    return chosen, f"threads: {why} ({cell.model}, batch {small.batch_size}; {COUNT}=N sets them)"
