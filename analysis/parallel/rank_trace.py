"""Holds what one rank runs in a micro-batch (`RankTrace`), and splits it into the stages of a pipeline (`split`).

`measure.parallel` records the trace. Sizes are local: what the rank computes with, keeps and sends. There are no values
and no times. Layers are the numbered children of the module with most of the FLOP. Stages differ by one layer at most,
and the first stages have more. What runs before the first layer belongs to the first stage, and what runs after the
last layer to the last stage. What runs in between belongs to the stage whose layer ran last, a backward pass to its
forward's stage. What a stage reads of another stage is sent once per micro-batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.operators.registry import model_flop
from results.records.counts import Operation, Storage


@dataclass(frozen=True)
class LocalParameter:
    """One rank's part of a parameter.

    names: all names of the parameter in the model. shape, dtype and nbytes are those of this part. trained: whether it
    needs a gradient. rows: where replicas shard the parameter, the rows of all their parts, of which this is the
    largest; 0 where each replica has all. element: path of the element of an outermost module list that contains the
    parameter, or "".
    """

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
        """Return a replica's part: rows are divided as by torch.chunk, the last replicas having fewer or none."""
        if not self.rows:
            return self
        most = -(-self.rows // replicas)
        rows = min(most, max(0, self.rows - replica * most))
        held = self.shape[0] or 1  # of this part; where it has no row, those after it have none
        return replace(self, shape=(rows, *self.shape[1:]), nbytes=self.nbytes * rows // held)


@dataclass(frozen=True)
class RankTrace:
    """One rank's step. gradients: first names of parameters, in the order in which their gradients are complete;
    buffers: name → bytes; axes: process group → mesh axis; experts: first names of the parameters divided over the
    expert axis."""

    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    parameters: tuple[LocalParameter, ...]
    gradients: tuple[str, ...]
    buffers: Mapping[str, int] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)
    experts: frozenset[str] = frozenset()


def are_alike(trace: RankTrace, other: RankTrace) -> bool:
    """Return whether two ranks run the same operations on the same sizes, with the same memory and parameters.

    Numeric arguments may differ, such as a rank's first row of a vocabulary.
    """
    return (
        len(trace.operations) == len(other.operations)
        and all(a == b for a, b in zip(map(_sizes, trace.operations), map(_sizes, other.operations), strict=True))
        and list(map(_memory, trace.storages)) == list(map(_memory, other.storages))
        and (trace.parameters, trace.gradients, trace.buffers) == (other.parameters, other.gradients, other.buffers)
    )


def _sizes(operation: Operation) -> tuple[Any, ...]:
    return (
        operation.name, operation.phase, operation.module, operation.input_shapes, operation.input_dtypes,
        operation.output_shapes, operation.output_dtypes, operation.reads, operation.writes,
    )  # fmt: skip


def _memory(storage: Storage) -> tuple[Any, ...]:
    return storage.nbytes, storage.role, storage.born_index, storage.died_index


FORWARD = ("forward", "loss")


@dataclass(frozen=True)
class Crossing:
    """Bytes and number of tensors that go from one stage to another in one micro-batch. backward: gradients."""

    source: int
    target: int
    nbytes: int
    tensors: int
    backward: bool


@dataclass(frozen=True)
class Stages:
    """A split into stages. of_operation, of_buffer: the stage of each; of_parameter: the stages that hold each;
    crossings: transfers."""

    count: int
    of_operation: tuple[int, ...]
    of_parameter: tuple[frozenset[int], ...]
    of_buffer: tuple[int, ...]
    crossings: tuple[Crossing, ...] = ()


def layer_prefix(operations: Sequence[Operation]) -> str:
    """Return the module whose numbered children have most of the FLOP, the outermost where several do; "" where none
    has any."""
    flop: Counter[str] = Counter()
    for operation in operations:
        parts = operation.module.split(".")
        own_flop = model_flop(operation)
        for index, part in enumerate(parts):
            if part.isdecimal() and index:
                flop[".".join(parts[:index])] += own_flop
    return max(flop, key=lambda prefix: (flop[prefix], -len(prefix)), default="")


def layer_stages(operations: Sequence[Operation], count: int) -> tuple[str, dict[int, int]]:
    """Return the module whose numbered children are the layers, and the stage of each layer. Raises ValueError for
    fewer layers than stages."""
    prefix = layer_prefix(operations)
    numbers = sorted({number for operation in operations if (number := _layer(operation.module, prefix)) is not None})
    if len(numbers) < count:
        raise ValueError(f"expected at least pp={count} layers, numbered children of one module; got {len(numbers)}")
    layers, more = divmod(len(numbers), count)
    ends = [(layers + 1) * min(stage, more) + layers * max(0, stage - more) for stage in range(1, count + 1)]
    return prefix, {
        number: next(stage for stage, end in enumerate(ends) if index < end) for index, number in enumerate(numbers)
    }


def stage_starts(trace: RankTrace, count: int) -> list[str]:
    """Return the module with which each stage begins, without the first stage. Raises ValueError for fewer layers than
    stages, or for a weight that several stages would hold."""
    prefix, stage_of = layer_stages(trace.operations, count)
    stages = split(trace, count)
    for parameter, homes in zip(trace.parameters, stages.of_parameter, strict=True):
        if len(homes) > 1:
            raise ValueError(
                f"pp={count}: expected each weight in one stage, got one weight as {' and '.join(parameter.names)}"
            )
    firsts = [min(number for number, home in stage_of.items() if home == stage) for stage in range(1, count)]
    return [f"{prefix}.{number}" for number in firsts]


def split(trace: RankTrace, count: int) -> Stages:
    """Return the stages of a step. Raises ValueError for fewer layers than stages."""
    if count == 1:
        whole = frozenset({0})
        return Stages(1, (0,) * len(trace.operations), (whole,) * len(trace.parameters), (0,) * len(trace.buffers))
    prefix, stage_of = layer_stages(trace.operations, count)
    stage_of_operation = tuple(_stages(trace.operations, prefix, stage_of, count))
    owners = _owners(trace.operations, stage_of_operation)
    return Stages(
        count,
        stage_of_operation,
        tuple(
            frozenset(_home(name, prefix, stage_of, owners, count) for name in parameter.names)
            for parameter in trace.parameters
        ),
        tuple(_home(name, prefix, stage_of, owners, count) for name in trace.buffers),
        tuple(_crossings(trace, stage_of_operation)),
    )


def _layer(module: str, prefix: str) -> int | None:
    """Return the number of the layer that contains a module."""
    if not prefix or not module.startswith(f"{prefix}."):
        return None
    part = module[len(prefix) + 1 :].partition(".")[0]
    return int(part) if part.isdecimal() else None


def _stages(operations: Sequence[Operation], prefix: str, stage_of: dict[int, int], count: int) -> Iterator[int]:
    """Yield the stage of each operation."""
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


def _owners(operations: Sequence[Operation], stage_of_operation: Sequence[int]) -> dict[str, int]:
    """Return module → the stage in which it runs first."""
    owners: dict[str, int] = {}
    for operation, stage in zip(operations, stage_of_operation, strict=True):
        if operation.phase in FORWARD:
            owners.setdefault(operation.module, stage)
    return owners


def _home(name: str, prefix: str, stage_of: dict[int, int], owners: dict[str, int], count: int) -> int:
    """Return the stage of a parameter's or buffer's owner; the last stage where it runs nowhere."""
    number = _layer(name, prefix)
    if number is not None and number in stage_of:
        return stage_of[number]
    return owners.get(name.rpartition(".")[0], count - 1)


def _crossings(trace: RankTrace, stage_of_operation: Sequence[int]) -> Iterator[Crossing]:
    """Yield the tensors made in one stage and read in another, within the forward pass and within the backward pass."""
    sent: dict[tuple[int, int, bool], set[int]] = {}
    tied = {
        parameter.nbytes: {name.rpartition(".")[0] for name in parameter.names}
        for parameter in trace.parameters
        if parameter.names[1:]
    }
    for operation, stage in zip(trace.operations, stage_of_operation, strict=True):
        for number in operation.reads:
            storage = trace.storages[number]
            born = storage.born_index
            if born < 0 or stage_of_operation[born] == stage:
                continue
            maker = trace.operations[born]
            if maker.module in tied.get(storage.nbytes, ()):
                continue  # a gradient of a weight that both stages hold: reduced once a step
            backward = maker.phase == "backward"
            if backward == (operation.phase == "backward") and maker.phase != "recompute":
                sent.setdefault((stage_of_operation[born], stage, backward), set()).add(number)
    for (source, target, backward), numbers in sorted(sent.items()):
        nbytes = sum(int(trace.storages[number].nbytes) for number in numbers)
        yield Crossing(source, target, nbytes, len(numbers), backward)
