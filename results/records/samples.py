"""What clocks and devices said, and the ranks of a step that was trained on several devices at once."""

from dataclasses import dataclass, field
from typing import Annotated

from results.records.fields import POSITIVE, Counts, FromOne, Json, Positive
from results.records.rows import Record


@dataclass(frozen=True, kw_only=True)
class Sample(Record):
    """samples.csv: one timed block of steps (or of one phase of steps). Every one is kept, warm-up too.

    The timing itself knows no cell: it leaves the first three fields as they are here.
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
    run_wait_s: float | None = None  # of all threads: ready, and no processor took them
    involuntary_switches: int | None = None  # of all threads: set aside for somebody else
    steal_s: float | None = None  # of the whole machine: given to another virtual machine
    throttled_s: float | None = None  # of the control group: its quota was used up
    unit: str = ""  # of a ceiling's block: fp32, tf32, fp16, bf16
    kernel: str = ""  # of a ceiling's block: operation, shape and layout; `steps` are its calls
    flop: int | None = None  # of a ceiling's block
    pressure_s: float | None = None  # of the whole machine: some task waited for a processor
    group_pressure_s: float | None = None  # of the control group: the same
    core_clock_hz: float | None = None  # right after the block, of the core that timed it; None on a GPU
    temperature_c: float | None = None  # right after the block, of the processor's package; None on a GPU
    core_round_trip_s: float | None = None  # right after the block: of a cache line between two processors
    page_faults: int | None = None  # of all threads, without reading from a disk
    system_s: float | None = None  # processor time of all threads in the system


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
class Ceiling(Record):
    """ceilings.csv: what one kernel (or copy, or launch) reached on this device in this session."""

    sitting: str
    device: str
    precision: str
    unit: str  # the unit whose ceiling this is: fp32, tf32, fp16, bf16; empty: none
    operation: str  # matmul, convolution, copy, triad, launch, call; issue, read: of a CPU's cores alone
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
    sm_clock_hz: float | None = None  # of a GPU right after the calls, while it works on one more; of issue: the mean
    device_name: str = ""
    instructions: str = ""  # of issue: those that the kernel issues, as /proc/cpuinfo names them
    microarchitecture: str = ""  # of issue: the row of analysis/devices/processors.csv
    cores: Positive | None = None  # that the process may keep busy: affinity, threads, quota
    per_clock: Positive | None = None  # instructions that one core issued in one clock
    derived_flop_per_s: float | None = None  # cores × what the tables say of a clock × sm_clock_hz
    malloc: str = "default"  # as of the cells that it is a ceiling of
    core_round_trip_s: float | None = None  # of a cache line between two processors, right after the calls of a kernel


@dataclass(frozen=True, kw_only=True)
class RankRow(Record):
    """ranks.csv: one rank of an attempt at a cell. Times are of a step on average; those of the recorded steps are
    taken under a profiler, and say how a step is divided, not how long it takes."""

    cell_id: str
    attempt: int
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
    ceiling: Annotated[Json, POSITIVE] = field(default_factory=dict)  # unit → FLOP/s, as all ranks measured theirs
    parameters: int | None = None  # that it holds
    peak_memory_bytes: int | None = None
    energy_j: float | None = None  # of its device over the measured blocks
    recorded_steps: int | None = None
    compute_s: float | None = None  # of a recorded step
    exposed_s: float | None = None  # communicating, while nothing was computed
    overlapped_s: float | None = None  # communicating beside computing
    memory_s: float | None = None  # copying alone
    idle_s: float | None = None
    wait_s: float | None = None  # for others to enter a collective
    waited_for_ratio: float | None = None  # of all waiting of all ranks: that for this rank
    late_since_step: int | None = None  # from which on, to the last, the others waited for it most


@dataclass(frozen=True, kw_only=True)
class RankSample(Sample):
    """rank_samples.csv: one timed block of steps of one rank, by its own host's clock."""

    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class RankTelemetry(Telemetry):
    """rank_telemetry.csv: one poll of one rank's device, by its own host's clock."""

    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class RankCollective(Record):
    """collectives.csv: the collectives of one kind of one rank in a recorded step, on average."""

    cell_id: str
    attempt: int
    rank: int
    kind: str  # all_reduce, all_gather, reduce_scatter, …
    group_size: FromOne | None = None  # ranks in it; None: several groups
    calls: float
    given_bytes: float | None = None  # that the rank hands over
    time_s: float  # in which one of them ran
