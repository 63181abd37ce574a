"""Runs one session on one device: counts, traces and measures each planned cell in workers; returns a `CellResult`.

A cell is one combination of workload, batch size and precision. `Session.slot_facts` returns the device's facts.
`Session.measure` takes an `Order` and returns its cell's `CellResult`. A fault in one cell costs one row. Only Ctrl-C
and a machine without room for a process or a file end the session. `executors.py` decides which cells there are, and
stores the results.
"""

import socket
from dataclasses import replace
from functools import partial
from typing import Any

from analysis.utilization.work_times import passes_of
from measure.timing.stopping import Protocol
from results.records.cell import MEASURED, Ceiling, Cell
from results.records.counts import FlopCount
from results.records.rows import digest, replace_fields
from runners.cli.output import Progress, title
from runners.sweep import nsight
from runners.sweep.findings import (
    WORKER_COLUMNS,
    CellMeasurement,
    CellResult,
    OperationTable,
    Order,
    PassFindings,
    SlotFacts,
    SlotSettings,
    trace_id,
)
from runners.sweep.plan import ceiling_budget_s, ceiling_key, protocol_s, reason_against, tasks, worker_key
from runners.workers.any_model import factory_of, hyper_of_cell
from runners.workers.devices import ProbeResult, TelemetryWatch, WindowEnergy
from runners.workers.pool import Stopwatch, Worker, WorkerFault, ask_once, classify

TRACE_TIMEOUT_S = 300.0

LEAST_SHARE = 3.0
"""A cell may take this many times its shortest time from a time budget, even if its share is smaller."""

COUNT_TIMEOUT_S = 300.0
"""Limit of one counter and workload, all its batches together."""


