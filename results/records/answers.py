"""What a run answers: times and utilization."""

from dataclasses import dataclass, field
from typing import Annotated

from results.records.fields import ANY, Counts, FromOne, Probability, Signed
from results.records.rows import OfCell, Record


@dataclass(frozen=True, kw_only=True)
class Utilization(OfCell):
    """utilization.csv: one fraction, with its numerator, its denominator and its time; rebuilt from raw rows."""

    method: str  # theory, theory_as_published, exact, …
    numerator_source: str  # fvcore, ptflops, flopledger
    denominator: str  # datasheet, clock, ceiling, sustained, user, derived, paired_ceiling
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
    windows_low_ratio: float | None = None  # 95 % interval with what repeats of the run's cells differ by
    windows_high_ratio: float | None = None
    power_capped_ratio: float | None = None  # share of the window's polls in which the power limit held the clock
    threads: FromOne | None = None  # as in runs.csv
    wait_policy: str = ""  # as in runs.csv


@dataclass(frozen=True, kw_only=True)
class Headline(Record):
    """headline.csv: one cell, its repeats pooled, with the numbers that the terminal's table shows of it."""

    cell_id: str  # of the first repeat
    model: str
    batch_size: FromOne
    precision: str
    layout: str
    compile: bool
    variant: str = ""  # what else sets the cell apart: "optimizer=adamw, malloc=retain"
    device: str
    device_name: str = ""
    repeats: int = 0  # that are pooled: those with a ratio
    step_time_s: float | None = None  # of repeats the geometric mean, as every number but the interval
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
    """step_times.csv: how long one step of a cell takes, or one phase of it, over the timed blocks; from raw rows."""

    phase: str = ""  # empty: the whole step; phases are of a pass of their own
    clock: str  # device or wall: what the times are of
    mean_s: float  # total time ÷ total steps
    median_s: float  # this and the next two are of the blocks
    p5_s: float
    p95_s: float
    low_s: Signed | None = None  # 95 % interval of the mean
    high_s: float | None = None
    blocks: int
    effective_blocks: float  # independent ones that would be as informative
    steps: int
    drift_ratio: Signed | None = None  # last third ÷ first third - 1
    outliers: int  # blocks beyond 3 MAD; they stay in every other number
    share_ratio: float | None = None  # of the phases' sum
    disturbed_blocks: int = 0  # that waited for a processor, were measured again, and are in no other number
    all_mean_s: float | None = None  # the mean with these blocks and the next ones; empty where there are none
    moved_blocks: int = 0  # that were timed while the processors were placed otherwise; in no other number
    core_round_trip_s: float | None = None  # of a cache line between two processors, median of the blocks


@dataclass(frozen=True, kw_only=True)
class WorkTime(OfCell):
    """work_times.csv: how long one sample, one batch, the last batch and an epoch take; from raw rows.

    The epoch's time is its full batches' mean × their number + the last batch's mean. `profiled_*`: the same under
    torch.profiler. `real_*`: an epoch that was run from end to end, where that was short enough.
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
    """parallel.csv: a step that several ranks trained: how evenly, with how much waiting, how it scales; of raw rows.

    Scaling is each rank's rate of items against that of the plan with the fewest ranks: strong at the same batch of all
    ranks together, weak at the same batch of each replica.
    """

    parallel: str
    ranks: FromOne
    time_s: float | None = None  # of the slowest rank
    compute_ratio: float | None = None  # of a recorded step, mean of the ranks; so are the next three
    exposed_ratio: float | None = None
    overlapped_ratio: float | None = None
    idle_ratio: float | None = None
    imbalance_ratio: float | None = None  # longest computing of a rank ÷ their mean − 1
    late_rank: int | None = None  # for which the others wait longest, where that is worth a name
    late_name: str = ""  # its host and device
    late_ratio: float | None = None  # how long each other one waits for it, of a recorded step
    late_since_step: int | None = None
    collective_bytes: Counts = field(default_factory=dict)  # kind → bytes that a rank gives in a step, the largest
    strong_ratio: float | None = None
    strong_low_ratio: float | None = None  # 95 % interval
    strong_high_ratio: float | None = None
    weak_ratio: float | None = None
    weak_low_ratio: float | None = None
    weak_high_ratio: float | None = None
    reason: str = ""  # why it was not measured, or the steps were not recorded
    variant: str = ""
    repeat: int = 0
    bubble_ratio: float | None = None  # of a pipeline: what its schedule leaves a stage without work, of a step
    late_since_block: int | None = None  # the timed block, by its index in samples.csv, from which on steps are so long
