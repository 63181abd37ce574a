"""Defines the records that commands derive and answer with; their files are separate from a run's raw rows.

A sweep derives times and utilization from a run. `runners.count` answers with each counter's result for a model, and
the causes of its difference from the exact count. `runners.profile` answers with costs and times of operations and
modules: means over the recorded steps, because means add up. `runners.report A B` answers whether a cell's step takes
as long in both runs, and `DIR --check` whether a run passes its gates.
"""

from dataclasses import dataclass, field
from typing import Annotated

from results.records.rows import ANY, SIGNED, Counts, FromOne, Json, OfCell, Probability, Record, Shapes, Signed


@dataclass(frozen=True, kw_only=True)
class Utilization(OfCell):
    """utilization.csv: one fraction with its numerator, denominator and time; rebuilt from raw rows."""

    method: str  # theory, theory_as_published, exact, …
    numerator_source: str  # who counted: a counter, torch_profiler, kineto, nsys, flopledger
    denominator: str  # datasheet, clock, ceiling, sustained, user, paired_ceiling
    model_flop: int | None = None  # of one step
    all_flop: int | None = None
    time_s: float | None = None
    time_low_s: Signed | None = None
    time_high_s: float | None = None
    achieved_flop_per_s: float | None = None
    peak_flop_per_s: float | None = None  # of mixed units: ΣF / Σ(F/P)
    peak_source: str = ""
    utilization_ratio: float | None = None
    utilization_low_ratio: Signed | None = None
    utilization_high_ratio: Annotated[float | None, ANY] = None
    items_per_s: float | None = None
    energy_per_item_j: float | None = None
    status: str = "ok"
    reason: str = ""
    warnings: tuple[str, ...] = ()
    variant: str = ""  # what else sets the cell apart: "layout=channels_last, compile=true"
    repeat: int = 0
    at_least_flop: int | None = None  # of one step, what is known where model_flop is not, from a profile
    unknown_calls: int = 0  # products of the profile without a count
    unknown_time_ratio: Probability | None = None  # the share of their time in that of the products
    attention: str = ""  # how model_flop counts it: dense; empty: as the counter does
    causal_flop: int | None = None  # model_flop with attention up to the diagonal where it is causal
    mask_exact_flop: int | None = None  # model_flop with the pairs that the masks of attention keep
    causal_utilization_ratio: float | None = None
    mask_exact_utilization_ratio: float | None = None
    hardware_flop: int | None = None  # model_flop with the pairs in the tiles that the kernels of attention compute
    windows_low_ratio: float | None = None  # 95 % interval that includes the spread between repeats of the run's cells
    windows_high_ratio: float | None = None
    power_capped_ratio: float | None = None  # share of the window's polls in which the power limit held the clock
    threads: FromOne | None = None  # as in runs.csv
    wait_policy: str = ""  # as in runs.csv


@dataclass(frozen=True, kw_only=True)
class Headline(Record):
    """headline.csv: one cell, its repeats pooled, with the numbers of the terminal's table."""

    cell_id: str  # of the first repeat
    model: str
    batch_size: FromOne
    precision: str
    layout: str
    compile: bool
    variant: str = ""  # what else sets the cell apart: "optimizer=adamw, malloc=retain"
    device: str
    device_name: str = ""
    repeats: int = 0  # number of repeats that are pooled: those with a ratio
    step_time_s: float | None = None  # geometric mean of the repeats, as every number but the interval
    items_per_s: float | None = None
    model_flop: int | None = None  # of one step
    achieved_flop_per_s: float | None = None
    peak_flop_per_s: float | None = None
    denominator: str = ""  # datasheet, user, paired_ceiling, ceiling
    peak_source: str = ""
    method: str = ""  # how model_flop was counted, and by which counter
    numerator_source: str = ""
    utilization_ratio: float | None = None
    utilization_low_ratio: Signed | None = None  # 95 % interval: the table's ±
    utilization_high_ratio: Annotated[float | None, ANY] = None
    verdict: str = ""  # why the utilization is not higher, or the cell's problem: the table's last column
    reason: str = ""  # why it was not measured, or has no ratio


