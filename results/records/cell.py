"""Defines the records of a sweep: requested cells, attempts at them, timed blocks, telemetry, ceilings, rows of ranks.

A cell is one combination of workload, batch size, precision and the other `Parameters`. A `Run` is one attempt at a
cell in a session. A `Ceiling` is the measured rate of one kernel, and a rank one process of a parallel step. The
docstring of each kind of row names its file in a run directory; `results/store` writes and reads these files.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

from results.records.rows import (
    ANY,
    POSITIVE,
    REQUEST,
    Counts,
    FromOne,
    Json,
    OfAttempt,
    Positive,
    Record,
    columns_of,
    digest,
    header,
)

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
"""Outcomes of a cell. The first two are results; the others are rows with a reason."""

MEASURED = ("ok", "not_converged")

LOOP = "loop"
"""Value of `Parameters.data` for a cell that `UtilizationMeter` measured in a user's own training loop."""

RECORDERS = ("kineto", "nsys")
"""Recorders that a sweep can keep recordings of: the values of `Parameters.profile` besides none."""

RETAIN = "retain"
MALLOC_SETTINGS = ("default", RETAIN)
"""Values of `Parameters.malloc`: the process's C allocator as it is, or one that keeps what is freed."""

PASSES = ("one", "batch", "last", "epoch")
"""Profiled passes: forward and backward of one sample; a training step of the cell's batch; one of the epoch's last,
smaller batch; a whole epoch."""

IDENTITY = ("cell_id", "attempt", "model", "batch_size", "precision", "device", "repeat", "threads", "wait_policy")
"""Fields of a run that derived rows repeat, where their record has them."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Parameters that a sweep takes lists of; the first columns of runs.csv."""

    model: str
    batch_size: FromOne
    device: str  # "cpu", "cuda" (index 0) or "cuda:1", …
    precision: str = "fp32"
    layout: str = "channels_first"
    compile: bool = False
    optimizer: str = "sgd"


@dataclass(frozen=True, kw_only=True)
class Common:
    """Parameters that all cells of a sweep share."""

    image_size: FromOne | None = None  # None: the workload's own
    num_classes: FromOne | None = None  # None: the workload's own
    hyper: Counts = field(default_factory=dict)  # other sizes by name; the rest are the workload's own
    methods: Annotated[tuple[str, ...], REQUEST] = ("theory", "exact")  # also one, batch, epoch
    counters: Annotated[tuple[str, ...], REQUEST] = ("fvcore", "ptflops")
    data: str = "synthetic"
    cudnn_benchmark: bool = True
    deterministic: bool = False
    target_ci_ratio: Annotated[Positive | None, REQUEST] = None  # half of the 95 % interval ÷ mean; None: the device's
    quick: Annotated[bool, REQUEST] = False
    repeat: Annotated[int, REQUEST] = 0
    seed: Annotated[int, ANY, REQUEST] = 0
    epoch_images: Annotated[FromOne, REQUEST] = 10_000  # of the method epoch
    input_pipeline: bool = False  # in older runs: each step took its batch from a DataLoader
    profile: Annotated[str, REQUEST] = ""  # "kineto", "nsys": whose recordings of passes are kept; empty: none are
    inputs: str = ""  # shapes of one sample, as `--input` takes them; empty: the model's own
    batch_maker: str = ""  # "file.py:function" that makes batches; empty: the model's own batches
    frozen: tuple[str, ...] = ()  # patterns of parameters that are not trained, as `--frozen` takes them
    checkpoint: tuple[str, ...] = ()  # patterns of modules that are calculated again, as `--checkpoint` takes them
    paired_ceiling: bool = False  # a ceiling's kernels are timed between the blocks of steps
    malloc: str = "default"  # "retain": the C library keeps the memory that a step frees
    threads: FromOne | None = None  # of one operation on a CPU; None: as many as torch takes by itself
    wait_policy: str = ""  # "passive": threads that wait let others have their processors; empty: OpenMP's own


@dataclass(frozen=True, kw_only=True)
class Parameters(Common, Point, Record):
    """All parameters that decide what is measured.

    Add a parameter only with a default that means what cells did before it: `Cell.cell_id` leaves defaults out, so
    that old identifiers stay.
    """

    model_digest: Annotated[str, REQUEST] = ""  # of the files of a user's own model, whose changes may be compared
    parallel: str = ""  # "ddp=2,tp=2": how a step is split over ranks; batch_size is of all of them; empty: one device


@dataclass(frozen=True, kw_only=True)
class Cell(Parameters):
    """One point of the grid."""

    @property
    def cell_id(self) -> str:
        """Return 16 hex digits of SHA-256 over the sorted JSON of all non-default parameters."""
        return digest(non_default(self))


