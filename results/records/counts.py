"""Defines the records of operations, kernels, storages and FLOP counts, as traced, recorded and cleaned.

Counters give `FlopCount`. A trace of a step's calls, which has no times, gives `Operation` and `Storage`. A profiler
that recorded a running step gives `ProfiledOperation` and `Kernel`. Cleaning derives the other records from these. Each
record's docstring names its file.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

from results.records.rows import (
    ANY,
    NOT_NEGATIVE,
    SIGNED,
    Counts,
    FromMinusOne,
    FromOne,
    Json,
    OfAttempt,
    OfCell,
    Probability,
    Record,
    Shapes,
    Signed,
)

PHASES = ("forward", "loss", "backward", "optimizer", "recompute")

WHOLE = "total"
"""Scope of counts of the whole model. Older runs also have counts whose scope is a module's path."""


@dataclass(frozen=True, kw_only=True)
class FlopCount(Record):
    """flop_counts.csv: one counter's number, in its own unit and convention, and in FLOP.

    A counter that cannot count gets a row with a status and a reason; its values are None.
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
    parameters: int | None = None  # of the model, by this counter; only on its forward total
    printed: Annotated[int | float | None, SIGNED] = None  # what its user sees, where that is not native_value
    attention: Counts = field(default_factory=dict)  # of our own total: its convention, and FLOP by other conventions
    mixture: Counts = field(default_factory=dict)  # in older runs: parts of a mixture of experts


@dataclass(frozen=True, kw_only=True)
class CleanedOperation(OfAttempt):
    """cleaned/profiled_operations.csv.gz: one recorded product (convolution, matmul, attention, recurrent), cleaned."""

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
    verdict: str  # of found_flop: right, over, under; unknown: shapes give no count
    reason: str = ""
    time_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProfileCount(OfCell):
    """cleaned/profile_counts.csv: model FLOP of one pass and phase of a profile, as recorded and as cleaned."""

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
    outside_time_ratio: Probability | None = None  # of the time of products' kernels, the share outside recorded calls
    attention: str = "dense"  # how cleaned_flop and exact_flop count it


@dataclass(frozen=True, kw_only=True)
class Ratio(OfAttempt):
    """cleaned/ratios.csv: FLOP of backward ÷ FLOP of forward, and the value expected of it."""

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
class Agreement(OfAttempt):
    """cleaned/agreement.csv: one counter's FLOP of a forward or backward pass, and our own count of the same batch."""

    model: str
    batch_size: FromOne
    counter: str
    phase: str
    native_value: Annotated[int | float | None, SIGNED] = None
    native_unit: str = ""
    total_flop: int | None = None  # the counter's total in FLOP, whatever it counts
    model_flop: int | None = None  # only its convolutions and matrix products, as far as it tells them apart
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
class BatchLaw(OfAttempt):
    """cleaned/batch_law.csv: one counter's number as slope · batch + constant, or the batches that break it."""

    model: str
    counter: str
    phase: str
    scope: str = WHOLE
    operator: str = ""
    batches: tuple[int, ...] = ()  # counted, not extrapolated
    slope_flop: Annotated[int | None, SIGNED] = None  # FLOP per sample
    constant_flop: Annotated[int | None, SIGNED] = None
    holds: bool | None = None  # None: fewer than three batches, which cannot break the law
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


@dataclass(frozen=True)
class Operation(Record):
    """operations/TRACE_ID.csv.gz: one ATen call of a training step.

    `input_names[i]` is the schema argument that tensor i came from ("weight"; "tensors[2]" in a list), by which a
    formula asks for a shape. Sizes are ints, or sympy expressions in a graph of them. `attributes` holds the other
    arguments by schema name (groups, output_mask, stride, …).
    """

    index: int
    name: str  # "aten.convolution.default" without the overload: "aten.convolution"
    kind: str
    phase: str
    module: str
    sequence_nr: FromMinusOne | None
    forward_index: int | None
    input_names: tuple[str, ...]
    input_shapes: tuple[Shapes, ...]
    input_dtypes: tuple[str, ...]
    output_shapes: tuple[Shapes, ...]
    output_dtypes: tuple[str, ...]
    attributes: Json
    reads: tuple[int, ...]  # storage ids, one for each input tensor
    writes: tuple[int, ...]  # storage ids of outputs and of inputs written in place
    in_hook: bool = False  # called in the backward pass by a hook on a gradient or on a saved tensor
    rules: int = 0  # version of the rules by which the columns below were computed; 0: they were not
    model_flop: int | None = None  # None with rules: the operation has no rule
    other_flop: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True)
