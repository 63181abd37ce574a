"""Operations, kernels and storages, as traced and as recorded."""

from dataclasses import dataclass
from typing import Annotated, Any

from results.records.rows import ANY, NOT_NEGATIVE, FromMinusOne, Json, Record, Shapes, Signed


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


@dataclass(frozen=True)
class Storage(Record):
    """operations/TRACE_ID.storages.csv.gz: one block of memory during the step."""

    id: int  # our own serial number
    nbytes: Annotated[Any, NOT_NEGATIVE]  # int, or a sympy expression
    role: str  # weight, buffer, gradient, optimizer_state, input, activation, temporary
    born_index: FromMinusOne  # index of the operation that made it; -1: before the step
    died_index: FromMinusOne | None  # index of the last operation before it was freed; None: outlived the step


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
    link: str  # how that call was found: containment, sequence, graph, none
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
    sequence_nr: FromMinusOne | None = None
    forward_index: int | None = None  # of a backward instance: index of the forward one
    input_shapes: Shapes = ()
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