@dataclass(frozen=True, kw_only=True)
class StepTime(OfCell):
    """step_times.csv: the time of one step of a cell, or of one phase of it, over the timed blocks; from raw rows."""

    phase: str = ""  # empty: the whole step; phases are timed in a separate pass
    clock: str  # device or wall: which clock gave the times
    mean_s: float  # total time ÷ total steps
    median_s: float  # this and the next two are over the blocks
    p5_s: float
    p95_s: float
    low_s: Signed | None = None  # 95 % interval of the mean
    high_s: float | None = None
    blocks: int
    effective_blocks: float  # number of independent blocks that would be as informative
    steps: int
    drift_ratio: Signed | None = None  # last third ÷ first third - 1
    outliers: int  # blocks beyond 3 MAD; they stay in every other number
    share_ratio: float | None = None  # share of the phases' sum
    disturbed_blocks: int = 0  # blocks that waited for a processor and were measured again; in `all_mean_s` only
    all_mean_s: float | None = None  # the mean with the disturbed and moved blocks; empty where there are none
    moved_blocks: int = 0  # blocks timed while the processors were placed differently; in `all_mean_s` only
    core_round_trip_s: float | None = None  # of a cache line between two processors, median of the blocks


@dataclass(frozen=True, kw_only=True)
class WorkTime(OfCell):
    """work_times.csv: the time of one sample, one batch, the last batch or an epoch; from raw rows.

    The epoch's time is its full batches' mean × their number + the last batch's mean. `profiled_*`: the same under
    torch.profiler. `real_*`: an epoch run from end to end, where that was short enough.
    """

    work: str  # one, batch, last, epoch
    items: FromOne | None = None  # images in it
    steps: int | None = None  # training steps in it
    time_s: float | None = None
    low_s: Signed | None = None  # 95 % interval of the mean
    high_s: float | None = None
    profiled_time_s: float | None = None
    profiled_low_s: Signed | None = None
    profiled_high_s: float | None = None
    overhead_ratio: Signed | None = None  # profiled ÷ unprofiled - 1
    real_time_s: float | None = None
    real_low_s: Signed | None = None
    real_high_s: float | None = None
    agrees: bool | None = None  # the intervals of time_s and real_time_s have a point in common
    kernels: int | None = None  # kernels, copies and fills of a recorded step (--profile) on a device
    busy_ratio: float | None = None  # time in which at least one of them ran ÷ time_s: below 1 the device waits
    status: str = "ok"
    reason: str = ""
    variant: str = ""
    repeat: int = 0


@dataclass(frozen=True, kw_only=True)
class ParallelStep(OfCell):
    """parallel.csv: a step trained by several ranks: its balance, waiting and scaling; from raw rows.

    Scaling is each rank's rate of items against that of the plan with the fewest ranks: strong at the same total batch,
    weak at the same batch of each replica.
    """

    parallel: str
    ranks: FromOne
    time_s: float | None = None  # of the slowest rank
    compute_ratio: float | None = None  # of a recorded step, mean of the ranks; so are the next three
    exposed_ratio: float | None = None
    overlapped_ratio: float | None = None
    idle_ratio: float | None = None
    imbalance_ratio: float | None = None  # longest computing of a rank ÷ their mean − 1
    late_rank: int | None = None  # the rank for which the others wait longest, if they wait notably
    late_name: str = ""  # its host and device
    late_ratio: float | None = None  # share of a recorded step that each other rank waits for it
    late_since_step: int | None = None
    collective_bytes: Counts = field(default_factory=dict)  # kind → bytes that the busiest rank contributes in a step
    strong_ratio: float | None = None
    strong_low_ratio: float | None = None  # 95 % interval
    strong_high_ratio: float | None = None
    weak_ratio: float | None = None
    weak_low_ratio: float | None = None
    weak_high_ratio: float | None = None
    reason: str = ""  # why it was not measured, or the steps were not recorded
    variant: str = ""
    repeat: int = 0
    bubble_ratio: float | None = None  # of a pipeline: share of a step in which its schedule leaves a stage idle
    late_since_block: int | None = None  # index in samples.csv of the timed block since which the rank is late


