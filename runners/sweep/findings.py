"""What becomes of one cell, as records: what its worker measures, what the parent adds, and the row that says it.

Torch-free and picklable: workers send these to the parent. Nothing is measured or written here.

What travels to and from a slot, which has no run directory, is an order there and a result back. Its session writes
into a `ResultStore`, and `keep` writes the same rows into the run, under the same checks, when the result has arrived:
until then the cell is not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from results.errors import Inconsistent
from results.records.cell import Ceiling, Cell, Parameters, Run, Sample
from results.records.counts import Operation, ProfiledOperation, Storage
from results.records.rows import Record, header
from results.store.store import Store
from runners.workers.devices import ProbeResult
from runners.workers.pool import uninterrupted

Rows = Mapping[str, Sequence[Record]]
"""File → a cell's rows."""

OF_SESSION = (
    "cell_id",
    "attempt",
    "sitting",
    "started_at",
    "duration_s",
    "trace_id",
    "convolution_unit",
    "matmul_unit",
)
FOUND = tuple(name for name in header(Run) if name not in (*header(Parameters), *OF_SESSION))
"""Fields of a row that measuring finds; its session knows the others."""


def blank_run(cell: Cell, status: str = "", **known: Any) -> Run:
    """The row of a cell of which nothing else is known. known: more of its fields."""
    return Run(**vars(cell), **{"cell_id": cell.cell_id, "attempt": 0, "sitting": "", "status": status, **known})


@dataclass(frozen=True)
class WorkRecording:
    """What a cell's recorder wrote of one work, compressed. command: what was run to record it; empty: nothing was."""

    content: bytes
    command: str = ""


