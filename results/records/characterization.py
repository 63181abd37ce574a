"""Defines the records of a characterization: the recordings, their steps, and the time of each operation type.

A characterization shows where workloads spend their time, as the Fathom paper does. Its files (`FILES`) are in one
directory, never in a sweep's run. `recordings.csv` lists each recording with its outcome, and the other files refer to
a recording by its number. Everything that `runners.characterize` shows is derived from these records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

from results.records.rows import ANY, SIGNED, FromOne, Json, Record

MODES = ("training", "inference")


WARM_UP, PLAIN, PROFILED = "warm_up", "plain", "profiled"
"""Parts of a recording: its first steps, steps without a profiler, steps under one."""


@dataclass(frozen=True, kw_only=True)
class WorkloadRecording(Record):
    """recordings.csv: one workload, run one way in one process, with its outcome."""

    recording: int
    workload: str
    mode: str = "training"  # or inference: only the forward pass, in eval mode, without gradients
    variant: str = ""
    batch_size: FromOne = 1
    hyper: Json = field(default_factory=dict)
    device: str = "cpu"
    device_name: str = ""
    torch_version: str = ""
    threads: FromOne | None = None  # intra-operation threads; None: not on a CPU
    precision: str = "fp32"
    layout: str = "channels_first"
    execution: str = "eager"
    optimizer: str = ""  # of training
    seed: Annotated[int, ANY] = 0
    repeat: int = 0
    why: str = "mix"  # what it was recorded for: mix, threads, batch, repeat or switch
    status: str = "ok"
    reason: str = ""
    task: str = ""
    parameters: int | None = None
    took_s: float | None = None  # all of the recording, its process included
    peak_memory_bytes: int | None = None  # of a CPU: resident; of a device: allocated
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RecordedStep(Record):
    """steps.csv: the time of one step from end to end."""

    recording: int
    part: str  # warm_up, plain or profiled
    step: int  # in its part, from 0
    time_s: float
    operations_s: float | None = None  # part of time_s in which an operation ran; only of profiled steps
    calls: int | None = None  # of operations; only of profiled steps
    launches: int | None = None  # kernels, copies and fills; on a CPU calls that call no other


@dataclass(frozen=True, kw_only=True)
class OperationTime(Record):
    """operation_times.csv.gz: time of all calls of one name in one profiled step, each instant counted once."""

    recording: int
    step: Annotated[int, SIGNED]
    name: str  # as torch's profiler has it: "aten::addmm"
    phase: str
    scope: str = ""  # "step" or "zero_grad" of an optimizer
    optimizer: str = ""  # its class
    tags: tuple[str, ...] = ()  # what torch says of the operator
    calls: int = 0
    launches: int = 0
    time_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class OperationTypeCost(Record):
    """operation_costs.csv.gz: exact costs of a module's operations of one name, and their mean time in a step."""

    recording: int
    name: str  # as our tracer has it: "aten.addmm"
    kind: str
    phase: str
    module: str = ""
    unit: str = ""
    calls: int = 0
    model_flop: int = 0
    other_flop: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    time_s: float | None = None  # of those calls that were timed
    untimed_calls: int = 0  # calls without a match in the profiled steps


@dataclass(frozen=True, kw_only=True)
class CallTime(Record):
    """call_times.csv.gz: every call of one profiled step, in the order of their names."""

    recording: int
    name: str
    scope: str = ""
    time_s: float = 0.0  # time of the call without the calls inside it


@dataclass(frozen=True, kw_only=True)
class AloneTime(Record):
    """alone.csv.gz: one operation's calls with the same sizes, and the time of one such call run alone."""

    recording: int
    name: str  # as our tracer has it: "aten.addmm"
    phase: str
    sizes: str = ""  # of its tensors: "64x256:float32"
    calls: int = 0
    time_s: float | None = None  # None: it could not be run again


FILES: Mapping[str, type[Record]] = {
    "recordings.csv": WorkloadRecording,
    "steps.csv": RecordedStep,
    "operation_times.csv.gz": OperationTime,
    "operation_costs.csv.gz": OperationTypeCost,
    "call_times.csv.gz": CallTime,
    "alone.csv.gz": AloneTime,
}


@dataclass(frozen=True)
class Characterization:
    """The rows of all files."""

    recordings: tuple[WorkloadRecording, ...] = ()
    steps: tuple[RecordedStep, ...] = ()
    times: tuple[OperationTime, ...] = ()
    costs: tuple[OperationTypeCost, ...] = ()
    calls: tuple[CallTime, ...] = ()
    alone_times: tuple[AloneTime, ...] = ()

    def rows(self) -> dict[str, tuple[Any, ...]]:
        """Return file name → its rows."""
        return dict(zip(FILES, (getattr(self, column.name) for column in fields(self)), strict=True))

    def numbered_from(self, first: int) -> Characterization:
        """Return these rows with their recordings numbered from `first`, so that they can follow others."""
        if not first:
            return self
        number = {row.recording: number for number, row in enumerate(self.recordings, first)}
        return Characterization(
            *(
                tuple(replace(row, recording=number[row.recording]) for row in getattr(self, column.name))
                for column in fields(self)
            )
        )

    def with_rows(self, other: Characterization) -> Characterization:
        """Append the other's rows."""
        return Characterization(
            *(getattr(self, column.name) + getattr(other, column.name) for column in fields(self)),
        )
