"""Defines the records that pass between session and worker: the order of a cell, its measurement, its result.

A cell is one combination of workload, batch size and precision. The records can be pickled, and this module imports no
torch. A session takes an `Order` and returns a `CellResult`, on this machine or on another one. `store_result` writes
the result into the run; only then does the cell count as measured. Nothing is measured here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.devices.precisions import PRECISIONS, unit_of
from results.errors import Inconsistent
from results.records.cell import Ceiling, Cell, Parameters, Run, Sample
from results.records.counts import Operation, ProfiledOperation, Storage
from results.records.rows import Record, digest, header
from results.store.manifest import utc_now
from results.store.store import Store
from runners.sweep.plan import reason_against
from runners.workers.any_model import hyper_of_cell
from runners.workers.devices import ProbeResult
from runners.workers.pool import uninterrupted

Rows = Mapping[str, Sequence[Record]]
"""File → a cell's rows."""

OF_SESSION = (
    "cell_id",
    "attempt",
    "session",
    "started_at",
    "duration_s",
    "trace_id",
    "convolution_unit",
    "matmul_unit",
)
WORKER_COLUMNS = tuple(name for name in header(Run) if name not in (*header(Parameters), *OF_SESSION))
"""Fields of a row that the worker measures; its session fills in the others."""


def blank_run(cell: Cell, status: str = "", **known: Any) -> Run:
    """Return the row of a cell with only its parameters, status and the fields in `known`."""
    return Run(**vars(cell), **{"cell_id": cell.cell_id, "attempt": 0, "session": "", "status": status, **known})


@dataclass(frozen=True)
class PassRecording:
    """A recorder's file of one pass, compressed. command: the command that recorded it; empty: there was none."""

    content: bytes
    command: str = ""