@dataclass
class WorkFindings:
    """What measuring other works of a cell gives; filled as it goes on, so that a fault costs what comes after it.

    profiled: works with operations; unprofiled: work → why it has no profile or no time. recordings: by work.
    """

    blocks: list[Sample] = field(default_factory=list)
    operations: list[ProfiledOperation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    profiled: list[str] = field(default_factory=list)
    unprofiled: dict[str, str] = field(default_factory=dict)
    recordings: dict[str, WorkRecording] = field(default_factory=dict)


def merge_findings(parts: Sequence[WorkFindings]) -> WorkFindings:
    """What several passes gave, in their order; what two warn of is said once, and a work's first reason stays."""
    whole = WorkFindings()
    for part in parts:
        whole.blocks += part.blocks
        whole.operations += part.operations
        whole.warnings += [warning for warning in part.warnings if warning not in whole.warnings]
        whole.profiled += part.profiled
        whole.unprofiled = part.unprofiled | whole.unprofiled
        whole.recordings |= part.recordings
    return whole


@dataclass(frozen=True)
class CellMeasurement:
    """What measuring one cell gave. run: its row, as far as the worker knows it (`FOUND`); operations: of its works'
    profiles; ranks: rows of the files that several ranks have, without the cell and the attempt."""

    run: Run
    blocks: tuple[Sample, ...] = ()
    operations: tuple[ProfiledOperation, ...] = ()
    recordings: Mapping[str, WorkRecording] = field(default_factory=dict)
    ranks: Rows = field(default_factory=dict)

    def with_works(self, works: WorkFindings) -> CellMeasurement:
        """With the cell's other works; status, reason and the numbers of its own step stay as they are."""
        warnings = (*self.run.warnings, *works.warnings)
        run = replace(self.run, profiled=tuple(works.profiled), unprofiled=works.unprofiled, warnings=warnings)
        blocks, operations = (*self.blocks, *works.blocks), tuple(works.operations)
        return replace(self, run=run, blocks=blocks, operations=operations, recordings=works.recordings)


@dataclass(frozen=True)
class OperationTable:
    """A step's operations as records alone: the parent, which receives it, has no torch. notes: what was unusual."""

    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlotSettings:
    """What every slot of a sweep must know. device: auto, cpu or cuda. version: of this program, where the run is kept.
    threads: OMP_NUM_THREADS there; empty: it is not set, and a slot unsets what its executor chose."""

    device: str
    cell_timeout_s: float
    version: str
    threads: str = ""


@dataclass(frozen=True)
class SlotFacts:
    """What a slot says of itself before its first cell. utc_s: its clock, seconds since 1970. reason: why there is no
    telemetry; empty if there is."""

    host: str
    probed: ProbeResult
    preflight: Mapping[str, Any]
    utc_s: float
    reason: str = ""


@dataclass(frozen=True)
class Order:
    """One cell to be measured. attempt: its number in the run. traced: the run has the operation table of its step.
    began_at: UTC by the clock of the process that keeps the run."""

    cell: Cell
    attempt: int
    sitting: str
    torch_version: str
    began_at: str
    traced: bool = False


@dataclass
class CellResult:
    """One attempt at a cell, as its session wrote it. run: its row, None before it is committed. profile: of its works.
    recordings: (work, recorder, content, command) of each. lines: what is to be told."""

    run: Run | None = None
    rows: Rows = field(default_factory=dict)
    profile: Sequence[ProfiledOperation] = ()
    recordings: list[tuple[str, str, bytes, str]] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    tables: dict[str, OperationTable] = field(default_factory=dict)
    lines: Sequence[str] = ()


class ResultStore:
    """Has the methods of a `Store` that a session calls, and keeps what they are given until `take`."""

    def __init__(self, order: Order) -> None:
        self.order, self._result = order, CellResult()
        self._known: set[str] = set()

    def next_attempt(self, cell_id: str) -> int:
        """The number that came with the order."""
        return self.order.attempt

    def has_operations(self, trace_id: str) -> bool:
        """Whether the run has the table, or had it from here."""
        return self.order.traced or trace_id in self._known

    def write_operations(
        self, trace_id: str, operations: Iterable[Operation], storages: Iterable[Storage]
    ) -> dict[str, list[Any]]:
        self._known.add(trace_id)
        self._result.tables[trace_id] = OperationTable(tuple(operations), tuple(storages))
        return {}

    def append_ceilings(self, ceilings: Sequence[Ceiling]) -> None:
        self._result.ceilings += ceilings

    def write_profile(self, cell_id: str, attempt: int, rows: Sequence[ProfiledOperation]) -> dict[str, list[Any]]:
        self._result.profile = tuple(rows)
        return {}

    def write_recording(
        self, cell_id: str, attempt: int, work: str, source: str, packed: bytes, command: str = ""
    ) -> dict[str, list[Any]]:
        self._result.recordings.append((work, source, packed, command))
        return {}

    def commit(self, run: Run, rows: Mapping[str, Sequence[Record]]) -> None:
        self._result.run, self._result.rows = run, dict(rows)

    def take(self, lines: Sequence[str]) -> CellResult:
        """The result; nothing of it is kept here. Raises ValueError if no attempt was committed."""
        result, self._result = self._result, CellResult()
        if result.run is None:
            raise ValueError("expected an attempt that was committed, got none")
        result.lines = lines
        return result


def keep(store: Store, measured: Sequence[tuple[Order, CellResult]], notes: Sequence[str] = ()) -> list[Run]:
    """Writes results into the run, the cells' own rows last; Ctrl-C waits until they are whole. notes: more warnings.

    Rows that cannot be kept (a value that could not be read back, an operation table that is not the one that the run
    has) cost their cell, whose row says so. Raises StoreFault.
    """
    with uninterrupted():
        store.append_ceilings([row for _, result in measured for row in result.ceilings])
        try:
            attempts = [(_run(store, order, result, notes), result.rows) for order, result in measured]
            store.commit_group(attempts)
            return [run for run, _ in attempts]
        except (ValueError, Inconsistent) as fault:
            if len(measured) == 1:
                order, result = measured[0]
                took_s = None if result.run is None else result.run.duration_s
                run = failure(order, f"its rows cannot be kept: {fault}", took_s)
                store.commit(run, {})
                return [run]
        return [
            run for order, result in measured for run in keep(store, [(order, replace(result, ceilings=[]))], notes)
        ]


def _run(store: Store, order: Order, result: CellResult, notes: Sequence[str]) -> Run:
    """The row of a result, whose files that are no rows are written; their seals go into it."""
    assert result.run is not None  # `take` gives no other
    seals: dict[str, Any] = {}
    for trace_id, table in result.tables.items():
        store.write_operations(trace_id, table.operations, table.storages)
    if result.profile:
        seals |= store.write_profile(order.cell.cell_id, order.attempt, result.profile)
    for recording in result.recordings:
        seals |= store.write_recording(order.cell.cell_id, order.attempt, *recording)
    warnings = (*notes, *result.run.warnings)
    return replace(result.run, started_at=order.began_at, warnings=warnings, committed=seals)


def failure(order: Order, reason: str, duration_s: float | None = None) -> Run:
    """The row of a cell that crashed and of which nothing else can be kept."""
    known = {"attempt": order.attempt, "sitting": order.sitting, "started_at": order.began_at}
    return blank_run(order.cell, "crashed", reason=reason, duration_s=duration_s, **known)
