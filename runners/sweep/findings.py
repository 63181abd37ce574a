"""What becomes of one cell, as records: what its worker measures, what the parent adds, and the row that says it.

Torch-free and picklable: workers send these to the parent. Nothing is measured or written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from analysis.stats.summary import LAG1
from results.records.cell import Cell, Run
from results.records.operations import Operation, ProfiledOperation, Storage
from results.records.rows import Record
from results.records.samples import Sample
from runners.workers.telemetry import WindowEnergy

Rows = Mapping[str, Sequence[Record]]
"""File → a cell's rows."""


@dataclass(frozen=True, kw_only=True)
class CellFindings:
    """What measuring found of a cell beside its blocks: fields of `Run` by the same names, with the same defaults."""

    items_per_step: int | None = None
    parameters: int | None = None
    flags_before: Mapping[str, Any] = field(default_factory=dict)
    flags_after: Mapping[str, Any] = field(default_factory=dict)
    executed: Mapping[str, int] = field(default_factory=dict)
    first_loss: float | None = None
    last_loss: float | None = None
    compile_s: float | None = None
    warmup_steps: int | None = None
    warmup_s: float | None = None
    window_start_s: float | None = None
    window_end_s: float | None = None
    others_cpu_ratio: float | None = None
    sync_wait_ratio: float | None = None
    host_bound: bool | None = None
    peak_memory_bytes: int | None = None
    reserved_memory_bytes: int | None = None
    profiled: tuple[str, ...] = ()
    unprofiled: Mapping[str, str] = field(default_factory=dict)
    instructions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    interval_rule: str = LAG1
    first_step_s: float | None = None


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
    """What measuring one cell gave: raw blocks, what was found beside them, the operations of its works' profiles.

    ranks: rows of the files that several ranks have, without the cell and the attempt.
    """

    status: str
    reason: str
    blocks: tuple[Sample, ...]
    warnings: tuple[str, ...] = ()
    findings: CellFindings = field(default_factory=CellFindings)
    operations: tuple[ProfiledOperation, ...] = ()
    recordings: Mapping[str, WorkRecording] = field(default_factory=dict)
    ranks: Rows = field(default_factory=dict)

    def with_works(self, works: WorkFindings) -> CellMeasurement:
        """With the cell's other works; status, reason and the numbers of its own step stay as they are."""
        return replace(
            self,
            blocks=(*self.blocks, *works.blocks),
            operations=tuple(works.operations),
            recordings=works.recordings,
            warnings=(*self.warnings, *works.warnings),
            findings=replace(self.findings, profiled=tuple(works.profiled), unprofiled=works.unprofiled),
        )


@dataclass(frozen=True)
class OperationTable:
    """A step's operations as records alone: the parent, which receives it, has no torch. notes: what was unusual."""

    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CellOutcome:
    """How one attempt at a cell ended, and the rows that are kept of it."""

    status: str
    reason: str = ""
    warnings: tuple[str, ...] = ()
    rows: Rows = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a cell, as far as it is known; whatever ends it, this much goes into its row.

    committed: file → its seal, of files that were written before the row.
    """

    cell: Cell
    number: int
    sitting: str
    started_at: str
    duration_s: float | None = None
    trace_id: str = ""
    convolution_unit: str = ""
    matmul_unit: str = ""
    findings: CellFindings = field(default_factory=CellFindings)
    energy: WindowEnergy = field(default_factory=WindowEnergy)
    recordings: Mapping[str, WorkRecording] = field(default_factory=dict)
    committed: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def run(self, outcome: CellOutcome) -> Run:
        """The row of runs.csv."""
        return Run(
            **vars(self.cell),
            **{each.name: getattr(self.findings, each.name) for each in fields(self.findings)},
            cell_id=self.cell.cell_id,
            attempt=self.number,
            sitting=self.sitting,
            status=outcome.status,
            reason=outcome.reason,
            warnings=outcome.warnings,
            started_at=self.started_at,
            duration_s=self.duration_s,
            trace_id=self.trace_id,
            convolution_unit=self.convolution_unit,
            matmul_unit=self.matmul_unit,
            energy_j=self.energy.energy_j,
            energy_method=self.energy.energy_method,
            committed=self.committed,
        )
