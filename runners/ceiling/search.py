"""The search of `runners.ceiling`: what is tried in which order, and the worker's tasks that give a row each.

What a profile needs comes first in every precision and thread count, with launches and copies in memory, then the
wider sweep, then copies within caches, so that a small budget loses the least. A row that the worker could not give
says why; those measured are never lost.

The functions from `plan` on are tasks that `pool.Worker` calls by name: picklable in, picklable out. torch is
imported inside them, because the parent imports this module, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from measure.ceiling.trials import CACHE, ESSENTIAL, FP8, SPENT, Move, Trial, moves, sweep, titled
from measure.timing.clocks import clock_for
from results.records.cell import Ceiling
from runners.workers.pool import Stopwatch, Worker, WorkerFault

if TYPE_CHECKING:
    from analysis.devices.ceilings import CollectiveRate
    from measure.ceiling.ceilings import Bench
    from measure.parallel.real_group import GroupMember


TASKS = __name__
PLAN_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Job:
    """One row to ask for. blank: the row that stands for it where none comes."""

    task: str
    blank: Ceiling
    subject: Any

    @property
    def title(self) -> str:
        row = self.blank
        threads = f", {row.threads} threads" if row.threads else ""
        return " ".join(f"{row.precision} {row.operation} {row.shape}".split()) + threads


@dataclass
class Search:
    """Rows so far, in the order tried. say: hears what is tried. failures: reasons of precisions without a plan."""

    worker: Worker
    device: str
    device_name: str
    say: Callable[[str], None]
    rows: list[Ceiling] = field(default_factory=list)

    def run(self, precisions: Sequence[str], threads: Sequence[int | None], budget_s: float) -> None:
        """Everything, in `rows`. budget_s: from when plans are made. Raises KeyboardInterrupt, with rows kept."""
        first, last = [], []
        for count in threads:
            for precision in precisions:
                jobs = self._products(precision, count)
                first += jobs[:ESSENTIAL]
                last += jobs[ESSENTIAL:]
        others = [job for count in threads for job in self._others(count)]
        within = [job for job in others if job.blank.family == CACHE]
        jobs = [*first, *(job for job in others if job not in within), *last, *within]
        watch = Stopwatch()
        for i, job in enumerate(jobs):
            left_s = budget_s - watch.elapsed_s
            self.say(f"{i + 1} of {len(jobs)}: {job.title}")
            self.rows.append(self._row(job, left_s / (len(jobs) - i)))

    def _blank(self, precision: str, threads: int | None) -> Ceiling:
        return Ceiling(
            sitting="",
            device=self.device,
            precision=precision,
            unit="",
            operation="",
            shape="",
            threads=threads,
            device_name=self.device_name,
        )

    def _products(self, precision: str, threads: int | None) -> list[Job]:
        """The plan of a precision; without one, rows that say why."""
        blank, policy = self._blank(precision, threads), PRECISIONS[precision]
        self.say(f"planning {precision}")
        plan = self.worker.call(f"{TASKS}:plan", blank, timeout_s=PLAN_TIMEOUT_S)
        if not isinstance(plan, WorkerFault):
            return [Job("kernel", titled(blank, trial, policy), trial) for trial in plan]
        for operation in ("matmul", "convolution"):
            nothing = replace(titled(blank, Trial(operation, (0, 0, 0)), policy), shape="")
            self.rows.append(_failed(nothing, plan))
        return []

    def _others(self, threads: int | None) -> list[Job]:
        """Copies and launches."""
        blank = self._blank("", threads)
        moves = self.worker.call(f"{TASKS}:copies", self.device, timeout_s=PLAN_TIMEOUT_S)
        views = self.worker.call(f"{TASKS}:views", self.device, timeout_s=PLAN_TIMEOUT_S)
        if isinstance(moves, WorkerFault):
            self.rows.append(_failed(replace(blank, operation="copy"), moves))
            moves = []
        if isinstance(views, WorkerFault):
            self.rows.append(_failed(replace(blank, operation="call"), views))
            views = []
        copies = [
            Job("copy", replace(blank, operation=move.operation, shape=move.shape, family=move.family), move)
            for move in moves
        ]
        return [*(Job("launch", replace(blank, operation=view), view) for view in views), *copies]

    def _row(self, job: Job, share_s: float) -> Ceiling:
        if share_s <= 0:
            return _failed(job.blank, WorkerFault("unavailable", SPENT))
        answer = self.worker.call(
            f"{TASKS}:{job.task}", job.blank, job.subject, share_s, timeout_s=10 * share_s + PLAN_TIMEOUT_S
        )
        return _failed(job.blank, answer) if isinstance(answer, WorkerFault) else answer


def _failed(blank: Ceiling, fault: WorkerFault) -> Ceiling:
    return replace(blank, status=fault.status, reason=fault.reason)


ANY = "fp32"
"""The flags under which copies and launches are timed; no copy depends on them."""

PROBE_S = 60.0


def plan(blank: Ceiling) -> list[Trial]:
    """Products and convolutions to try in the blank's precision, the likeliest to be best first.

    A device with fp8 units gets a product in them beside those of bf16. Both libraries have started when it returns.
    Raises Unavailable for a precision that the device lacks, ValueError where its flags do not take.
    """
    import torch

    with _bench(blank, PROBE_S) as bench:
        trials = sweep(bench.device.type, bench.probe())
        is_cuda = bench.device.type == "cuda"
        if blank.precision == "amp-bf16" and is_cuda and torch.cuda.get_device_capability(bench.device) >= (8, 9):
            trials.insert(ESSENTIAL, replace(trials[0], unit=FP8))
        return trials


def copies(device: str) -> list[Move]:
    """Copies and triads to try on this device."""
    from measure.ceiling import machine
    from measure.device import environment

    memory_bytes = environment.device_facts(device)["memory_bytes"] or 0
    return moves(device.partition(":")[0], machine.last_cache_bytes(device), memory_bytes)


def views(device: str) -> tuple[str, ...]:
    """From where launches are timed on this device."""
    from measure.ceiling import machine

    return machine.launch_views(device)


def kernel(blank: Ceiling, trial: Trial, share_s: float) -> Ceiling:
    """The row of one product or convolution."""
    with _bench(blank, share_s) as bench:
        return bench.explained(bench.row(blank, trial, 1), trial)


def copy(blank: Ceiling, move: Move, share_s: float) -> Ceiling:
    """The row of one copy or triad."""
    from measure.ceiling import machine

    with _bench(blank, share_s) as bench:
        return machine.move_row(bench, blank, move, 1)


def launch(blank: Ceiling, view: str, share_s: float) -> Ceiling:
    """The row of launches, seen from the device or from the host."""
    from measure.ceiling import machine

    with _bench(blank, share_s) as bench:
        return machine.launch_row(bench, blank, view, 1)


@contextlib.contextmanager
def _bench(blank: Ceiling, share_s: float) -> Iterator[Bench]:
    """A bench for the blank's device, precision and threads, until its share of time is over."""
    import torch

    from measure.ceiling.ceilings import DTYPES, Bench
    from measure.device import apply_precision

    policy, device = PRECISIONS[blank.precision or ANY], blank.device
    apply_precision.supported(policy, device)
    if blank.threads is not None:
        torch.set_num_threads(blank.threads)
    with apply_precision.session(policy, device) as found, torch.no_grad():
        if disagreements := apply_precision.check(found, policy, device):
            raise ValueError("; ".join(disagreements))
        clock = clock_for(device)
        bench = Bench(device, DTYPES[policy.autocast], clock, 0.0)
        bench.deadline_s = clock.wall_s() + share_s  # after the device has started
        yield bench
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()


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