@dataclass
class PassFindings:
    """Results of the other passes of a cell; filled pass by pass, so that a fault costs only the passes after it.

    profiled: passes with operations; unprofiled: pass → why it has no profile or no time. recordings: by pass.
    """

    blocks: list[Sample] = field(default_factory=list)
    operations: list[ProfiledOperation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    profiled: list[str] = field(default_factory=list)
    unprofiled: dict[str, str] = field(default_factory=dict)
    recordings: dict[str, PassRecording] = field(default_factory=dict)

    def add(self, later: PassFindings) -> None:
        """Add the results of a later pass; equal warnings are kept once, and so is a pass's first reason."""
        self.blocks += later.blocks
        self.operations += later.operations
        self.warnings += [warning for warning in later.warnings if warning not in self.warnings]
        self.profiled += later.profiled
        self.unprofiled = later.unprofiled | self.unprofiled
        self.recordings |= later.recordings


@dataclass(frozen=True)
class CellMeasurement:
    """The measurement of one cell. run: its row with the worker's fields (`WORKER_COLUMNS`); operations: of the
    profiles of its passes; ranks: rows of the files that several ranks have, without the cell and the attempt."""

    run: Run
    blocks: tuple[Sample, ...] = ()
    operations: tuple[ProfiledOperation, ...] = ()
    recordings: Mapping[str, PassRecording] = field(default_factory=dict)
    ranks: Rows = field(default_factory=dict)

    def with_passes(self, passes: PassFindings) -> CellMeasurement:
        """Return the measurement with the cell's other passes; status, reason and the numbers of its own step stay."""
        warnings = (*self.run.warnings, *passes.warnings)
        run = replace(self.run, profiled=tuple(passes.profiled), unprofiled=passes.unprofiled, warnings=warnings)
        blocks, operations = (*self.blocks, *passes.blocks), tuple(passes.operations)
        return replace(self, run=run, blocks=blocks, operations=operations, recordings=passes.recordings)


@dataclass(frozen=True)
class OperationTable:
    """A step's operations as records only, for the parent, which has no torch. notes: what was unusual."""

    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlotSettings:
    """Settings of every slot of a sweep. device: as in --device. version: of this program, where the run is kept.
    threads: OMP_NUM_THREADS there; empty: not set, and a slot unsets what its executor chose."""

    device: str
    cell_timeout_s: float
    version: str
    threads: str = ""


@dataclass(frozen=True)
class SlotFacts:
    """Facts of a slot before its first cell. reason: why there is no telemetry; empty if there is."""

    host: str
    probed: ProbeResult
    preflight: Mapping[str, Any]
    reason: str = ""


@dataclass(frozen=True)
class Order:
    """One cell to be measured. attempt: its number in the run. traced: whether the run has the operation table of its
    step. began_at: UTC by the clock of the process that keeps the run. left_s: of the time budget; sharing: how many
    cells share it."""

    cell: Cell
    attempt: int
    session: str
    torch_version: str
    began_at: str
    traced: bool = False
    left_s: float = math.inf
    sharing: int = 1

    def row(self, status: str = "", **known: Any) -> Run:
        """Return the attempt's row before anything is measured, with the units of its policy on this device."""
        policy = PRECISIONS[self.cell.precision]
        unit = unit_of(policy.autocast or "float32", policy, self.cell.device)
        own = {"attempt": self.attempt, "session": self.session, "started_at": self.began_at}
        return blank_run(self.cell, status, **own, convolution_unit=unit, matmul_unit=unit, **known)


def order_of(store: Store, cell: Cell, session: str, torch_version: str) -> Order:
    """Return the next attempt at a cell. torch_version: where the cell will be measured."""
    is_traceable = "exact" in cell.methods and not reason_against(cell)
    traced = is_traceable and store.has_operations(trace_id(cell, torch_version))
    return Order(cell, store.next_attempt(cell.cell_id), session, torch_version, utc_now(), traced)


def trace_id(cell: Cell, torch_version: str) -> str:
    """Return the id of an operation table, by what decides it: the workload, its sizes, the dtype policy, the
    optimizer, the layout."""
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


@dataclass
class CellResult:
    """The result of one attempt at a cell. profile: of its passes; ceilings, tables: of the device and of a step."""

    run: Run
    rows: dict[str, Sequence[Record]] = field(default_factory=dict)
    profile: Sequence[ProfiledOperation] = ()
    recordings: Mapping[str, PassRecording] = field(default_factory=dict)
    ceilings: list[Ceiling] = field(default_factory=list)
    tables: dict[str, OperationTable] = field(default_factory=dict)
    lines: Sequence[str] = ()  # to be told
    lost: str = ""  # why its slot can measure nothing any more

    def learn(self, **fields: Any) -> None:
        """Fill in fields of the attempt's row."""
        self.run = replace(self.run, **fields)


def store_result(store: Store, order: Order, result: CellResult, notes: Sequence[str] = ()) -> Run:
    """Write a result into the run, the cell's own row last; Ctrl-C waits until it is whole. notes: more warnings.

    Rows that cannot be stored (a value that could not be read back, an operation table other than the one in the run)
    cost their cell, whose row says so. Raises StoreFault.
    """
    run, checksums = result.run, dict[str, Any]()
    with uninterrupted():
        store.append_ceilings(result.ceilings)
        try:
            for identity, table in result.tables.items():
                store.write_operations(identity, table.operations, table.storages)
            if result.profile:
                try:
                    checksums |= store.write_profile(run.cell_id, run.attempt, result.profile)
                except ValueError as fault:
                    lost = dict.fromkeys(run.profiled, f"its profile cannot be kept: {fault}")
                    run = replace(run, profiled=(), unprofiled={**run.unprofiled, **lost})
            for pass_name, recording in result.recordings.items():
                recorded = (pass_name, run.profile, recording.content, recording.command)
                checksums |= store.write_recording(run.cell_id, run.attempt, *recorded)
            run = replace(run, warnings=(*notes, *run.warnings), committed=checksums)
            store.commit(run, result.rows)
        except (ValueError, Inconsistent) as fault:
            run = order.row("crashed", reason=f"its rows cannot be kept: {fault}", duration_s=result.run.duration_s)
            store.commit(run, {})
        return run