@dataclass(frozen=True, kw_only=True)
class Attribution(Record):
    """One counter's number of one pass over one model. Exact FLOP + all causes + unexplained FLOP = native value."""

    model: str
    batch_size: FromOne
    counter: str
    phase: str  # forward, backward
    status: str = "ok"
    reason: str = ""
    native_unit: str = ""  # mac or flop: the unit of the counter's total
    native_value: Annotated[int | float | None, SIGNED] = None  # as its user sees it
    flop: int | None = None  # the same in FLOP: 2 per multiply-add, 1 per other operation that it counts
    exact_flop: int | None = None  # model FLOP of this pass in a training step, the loss with the forward pass
    flop_ratio: Signed | None = None  # flop ÷ exact_flop
    unexplained_flop: Annotated[int | float | None, SIGNED] = None  # of native_value; 0 where every FLOP has a cause
    largest_cause: str = ""  # other than the convention
    parameters: int | None = None
    ignored: Counts = field(default_factory=dict)  # operator → calls left out on purpose
    not_understood: Counts = field(default_factory=dict)  # operator → calls that the counter has no rule for
    duration_s: float | None = None  # of its count, both passes
    peak_memory_bytes: int | None = None
    at_least_flop: int | None = None  # where exact_flop is not known: FLOP of this pass's calls that have a rule
    unknown_calls: int | None = None  # of this pass in a training step: calls that the exact count has no rule for


@dataclass(frozen=True, kw_only=True)
class AttributionCause(Record):
    """One reason why a counter's native value is not the exact FLOP, by kind of operation and module."""

    model: str
    batch_size: FromOne
    counter: str
    phase: str
    cause: str  # a word of cleaning/accounts/items.py
    kind: str
    module: str = ""
    flop: Annotated[int | float, SIGNED]  # what it adds to the exact count, in the unit of the native value


FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "same", "cannot tell"
ONLY_A, ONLY_B = ONLY_IN_ONE = "only in A", "only in B"


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """The step of one cell in run B against that in run A. Ratios are of times: below 1, B is faster."""

    model: str
    batch_size: FromOne
    precision: str
    device: str
    variant: str = ""  # what else sets the cell apart, of B where the two differ by choice
    verdict: str  # of B: faster, slower, same, cannot tell; only in A, only in B
    ratio: Signed | None = None  # mean step time in B ÷ in A; of sessions, relative to the paired ceiling
    low_ratio: Signed | None = None  # 95 % interval of this cell only
    high_ratio: float | None = None
    error_ratio: float | None = None  # standard error of the logarithm of the ratio
    degrees: float | None = None  # degrees of freedom of that standard error
    margin_ratio: float | None = None  # largest difference that does not matter
    p_different: Probability | None = None  # over all cells (Holm)
    p_same: Probability | None = None  # of two one-sided tests that it is within the margin, over all cells (Holm)
    basis: str = ""  # whose scatter is the error: sessions, processes; blocks: of one process, against the margin
    time_a_s: float | None = None
    time_b_s: float | None = None
    cells_a: tuple[str, ...] = ()  # cell ids, one a repeat
    cells_b: tuple[str, ...] = ()
    blocks_a: int = 0
    blocks_b: int = 0
    reason: str = ""  # why it is undecided, or in only one of the runs


MET, NOT_MET, UNDECIDED, NOT_COMPARED = "met", "not met", "undecided", "not compared"


@dataclass(frozen=True, kw_only=True)
class GateCheck(Record):
    """One condition of a gate on one cell: whether run B may replace run A in this respect.

    condition: slower, flop, bytes, launches, memory; trains: measured in A, failed in B; matched: whether both runs
    have the cell. value_a, value_b: seconds per step, or the exact quantity. ratio: B ÷ A. low_ratio, high_ratio:
    interval of a ratio of times, at the alarm rate of all cells together.
    """

    condition: str
    limit_ratio: float = 0.0  # B may have this share more than A
    model: str
    batch_size: FromOne
    precision: str
    variant: str = ""
    outcome: str  # met (which fails), not met, undecided, not compared
    value_a: float | None = None
    value_b: float | None = None
    ratio: Signed | None = None
    low_ratio: Signed | None = None
    high_ratio: float | None = None
    basis: str = ""  # of times: sessions, processes, blocks; exact: a count without noise
    reason: str = ""


PASS, FAIL, OPEN = "pass", "fail", "open"


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """One gate's verdict. open: the run has nothing to check."""

    gate: str
    checks: str  # the condition, in words
    verdict: str  # pass, fail, open
    asked: int = 0  # number of cells (or parts of the run) that had data for it
    cell_ids: tuple[str, ...] = ()  # of a fail the cells that fail, of a pass those that were checked
    found: Json = field(default_factory=dict)  # cell id ("run": the whole run) → what was found there, with its numbers
    reason: str = ""  # of an open gate: what is missing; of cells left out: why
    needed: bool = False  # whether the gate must not be open in a published run of this kind of device


