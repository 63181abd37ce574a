"""The executors by name, what each needs to be installed, and what cannot go with one that is not here."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from runners.cli import say

if TYPE_CHECKING:
    from results.records import Cell, Run
    from results.store import Store
    from runners.cli import Progress
    from runners.sweep.executors.remote import Remote
    from runners.sweep.executors.result import SlotSettings
    from runners.sweep.session import Limits, Replan
    from runners.workers import ProbeResult

LOCAL = "local"
EXECUTORS = (LOCAL, "ray", "slurm")

PACKAGES = {"ray": ("ray", "ray>=2.49,<3"), "slurm": ("submitit", "submitit>=1.5.2,<2")}
"""Executor → the module it needs, and what to install."""

OPTIONS = {"accelerator": "ray", "jobs": "slurm", "slurm": "slurm"}
"""Option → the executor that it is of."""

HERE_ALONE = ("against", "what_if")
"""Options whose cells are measured on this machine alone."""


class Telemetered(Protocol):
    """What a session is begun with: `reason` says why there is no telemetry, "" if there is."""

    @property
    def reason(self) -> str: ...


class Executor(Protocol):
    """Where cells are measured. unmeasured: how many were not for want of a device."""

    unmeasured: int

    def probe(self, device: str) -> ProbeResult: ...
    def begin_session(self, store: Store, probed: ProbeResult) -> Telemetered: ...
    def rows(
        self,
        store: Store,
        cells: Sequence[Cell],
        limits: Limits,
        progress: Progress,
        notes: tuple[str, ...],
        replan: Replan | None,
    ) -> Iterator[Run]: ...
    def close(self) -> None: ...


def check_executor(options: argparse.Namespace) -> None:
    """What can be checked without a cluster. Raises ValueError, one line, for a package that is not installed, or an
    option of another executor."""
    for name, executor in OPTIONS.items():
        if getattr(options, name) and options.executor != executor:
            raise ValueError(f"--{name}: expected --executor {executor} beside it, got --executor {options.executor}")
    if options.executor == LOCAL:
        return
    for name in HERE_ALONE:
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option}: expected --executor {LOCAL}, got --executor {options.executor}")
    if options.profile == "nsys":
        raise ValueError(f"--profile: expected kineto with --executor {options.executor}, got nsys")
    if options.device not in (None, "auto", "cpu", "cuda"):
        raise ValueError(
            f"--device: expected auto, cpu or cuda with --executor {options.executor}, got {options.device}"
        )
    module, line = PACKAGES[options.executor]
    if importlib.util.find_spec(module) is None:
        raise ValueError(f"--executor {options.executor}: {module} is not installed: python -m pip install '{line}'")


def each_model(options: argparse.Namespace, runs: Path, sweep: Callable[[argparse.Namespace], int]) -> int:
    """One sweep for each device model that was chosen, each with a run of its own in one directory: rows of two models
    are never one run's. runs: where a directory without a name is made. The gravest exit code. Raises ValueError."""
    check_executor(options)
    if options.format != "table":
        raise ValueError(f"--accelerator: expected one model with --format {options.format}, which is of one run")
    named = options.resume or options.out
    if options.resume is not None and not named:
        raise ValueError("--resume: expected the directory of the runs, as there are several models")
    folder = Path(named or runs / f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-models")
    codes = []
    for model in options.accelerator:
        path = folder / model
        is_begun = options.resume is not None and (path / "manifest.json").exists()
        own = {"accelerator": (model,), "out": path, "resume": str(path) if is_begun else None}
        of_model = argparse.Namespace(**{**vars(options), **own})
        say(f"{model}: {path}")
        try:
            codes.append(sweep(of_model))
        finally:
            options.begun = options.begun or of_model.begun
    return max(codes)


def open_slots(options: argparse.Namespace, device: str, threads: str) -> Remote:
    """The slots of a cluster. device: auto, cpu or cuda. threads: OMP_NUM_THREADS here. Raises ValueError where there
    are none."""
    from results.store import harness_version
    from runners.sweep.executors.remote import Remote
    from runners.sweep.executors.result import SlotSettings

    settings = SlotSettings(device, options.cell_timeout, harness_version(), threads, options.debug)
    return Remote(_slots(options, settings), options.executor, settings.version)


def _slots(options: argparse.Namespace, settings: SlotSettings) -> Any:
    if options.executor == "ray":
        from runners.sweep.executors.ray_slots import RaySlots

        return RaySlots(settings, options.accelerator or ())
    from runners.sweep.executors.slurm_slots import SlurmSlots, parameters_of

    return SlurmSlots(settings, options.jobs, parameters_of(options.slurm or ""))
