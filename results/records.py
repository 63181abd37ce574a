"""One frozen dataclass for each kind of observation.

The header of every CSV file is the field names of its record, in order; no header is typed anywhere else.
Column names carry the SI unit. `None` is unknown and is written as an empty field; it is never zero. How values become
text is in `rows.py`. This module knows no files: `store.py` writes and `reading.py` reads them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from results.rows import Record, from_text, header, json_default, to_text, to_values

__all__ = ["Record", "from_text", "header", "to_text", "to_values"]

SCHEMA_VERSION = 3

STATUSES = (
    "ok",
    "not_converged",
    "unavailable",
    "out_of_memory",
    "timeout",
    "device_error",
    "crashed",
    "interrupted",
    "invalid",
)
"""What can become of a cell. The first two are results; the others are rows with a reason."""

MEASURED = ("ok", "not_converged")

RECORDERS = ("kineto", "nsys")
"""What a sweep can keep recordings of: the values of `Parameters.profile` beside none."""

PHASES = ("forward", "loss", "backward", "optimizer", "recompute")

WORKS = ("one", "batch", "last", "epoch")
"""What is profiled: forward and backward of one sample; a training step of the cell's batch; one of the epoch's last,
smaller batch; a whole epoch."""

IDENTITY = ("cell_id", "attempt", "model", "batch_size", "precision", "device", "repeat")
"""Fields of a run that derived rows repeat, those of them that the record has."""

WHOLE = "total"
"""The scope of counts of the whole model; every other scope is the path of a module."""

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Parameters(Record):
    """Everything that decides what is measured; the first columns of runs.csv.

    Add a parameter only with a default that means what cells did before it: `Cell.cell_id` leaves defaults out, so
    that old identifiers stay.
    """

    model: str
    batch_size: int
    device: str  # "cpu", "cuda" (index 0) or "cuda:1", …
    precision: str = "fp32"
    layout: str = "channels_first"
    compile: bool = False
    optimizer: str = "sgd"
    image_size: int | None = None  # None: the workload's own
    num_classes: int | None = None  # None: the workload's own
    hyper: Json = field(default_factory=dict)  # other sizes by name; the rest are the workload's own
    methods: tuple[str, ...] = ("theory", "exact")
    counters: tuple[str, ...] = ("fvcore", "ptflops")
    data: str = "synthetic"
    cudnn_benchmark: bool = True
    deterministic: bool = False
    target_ci_ratio: float | None = None  # half width of the 95 % interval ÷ mean; None: the device's own
    quick: bool = False
    repeat: int = 0
    seed: int = 0
    epoch_images: int = 10_000  # of the method epoch
    input_pipeline: bool = False  # each step takes its batch from a DataLoader, not from the device's memory
    profile: str = ""  # "kineto", "nsys": each work's recording is kept as this recorder writes it; empty: none is


@dataclass(frozen=True, kw_only=True)
class Cell(Parameters):
    """One point of the grid."""

    @property
    def cell_id(self) -> str:
        """16 hex digits of SHA-256 over the sorted JSON of all non-default parameters."""
        return digest(non_default(self))


@dataclass(frozen=True, kw_only=True)
class Run(Parameters):
    """runs.csv: one attempt at one cell. Written last, it commits the cell's rows in every other file."""

    cell_id: str
    attempt: int
    sitting: str
    status: str
    reason: str = ""
    warnings: tuple[str, ...] = ()
    started_at: str = ""  # UTC, ISO 8601
    duration_s: float | None = None
    trace_id: str = ""
    items_per_step: int | None = None
    parameters: int | None = None
    convolution_unit: str = ""  # the unit whose peak applies: fp32, tf32, fp16, bf16
    matmul_unit: str = ""
    flags_before: Json = field(default_factory=dict)
    flags_after: Json = field(default_factory=dict)
    executed: Json = field(default_factory=dict)  # "kind/dtype" → model FLOP of one real step
    first_loss: float | None = None
    last_loss: float | None = None
    compile_s: float | None = None
    warmup_steps: int | None = None
    warmup_s: float | None = None
    window_start_s: float | None = None  # monotonic clock of the host, as in telemetry.csv
    window_end_s: float | None = None
    others_cpu_ratio: float | None = None  # share of all processors that others used in the window
    sync_wait_ratio: float | None = None  # median wait of a block's last synchronise ÷ step time
    host_bound: bool | None = None
    peak_memory_bytes: int | None = None
    reserved_memory_bytes: int | None = None
    energy_j: float | None = None  # over the window
    energy_method: str = ""  # counter, polled, or empty with the reason in warnings
    profiled: tuple[str, ...] = ()  # works with rows in the attempt's profile
    unprofiled: Json = field(default_factory=dict)  # work (or "nsys WORK") → why it has no profile or no time
    committed: Json = field(default_factory=dict)  # file → [rows, checksum]

    @property
    def cell(self) -> Cell:
        """The parameters alone."""
        return Cell(**{name: getattr(self, name) for name in header(Cell)})


