"""The records of a profiled step: what each operation costs and takes, and what modules it belongs to.

They are answers of `runners.profile`, kept in files of their own and never in a run. Times are means over the recorded
steps, because means add up: the operations' times and the time between them are the step's. Medians and intervals stand
beside them.
"""

from dataclasses import dataclass, field

from results.records.fields import Json, Shapes, Signed
from results.records.rows import Record


@dataclass(frozen=True, kw_only=True)
class StepOperation(Record):
    """One operation of a training step. Costs are exact, FLOP None where no rule counts it; times are None where the
    recording has no call for it."""

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
    fused_bytes: int = 0  # what its group moves, on the one that leads
    kernels: float | None = None  # launched in a step; on a CPU 1 a call
    time_s: float | None = None  # mean: on a device of its kernels, else of its call
    median_time_s: float | None = None
    low_time_s: Signed | None = None  # 95 % interval of the mean; None: one step
    high_time_s: float | None = None
    host_time_s: float | None = None  # mean, of its call on the host
    waited_s: float | None = None  # mean, before it: the device idle, or the host between two operations

    @property
    def understood(self) -> bool:
        """Whether a rule counts it; else nobody knows its FLOP."""
        return self.model_flop is not None

    @property
    def at_least_flop(self) -> int:
        """Model FLOP for a sum that is printed as "at least": 0 where they are unknown."""
        return self.model_flop or 0


@dataclass(frozen=True, kw_only=True)
class StepModule(Record):
    """One module of the profiled model, in the order of `named_modules`."""

    module: str  # path; empty: the model itself
    type: str  # its class
    settings: str = ""  # its `extra_repr`
    own_parameters: int = 0  # of this module itself, each parameter at the first module that has it
    parameters: int = 0  # of it and all below, each once


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The limits that a step is compared with: FLOP/s by unit, bytes/s, seconds a launch; each with its source."""

    device: str = ""
    device_name: str = ""
    peak_by_unit: Json = field(default_factory=dict)  # unit → FLOP/s, measured here (ceiling)
    datasheet_by_unit: Json = field(default_factory=dict)  # unit → FLOP/s as printed
    bytes_per_s: float | None = None  # measured here
    launch_s: float | None = None  # one kernel of no work, launch after launch; on a CPU one call
    sources: Json = field(default_factory=dict)  # field or unit → in words
    datasheet_bytes_per_s: float | None = None  # as printed


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """A model's profiled step. step_times_s: each recorded step, from end to end, under the profiler.

    unprofiled_times_s: steps without it, where some were timed. between_s: phase → mean time in which no operation of
    the step ran; operations and this add up to the mean of step_times_s. Of the devices one was measured: what is said
    of all of them, and of what runs again, is the caller's word.
    """

    model: str
    batch_size: int | None
    device: str
    precision: str
    mode: str  # train, forward, generate
    parameters: int
    operations: tuple[StepOperation, ...]
    modules: tuple[StepModule, ...]
    step_times_s: tuple[float, ...]
    unprofiled_times_s: tuple[float, ...] = ()
    between_s: Json = field(default_factory=dict)
    machine: Machine | None = None
    world_size: int = 1  # devices that train together
    model_parallel: int = 1  # of them, as many hold one model between them
    recompute_fwd_factor: float = 0.0  # share of the forward pass that is taken to run again in the backward one
    not_understood: Json = field(default_factory=dict)  # operator → calls without a rule
    notes: tuple[str, ...] = ()
    attention: Json = field(default_factory=dict)  # of a step's model FLOP: convention, those of others, calls, reasons

    @property
    def samples(self) -> int | None:
        """Of a step, by all devices: those that hold one model between them share one batch."""
        return None if self.batch_size is None else self.batch_size * (self.world_size // self.model_parallel)