@dataclass(frozen=True, kw_only=True)
class Run(Parameters):
    """runs.csv: one attempt at one cell. Written last, it commits the cell's rows in every other file."""

    cell_id: str
    attempt: int
    session: str
    status: str
    reason: str = ""
    warnings: tuple[str, ...] = ()
    started_at: str = ""  # UTC, ISO 8601
    duration_s: float | None = None
    trace_id: str = ""
    items_per_step: FromOne | None = None
    parameters: int | None = None
    convolution_unit: str = ""  # the unit whose peak applies: fp32, tf32, fp16, bf16
    matmul_unit: str = ""
    flags_before: Json = field(default_factory=dict)
    flags_after: Json = field(default_factory=dict)
    executed: Counts = field(default_factory=dict)  # "kind/dtype" → model FLOP of one real step, or a meter's mean step
    first_loss: Annotated[float | None, ANY] = None
    last_loss: Annotated[float | None, ANY] = None
    compile_s: float | None = None
    warmup_steps: int | None = None
    warmup_s: float | None = None
    window_start_s: float | None = None  # monotonic clock of the host, as in telemetry.csv
    window_end_s: float | None = None
    others_cpu_ratio: float | None = None  # share of all processors that others used in the window
    sync_wait_ratio: float | None = None  # median wait of a block's last synchronise ÷ step time
    host_bound: bool | None = None  # whether sync_wait_ratio is at most 0.05
    peak_memory_bytes: int | None = None
    reserved_memory_bytes: int | None = None
    energy_j: float | None = None  # over the window
    energy_method: str = ""  # counter, polled, or empty with the reason in warnings
    profiled: tuple[str, ...] = ()  # passes with rows in the attempt's profile
    unprofiled: Json = field(default_factory=dict)  # pass (or "nsys PASS") → why it has no profile or no time
    committed: Json = field(default_factory=dict)  # file → [rows, checksum]
    at_least_flop: int | None = None  # of a meter's mean step, where some calls have no count: FLOP of the others
    unknown_calls: int | None = None  # of a meter's mean step, rounded up: calls without a count
    instructions: Json = field(default_factory=dict)  # of older runs, of a CPU: what its products ran on
    attention: Counts = field(default_factory=dict)  # of a meter's loop: "convention/dtype" → FLOP less than dense
    interval_rule: str = "lag1"  # of the intervals of its times: lag1, lag1_raised, batches
    first_step_s: float | None = None  # wall time of the untimed step whose FLOP are in `executed`

    @property
    def cell(self) -> Cell:
        """Return the parameters only."""
        return Cell(**{name: getattr(self, name) for name in header(Cell)})


@dataclass(frozen=True, kw_only=True)
class SessionRow(Record):
    """sessions.csv: one period of collecting on one machine."""

    session: str
    started_at: str
    host: str
    device: str
    device_name: str
    device_uuid: str = ""  # a hash, not the card's own
    driver: str = ""
    torch_version: str = ""
    peak_row: str = ""  # the row of analysis/devices/peaks.csv whose peaks this device has; empty: none
    environment: Json = field(default_factory=dict)
    preflight: Json = field(default_factory=dict)  # other processes, MIG, ECC, power limit, temperature


def non_default(record: Record, kind: type[Record] | None = None) -> dict[str, Any]:
    """Return the fields of a record whose value is not the default. kind: a base class, to return only its fields."""
    columns = columns_of(kind or type(record))
    return {name: getattr(record, name) for name in columns if getattr(record, name) != columns[name].default}


def identity(run: Run, record: type[Record]) -> dict[str, Any]:
    """Return a derived record's identifying fields (cell, attempt, …), with the run's values."""
    columns = columns_of(record)
    return {name: getattr(run, name) for name in IDENTITY if name in columns}