def stands(verdict: Verdict) -> bool:
    """Return whether a run may be published by this gate: it passes, or is open and not required."""
    return verdict.verdict == PASS or (verdict.verdict == OPEN and not verdict.needed)


@dataclass(frozen=True, kw_only=True)
class StepOperation(Record):
    """One operation of a training step. Costs are exact, with FLOP None where no rule counts it; times are None where
    the recording has no call for it."""

    index: int  # in the order of the step
    name: str  # "aten.convolution"
    kind: str
    phase: str
    module: str = ""  # of a backward operation: that of the forward one
    forward_index: int | None = None
    unit: str = ""  # the arithmetic unit that runs its products; empty: no product
    dtype: str = ""  # of its first input
    input_shapes: Shapes = ()
    output_shapes: Shapes = ()
    model_flop: int | None = 0
    other_flop: int | None = 0
    read_bytes: int = 0
    written_bytes: int = 0
    group: int | None = None  # index of the operation that ideal fusion runs it with; its own index: it leads
    fused_bytes: int = 0  # bytes that its group moves, on the leading operation; 0 on the others
    kernels: float | None = None  # launched in a step; on a CPU 1 per call
    time_s: float | None = None  # mean: on a device of its kernels, else of its call
    median_time_s: float | None = None
    low_time_s: Signed | None = None  # 95 % interval of the mean; None: one step
    high_time_s: float | None = None
    host_time_s: float | None = None  # mean, of its call on the host
    waited_s: float | None = None  # mean time before it in which the device idled, or the host ran no operation

    @property
    def understood(self) -> bool:
        """Whether a rule counts the operation; otherwise its FLOP are unknown."""
        return self.model_flop is not None

    @property
    def at_least_flop(self) -> int:
        """Its model FLOP in a sum that is a lower bound: 0 where unknown."""
        return self.model_flop or 0


@dataclass(frozen=True, kw_only=True)
class StepModule(Record):
    """One module of the profiled model, in the order of `named_modules`."""

    module: str  # path; empty: the model itself
    type: str  # its class
    settings: str = ""  # its `extra_repr`
    own_parameters: int = 0  # of this module itself, each parameter at the first module that has it
    parameters: int = 0  # of this module and all modules in it, each once


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The limits that a step is compared with: FLOP/s by unit, bytes/s, seconds per launch; each with its source."""

    device: str = ""
    device_name: str = ""
    peak_by_unit: Json = field(default_factory=dict)  # unit → FLOP/s, measured here (ceiling)
    datasheet_by_unit: Json = field(default_factory=dict)  # unit → FLOP/s as printed
    bytes_per_s: float | None = None  # measured here
    launch_s: float | None = None  # one kernel without work, launched back to back; on a CPU one call
    sources: Json = field(default_factory=dict)  # field or unit → its source, in words
    datasheet_bytes_per_s: float | None = None  # as printed


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """A model's profiled step. step_times_s: each recorded step, from end to end, under the profiler.

    unprofiled_times_s: steps without the profiler, if they were timed. between_s: phase → mean time in which no
    operation of the step ran; it and the operations' times add up to the mean of step_times_s. Only one device was
    measured: world_size, model_parallel and recompute_fwd_factor are the caller's statements.
    """

    model: str
    batch_size: int | None
    device: str
    precision: str = "fp32"
    mode: str = "train"  # or forward, generate
    parameters: int = 0
    operations: tuple[StepOperation, ...] = ()
    modules: tuple[StepModule, ...] = ()
    step_times_s: tuple[float, ...] = ()
    unprofiled_times_s: tuple[float, ...] = ()
    between_s: Json = field(default_factory=dict)
    machine: Machine | None = None
    world_size: int = 1  # devices that train together
    model_parallel: int = 1  # how many of these devices hold one model between them
    recompute_fwd_factor: float = 0.0  # share of the forward pass that is assumed to run again in the backward pass
    not_understood: Json = field(default_factory=dict)  # operator → calls without a rule
    notes: tuple[str, ...] = ()
    attention: Json = field(default_factory=dict)  # convention of a step's model FLOP, FLOP by others, calls, reasons

    @property
    def samples(self) -> int | None:
        """Samples of a step over all devices: devices that hold one model between them share a batch."""
        return None if self.batch_size is None else self.batch_size * (self.world_size // self.model_parallel)