class Storage(Record):
    """operations/TRACE_ID.storages.csv.gz: one block of memory during the step."""

    id: int  # our own serial number
    nbytes: Annotated[Any, NOT_NEGATIVE]  # int, or a sympy expression; None: unknown (a sparse tensor)
    role: str  # weight, buffer, gradient, optimizer_state, input, activation, temporary
    born_index: FromMinusOne  # index of the operation that made it; -1: before the step
    died_index: FromMinusOne | None  # index of the last operation before it was freed; None: outlived the step


@dataclass(frozen=True)
class ProfiledOperation(Record):
    """profiles/CELL_ID-ATTEMPT.csv.gz: one operator call that torch.profiler recorded in one step of one pass.

    `input_shapes`, `input_dtypes` and `concrete_inputs` have one entry per argument of the call, in order: for a tensor
    sizes, dtype and None; otherwise (), "" (or the recorder's name of the type) and the value. A list of tensors has
    the sizes of each.
    """

    work: str  # one, batch, last
    index: int  # in the order of start, from 0 in each work
    parent: int | None  # index of the call that made this one, on the same thread
    name: str  # as recorded: "aten::conv2d"
    phase: str  # of the range around it; empty: outside of all
    module: str  # path of the module, of a backward call that of its forward call
    sequence_nr: FromMinusOne | None
    forward_index: int | None  # of a backward call: the call whose gradient it calculates
    thread: Annotated[int, ANY]
    input_shapes: Shapes
    input_dtypes: tuple[str, ...]
    concrete_inputs: tuple[Any, ...]
    found_flop: int | None  # what the profiler counted; None: it counts nothing for this name
    start_s: Signed  # since the step began
    time_s: float  # on the host, calls inside included
    device_time_s: float | None = None  # of the kernels launched in it, calls inside included


@dataclass(frozen=True, kw_only=True)
class Kernel(Record):
    """kernels.csv.gz: one kernel, copy or fill of a recorded profile. Every one is kept, unmatched ones too."""

    index: int  # in the order of start
    name: str
    what: str  # kernel, memcpy, memset; call: an operator call of a recording without a device
    start_s: Signed | None = None  # since the recording's first event
    time_s: float
    device: Annotated[int | None, ANY] = None
    stream: Annotated[int | None, ANY] = None
    call: int | None = None  # index of the innermost recorded call that launched it
    link: str  # how that call was found: containment, sequence, graph or none
    instance: int | None = None  # index of the OperationInstance it belongs to
    phase: str = ""
    module: str = ""
    found_flop: int | None = None  # as the recorder, or PyProf's rule, attributes them
    deduplicated_flop: int | None = None  # after duplicates were taken out
    repaired_flop: int | None = None  # after gaps were filled from shapes, too
    fault: str = ""  # why found_flop differs from repaired_flop


@dataclass(frozen=True, kw_only=True)
class OperationInstance(Record):
    """operation_instances.csv.gz: one product (or other outermost operator) of a recorded profile, and its kernels."""

    index: int  # in the order of start
    name: str
    kind: str
    phase: str
    module: str = ""
    step: int | None = None  # the recorder's number of the training step
    sequence_nr: FromMinusOne | None = None
    forward_index: int | None = None  # of a backward instance: index of the forward one
    input_shapes: Shapes = ()
    input_dtypes: tuple[str, ...] = ()
    concrete_inputs: tuple[Any, ...] = ()
    kernels: int = 0
    kernel_time_s: float | None = None
    host_time_s: float | None = None
    units: int | None = None  # products in it: 1 forward; backward 1 or 2, by the number of gradients
    unit_flop: int | None = None  # model FLOP of one of them
    expected_flop: int | None = None  # units × unit_flop
    raw_flop: int | None = None  # sum of its kernels' found_flop
    deduplicated_flop: int | None = None
    repaired_flop: int | None = None
    verdict: str = "unknown"  # of raw_flop: right, over, under; unknown: shapes give no count
    reason: str = ""
