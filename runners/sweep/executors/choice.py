"""Which executor measures the cells, and what does not go with the devices of a cluster."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from runners.cli.output import say

if TYPE_CHECKING:
    from results.records.cell import Cell, Run
    from results.store.store import Store
    from runners.cli.progress import Progress
    from runners.sweep.executors.remote import Remote
    from runners.sweep.session import Limits, Replan
    from runners.workers.devices import ProbeResult

LOCAL, RAY = "local", "ray"
EXECUTORS = (LOCAL, RAY)

PACKAGE = "ray>=2.49,<3"
"""What to install for RAY."""


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
    """What can be checked without a cluster. Raises ValueError, one line, where Ray is not installed, or an option does
    not go with the executor."""
    if options.executor == LOCAL:
        if options.accelerator:
            raise ValueError(f"--accelerator: expected --executor {RAY} beside it, got --executor {LOCAL}")
        return
    if options.profile == "nsys":
        raise ValueError(f"--profile: expected kineto with --executor {RAY}, got nsys")
    if options.device not in (None, "auto", "cpu", "cuda"):
        raise ValueError(f"--device: expected auto, cpu or cuda with --executor {RAY}, got {options.device}")
    if importlib.util.find_spec("ray") is None:
        raise ValueError(f"--executor {RAY}: ray is not installed: python -m pip install '{PACKAGE}'")


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
    """The slots of a Ray cluster. device: auto, cpu or cuda. threads: OMP_NUM_THREADS here. Raises ValueError where
    there are none."""
    from results.store.manifest import harness_version
    from runners.sweep.executors.ray_slots import RaySlots
    from runners.sweep.executors.remote import Remote
    from runners.sweep.executors.result import SlotSettings

    settings = SlotSettings(device, options.cell_timeout, harness_version(), threads, options.debug)
    return Remote(RaySlots(settings, options.accelerator or ()), settings.version)