class Session:
    """The state of one session, whose workers, counts and ceilings stay from cell to cell. Call `slot_facts` first."""

    def __init__(self, settings: SlotSettings) -> None:
        self.settings = settings
        self.watch: Any = None  # the device's `TelemetryWatch`, from `slot_facts` on
        self.measurer = Worker("measure")
        self.tracer = Worker("trace")
        self.recorder = Worker("record")
        self._key: tuple[Any, ...] | None = None
        self._result: CellResult  # of the current cell, as far as it is known
        self._progress: Progress
        self._counts: dict[str, dict[int, list[FlopCount]]] = {}  # counter and workload → batch → its rows
        self._ceilings: dict[tuple[str, str, str], list[Ceiling]] = {}
        self._traces: dict[str, tuple[str, ...]] = {}  # id of a trace of this session → its notes

    def slot_facts(self) -> SlotFacts:
        """Return the facts of this slot, which a process of its own finds. Raises ValueError for a device that does not
        exist."""
        probed: ProbeResult = ask_once("runners.workers.devices:probe", self.settings.device)
        self.close()
        self.settings, self.watch = replace(self.settings, device=probed.device), TelemetryWatch(probed.device)
        facts = SlotFacts(socket.gethostname(), probed, self.watch.preflight(), self.watch.reason)
        self.watch.start()
        return facts

    def measure(self, order: Order, progress: Progress) -> CellResult:
        """Make one attempt at a cell. Raises KeyboardInterrupt, or OSError where this machine has no room for a
        process."""
        self._result, self._progress, stopwatch = CellResult(order.row()), progress, Stopwatch()
        try:
            self._measure(order, stopwatch)
        except OSError:  # no process started, and the next one would not
            raise
        except Exception as fault:  # noqa: BLE001  the edge: what this cell alone meets costs its row
            self._result = replace(self._result, rows={}, profile=(), recordings={})
            self._result.learn(warnings=())
            self._fail(classify(fault))
        self._result.learn(duration_s=stopwatch.elapsed_s)
        self._result.lost = self._loss()
        return self._result

    def _loss(self) -> str:
        """Return why no other cell can be measured; "" if one can. Telemetry is asked once more after a cell that
        failed."""
        lost = self.watch.loss(ask=self._result.run.status not in MEASURED)
        return f"the device is lost ({lost})" if lost else ""

    def close(self) -> None:
        """End the workers, and telemetry."""
        for worker in (self.measurer, self.tracer, self.recorder):
            worker.stop()
        if self.watch is not None:
            self.watch.close()

    def _measure(self, order: Order, so_far: Stopwatch) -> None:
        """Measure one cell in the current attempt. Timing gets the cell's share of the time budget, LEAST_SHARE times
        its shortest time at least, and no more than is left."""
        cell, result = order.cell, self._result
        if refusal := reason_against(cell):
            result.learn(status="invalid", reason=refusal)
            return
        if worker_key(cell) != self._key:
            self.measurer.stop()
            self._key = worker_key(cell)
        self._progress.stage(cell, "counting")
        counts = [replace(row, cell_id=cell.cell_id, attempt=order.attempt) for row in self._count(cell)]
        result.rows = {"flop_counts.csv": counts}
        self._progress.stage(cell, "tracing")
        fault = self._keep_trace(order)
        if fault is not None and fault.status == "invalid":
            self._fail(fault)
            return
        notes = self._traces.get(result.run.trace_id, ()) if fault is None else (f"{fault.status}: {fault.reason}",)
        result.learn(warnings=tuple(f"trace: {note}" for note in notes))
        self._progress.stage(cell, "finding the device's ceiling")
        self._find_ceilings(order)
        self._progress.stage(cell, "warming up")
        self.measurer.on_message = partial(self._progress.stage, cell)
        stopwatch = Stopwatch()
        passes, left_s = passes_of(cell), max(0.0, order.left_s - so_far.elapsed_s)
        share_s = min(left_s, max(LEAST_SHARE * protocol_s(cell, ceiling_known=True), left_s / order.sharing))
        protocol = Protocol.for_device(cell.device, cell.quick, cell.target_ci_ratio, share_s, passes)
        answer = self._train(cell, replace(protocol, limit_s=self.settings.cell_timeout_s) if passes else protocol)
        if not isinstance(answer, WorkerFault) and answer.run.status in MEASURED and passes:
            answer = self._with_passes(cell, answer, stopwatch)
        if isinstance(answer, WorkerFault):
            self._fail(answer)
            return
        self._keep_rows(cell, answer)
        if answer.run.status not in MEASURED:
            self.measurer.stop()  # the next cell gets a fresh one

    def _train(self, cell: Cell, protocol: Protocol) -> CellMeasurement | WorkerFault:
        """Have a worker measure the cell's own step."""
        ceilings = [self._ceilings.get(ceiling_key(cell), [])] if cell.paired_ceiling else []
        measured: CellMeasurement | WorkerFault = self.measurer.call(
            "runners.sweep.cell:measure", cell, protocol, *ceilings, timeout_s=self.settings.cell_timeout_s
        )
        return measured

    def _with_passes(
        self, cell: Cell, measured: CellMeasurement, stopwatch: Stopwatch
    ) -> CellMeasurement | WorkerFault:
        """Run the other passes of a cell, each as a task. A pass that ends the process is lost with those after it,
        which find no model any more. Returns a fault for an error of the device."""
        whole, lost = PassFindings(), ""
        for pass_name, profiled in tasks(passes_of(cell)):
            if lost:
                whole.unprofiled.setdefault(pass_name, lost)
                continue
            self._progress.stage(cell, f"{'recording' if profiled else 'measuring'}, {pass_name}")
            left_s = max(0.0, self.settings.cell_timeout_s - stopwatch.elapsed_s)
            answer: PassFindings | WorkerFault = self.measurer.call(
                "runners.sweep.passes:measure_pass", cell.cell_id, pass_name, profiled, timeout_s=left_s
            )
            if isinstance(answer, WorkerFault):
                if answer.status == "device_error":
                    return answer
                lost = f"not tried after {pass_name}: {answer.reason}"
                answer = PassFindings(unprofiled={pass_name: answer.reason})
            whole.add(answer)
        if whole.profiled and cell.device.startswith("cuda"):
            self.measurer.stop()  # what its profiler left would slow the next cell (`passes`)
        if cell.profile == nsight.SOURCE:
            self.measurer.stop()  # the model that was measured and its memory leave the device to the recorded process
            self._progress.stage(cell, "recording with Nsight Systems")
            recorded = nsight.record(
                cell,
                whole.profiled,
                self.recorder,
                lambda command: self._progress.say(f"{title(cell)}: {command}"),
                lambda: self.settings.cell_timeout_s - stopwatch.elapsed_s,
            )
            whole.add(recorded)
        return measured.with_passes(whole)

    def _fail(self, fault: WorkerFault) -> None:
        """Note why the attempt has no measurement, with a warning if telemetry reports that the device is lost."""
        lost = self.watch.loss(ask=True)
        warnings = (*self._result.run.warnings, *filter(None, [lost]))
        self._result.learn(status=fault.status, reason=fault.reason, warnings=warnings)

    def _keep_rows(self, cell: Cell, measured: CellMeasurement) -> None:
        """Turn the measurement into rows of the result."""
        run, result, before = measured.run, self._result, self._result.run.warnings
        window = run.window_start_s, run.window_end_s
        attempt: dict[str, Any] = {"cell_id": cell.cell_id, "attempt": result.run.attempt}
        result.profile, result.recordings = measured.operations, measured.recordings
        result.rows |= {
            "samples.csv": [replace(block, **attempt, index=index) for index, block in enumerate(measured.blocks)],
            "telemetry.csv": [replace_fields(reading, attempt) for reading in self.watch.window(*window)],
            **{file: [replace_fields(row, attempt) for row in records] for file, records in measured.ranks.items()},
        }
        energy = WindowEnergy(run.energy_j, run.energy_method) if cell.parallel else self.watch.energy(*window)
        result.learn(**{name: getattr(run, name) for name in WORKER_COLUMNS})
        warnings = (*before, *run.warnings, *energy.warnings)
        result.learn(energy_j=energy.energy_j, energy_method=energy.energy_method, warnings=warnings)

    def _keep_trace(self, order: Order) -> WorkerFault | None:
        """Trace the cell's step, unless the run has its operation table or this session made it, and note the trace's
        id in the row. Returns the fault if it cannot be traced."""
        if "exact" not in order.cell.methods:
            return None
        identity = trace_id(order.cell, order.torch_version)
        if not order.traced and identity not in self._traces:
            answer: OperationTable | WorkerFault = self.tracer.call(
                "runners.sweep.cell:reference_trace", order.cell, timeout_s=TRACE_TIMEOUT_S
            )
            if isinstance(answer, WorkerFault):
                return answer
            self._result.tables[identity], self._traces[identity] = answer, answer.notes
        self._result.learn(trace_id=identity)
        return None

    def _find_ceilings(self, order: Order) -> None:
        """Measure the device's ceiling in the cell's precision and with its allocator, once a session."""
        cell = order.cell
        key, budget_s = ceiling_key(cell), ceiling_budget_s(cell)
        if key in self._ceilings:
            return
        self._ceilings[key] = []
        ceilings = self._measure_ceilings(order, budget_s, 10 * budget_s + 60)
        if isinstance(ceilings, WorkerFault):
            self._progress.say(f"no ceiling of {cell.precision} on {cell.device}: {ceilings.status}: {ceilings.reason}")
        else:
            self._result.ceilings = self._ceilings[key] = ceilings
        if cell.deterministic:  # whose settings count only before a process's first product
            self.measurer.stop()

    def _measure_ceilings(self, order: Order, budget_s: float, timeout_s: float) -> list[Ceiling] | WorkerFault:
        """Measure the ceiling in the process and with the allocator of this cell."""
        cell = order.cell
        ceilings: list[Ceiling] | WorkerFault = self.measurer.call(
            "runners.sweep.cell:ceilings",
            order.session,
            cell.device,
            cell.precision,
            budget_s,
            cell.malloc,
            timeout_s=timeout_s,
        )
        return ceilings

    def _count(self, cell: Cell) -> list[FlopCount]:
        """Return the counters' rows at small batches and at the cell's own; no workload is counted twice at a batch."""
        from cleaning.counts import batches_to_count, extrapolate
        from measure.counters.isolation import count_isolated

        rows: list[FlopCount] = []
        sizes, own = hyper_of_cell(cell), (1, 2) if cell.quick else batches_to_count(cell.batch_size)
        for counter in cell.counters:
            by_batch = self._counts.setdefault(digest([counter, cell.model, sizes]), {})
            if batches := sorted({*own} - by_batch.keys()):
                limit_s, factory = COUNT_TIMEOUT_S, factory_of(cell)
                new_rows = count_isolated(counter, cell.model, sizes, batches, limit_s, factory=factory)
                by_batch |= {size: [row for row in new_rows if row.batch_size == size] for size in batches}
            counted = [row for size in sorted({*own}) for row in by_batch[size]]
            rows += counted
            if all(row.batch_size != cell.batch_size for row in counted):
                rows += extrapolate(counted, cell.batch_size)
        return rows
