"""The search of `runners.ceiling`: what is tried in which order, and the worker's tasks that give a row each.

What a profile needs comes first in every precision and thread count, with launches and copies in memory, then the
wider sweep, then copies within caches, so that a small budget loses the least. A row that the worker could not give
says why; those measured are never lost.

The functions from `plan` on are tasks that `pool.Worker` calls by name: picklable in, picklable out. torch is
imported inside them, because the parent imports this module, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from measure.ceiling.trials import CACHE, ESSENTIAL, FP8, SPENT, Move, Trial, moves, sweep, titled
from measure.timing.clocks import clock_for
from results.records.cell import Ceiling
from runners.cli.progress import passing
from runners.workers.pool import Stopwatch, WorkerFault

if TYPE_CHECKING:
    from analysis.devices.ceilings import CollectiveRate
    from measure.parallel.real_group import GroupMember

PLAN_TIMEOUT_S, PROBE_S = 300.0, 60.0

ANY = "fp32"
"""The flags under which copies and launches are timed; no copy depends on them."""

Subject = Trial | Move | str
"""A product or convolution, a copy or triad, or from where launches are seen."""


def search(
    worker: Any, blank: Ceiling, precisions: Sequence[str], threads: Sequence[int | None], budget_s: float
) -> Iterator[Ceiling]:
    """Rows in the order tried. blank: what all have in common. budget_s: from when plans are made."""
    first: list[tuple[Ceiling, Subject]] = []
    then, last, within = list(first), list(first), list(first)
    for count in threads:
        for name in precisions:
            base, policy = replace(blank, precision=name, threads=count), PRECISIONS[name]
            passing(f"planning {name}")
            plan = worker.call(f"{__name__}:plan", base, timeout_s=PLAN_TIMEOUT_S)
            if isinstance(plan, WorkerFault):
                for operation in ("matmul", "convolution"):
                    yield _failed(replace(titled(base, Trial(operation, (0, 0, 0)), policy), shape=""), plan)
                continue
            jobs = [(titled(base, trial, policy), trial) for trial in plan]
            first += jobs[:ESSENTIAL]
            last += jobs[ESSENTIAL:]
        base = replace(blank, threads=count)
        others = worker.call(f"{__name__}:copies_and_views", blank.device, timeout_s=PLAN_TIMEOUT_S)
        if isinstance(others, WorkerFault):
            yield from (_failed(replace(base, operation=operation), others) for operation in ("copy", "call"))
            continue
        copies, views = others
        then += [(replace(base, operation=view), view) for view in views]
        for move in copies:
            row = replace(base, operation=move.operation, shape=move.shape, family=move.family)
            (within if move.family == CACHE else then).append((row, move))
    jobs, watch = [*first, *then, *last, *within], Stopwatch()
    for i, (row, subject) in enumerate(jobs):
        share_s = (budget_s - watch.elapsed_s) / (len(jobs) - i)
        of_threads = f", {row.threads} threads" if row.threads else ""
        passing(
            f"{i + 1} of {len(jobs)}: {' '.join(f'{row.precision} {row.operation} {row.shape}'.split())}{of_threads}"
        )
        if share_s <= 0:
            yield _failed(row, WorkerFault("unavailable", SPENT))
            continue
        answer = worker.call(f"{__name__}:timed", row, subject, share_s, timeout_s=10 * share_s + PLAN_TIMEOUT_S)
        yield _failed(row, answer) if isinstance(answer, WorkerFault) else answer


def _failed(blank: Ceiling, fault: WorkerFault) -> Ceiling:
    return replace(blank, status=fault.status, reason=fault.reason)


def plan(blank: Ceiling) -> list[Trial]:
    """Products and convolutions to try in the blank's precision, the likeliest to be best first.

    A device with fp8 units gets a product in them beside those of bf16. Both libraries have started when it returns.
    Raises Unavailable for a precision that the device lacks, ValueError where its flags do not take.
    """
    import torch

    from measure.ceiling.ceilings import bench_of

    with bench_of(blank.device, PRECISIONS[blank.precision], blank.threads, PROBE_S) as bench:
        trials = sweep(bench.device.type, bench.probe())
        is_cuda = bench.device.type == "cuda"
        if blank.precision == "amp-bf16" and is_cuda and torch.cuda.get_device_capability(bench.device) >= (8, 9):
            trials.insert(ESSENTIAL, replace(trials[0], unit=FP8))
        return trials


def copies_and_views(device: str) -> tuple[list[Move], tuple[str, ...]]:
    """Copies and triads to try on this device, and from where launches are timed."""
    from measure.ceiling import machine
    from measure.device import environment

    memory_bytes = environment.device_facts(device)["memory_bytes"] or 0
    copies = moves(device.partition(":")[0], machine.last_cache_bytes(device), memory_bytes)
    return copies, machine.launch_views(device)


def timed(blank: Ceiling, subject: Subject, share_s: float) -> Ceiling:
    """The row of one product, convolution, copy, triad or launch."""
    from measure.ceiling import machine
    from measure.ceiling.ceilings import bench_of

    with bench_of(blank.device, PRECISIONS[blank.precision or ANY], blank.threads, share_s) as bench:
        if isinstance(subject, Trial):
            return bench.explained(bench.row(blank, subject, 1), subject)
        if isinstance(subject, Move):
            return machine.move_row(bench, blank, subject, 1)
        return machine.launch_row(bench, blank, subject, 1)


def collectives(member: GroupMember, sizes: Sequence[int]) -> list[CollectiveRate]:
    """Collectives between this rank and the others (measure.parallel)."""
    import torch

    from measure.parallel.real_group import collective_rates

    if member.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(member.device))
    return collective_rates(member, sizes)


def quick(device: str, precisions: tuple[str, ...], budget_s: float) -> list[Ceiling]:
    """What a profile needs, in one call (measure.ceiling.machine)."""
    from measure.ceiling.machine import measure_machine

    return measure_machine(device, precisions, clock_for(device), budget_s)