@dataclass(frozen=True, kw_only=True)
class Sample(Record):
    """samples.csv: one timed block of steps (or of one phase of steps). Every one is kept, warm-up too."""

    cell_id: str
    attempt: int
    index: int
    part: str  # warmup, measure, phase, profiled
    phase: str = ""  # empty: the whole step
    steps: int
    start_s: float  # monotonic clock of the host
    wall_s: float
    device_s: float | None = None  # between CUDA events; None on a CPU
    sync_wait_s: float | None = None  # how long the block's last synchronise took
    work: str = ""  # one, last, epoch; empty: a training step of the cell's own batch


@dataclass(frozen=True, kw_only=True)
class Telemetry(Record):
    """telemetry.csv: one poll of the device, from the parent process. What it does not offer is None."""

    cell_id: str
    attempt: int
    time_s: float  # monotonic clock of the host
    sm_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    power_w: float | None = None
    energy_j: float | None = None  # the device's own counter since its driver was loaded
    temperature_c: float | None = None
    event_reasons: tuple[str, ...] | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class FlopCount(Record):
    """flop_counts.csv: what one counter says, in its own unit and convention, and in FLOP.

    A counter that cannot count is a row with a status and a reason, its values None.
    """

    cell_id: str = ""
    attempt: int = 0
    counter: str
    workload: str
    batch_size: int
    phase: str  # forward, backward, … or total
    scope: str = WHOLE  # or a module path
    operator: str = ""  # empty: all operators together; else the counter's own name of one
    native_value: int | float | None = None
    native_unit: str = ""  # mac or flop
    flop: int | None = None  # the native value in FLOP, one multiply-add being 2
    extrapolated: bool = False  # by the affine law from smaller batches
    ignored: Json = field(default_factory=dict)  # operator → calls left out on purpose
    not_understood: Json = field(default_factory=dict)  # operator → calls the counter has no rule for
    status: str = "ok"
    reason: str = ""
    duration_s: float | None = None
    peak_memory_bytes: int | None = None
    parameters: int | None = None  # of the model, by this counter; on its forward total alone
    printed: int | float | None = None  # what its user sees, where that is not native_value


@dataclass(frozen=True)
class Operation(Record):
    """operations/TRACE_ID.csv.gz: one ATen call of a training step.

    `input_names[i]` is the schema argument that tensor i came from ("weight"; "tensors[2]" in a list), so that a
    formula asks for a shape by name. Sizes are ints, or sympy expressions where the trace is symbolic.
    `attributes` holds the other arguments by schema name (groups, output_mask, stride, …).
    """

    index: int
    name: str  # "aten.convolution.default" without the overload: "aten.convolution"
    kind: str
    phase: str
    module: str
    sequence_nr: int | None
    forward_index: int | None
    input_names: tuple[str, ...]
    input_shapes: tuple[tuple[Any, ...], ...]
    input_dtypes: tuple[str, ...]
    output_shapes: tuple[tuple[Any, ...], ...]
    output_dtypes: tuple[str, ...]
    attributes: Json
    reads: tuple[int, ...]  # storage ids, one for each input tensor
    writes: tuple[int, ...]  # storage ids of outputs and of inputs written in place


@dataclass(frozen=True)
class Storage(Record):
    """operations/TRACE_ID.storages.csv.gz: one block of memory during the step."""

    id: int  # our own serial number
    nbytes: Any  # int, or a sympy expression
    role: str  # weight, buffer, gradient, optimizer_state, input, activation, temporary
    born_index: int  # index of the operation that made it; -1: before the step
    died_index: int | None  # index of the last operation before it was freed; None: outlived the step


