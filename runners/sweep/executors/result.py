"""What travels between the process that keeps a run and a slot that measures for it: an order there, a result back.

A slot has no run directory. Its session writes into a `ResultStore`, and `keep` writes the same rows into the run,
under the same checks, when the result has arrived: until then the cell is not measured. Torch-free and picklable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from results.errors import Inconsistent
from results.records.cell import Cell, Run
from results.records.operations import Operation, ProfiledOperation, Storage
from results.records.rows import Record
from results.records.samples import Ceiling
from results.store.store import Store
from runners.sweep.findings import OperationTable
from runners.workers.devices import ProbeResult
from runners.workers.pool import uninterrupted


@dataclass(frozen=True)
class SlotSettings:
    """What every slot of a sweep must know. device: auto, cpu or cuda. version: of this program, where the run is kept.
    threads: OMP_NUM_THREADS there; empty: it is not set, and a slot unsets what its executor chose."""

    device: str
    cell_timeout_s: float
    version: str
    threads: str = ""
    debug: bool = False


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


@dataclass(frozen=True)
class CellResult:
    """One attempt at a cell, as its session wrote it. profile: of its works. recordings: (work, recorder, content,
    command) of each. lines: what is to be told."""

    run: Run
    rows: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    profile: Sequence[ProfiledOperation] = ()
    recordings: Sequence[tuple[str, str, bytes, str]] = ()
    ceilings: Sequence[Ceiling] = ()
    tables: Mapping[str, OperationTable] = field(default_factory=dict)
    lines: Sequence[str] = ()


class ResultStore:
    """Has the methods of a `Store` that a session calls, and keeps what they are given until `take`."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._known: set[str] = set()
        self._run: Run | None = None
        self._rows: Mapping[str, Sequence[Record]] = {}
        self._profile: Sequence[ProfiledOperation] = ()
        self._recordings: list[tuple[str, str, bytes, str]] = []
        self._ceilings: list[Ceiling] = []
        self._tables: dict[str, OperationTable] = {}

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
        self._tables[trace_id] = OperationTable(tuple(operations), tuple(storages))
        return {}

    def append_ceilings(self, ceilings: Sequence[Ceiling]) -> None:
        self._ceilings += ceilings

    def write_profile(self, cell_id: str, attempt: int, rows: Sequence[ProfiledOperation]) -> dict[str, list[Any]]:
        self._profile = tuple(rows)
        return {}

    def write_recording(
        self, cell_id: str, attempt: int, work: str, source: str, packed: bytes, command: str = ""
    ) -> dict[str, list[Any]]:
        self._recordings.append((work, source, packed, command))
        return {}

    def commit(self, run: Run, rows: Mapping[str, Sequence[Record]]) -> None:
        self._run, self._rows = run, dict(rows)

    def take(self, lines: Sequence[str]) -> CellResult:
        """The result; nothing of it is kept here. Raises ValueError if no attempt was committed."""
        if self._run is None:
            raise ValueError("expected an attempt that was committed, got none")
        result = CellResult(
            self._run,
            self._rows,
            self._profile,
            tuple(self._recordings),
            tuple(self._ceilings),
            self._tables,
            tuple(lines),
        )
        self._run, self._rows, self._profile = None, {}, ()
        self._recordings, self._ceilings, self._tables = [], [], {}
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
                run = failure(order, "crashed", f"its rows cannot be kept: {fault}", result.run.duration_s)
                store.commit(run, {})
                return [run]
        return [
            run for order, result in measured for run in keep(store, [(order, replace(result, ceilings=()))], notes)
        ]


def _run(store: Store, order: Order, result: CellResult, notes: Sequence[str]) -> Run:
    """The row of a result, whose files that are no rows are written."""
    warnings = (*notes, *result.run.warnings)
    seals = _seals(store, order, result)
    return replace(result.run, started_at=order.began_at, warnings=warnings, committed=seals)


def failure(order: Order, status: str, reason: str, duration_s: float | None = None) -> Run:
    """The row of a cell of which nothing else can be kept."""
    return Run(
        **vars(order.cell),
        cell_id=order.cell.cell_id,
        attempt=order.attempt,
        sitting=order.sitting,
        status=status,
        reason=reason,
        started_at=order.began_at,
        duration_s=duration_s,
    )


def _seals(store: Store, order: Order, result: CellResult) -> dict[str, Any]:
    """Writes a result's files that are no rows; file → its seal."""
    cell_id = order.cell.cell_id
    seals: dict[str, Any] = {}
    for trace_id, table in result.tables.items():
        store.write_operations(trace_id, table.operations, table.storages)
    if result.profile:
        seals |= store.write_profile(cell_id, order.attempt, result.profile)
    for work, source, packed, command in result.recordings:
        seals |= store.write_recording(cell_id, order.attempt, work, source, packed, command)
    return seals
