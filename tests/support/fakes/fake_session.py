"""A session without processes or devices: workers, counters, telemetry and clock that do as they are told."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from results.records.cell import Ceiling, Cell, Run, Sample, Telemetry
from results.records.counts import FlopCount, ProfiledOperation
from results.store.disk import Disk
from results.store.store import Store
from runners.cli.output import Progress
from runners.sweep import session as sweep_session
from runners.sweep.executors import HERE, Executor, LocalSlots
from runners.sweep.findings import (
    CellMeasurement,
    OperationTable,
    PassFindings,
    SlotFacts,
    SlotSettings,
    blank_run,
)
from runners.workers.devices import ProbeResult, WindowEnergy
from runners.workers.pool import WorkerFault
from tests.support.made_up.made_up_runs import MANIFEST, SESSION, Unsynced, operations, storages

MEASURE, TRACE, CEILINGS = (
    "runners.sweep.cell:measure",
    "runners.sweep.cell:reference_trace",
    "runners.sweep.cell:ceilings",
)
WORK = "runners.sweep.passes:measure_pass"


def cell(model: str = "resnet18", batch_size: int = 2, **more: Any) -> Cell:
    return Cell(**{"model": model, "batch_size": batch_size, "device": "cpu", **more})


def blocks(start_s: float = 1000.0, count: int = 3) -> tuple[Sample, ...]:
    return tuple(Sample(part="measure", steps=10, start_s=start_s + i, wall_s=0.5 + i / 8) for i in range(count))


def measured(status: str = "ok", reason: str = "", start_s: float = 1000.0, **fields: Any) -> CellMeasurement:
    found = {"window_start_s": start_s, "window_end_s": start_s + 3.0, "items_per_step": 2, "parameters": 11, **fields}
    return CellMeasurement(blank_run(cell(), status, reason=reason, **found), blocks(start_s))


class FakeWorker:
    """Answers from the scene's `answers`: task → a value, or a function of the arguments. Raises what it is told to."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene, self.name = scene, name
        self.alive = False

    def call(self, task: str, *arguments: Any, timeout_s: float) -> Any:
        if not self.alive:
            self.scene.said.append(f"start {self.name}")
        self.alive = True
        self.scene.calls.append(SimpleNamespace(name=self.name, task=task, arguments=arguments, timeout_s=timeout_s))
        answer = self.scene.answers[task]
        answer = answer(*arguments) if callable(answer) else answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, WorkerFault):
            self.alive = False  # as the real one, which has ended its process by then
            self.scene.said.append(f"end {self.name}")
        return answer

    def stop(self) -> None:
        if self.alive:
            self.scene.said.append(f"end {self.name}")
        self.alive = False


class FakeWatch:
    """Readings of a steady 100 W; `fault` is raised by `energy`, `lost` is why the device is gone."""

    def __init__(self) -> None:
        self.fault: BaseException | None = None
        self.lost = ""
        self.windows: list[tuple[float, float]] = []

    def window(self, start_s: float, end_s: float) -> list[Telemetry]:
        self.windows.append((start_s, end_s))
        return [
            Telemetry(cell_id="", attempt=0, time_s=start_s, power_w=100.0),
            Telemetry(cell_id="", attempt=0, time_s=end_s, power_w=100.0),
        ]

    def energy(self, start_s: float, end_s: float) -> WindowEnergy:
        if self.fault is not None:
            raise self.fault
        return WindowEnergy(100.0 * (end_s - start_s), "polled", ("energy: made up",))

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def loss(self, ask: bool = False) -> str:
        return self.lost


class Lap:
    """A stopwatch on the scene's clock."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.origin_s = scene, scene.clock.elapsed_s

    @property
    def elapsed_s(self) -> float:
        return self.scene.clock.elapsed_s - self.origin_s


class Scene:
    """Everything around one `Session`, with what it asked for: calls of workers, counts, lines said."""

    def __init__(self, path: Path, monkeypatch: Any, disk: Disk | None = None) -> None:
        self.path = path
        self.answers: dict[str, Any] = {
            MEASURE: lambda cell, protocol: measured(),
            WORK: lambda cell_id, work, profiled: PassFindings(),
            TRACE: OperationTable(tuple(operations()), tuple(storages())),
            CEILINGS: lambda session, device, precision, budget_s, malloc: [ceiling(session, device, precision)],
        }
        self.calls: list[SimpleNamespace] = []
        self.said: list[str] = []
        self.counted: list[tuple[Any, ...]] = []
        self.stream = io.StringIO()
        self.watch = FakeWatch()
        self.clock = SimpleNamespace(elapsed_s=0.0)
        self.disk = disk or Unsynced()
        self.store = self.open()
        monkeypatch.setattr(sweep_session, "Worker", lambda name: FakeWorker(self, name))
        for module in ("executors", "session"):
            monkeypatch.setattr(f"runners.sweep.{module}.Stopwatch", lambda: Lap(self))
        monkeypatch.setattr("measure.counters.isolation.count_isolated", self.count)

    def open(self) -> Store:
        """The run, new or gone on with."""
        if (self.path / "manifest.json").exists():
            return Store.resume(self.path, self.disk)
        store = Store.create(self.path, MANIFEST, self.disk)
        store.append_session(SESSION)
        return store

    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    def rows(
        self, cells: Sequence[Cell], time_budget_s: float | None = None, cell_timeout_s: float = 900.0
    ) -> Iterator[Run]:
        """The rows of these cells in one session, each once it is committed."""
        session = sweep_session.Session(SlotSettings("cpu", cell_timeout_s, ""))
        session.watch = self.watch
        executor = Executor(LocalSlots(session))
        executor._facts = {HERE: SlotFacts("vm", ProbeResult(device="cpu", environment={"torch": "2.15.0"}), {})}
        executor._sessions = {HERE: self.store.sessions[-1].session}
        yield from executor.rows(self.store, cells, time_budget_s, Progress(1, self.stream))

    def count(self, counter: str, workload: str, sizes: Any, batches: Sequence[int], timeout_s: float, *, factory: str):
        """flop = 1000 b + 7 and twice that in total: two rows a batch."""
        self.counted.append((counter, workload, dict(sizes), tuple(batches)))
        return [
            FlopCount(
                counter=counter,
                workload=workload,
                batch_size=size,
                phase="forward",
                operator=operator,
                native_value=factor * (1000 * size + 7),
                native_unit="flop",
                flop=factor * (1000 * size + 7),
            )
            for size in batches
            for operator, factor in (("", 2), ("conv", 1))
        ]

    def tasks(self, name: str | None = None) -> list[str]:
        return [call.task for call in self.calls if name in (None, call.name)]

    def asked(self, task: str) -> list[tuple[Any, ...]]:
        return [call.arguments for call in self.calls if call.task == task]


def ceiling(session: str, device: str, precision: str) -> Ceiling:
    return Ceiling(
        session=session, device=device, precision=precision, unit="fp32", operation="matmul", shape="8x8x8", flop=1024
    )


def operation(work: str) -> ProfiledOperation:
    return ProfiledOperation(
        work=work,
        index=0,
        parent=None,
        name="aten::mul",
        phase="forward",
        module="",
        sequence_nr=1,
        forward_index=None,
        thread=1,
        input_shapes=((4,),),
        input_dtypes=("float",),
        concrete_inputs=(None,),
        found_flop=4,
        start_s=0.0,
        time_s=0.1,
    )


def in_turn(*answers: Any) -> Callable[..., Any]:
    """A function whose calls give these answers, one after the other."""
    left = iter(answers)
    return lambda *_: next(left)