@dataclass(frozen=True)
class ProfiledOperation(Record):
    """profiles/CELL_ID-ATTEMPT.csv.gz: one operator call that torch.profiler recorded in one step of one work.

    `input_shapes`, `input_dtypes` and `concrete_inputs` have one entry an argument of the call, in its order: a
    tensor's sizes, dtype and None; otherwise (), "" (or the recorder's word for it) and the value. A list of tensors
    has the sizes of each.
    """

    work: str  # one, batch, last
    index: int  # in the order of start, from 0 in each work
    parent: int | None  # index of the call that made this one, on the same thread
    name: str  # as recorded: "aten::conv2d"
    phase: str  # of the range around it; empty: outside of all
    module: str  # path of the module, of a backward call that of its forward call
    sequence_nr: int | None
    forward_index: int | None  # of a backward call: the call whose gradient it calculates
    thread: int
    input_shapes: tuple[Any, ...]
    input_dtypes: tuple[str, ...]
    concrete_inputs: tuple[Any, ...]
    found_flop: int | None  # what the profiler counted; None: it counts nothing for this name
    start_s: float  # since the step began
    time_s: float  # on the host, calls inside included
    device_time_s: float | None = None  # of the kernels launched in it, calls inside included


@dataclass(frozen=True, kw_only=True)
class Ceiling(Record):
    """ceilings.csv: what one kernel (or copy, or launch) reached on this device in this sitting."""

    sitting: str
    device: str
    precision: str
    unit: str  # the unit whose ceiling this is: fp32, tf32, fp16, bf16; empty: none
    operation: str  # matmul, convolution, copy, triad, launch, call
    shape: str
    layout: str = ""
    repeats: int | None = None
    median_s: float | None = None
    flop: int | None = None
    flop_per_s: float | None = None
    status: str = "ok"
    reason: str = ""
    mean_s: float | None = None
    best_s: float | None = None  # the fastest call
    family: str = ""  # of a product: square, near, area, deep, batch; of a copy: memory, cache
    moved_bytes: int | None = None  # of one call of copy or triad
    bytes_per_s: float | None = None
    threads: int | None = None  # torch's, on a CPU
    sm_clock_hz: float | None = None  # mean while it was timed
    device_name: str = ""


@dataclass(frozen=True, kw_only=True)
class Sitting(Record):
    """sittings.csv: one stretch of collecting on one machine."""

    sitting: str
    started_at: str
    host: str
    device: str
    device_name: str
    device_uuid: str = ""  # a hash, not the card's own
    driver: str = ""
    torch_version: str = ""
    peak_row: str = ""  # the row of analysis/peaks.csv whose peaks this device has; empty: none
    environment: Json = field(default_factory=dict)
    preflight: Json = field(default_factory=dict)  # other processes, MIG, ECC, power limit, temperature


@dataclass(frozen=True, kw_only=True)
class Utilization(Record):
    """utilization.csv: one fraction, with its numerator, its denominator and its time; rebuilt from raw rows."""

    cell_id: str
    attempt: int
    model: str
    batch_size: int
    precision: str
    device: str
    method: str  # theory, theory_as_published, exact, …
    numerator_source: str  # fvcore, ptflops, flopledger
    denominator: str  # datasheet, clock, ceiling, user
    model_flop: int | None = None  # of one step
    all_flop: int | None = None
    time_s: float | None = None
    time_low_s: float | None = None
    time_high_s: float | None = None
    achieved_flop_per_s: float | None = None
    peak_flop_per_s: float | None = None  # of mixed units: ΣF / Σ(F/P)
    peak_source: str = ""
    utilization_ratio: float | None = None
    utilization_low_ratio: float | None = None
    utilization_high_ratio: float | None = None
    items_per_s: float | None = None
    energy_per_item_j: float | None = None
    status: str = "ok"
    reason: str = ""
    warnings: tuple[str, ...] = ()
    variant: str = ""  # what else sets the cell apart: "layout=channels_last, compile=true"
    repeat: int = 0
    at_least_flop: int | None = None  # of one step, what is known where model_flop is not, from a profile
    unknown_calls: int = 0  # products of the profile without a count
    unknown_time_ratio: float | None = None  # the share of their time in that of the products


@dataclass(frozen=True, kw_only=True)
class StepTime(Record):
    """step_times.csv: how long one step of a cell takes, or one phase of it, over the timed blocks; from raw rows."""

    cell_id: str
    attempt: int
    model: str
    batch_size: int
    precision: str
    device: str
    phase: str = ""  # empty: the whole step; phases are of a pass of their own
    clock: str  # device or wall: what the times are of
    mean_s: float  # total time ÷ total steps
    median_s: float  # this and the next two are of the blocks
    p5_s: float
    p95_s: float
    low_s: float | None = None  # 95 % interval of the mean
    high_s: float | None = None
    blocks: int
    effective_blocks: float  # independent ones that would be as informative
    steps: int
    drift_ratio: float | None = None  # last third ÷ first third - 1
    outliers: int  # blocks beyond 3 MAD; they stay in every other number
    share_ratio: float | None = None  # of the phases' sum


