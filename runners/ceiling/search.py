"""The search of `runners.ceiling`: what is tried in which order, each row asked of a worker, within a budget.

What a profile needs comes first in every precision and thread count, with launches and copies in memory, then the
wider sweep, then copies within caches, so that a small budget loses the least. A row that the worker could not give
says why; those measured are never lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from analysis.devices.precisions import PRECISIONS
from measure.ceiling.trials import CACHE, ESSENTIAL, SPENT, Trial, titled
from results.records.samples import Ceiling
from runners.workers.pool import Stopwatch
from runners.workers.worker import WorkerFault

TASKS = "runners.ceiling.tasks"
PLAN_TIMEOUT_S = 300.0


class Caller(Protocol):
    """A `launch.Worker`."""

    def call(self, task: str, *arguments: Any, timeout_s: float) -> Any: ...


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

    worker: Caller
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
