"""Slots in jobs of Slurm, which submitit submits: a device each, and cells one after the other while there are any.

A job is a slot from its start to its end, so that its device's ceiling is measured once. Slurm's own limits hold: a
job that it ends is a lost slot, and its cell goes to another. No job is submitted again.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runners.sweep.executors.mailbox import BEAT, BEAT_S, END, FACTS, FAULT, POLL_S, SILENCE_S, Mailbox, serve
from runners.sweep.executors.remote import Answer, Event, Loss, Ready
from runners.sweep.executors.result import Order, SlotSettings

FOLDER = Path("results/jobs")
"""Below the working directory, which the jobs must see, too."""

SLOT = "runners.sweep.executors.slot:Slot"
CLUSTER = "cluster"
"""Among the parameters: submitit's executor (slurm, or local, which is processes of this machine)."""

TIMEOUT_MIN = 240
STATE_S = 10.0
"""How often a job is asked whether it still runs."""


def parameters_of(text: str) -> dict[str, str]:
    """ "partition=gpu,time=60" as a mapping. Raises ValueError."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    for name, equals, value in pairs:
        if not name.isidentifier() or not equals or not value:
            raise ValueError(f"--slurm: expected NAME=VALUE,NAME=VALUE as in partition=gpu,time=60, got {text!r}")
    return {name: value for name, _, value in pairs}


class SlurmSlots:
    """So many jobs, a slot each. settings.device: auto and cuda ask for a GPU for each job, cpu for a node of its own.

    folder: for orders and results; None: one below `FOLDER`. Raises ValueError where there is no Slurm, or it refuses.
    """

    def __init__(
        self,
        settings: SlotSettings,
        jobs: int | None,
        parameters: Mapping[str, str],
        folder: Path | None = None,
        slot: str = SLOT,
    ) -> None:
        self._jobs: dict[str, Any] = {}
        self._boxes: dict[str, Mailbox] = {}
        self._numbers: dict[str, int] = {}  # of the order that a slot has now, or gets next
        self._busy: set[str] = set()
        self._unplaced: set[str] = set()
        self._beat, self._beaten_s, self._asked_s = 0, 0.0, time.monotonic()
        self._folder = (folder or FOLDER / time.strftime("%Y%m%d-%H%M%S")).resolve()
        settings = replace(settings, device="cuda") if settings.device == "auto" else settings
        self._local = parameters.get(CLUSTER) == "local"
        executor = _executor(self._folder, settings, dict(parameters))
        for number in range(jobs or 1):
            name = f"job-{number}"
            box = self._folder / name
            box.mkdir(parents=True, mode=0o700)  # what is read from there is unpickled
            self._boxes[name], self._numbers[name] = Mailbox(box), 0
            self._jobs[name] = _submitted(executor, str(box), settings, slot)
            self._unplaced.add(name)

    @property
    def expected(self) -> int:
        """Jobs that run, or wait in the queue."""
        return len(self._jobs)

    def next(self, timeout_s: float) -> Event | None:
        """What happened first; None if nothing did in time."""
        end_s = time.monotonic() + timeout_s
        while True:
            self._tick()
            if (event := self._event()) is not None:
                return event
            if time.monotonic() >= end_s:
                return None
            time.sleep(min(POLL_S, timeout_s))

    def measure(self, slot: str, order: Order) -> None:
        """Leaves a cell for a slot."""
        self._boxes[slot].put(f"order-{self._numbers[slot]}", order)
        self._busy.add(slot)

    def dismiss(self, slot: str) -> None:
        """Has a job end after its cell, if it has any."""
        self._jobs.pop(slot, None)
        self._unplaced.discard(slot)
        self._busy.discard(slot)
        with contextlib.suppress(OSError):
            self._boxes[slot].put(END, True)

    def close(self) -> None:
        """Ends all jobs; those that measure are cancelled."""
        for slot, job in list(self._jobs.items()):
            stopping = slot in self._busy or slot in self._unplaced
            self.dismiss(slot)
            if stopping:
                with contextlib.suppress(Exception):  # submitit calls scancel, which may be gone
                    job.cancel(check=False)

    def _tick(self) -> None:
        """Tells the jobs that we are alive."""
        if time.monotonic() - self._beaten_s > BEAT_S:
            self._beat, self._beaten_s = self._beat + 1, time.monotonic()
            for slot in self._jobs:
                self._boxes[slot].put(BEAT, self._beat)

    def _event(self) -> Event | None:
        for slot, box in self._boxes.items():
            if slot in self._unplaced and (place := box.take(FACTS)) is not None:
                self._unplaced.discard(slot)
                return Ready(slot, place)
            if slot in self._busy and (result := box.take(f"result-{self._numbers[slot]}")) is not None:
                self._busy.discard(slot)
                self._numbers[slot] += 1
                return Answer(slot, result)
            if slot in self._jobs and (fault := box.take(FAULT)) is not None:
                self.dismiss(slot)
                return Loss(slot, f"not used: {fault}")
        return self._ended()

    def _ended(self) -> Event | None:
        """A job that ended by itself, as Slurm says; asked seldom."""
        if time.monotonic() - self._asked_s < STATE_S:
            return None
        for slot, job in list(self._jobs.items()):
            if job.done() if self._local else not is_in_queue(str(job.job_id)):
                self.dismiss(slot)
                return Loss(slot, f"its job {job.job_id} ended by itself")
        self._asked_s = time.monotonic()
        return None


def is_in_queue(job: str, run: Callable[..., Any] = subprocess.run) -> bool:
    """Whether Slurm has a job that waits or runs; True where it does not answer. Asked of `squeue`, since `sacct`,
    which submitit asks, needs a database that not every site has."""
    try:
        said = run(["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True, timeout=30.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return True
    if said.returncode:
        return "Invalid job id" not in said.stderr
    return bool(said.stdout.strip())


def _executor(folder: Path, settings: SlotSettings, parameters: dict[str, str]) -> Any:
    """submitit's executor, with what its jobs are submitted with. Raises ValueError."""
    import submitit

    cluster = parameters.pop(CLUSTER, "slurm")
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise ValueError("--executor slurm: expected Slurm's sbatch on this machine, found none")
    whole = {"gpus_per_node": 1} if settings.device == "cuda" else {"slurm_exclusive": True}
    own = {f"slurm_{name}": int(value) if value.isdecimal() else value for name, value in parameters.items()}
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(name="flopledger", timeout_min=TIMEOUT_MIN, **whole, **own)
    except (TypeError, ValueError, NameError, AssertionError) as fault:
        raise ValueError(f"--slurm: {' '.join(str(fault).split())}") from fault
    return executor


def _submitted(executor: Any, box: str, settings: SlotSettings, slot: str) -> Any:
    try:
        return executor.submit(serve, box, settings, slot, SILENCE_S)
    except Exception as fault:
        raise ValueError(f"--executor slurm: a job was refused: {' '.join(str(fault).split())[:300]}") from fault