@dataclass(frozen=True, kw_only=True)
class WorkTime(Record):
    """work_times.csv: how long one sample, one batch, the last batch and an epoch take; from raw rows.

    The epoch's time is its full batches' mean × their number + the last batch's mean. `profiled_*`: the same under
    torch.profiler. `real_*`: an epoch that was run from end to end, where that was short enough.
    """

    cell_id: str
    attempt: int
    model: str
    batch_size: int
    precision: str
    device: str
    work: str  # one, batch, last, epoch
    items: int | None = None  # images in it
    steps: int | None = None  # training steps in it
    time_s: float | None = None
    low_s: float | None = None  # 95 % interval of the mean
    high_s: float | None = None
    profiled_time_s: float | None = None
    profiled_low_s: float | None = None
    profiled_high_s: float | None = None
    overhead_ratio: float | None = None  # profiled ÷ unprofiled - 1
    real_time_s: float | None = None
    real_low_s: float | None = None
    real_high_s: float | None = None
    agrees: bool | None = None  # the intervals of time_s and real_time_s have a point in common
    status: str = "ok"
    reason: str = ""
    variant: str = ""
    repeat: int = 0


@dataclass(frozen=True, kw_only=True)
class CleanedOperation(Record):
    """cleaned/profiled_operations.csv.gz: one recorded product (convolution, matmul, attention, recurrent), cleaned."""

    cell_id: str
    attempt: int
    source: str  # torch_profiler, kineto, nsys
    work: str
    index: int
    name: str
    kind: str
    phase: str
    module: str
    forward_index: int | None = None
    dtype: str = ""  # torch's name of what it computes in: "float32", "bfloat16"
    found_flop: int | None = None  # as recorded
    deduplicated_flop: int | None = None  # after duplicates were taken out
    cleaned_flop: int | None = None  # after gaps were filled from the recorded shapes, too
    verdict: str  # right, over, under, as the recorder's own number was; unknown: shapes give no count
    reason: str = ""
    time_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProfileCount(Record):
    """cleaned/profile_counts.csv: model FLOP of one work and phase of a profile, as found and as cleaned."""

    cell_id: str
    attempt: int
    model: str
    batch_size: int
    precision: str
    device: str
    source: str  # torch_profiler, kineto, nsys
    work: str
    items: int  # images in it
    phase: str  # forward (loss included) or backward
    found_flop: int | None = None
    deduplicated_flop: int | None = None
    cleaned_flop: int | None = None
    exact_flop: int | None = None  # our own count, where the cell has one of the same batch
    operations: int = 0
    removed: int = 0  # operations whose number was a duplicate
    repaired: int = 0  # operations whose gap was filled
    unknown: int = 0  # operations whose recorded shapes give no count
    status: str = "ok"
    reason: str = ""
    at_least_flop: int | None = None  # sum of the products that have a count; cleaned_flop is None if one has none
    unknown_calls: int = 0  # products without a count: unknown
    unknown_time_ratio: float | None = None  # of the time of the products, the share of those without a count
    found_at_least_flop: int | None = None  # sum of what was found; found_flop is None if a product has no number
    deduplicated_at_least_flop: int | None = None
    outside_time_ratio: float | None = None  # of the time of kernels that make products, the share of no recorded call


@dataclass(frozen=True, kw_only=True)
class Ratio(Record):
    """cleaned/ratios.csv: FLOP of backward ÷ FLOP of forward, beside what they must be."""

    cell_id: str
    attempt: int
    model: str
    batch_size: int
    precision: str
    source: str  # flopledger, torch_profiler, kineto, nsys, a counter
    work: str  # one, batch, epoch; empty: a count, not a profile
    state: str  # found or cleaned
    level: str  # model, kind, module, operation
    name: str  # of the kind, module or forward operation; empty for the model
    forward_flop: int | None = None
    backward_flop: int | None = None
    ratio: float | None = None  # a pure number; 2 by rule of thumb
    exact_ratio: float | None = None  # of the model: 2 - share of the first operation, whose input needs no gradient
    status: str = "ok"
    reason: str = ""
    forward_at_least_flop: int | None = None  # sum of the calls that have a count; forward_flop is None if one has none
    backward_at_least_flop: int | None = None
    unknown_calls: int = 0  # calls without a count, of both sides


