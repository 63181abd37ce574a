"""Which stage of a pipeline runs what: contiguous ranges of a model's layers, and what crosses from one to another.

The layers are the numbered children of one module: of the one that has most of the model's FLOP. Stages differ by one
layer at most, the first ones having more. What runs before the first layer belongs to the first stage, what runs after
the last one to the last, anything between to the stage whose layer ran last; its backward pass is where it is. What a
stage reads and another one made is sent to it by that one, once for each micro-batch.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.operators.registry import model_flop
from analysis.parallel.rank_trace import RankTrace
from results.records.operations import Operation

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
        own = model_flop(operation)
        for place, part in enumerate(parts):
            if part.isdecimal() and place:
                flop[".".join(parts[:place])] += own
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
    firsts = [min(number for number, own in stage_of.items() if own == stage) for stage in range(1, count)]
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
    found: dict[str, int] = {}
    for operation, stage in zip(operations, places, strict=True):
        if operation.phase in FORWARD:
            found.setdefault(operation.module, stage)
    return found


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
