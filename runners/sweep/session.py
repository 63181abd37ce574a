"""One session of a sweep: each planned cell is counted, traced, measured in a worker, and committed.

The only place that joins store, workers and telemetry. A fault in one cell costs one row; only a store that cannot be
written, the caller's Ctrl-C, a used-up time budget and a lost device end a session, and what was committed stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from analysis.devices.precisions import PRECISIONS, unit_of
from analysis.utilization.work_times import works_of
from measure.timing.protocols import Protocol
from results.errors import Inconsistent, StoreFault
from results.records.cell import Ceiling, Cell, Run
from results.records.counts import ProfiledOperation
from results.records.rows import MEASURED, Record, changed, digest
from results.store.manifest import utc_now
from results.store.store import Store
from runners.cli.progress import Progress, title
from runners.sweep import nsight
from runners.sweep.findings import (
    FOUND,
    CellMeasurement,
    OperationTable,
    ResultStore,
    WorkFindings,
    WorkRecording,
    blank_run,
    merge_findings,
)
from runners.sweep.models import Counts
from runners.sweep.plan import Planning, ceiling_budget_s, least_s, protocol_s, reason_against, tasks, worker_key
from runners.workers.any_model import hyper_of_cell
from runners.workers.devices import TelemetryWatch, WindowEnergy
from runners.workers.pool import Stopwatch, Worker, WorkerFault, classify, uninterrupted

CELL_TIMEOUT_S = 900.0
TRACE_TIMEOUT_S = 300.0
LEAST_SHARE = 3.0
"""Of a time budget a cell may take this many times its least, whatever its share is."""

SHORTEST_CALL_S = 1.0
"""What a work's call is given at least; the worker itself leaves out what would not end in the cell's limit."""

CeilingKey = tuple[str, str, str]
"""Device, precision, allocator: each has a ceiling of its own in a session."""


@dataclass(frozen=True)
class Limits:
    """What a session may take. time_budget_s: no cell is started that would not finish in it; None: no limit."""

    time_budget_s: float | None = None
    cell_timeout_s: float = CELL_TIMEOUT_S


@dataclass
class Session:
    """The state of one session. store: where its rows go: a run's, or what gathers them for one elsewhere. notes:
    warnings of each of its rows."""

    store: Store | ResultStore
    name: str
    torch_version: str
    watch: TelemetryWatch
    limits: Limits
    progress: Progress
    notes: tuple[str, ...] = ()
    watch_s: Stopwatch = field(default_factory=Stopwatch)
    planning: Planning = field(default_factory=Planning)

    def __post_init__(self) -> None:
        self.measurer = Worker("measure")
        self.tracer = Worker("trace")
        self.recorder = Worker("record")
        self._key: tuple[Any, ...] | None = None
        self._run: Run  # of the cell that is under way, as far as it is known
        self._rows: dict[str, Sequence[Record]] = {}
        self._operations: Sequence[ProfiledOperation] = ()
        self._recordings: Mapping[str, WorkRecording] = {}
        self._waiting = 1  # cells that the time budget is for, with the one under way
        self._counts = Counts()
        self._ceilings: set[CeilingKey] = set()
        self._ceiling_rows: dict[CeilingKey, list[Ceiling]] = {}
        self._traces: dict[str, tuple[str, ...]] = {}  # id → what was unusual about it, as far as this session knows

    def each(self, cells: Sequence[Cell]) -> Iterator[Run]:
        """Measure these cells in this order; gives each row once it is committed, and keeps none, so that a sweep of
        many cells does not grow. Fewer than asked if the time budget ran out, or the device was lost."""
        self._ask(cells)
        self.progress.expect(self._planned_s(cells))
        try:
            for done, cell in enumerate(cells):
                self._waiting = len(cells) - done
                if not self._fits(cell):
                    self.progress.say(
                        f"time budget: {self._waiting} of {len(cells)} cells not started; --resume goes on"
                    )
                    break
                run = self._one(cell)
                yield run
                if self._waiting > 1 and self._is_lost(run, self._waiting - 1):
                    break
        finally:
            self.close()

    def measure_cell(self, cell: Cell) -> Run:
        """Measure one cell, whose row is committed; which come after it, somebody else decides."""
        self._ask([cell])
        return self._one(cell)

    def _is_lost(self, run: Run, waiting: int) -> bool:
        """Whether the device is gone for good, which is said. Telemetry is asked once more after a cell that failed."""
        lost = self.watch.loss(ask=run.status not in MEASURED)
        if lost:
            rest = f"{waiting} cell{'s' * (waiting != 1)} not started; --resume goes on when the device is back"
            self.progress.say(f"the device is lost ({lost}): {rest}")
        return bool(lost)

    def _ask(self, cells: Sequence[Cell]) -> None:
        """Say which cells there will be to count."""
        for cell in cells:
            if not reason_against(cell):
                self._counts.ask(cell)

    def close(self) -> None:
        """Ends the workers."""
        self.measurer.stop()
        self.tracer.stop()
        self.recorder.stop()

    def _fits(self, cell: Cell) -> bool:
        left_s = self._left_s()
        if left_s is None:
            return True
        return left_s >= self.planning.needs_s(self._is_fresh(cell), self._least_s(cell))

    def _is_fresh(self, cell: Cell) -> bool:
        """Whether a new process will measure this cell."""
        return self._key != worker_key(cell) or not self.measurer.alive

    def _least_s(self, cell: Cell) -> float:
        return protocol_s(cell, _ceiling_key(cell) in self._ceilings)

    def _planned_s(self, cells: Sequence[Cell]) -> float:
        """The least that these take, one after the other."""
        known, planned_s = set(self._ceilings), 0.0
        for cell in cells:
            if not reason_against(cell):
                planned_s += least_s(cell, _ceiling_key(cell) in known)
                known.add(_ceiling_key(cell))
        return planned_s

    def _left_s(self) -> float | None:
        budget_s = self.limits.time_budget_s
        return None if budget_s is None else budget_s - self.watch_s.elapsed_s

    def _one(self, cell: Cell) -> Run:
        stopwatch, plan = Stopwatch(), (self._is_fresh(cell), self._least_s(cell))
        self._begin(cell)
        try:
            self._measure(cell)
        except KeyboardInterrupt:
            self.close()
            self._forget_rows()
            status, reason = self._interruption()
            self._learn(status=status, reason=reason, duration_s=stopwatch.elapsed_s)
            self._commit()
            raise
        except (StoreFault, OSError):  # nothing can be kept, or no process started: the next cell would fare the same
            raise
        except Exception as fault:  # noqa: BLE001  the edge: what this cell alone meets costs its row
            self._forget_rows()
            self._fail(classify(fault))
        self._learn(duration_s=stopwatch.elapsed_s)
        self.planning.learn(*plan, stopwatch.elapsed_s)
        return self._commit()

    def _interruption(self) -> tuple[str, str]:
        """Status and reason of a cell within which the session is ended."""
        return "interrupted", "Ctrl-C or a signal"

    def _begin(self, cell: Cell) -> None:
        """The attempt before anything is measured, with the units of its policy on this device."""
        started_at, policy = utc_now(), PRECISIONS[cell.precision]
        unit = unit_of(policy.autocast or "float32", policy, cell.device)
        self._run = blank_run(
            cell,
            attempt=self.store.next_attempt(cell.cell_id),
            sitting=self.name,
            started_at=started_at,
            convolution_unit=unit,
            matmul_unit=unit,
        )
        self._rows, self._operations, self._recordings = {}, (), {}

    def _learn(self, **fields: Any) -> None:
        """Adds to what is known of the attempt that is under way."""
        self._run = replace(self._run, **fields)

    def _forget_rows(self) -> None:
        """Drops the rows of an attempt that ended in the middle; its own row stays."""
        self._rows, self._operations = {}, ()
        self._learn(warnings=())

    def _commit(self) -> Run:
        """Keeps the attempt; Ctrl-C waits until it is whole. Rows that could not be read back are left out."""
        self._learn(warnings=(*self.notes, *self._run.warnings))
        with uninterrupted():
            self._keep_files()
            run = self._run
            try:
                self.store.commit(run, {file: records for file, records in self._rows.items() if records})
            except ValueError as fault:
                reason = f"its rows cannot be kept: {fault}"
                known = {name: getattr(run, name) for name in ("attempt", "sitting", "started_at", "duration_s")}
                run = blank_run(run.cell, "crashed", reason=reason, **known)
                self.store.commit(run, {})
            self.progress.done(run)
        return run

    def _keep_files(self) -> None:
        """Writes the attempt's profile and recordings: their seals go into its row, or why a profile was not kept."""
        run, seals = self._run, dict[str, Any]()
        if self._operations:
            try:
                seals |= self.store.write_profile(run.cell_id, run.attempt, self._operations)
            except ValueError as fault:
                lost = dict.fromkeys(run.profiled, f"its profile cannot be kept: {fault}")
                run = replace(run, profiled=(), unprofiled={**run.unprofiled, **lost})
        for work, kept in self._recordings.items():
            seals |= self.store.write_recording(run.cell_id, run.attempt, work, run.profile, kept.content, kept.command)
        self._run = replace(run, committed=seals)

    def _measure(self, cell: Cell) -> None:
        """What becomes of one cell, in the attempt that is under way."""
        if against := reason_against(cell):
            self._learn(status="invalid", reason=against)
            return
        if worker_key(cell) != self._key:
            self.measurer.stop()
            self._key = worker_key(cell)
        self.progress.stage(cell, "counting")
        counts = [replace(row, cell_id=cell.cell_id, attempt=self._run.attempt) for row in self._counts.of(cell)]
        self._rows = {"flop_counts.csv": counts}
        self.progress.stage(cell, "tracing")
        fault = self._keep_trace(cell)
        if fault is not None and fault.status == "invalid":
            self._fail(fault)
            return
        notes = self._traces.get(self._run.trace_id, ()) if fault is None else (f"{fault.status}: {fault.reason}",)
        self._learn(warnings=tuple(f"trace: {note}" for note in notes))
        self.progress.stage(cell, "finding the device's ceiling")
        self._find_ceilings(cell)
        self.progress.stage(cell, "warming up")
        self.measurer.on_message = partial(self.progress.stage, cell)
        stopwatch = Stopwatch()
        answer = self._train(cell)
        if not isinstance(answer, WorkerFault) and answer.run.status in MEASURED:
            answer = self._with_works(cell, answer, stopwatch)
        if isinstance(answer, WorkerFault):
            self._fail(answer)
            return
        self._keep_rows(cell, answer)
        if answer.run.status not in MEASURED:
            self.measurer.stop()  # the next cell gets a fresh one

    def _train(self, cell: Cell) -> CellMeasurement | WorkerFault:
        """What a worker found of the cell's own step."""
        beside = [self._ceiling_rows.get(_ceiling_key(cell), [])] if cell.paired_ceiling else []
        found: CellMeasurement | WorkerFault = self.measurer.call(
            "runners.sweep.cell:measure", cell, self.protocol(cell), *beside, timeout_s=self._timeout_s()
        )
        return found

    def _with_works(self, cell: Cell, measured: CellMeasurement, stopwatch: Stopwatch) -> CellMeasurement | WorkerFault:
        """The cell with its other works, each a task of its own: one that ends its process costs itself and those after
        it, which find no model any more. An error of the device is the cell's."""
        if not works_of(cell):
            return measured
        parts: list[WorkFindings] = []
        lost = ""
        for work, profiled in tasks(works_of(cell)):
            if lost:
                parts.append(WorkFindings(unprofiled={work: lost}))
                continue
            self.progress.stage(cell, f"{'recording' if profiled else 'measuring'}, {work}")
            left_s = max(SHORTEST_CALL_S, self._timeout_s() - stopwatch.elapsed_s)
            answer: WorkFindings | WorkerFault = self.measurer.call(
                "runners.sweep.cell:measure_work", cell.cell_id, work, profiled, timeout_s=left_s
            )
            if isinstance(answer, WorkerFault):
                if answer.status == "device_error":
                    return answer
                lost = f"not tried after {work}: {answer.reason}"
                answer = WorkFindings(unprofiled={work: answer.reason})
            parts.append(answer)
        found = merge_findings(parts)
        if found.profiled and cell.device.startswith("cuda"):
            self.measurer.stop()  # what its profiler left would slow the next cell (`passes`)
        if cell.profile == nsight.SOURCE:
            found = merge_findings([found, self._with_nsight(cell, found.profiled, stopwatch)])
        return measured.with_works(found)

    def _with_nsight(self, cell: Cell, works: Sequence[str], stopwatch: Stopwatch) -> WorkFindings:
        """Recordings by Nsight Systems of works that have a profile. The device is left to them: the model that was
        measured, and the memory that its process holds, are gone before."""
        self.measurer.stop()
        self.progress.stage(cell, "recording with Nsight Systems")
        return nsight.record(
            cell,
            works,
            self.recorder,
            lambda command: self.progress.say(f"{title(cell)}: {command}"),
            lambda: self._timeout_s() - stopwatch.elapsed_s,
        )

    def _fail(self, fault: WorkerFault) -> None:
        """Why the attempt has no measurement; a device that is gone, as its telemetry says, is why."""
        lost = self.watch.loss(ask=True)
        warnings = (*self._run.warnings, *filter(None, [lost]))
        self._learn(status=fault.status, reason=fault.reason, warnings=warnings)

    def _keep_rows(self, cell: Cell, measured: CellMeasurement) -> None:
        """What was measured, as rows."""
        found, before = measured.run, self._run.warnings
        self._learn(**{name: getattr(found, name) for name in FOUND})
        self._recordings = measured.recordings
        start_s, end_s = found.window_start_s, found.window_end_s
        if start_s is None or end_s is None:
            raise Inconsistent("expected a measured cell to say when its window began and ended")
        attempt: dict[str, Any] = {"cell_id": cell.cell_id, "attempt": self._run.attempt}
        self._operations = measured.operations
        self._rows |= {
            "samples.csv": [replace(block, **attempt, index=index) for index, block in enumerate(measured.blocks)],
            "telemetry.csv": [changed(reading, attempt) for reading in self.watch.window(start_s, end_s)],
            **{file: [changed(row, attempt) for row in records] for file, records in measured.ranks.items()},
        }
        energy = self._energy(cell, start_s, end_s)
        warnings = (*before, *found.warnings, *energy.warnings)
        self._learn(energy_j=energy.energy_j, energy_method=energy.energy_method, warnings=warnings)

    def _energy(self, cell: Cell, start_s: float, end_s: float) -> WindowEnergy:
        """Of the device, over the window."""
        return self.watch.energy(start_s, end_s)

    def _keep_trace(self, cell: Cell) -> WorkerFault | None:
        """Keep the operation table of the cell's step, unless the run has it; its id goes into the attempt."""
        if "exact" not in cell.methods:
            return None
        identity = trace_id(cell, self.torch_version)
        if not self._has_trace(identity):
            answer: OperationTable | WorkerFault = self.tracer.call(
                "runners.sweep.cell:reference_trace", cell, timeout_s=TRACE_TIMEOUT_S
            )
            if isinstance(answer, WorkerFault):
                return answer
            try:
                self.store.write_operations(identity, answer.operations, answer.storages)
            except Inconsistent as fault:
                return WorkerFault("invalid", str(fault))
            self._traces[identity] = answer.notes
        self._learn(trace_id=identity)
        return None

    def _has_trace(self, identity: str) -> bool:
        """Whether the run has this table, whole; what a damaged disk left of one is traced again."""
        if identity not in self._traces:
            if not self.store.has_operations(identity):
                return False
            self._traces[identity] = ()
        return True

    def _find_ceilings(self, cell: Cell) -> None:
        """The device's ceiling in this precision, with this allocator, once a session."""
        key, budget_s = _ceiling_key(cell), ceiling_budget_s(cell)
        if key in self._ceilings:
            return
        self._ceilings.add(key)
        found = self._measure_ceilings(cell, budget_s, 10 * budget_s + 60)
        if isinstance(found, WorkerFault):
            self.progress.say(f"no ceiling of {cell.precision} on {cell.device}: {found.status}: {found.reason}")
        else:
            self.store.append_ceilings(found)
            self._ceiling_rows[key] = found
        if cell.deterministic:  # whose settings count only before a process's first product
            self.measurer.stop()

    def _measure_ceilings(self, cell: Cell, budget_s: float, timeout_s: float) -> list[Ceiling] | WorkerFault:
        """In the process and with the allocator of this cell."""
        task = "runners.sweep.cell:ceilings"
        found: list[Ceiling] | WorkerFault = self.measurer.call(
            task, self.name, cell.device, cell.precision, budget_s, cell.malloc, timeout_s=timeout_s
        )
        return found

    def protocol(self, cell: Cell) -> Protocol:
        left_s, asked = self._time_left_s(cell), works_of(cell)
        protocol = Protocol.for_device(cell.device, cell.quick, cell.target_ci_ratio, left_s, asked)
        return replace(protocol, limit_s=self._timeout_s()) if asked else protocol

    def _time_left_s(self, cell: Cell) -> float | None:
        """What a time budget leaves for a cell: its share, but enough to settle in, and no more than there is."""
        left_s = self._left_s()
        if left_s is None:
            return None
        return max(0.0, min(left_s, max(LEAST_SHARE * self._least_s(cell), left_s / self._waiting)))

    def _timeout_s(self) -> float:
        return self.limits.cell_timeout_s


def _ceiling_key(cell: Cell) -> CeilingKey:
    return cell.device, cell.precision, cell.malloc


def trace_id(cell: Cell, torch_version: str) -> str:
    """What decides an operation table: the workload, its sizes, the dtype policy, the optimizer, the layout."""
    policy = PRECISIONS[cell.precision]
    table = [
        cell.model,
        hyper_of_cell(cell),
        cell.batch_size,
        policy.autocast,
        policy.scaler,
        cell.optimizer,
        cell.layout,
    ]
    return digest([*table, torch_version, *filter(None, [cell.model_digest])])