@dataclass(frozen=True, kw_only=True)
class Agreement(Record):
    """cleaned/agreement.csv: one counter's forward or backward beside our own count of the same batch."""

    cell_id: str
    attempt: int
    model: str
    batch_size: int
    counter: str
    phase: str
    native_value: int | float | None = None
    native_unit: str = ""
    total_flop: int | None = None  # the counter's total in FLOP, whatever it counts
    model_flop: int | None = None  # its convolutions and matrix products alone, as far as it tells them apart
    exact_flop: int | None = None
    difference_flop: int | None = None  # model_flop - exact_flop
    ratio: float | None = None  # model_flop ÷ exact_flop
    total_ratio: float | None = None  # total_flop ÷ exact_flop
    extrapolated: bool = False
    not_understood: Json = field(default_factory=dict)
    status: str = "ok"
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class BatchLaw(Record):
    """cleaned/batch_law.csv: one counter's number as slope · batch + constant, or the batches that break it."""

    cell_id: str
    attempt: int
    model: str
    counter: str
    phase: str
    scope: str = WHOLE
    operator: str = ""
    batches: tuple[int, ...] = ()  # counted, not extrapolated
    slope_flop: int | None = None  # a sample
    constant_flop: int | None = None
    holds: bool | None = None  # None: fewer than three batches decide nothing
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Kernel(Record):
    """kernels.csv.gz: one kernel, copy or fill of a recorded profile. Every one is kept, unmatched ones too."""

    index: int  # in the order of start
    name: str
    what: str  # kernel, memcpy, memset; call: an operator call of a recording without a device
    start_s: float | None = None  # since the recording's first event
    time_s: float
    device: int | None = None
    stream: int | None = None
    call: int | None = None  # index of the innermost recorded call that launched it
    link: str  # how that call was found: containment, external_id, sequence, graph, none
    instance: int | None = None  # index of the OperationInstance it belongs to
    phase: str = ""
    module: str = ""
    found_flop: int | None = None  # as the recorder, or PyProf's rule, attributes them
    deduplicated_flop: int | None = None  # after duplicates were taken out
    repaired_flop: int | None = None  # after gaps were filled from shapes, too
    fault: str = ""  # why found is not repaired


@dataclass(frozen=True, kw_only=True)
class OperationInstance(Record):
    """operation_instances.csv.gz: one product (or other outermost operator) of a recorded profile, and its kernels."""

    index: int  # in the order of start
    name: str
    kind: str
    phase: str
    module: str = ""
    step: int | None = None  # the recorder's number of the training step
    sequence_nr: int | None = None
    forward_index: int | None = None  # of a backward instance: index of the forward one
    input_shapes: tuple[Any, ...] = ()
    input_dtypes: tuple[str, ...] = ()
    concrete_inputs: tuple[Any, ...] = ()
    kernels: int = 0
    kernel_time_s: float | None = None
    host_time_s: float | None = None
    units: int | None = None  # products in it: 1 forward, 2 or 1 backward, by which gradients are asked for
    unit_flop: int | None = None  # model FLOP of one of them
    expected_flop: int | None = None  # units × unit_flop
    raw_flop: int | None = None  # sum of its kernels' found_flop
    deduplicated_flop: int | None = None
    repaired_flop: int | None = None
    verdict: str = "unknown"  # right, over, under, as raw_flop is; unknown: shapes give no count
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class CleaningLog(Record):
    """cleaned/cleaning_log.csv: one change that cleaning made to a record, and why."""

    step: str
    file: str
    cell_id: str
    attempt: int
    subject: str  # which record: "fvcore forward conv"
    field: str
    before: str
    after: str
    reason: str


def identity(run: Run, record: type[Record]) -> dict[str, Any]:
    """The fields of a derived record that say which cell and attempt it is of, with the run's values."""
    return {name: getattr(run, name) for name in IDENTITY if name in header(record)}


def non_default(record: Record) -> dict[str, Any]:
    """The fields of a record whose value is not the field's default."""
    kept = {}
    for f in dataclasses.fields(record):  # type: ignore[arg-type]
        default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        value = getattr(record, f.name)
        if default is dataclasses.MISSING or value != default:
            kept[f.name] = value
    return kept


def digest(value: Any) -> str:
    """16 hex digits of SHA-256 over the sorted compact JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=json_default)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
