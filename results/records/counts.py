"""Counts of FLOP: as counters gave them, cleaned, and compared with each other."""

from dataclasses import dataclass, field
from typing import Annotated

from results.records.fields import SIGNED, Counts, FromOne, Probability, Signed
from results.records.rows import OfCell, Record
from results.records.vocabulary import WHOLE


@dataclass(frozen=True, kw_only=True)
class FlopCount(Record):
    """flop_counts.csv: what one counter says, in its own unit and convention, and in FLOP.

    A counter that cannot count is a row with a status and a reason, its values None.
    """

    cell_id: str = ""
    attempt: int = 0
    counter: str
    workload: str
    batch_size: FromOne
    phase: str  # forward, backward, … or total
    scope: str = WHOLE  # in older runs also a module path
    operator: str = ""  # empty: all operators together; else the counter's own name of one
    native_value: Annotated[int | float | None, SIGNED] = None
    native_unit: str = ""  # mac or flop
    flop: int | None = None  # the native value in FLOP, one multiply-add being 2
    extrapolated: bool = False  # by the affine law from smaller batches
    ignored: Counts = field(default_factory=dict)  # operator → calls left out on purpose
    not_understood: Counts = field(default_factory=dict)  # operator → calls the counter has no rule for
    status: str = "ok"
    reason: str = ""
    duration_s: float | None = None
    peak_memory_bytes: int | None = None
    parameters: int | None = None  # of the model, by this counter; on its forward total alone
    printed: Annotated[int | float | None, SIGNED] = None  # what its user sees, where that is not native_value
    attention: Counts = field(default_factory=dict)  # of our own total: its convention, and what others count
    mixture: Counts = field(default_factory=dict)  # of our own forward total: parts of a mixture of experts


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
class ProfileCount(OfCell):
    """cleaned/profile_counts.csv: model FLOP of one work and phase of a profile, as found and as cleaned."""

    source: str  # torch_profiler, kineto, nsys
    work: str
    items: FromOne  # images in it
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
    unknown_time_ratio: Probability | None = None  # of the time of the products, the share of those without a count
    found_at_least_flop: int | None = None  # sum of what was found; found_flop is None if a product has no number
    deduplicated_at_least_flop: int | None = None
    outside_time_ratio: Probability | None = None  # of the time of kernels of products, the share of no recorded call
    attention: str = "dense"  # how cleaned_flop and exact_flop count it


@dataclass(frozen=True, kw_only=True)
class Ratio(Record):
    """cleaned/ratios.csv: FLOP of backward ÷ FLOP of forward, beside what they must be."""

    cell_id: str
    attempt: int
    model: str
    batch_size: FromOne
    precision: str
    source: str  # flopledger, torch_profiler, kineto, nsys, a counter
    work: str  # one, batch, epoch; empty: a count, not a profile
    state: str  # found or cleaned
    level: str  # model, kind, module, operation
    name: str  # of the kind, module or forward operation; empty for the model
    forward_flop: int | None = None
    backward_flop: int | None = None
    ratio: Signed | None = None  # a pure number; 2 by rule of thumb
    exact_ratio: Signed | None = None  # of the model: 2 - share of the first operation, whose input needs no gradient
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
    batch_size: FromOne
    counter: str
    phase: str
    native_value: Annotated[int | float | None, SIGNED] = None
    native_unit: str = ""
    total_flop: int | None = None  # the counter's total in FLOP, whatever it counts
    model_flop: int | None = None  # its convolutions and matrix products alone, as far as it tells them apart
    exact_flop: int | None = None
    difference_flop: Annotated[int | None, SIGNED] = None  # model_flop - exact_flop
    ratio: Signed | None = None  # model_flop ÷ exact_flop
    total_ratio: Signed | None = None  # total_flop ÷ exact_flop
    extrapolated: bool = False
    not_understood: Counts = field(default_factory=dict)
    status: str = "ok"
    reason: str = ""
    attention: str = "dense"  # how exact_flop counts it


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
    slope_flop: Annotated[int | None, SIGNED] = None  # a sample
    constant_flop: Annotated[int | None, SIGNED] = None
    holds: bool | None = None  # None: fewer than three batches decide nothing
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