@dataclass(frozen=True, kw_only=True)
class Sample(Record):
    """samples.csv: one timed block of steps (or of one phase of steps). Every one is kept, including warm-up.

    Timing knows no cell and leaves the first three fields at their defaults.
    """

    cell_id: str = ""
    attempt: int = 0
    index: int = 0
    part: str  # warmup, measure, phase, profiled, ceiling; suspended, disturbed, moved: not to be used
    phase: str = ""  # empty: the whole step
    steps: FromOne
    start_s: float  # monotonic clock of the host
    wall_s: float
    device_s: float | None = None  # between CUDA events; None on a CPU
    sync_wait_s: float | None = None  # how long the block's last synchronise took
    work: str = ""  # one, last, epoch; empty: a training step of the cell's own batch
    run_wait_s: float | None = None  # of all threads: ready to run, but without a processor
    involuntary_switches: int | None = None  # of older runs
    steal_s: float | None = None  # of the whole machine: given to another virtual machine
    throttled_s: float | None = None  # of older runs, of the control group: its quota was used up
    unit: str = ""  # of a ceiling's block: fp32, tf32, fp16, bf16
    kernel: str = ""  # of a ceiling's block: operation, shape and layout; `steps` are its calls
    flop: int | None = None  # of a ceiling's block
    pressure_s: float | None = None  # of older runs, of the whole machine: some task waited for a processor
    group_pressure_s: float | None = None  # of older runs: the same of the control group
    core_clock_hz: float | None = None  # of older runs
    temperature_c: float | None = None  # of older runs, of the processor's package
    core_round_trip_s: float | None = None  # right after the block: of a cache line between two processors
    page_faults: int | None = None  # of older runs
    system_s: float | None = None  # of older runs


@dataclass(frozen=True, kw_only=True)
class Telemetry(OfAttempt):
    """telemetry.csv: one poll of the device by the parent process. What the device does not offer is None."""

    time_s: float  # monotonic clock of the host
    sm_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    power_w: float | None = None
    energy_j: float | None = None  # the device's own counter since its driver was loaded
    temperature_c: float | None = None
    event_reasons: tuple[str, ...] | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ceiling(Record):
    """ceilings.csv: the rate of one kernel (or copy, or launch) on this device in this session."""

    session: str
    device: str
    precision: str
    unit: str  # the unit whose ceiling this is: fp32, tf32, fp16, bf16; empty: none
    operation: str  # matmul, convolution, copy, triad, launch, call; in older runs also issue, read: of a CPU's cores
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
    family: str = ""  # sustained …: back to back for 3 s; square, near, …; winograd, fft; of a copy: memory, cache
    moved_bytes: int | None = None  # of one call of copy or triad
    bytes_per_s: float | None = None
    threads: FromOne | None = None  # torch's, on a CPU
    sm_clock_hz: float | None = None  # of a GPU right after the calls, while it works on one more
    device_name: str = ""
    instructions: str = ""  # of older runs, as the next four: of rows `issue`
    microarchitecture: str = ""
    cores: Positive | None = None
    per_clock: Positive | None = None
    derived_flop_per_s: float | None = None
    malloc: str = "default"  # as in the cells whose ceiling it is
    core_round_trip_s: float | None = None  # of a cache line between two processors, right after the calls of a kernel


@dataclass(frozen=True, kw_only=True)
class RankRow(OfAttempt):
    """ranks.csv: one rank of an attempt at a cell. Times are of a mean step; those of the recorded steps are taken
    under a profiler, and show how a step is divided, not how long it takes."""

    rank: int
    place: str = ""  # its coordinates in the plan: "dp=1,tp=0"
    host: str = ""
    device: str = ""
    device_name: str = ""
    status: str = "ok"
    reason: str = ""
    steps: FromOne | None = None  # measured on this rank
    time_s: float | None = None  # of a measured step, by its own clock
    executed: Counts = field(default_factory=dict)  # "kind/dtype" → model FLOP of one real step of this rank
    ceiling: Annotated[Json, POSITIVE] = field(default_factory=dict)  # unit → FLOP/s, while all ranks measured theirs
    parameters: int | None = None  # elements of the parameters that the rank holds
    peak_memory_bytes: int | None = None
    energy_j: float | None = None  # of its device over the measured blocks
    recorded_steps: int | None = None
    compute_s: float | None = None  # of a recorded step
    exposed_s: float | None = None  # communicating, while nothing was computed
    overlapped_s: float | None = None  # communicating while computing
    memory_s: float | None = None  # only copying
    idle_s: float | None = None
    wait_s: float | None = None  # for others to enter a collective
    waited_for_ratio: float | None = None  # share of all ranks' waiting that was for this rank
    late_since_step: int | None = None  # recorded step since which the others waited longest for this rank


@dataclass(frozen=True, kw_only=True)
class RankSample(Sample):
    """rank_samples.csv: one timed block of steps of one rank, by its own host's clock."""

    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class RankTelemetry(Telemetry):
    """rank_telemetry.csv: one poll of one rank's device, by its own host's clock."""

    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class RankCollective(OfAttempt):
    """collectives.csv: the collectives of one kind of one rank in a recorded step, on average."""

    rank: int
    kind: str  # all_reduce, all_gather, reduce_scatter, …
    group_size: FromOne | None = None  # ranks in it; None: several groups
    calls: float
    given_bytes: float | None = None  # contributed by the rank
    time_s: float  # time in which one of them ran
