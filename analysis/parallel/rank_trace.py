"""What one rank of a parallel step was seen to do in one micro-batch: the record that `measure.parallel` makes.

Sizes are local: those that the rank computes with, keeps, and hands to collectives. Values and times are in none of it.

Which stage of a pipeline runs what: contiguous ranges of a model's layers, and what crosses from one to another.

The layers are the numbered children of one module: of the one that has most of the model's FLOP. Stages differ by one
layer at most, the first ones having more. What runs before the first layer belongs to the first stage, what runs after
the last one to the last, anything between to the stage whose layer ran last; its backward pass is where it is. What a
stage reads and another one made is sent to it by that one, once for each micro-batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.operators.registry import model_flop
from analysis.operators.traffic import itemsize
from results.records.counts import Operation, Storage


@dataclass(frozen=True)
class LocalParameter:
    """What a rank has of one parameter. names: all that it has in the model; shape, dtype, nbytes: of this rank's part;
    trained: whether it needs a gradient; rows: of the first dimension, that replicas share and of which this is one
    replica's part, none after it having more; 0: each replica has all; element: path of the element of an outermost
    list of modules that it is in, "" for none."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    trained: bool
    rows: int = 0
    element: str = ""

    @property
    def numel(self) -> int:
        """Numbers in this part."""
        return math.prod(self.shape)

    def part(self, replica: int, replicas: int) -> LocalParameter:
        """What a replica has of it: rows are shared as torch.chunk does, the last ones having fewer or none."""
        if not self.rows:
            return self
        most = -(-self.rows // replicas)
        rows = min(most, max(0, self.rows - replica * most))
        held = self.shape[0] or 1  # of this part; where it has no row, those after it have none
        return replace(self, shape=(rows, *self.shape[1:]), nbytes=self.nbytes * rows // held)


@dataclass(frozen=True)
class RankTrace:
    """A step of one rank. gradients: first names of parameters, in the order in which their gradients are complete;
    buffers: name → bytes; axes: name of a process group → axis of the mesh; experts: first names of the parameters that
    are divided over the expert axis."""

    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    parameters: tuple[LocalParameter, ...]
    gradients: tuple[str, ...]
    buffers: Mapping[str, int] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)
    experts: frozenset[str] = frozenset()


def same_work(one: RankTrace, other: RankTrace) -> bool:
    """Whether two ranks do the same: the same operations on the same sizes, with the same memory and parameters.

    Numbers among the arguments may differ: a rank's first row of a vocabulary is one.
    """
    return (
        len(one.operations) == len(other.operations)
        and all(a == b for a, b in zip(map(_sizes, one.operations), map(_sizes, other.operations), strict=True))
        and list(map(_memory, one.storages)) == list(map(_memory, other.storages))
        and (one.parameters, one.gradients, one.buffers) == (other.parameters, other.gradients, other.buffers)
    )


def _sizes(operation: Operation) -> tuple[Any, ...]:
    return (
        operation.name, operation.phase, operation.module, operation.input_shapes, operation.input_dtypes,
        operation.output_shapes, operation.output_dtypes, operation.reads, operation.writes,
    )  # fmt: skip


def _memory(storage: Storage) -> tuple[Any, ...]:
    return storage.nbytes, storage.role, storage.born_index, storage.died_index


EXPERT_COUNTS = "c10d.alltoall_base_"
"""The collective by which ranks that share experts tell each other how many tokens come."""

COLLECTIVES: Mapping[str, str] = {
    "_c10d_functional.all_reduce": "all_reduce",
    "_c10d_functional.all_reduce_": "all_reduce",
    "_c10d_functional.all_gather_into_tensor": "all_gather",
    "_c10d_functional.all_gather_into_tensor_out": "all_gather",
    "_c10d_functional.reduce_scatter_tensor": "reduce_scatter",
    "_c10d_functional.all_to_all_single": "all_to_all",
    "_c10d_functional.broadcast": "broadcast",
    "_c10d_functional.broadcast_": "broadcast",
    EXPERT_COUNTS: "all_to_all",
    "c10d._allgather_base_": "all_gather",
    "c10d._reduce_scatter_base_": "reduce_scatter",
}
"""Operator → what it is called here. Each has one tensor that goes in and one that comes out."""

WAITS = ("_c10d_functional.wait_tensor", "c10d.barrier")
"""Operators of communication that move nothing."""


def message_bytes(operation: Operation) -> int:
    """Bytes of the larger of what a collective takes and what it gives, on one rank: the size by which collectives are
    benchmarked (nccl-tests). Raises ValueError for a dtype whose size is not known."""
    shapes = (*operation.input_shapes, *operation.output_shapes)
    dtypes = (*operation.input_dtypes, *operation.output_dtypes)
    sizes: list[int] = [math.prod(shape) * itemsize(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return max(sizes)


FORWARD = ("forward", "loss")


@dataclass(frozen=True)
class Crossing:
    """Bytes that go from one stage to another in one micro-batch, of so many tensors. backward: gradients."""

    source: int
    target: int
    nbytes: int
    tensors: int
    backward: bool


@dataclass(frozen=True)
class Stages:
    """A split. of_operation: stage of each; of_parameter: stages that hold each; crossings: what is sent."""

    count: int
    of_operation: tuple[int, ...]
    of_parameter: tuple[frozenset[int], ...]
    of_buffer: tuple[int, ...]
    crossings: tuple[Crossing, ...] = ()


def layer_prefix(operations: Sequence[Operation]) -> str:
    """The module whose numbered children have most of the FLOP, the outermost of several; "" where none has any."""
    flop: Counter[str] = Counter()
    for operation in operations:
        parts = operation.module.split(".")
        own_flop = model_flop(operation)
        for place, part in enumerate(parts):
            if part.isdecimal() and place:
                flop[".".join(parts[:place])] += own_flop
    return max(flop, key=lambda prefix: (flop[prefix], -len(prefix)), default="")


def layer_stages(operations: Sequence[Operation], count: int) -> tuple[str, dict[int, int]]:
    """The module whose numbered children are the layers, and the stage of each layer. Raises ValueError for fewer
    layers than stages."""
    prefix = layer_prefix(operations)
    numbers = sorted({number for each in operations if (number := _layer(each.module, prefix)) is not None})
    if len(numbers) < count:
        raise ValueError(f"expected at least pp={count} layers, numbered children of one module; got {len(numbers)}")
    each, more = divmod(len(numbers), count)
    ends = [(each + 1) * min(stage, more) + each * max(0, stage - more) for stage in range(1, count + 1)]
    return prefix, {
        number: next(stage for stage, end in enumerate(ends) if place < end) for place, number in enumerate(numbers)
    }


def stage_starts(trace: RankTrace, count: int) -> list[str]:
    """The modules with which the second stage and those after it begin. Raises ValueError for fewer layers than
    stages, or for a weight that several stages would hold."""
    prefix, stage_of = layer_stages(trace.operations, count)
    stages = split(trace, count)
    for parameter, homes in zip(trace.parameters, stages.of_parameter, strict=True):
        if len(homes) > 1:
            raise ValueError(
                f"pp={count}: expected each weight in one stage, got {' and '.join(parameter.names)}, which are one"
            )
    firsts = [min(number for number, home in stage_of.items() if home == stage) for stage in range(1, count)]
    return [f"{prefix}.{number}" for number in firsts]


def split(trace: RankTrace, count: int) -> Stages:
    """The stages of a step. Raises ValueError for fewer layers than stages."""
    if count == 1:
        whole = frozenset({0})
        return Stages(1, (0,) * len(trace.operations), (whole,) * len(trace.parameters), (0,) * len(trace.buffers))
    prefix, stage_of = layer_stages(trace.operations, count)
    places = tuple(_stages(trace.operations, prefix, stage_of, count))
    owners = _owners(trace.operations, places)
    return Stages(
        count,
        places,
        tuple(
            frozenset(_home(name, prefix, stage_of, owners, count) for name in parameter.names)
            for parameter in trace.parameters
        ),
        tuple(_home(name, prefix, stage_of, owners, count) for name in trace.buffers),
        tuple(_crossings(trace, places)),
    )


def _layer(module: str, prefix: str) -> int | None:
    """The number of the layer that a module is in."""
    if not prefix or not module.startswith(f"{prefix}."):
        return None
    part = module[len(prefix) + 1 :].partition(".")[0]
    return int(part) if part.isdecimal() else None


def _stages(operations: Sequence[Operation], prefix: str, stage_of: dict[int, int], count: int) -> Iterator[int]:
    """The stage of each operation."""
    before: list[int] = []
    last_layer, seen = max(stage_of), 0
    done = False
    for operation in operations:
        number = _layer(operation.module, prefix)
        if number is not None:
            stage = stage_of[number]
            done = done or number == last_layer
        elif operation.phase in FORWARD:
            stage = count - 1 if done else seen
        elif operation.forward_index is not None:
            stage = before[operation.forward_index]
        else:
            stage = seen
        seen = stage
        before.append(stage)
        yield stage


def _owners(operations: Sequence[Operation], places: Sequence[int]) -> dict[str, int]:
    """Module → the stage in which it runs first."""
    owners: dict[str, int] = {}
    for operation, stage in zip(operations, places, strict=True):
        if operation.phase in FORWARD:
            owners.setdefault(operation.module, stage)
    return owners


def _home(name: str, prefix: str, stage_of: dict[int, int], owners: dict[str, int], count: int) -> int:
    """The stage of a parameter's or buffer's owner; of one that runs nowhere, the last."""
    number = _layer(name, prefix)
    if number is not None and number in stage_of:
        return stage_of[number]
    return owners.get(name.rpartition(".")[0], count - 1)


def _crossings(trace: RankTrace, places: Sequence[int]) -> Iterator[Crossing]:
    """What is made in one stage and read in another, forward among forward and backward among backward."""
    sent: dict[tuple[int, int, bool], set[int]] = {}
    tied = {
        each.nbytes: {name.rpartition(".")[0] for name in each.names} for each in trace.parameters if each.names[1:]
    }
    for operation, stage in zip(trace.operations, places, strict=True):
        for number in operation.reads:
            storage = trace.storages[number]
            born = storage.born_index
            if born < 0 or places[born] == stage:
                continue
            maker = trace.operations[born]
            if maker.module in tied.get(storage.nbytes, ()):
                continue  # a gradient of a weight that both stages hold: reduced once a step
            backward = maker.phase == "backward"
            if backward == (operation.phase == "backward") and maker.phase != "recompute":
                sent.setdefault((places[born], stage, backward), set()).add(number)
    for (source, target, backward), numbers in sorted(sent.items()):
        nbytes = sum(int(trace.storages[number].nbytes) for number in numbers)
        yield Crossing(source, target, nbytes, len(numbers), backward)
