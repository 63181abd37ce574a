"""The ledger of a parallel step: what each rank does, and that all of it together is the single device's work.

The sum over ranks is the single device's count, plus what is replicated, plus what is computed again. Replicated is
work that no axis divides: a product that each of `tp` ranks runs whole, or that each replica and micro-batch runs whole
because its size does not follow the batch. Both are found by module: the sum over the tensor axis is once or exactly tp
times the undivided micro-batch, and all micro-batches are once or exactly as often the global batch. Anything else
stays in `unexplained_flop`: a fault of ours or a plan that does not compute the model.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.operators.registry import model_flop
from analysis.parallel.rank_grid import Coordinates, RankGrid
from analysis.parallel.rank_trace import (
    COLLECTIVES,
    EXPERT_COUNTS,
    FORWARD,
    WAITS,
    LocalParameter,
    RankTrace,
    Stages,
    message_bytes,
    split,
)
from results.records.counts import Operation

Work = Mapping[tuple[str, str, str], int]
"""(phase, module, kind) → model FLOP; phases are forward, backward and recompute."""

Buckets = Callable[[Sequence[LocalParameter]], Sequence[int]]
"""Gradients in the order in which they come → bytes of each all-reduce."""

EXPERTS = "experts"
"""Group of the ranks that have the same experts."""

TIED = ("all_reduce", "pp")
"""Kind and group of the collectives of weights that several stages hold."""

STATE_COPIES = 4
"""Weight, gradient, and Adam's two moments of a trained parameter, each in its own dtype."""


@dataclass(frozen=True)
class CollectiveCalls:
    """Calls of one kind in a step on one rank. group: as in `RankGrid.group_size`; size: ranks in it; nbytes: of all
    calls, each as `message_bytes` has it."""

    kind: str
    group: str
    size: int
    calls: int
    nbytes: int


@dataclass(frozen=True)
class RankWork:
    """A step of one rank, all its micro-batches. parameters: numbers that it holds; activation_bytes: kept for the
    backward pass, of all micro-batches in flight."""

    flop: Work
    parameters: int
    state_bytes: int
    activation_bytes: int
    collectives: tuple[CollectiveCalls, ...]

    def total(self, *phases: str) -> int:
        """Model FLOP of these phases."""
        return sum(flop for (phase, _, _), flop in self.flop.items() if phase in phases)


@dataclass(frozen=True)
class Replica:
    """Work that is done more often than once. axis: "tp", or "dp" for replicas and micro-batches; times: how
    often."""

    phase: str
    module: str
    kind: str
    axis: str
    times: int
    flop: int


@dataclass(frozen=True)
class Ledger:
    """All ranks. works: each rank's work, one object for ranks that do the same; single_flop: of one device."""

    grid: RankGrid
    works: Mapping[Coordinates, RankWork]
    single_flop: int
    replicas: tuple[Replica, ...]

    @property
    def sum_flop(self) -> int:
        """Over all ranks, with what is computed again."""
        return sum(work.total("forward", "backward", "recompute") for work in self.works.values())

    @property
    def recomputed_flop(self) -> int:
        """What activation checkpointing computes again, on all ranks."""
        return sum(work.total("recompute") for work in self.works.values())

    @property
    def replicated_flop(self) -> int:
        """What is named in `replicas`."""
        return sum(replica.flop for replica in self.replicas)

    @property
    def unexplained_flop(self) -> int:
        """0, or something is wrong."""
        return self.sum_flop - self.single_flop - self.replicated_flop - self.recomputed_flop


@dataclass(frozen=True)
class RankRecording:
    """What a ledger is made from. ranks: of one replica and stage, tp of them, in order; micro, whole: a single
    device's step on one micro-batch and on the global batch; single_flop: forward and backward of the latter, counted
    in another way."""

    ranks: Sequence[RankTrace]
    micro: RankTrace
    whole: RankTrace
    single_flop: int


def ledger_of(recording: RankRecording, grid: RankGrid, buckets: Buckets) -> Ledger:
    """The ledger of a step. Raises ValueError where the layers do not suffice for the stages."""
    works: dict[Coordinates, RankWork] = {}
    known: dict[int, list[list[RankWork]]] = {}
    for tensor, trace in enumerate(recording.ranks):
        if id(trace) not in known:
            stages = split(trace, grid.pp)
            known[id(trace)] = [_replica_works(trace, stages, stage, grid, buckets) for stage in range(grid.pp)]
        for stage, copies in enumerate(known[id(trace)]):
            works.update({Coordinates(stage, data, tensor): work for data, work in enumerate(copies)})
    return Ledger(grid, works, recording.single_flop, _replicas(recording, grid))


def work_of(operations: Sequence[Operation]) -> Counter[tuple[str, str, str]]:
    """Model FLOP by phase, module and kind; the loss is forward."""
    work: Counter[tuple[str, str, str]] = Counter()
    for operation in operations:
        if flop := model_flop(operation):
            work["forward" if operation.phase in FORWARD else operation.phase, operation.module, operation.kind] += flop
    return work


def _replica_works(trace: RankTrace, stages: Stages, stage: int, grid: RankGrid, buckets: Buckets) -> list[RankWork]:
    """The work of each rank of the data axis: they differ by the weights that they hold, where they share them, and by
    what they reduce of those with other stages."""
    first = _rank_work(trace, stages, stage, grid, buckets)
    works = [first]
    for replica in range(1, grid.dp):
        held = [_part(each, replica, grid) for each in _held(trace, stages, stage)]
        sizes = sum(each.numel for each in held), _state_bytes(trace, stages, stage, held)
        if sizes == (works[-1].parameters, works[-1].state_bytes):
            works.append(works[-1])
            continue
        others = (each for each in first.collectives if (each.kind, each.group) != TIED)
        collectives = (*others, *_tied(held, trace, stages))
        works.append(replace(first, parameters=sizes[0], state_bytes=sizes[1], collectives=collectives))
    return works


def _held(trace: RankTrace, stages: Stages, stage: int) -> list[LocalParameter]:
    return [each for each, homes in zip(trace.parameters, stages.of_parameter, strict=True) if stage in homes]


def _part(parameter: LocalParameter, replica: int, grid: RankGrid) -> LocalParameter:
    """What a replica holds of it; the step of stages is recorded with whole weights, even where replicas share them."""
    if grid.shares_stages and parameter.shape:
        parameter = replace(parameter, rows=parameter.shape[0])
    return parameter.part(replica, grid.dp)


def _state_bytes(trace: RankTrace, stages: Stages, stage: int, held: Sequence[LocalParameter]) -> int:
    buffers = sum(n for n, home in zip(trace.buffers.values(), stages.of_buffer, strict=True) if home == stage)
    return buffers + sum(each.nbytes * (STATE_COPIES if each.trained else 1) for each in held)


def _rank_work(trace: RankTrace, stages: Stages, stage: int, grid: RankGrid, buckets: Buckets) -> RankWork:
    operations = [each for each, place in zip(trace.operations, stages.of_operation, strict=True) if place == stage]
    held = _held(trace, stages, stage)
    parts = [_part(each, 0, grid) for each in held] if grid.shares_stages else held
    flop = {key: flop * grid.microbatches for key, flop in work_of(operations).items()}
    return RankWork(
        flop=flop,
        parameters=sum(each.numel for each in parts),
        state_bytes=_state_bytes(trace, stages, stage, parts),
        activation_bytes=_activations(trace, stages, stage) * grid.in_flight(stage),
        collectives=(
            *_collectives(operations, trace, grid),
            *_reductions(trace, held, grid, buckets),
            *_tied(parts, trace, stages),
            *_sends(stages, stage, grid),
        ),
    )


def _activations(trace: RankTrace, stages: Stages, stage: int) -> int:
    """Bytes that one micro-batch keeps for its backward pass here: made here, or received; no gathered weights."""
    gathers = [each for each in trace.operations if each.name.startswith(("fsdp.", "c10d."))]
    gathered = {number for each in gathers for number in (*each.reads, *each.writes)}
    nbytes = sum(
        int(each.nbytes)
        for number, each in enumerate(trace.storages)
        if each.role == "activation" and number not in gathered and stages.of_operation[each.born_index] == stage
    )
    return nbytes + sum(each.nbytes for each in stages.crossings if each.target == stage and not each.backward)


def _collectives(operations: Sequence[Operation], trace: RankTrace, grid: RankGrid) -> list[CollectiveCalls]:
    """What operators of the step communicate. Raises ValueError for one that is not known."""
    calls: Counter[tuple[str, str]] = Counter()
    nbytes: Counter[tuple[str, str]] = Counter()
    for operation in operations:
        if operation.kind == "communication" and operation.name not in WAITS:
            if operation.name not in COLLECTIVES:
                raise ValueError(f"expected collectives of {', '.join(COLLECTIVES)}, got {operation.name}")
            kind = COLLECTIVES[operation.name]
            axis = trace.axes.get(
                str(operation.attributes.get("group_name")),
                "ep" if operation.name == EXPERT_COUNTS else "dp",
            )
            calls[kind, axis] += grid.microbatches
            nbytes[kind, axis] += message_bytes(operation) * grid.microbatches
    return [CollectiveCalls(*key, grid.group_size(key[1]), count, nbytes[key]) for key, count in calls.items()]


def _reductions(
    trace: RankTrace, held: Sequence[LocalParameter], grid: RankGrid, buckets: Buckets
) -> list[CollectiveCalls]:
    """The all-reduces of gradients between ranks that have the same weights, once a step; each expert's gradients by
    themselves, in a group of their own."""
    named = {name: each for each in held for name in each.names}
    arrived = [named[name] for name in trace.gradients if name in named]
    if grid.replicas == "fsdp":
        return _of_shared_stage(held, arrived, grid) if grid.shares_stages else []
    dense = [each for each in arrived if each.names[0] not in trace.experts]
    experts = [each.nbytes for each in arrived if each.names[0] in trace.experts]
    sizes = _dense_sizes(dense, grid, buckets) if grid.dp > 1 else ()
    return [
        CollectiveCalls("all_reduce", group, grid.group_size(group), len(each), sum(each))
        for group, each in (("dp", sizes), (EXPERTS, experts))
        if each and grid.group_size(group) > 1
    ]


def _dense_sizes(gradients: Sequence[LocalParameter], grid: RankGrid, buckets: Buckets) -> Sequence[int]:
    """Bytes of each all-reduce: the buckets of DistributedDataParallel; of split modules, torch's `replicate`, which
    reduces each element of the outermost lists of modules and the rest each at once, and a stage of a pipeline, in
    which torch.export leaves no such list, as a whole."""
    if grid.tp == 1:
        return buckets(gradients)
    sizes: Counter[str] = Counter()
    for each in gradients:
        sizes["" if grid.pp > 1 else each.element] += each.nbytes
    return list(sizes.values())


def _of_shared_stage(
    held: Sequence[LocalParameter], arrived: Sequence[LocalParameter], grid: RankGrid
) -> list[CollectiveCalls]:
    """What `fully_shard` does of a stage, which is one group of weights: gathered in its first micro-batch and kept to
    the last one's end, when the gradients that arrived are scattered. Rows are padded, so that each replica has as
    many. Raises ValueError for a parameter without a dimension, as torch does."""
    if scalars := [each.names[0] for each in held if not each.shape]:
        raise ValueError(f"fsdp: expected parameters of one dimension or more, got {scalars[0]}, which has none")
    collectives = []
    for kind, those in (("all_gather", held), ("reduce_scatter", arrived)):
        if sizes := [each.nbytes // each.shape[0] * -(-each.shape[0] // grid.dp) for each in those if each.numel]:
            collectives.append(CollectiveCalls(kind, "dp", grid.dp, 1, sum(sizes) * grid.dp))
    return collectives


def _tied(held: Sequence[LocalParameter], trace: RankTrace, stages: Stages) -> list[CollectiveCalls]:
    """The all-reduces of gradients between stages that hold one parameter, once a step. held: where replicas share
    weights, this one's parts, whose gradients it has after the scatter."""
    homes = {each.names: len(where) for each, where in zip(trace.parameters, stages.of_parameter, strict=True)}
    shared = [each for each in held if homes[each.names] > 1 and each.trained]
    most = max((homes[each.names] for each in shared), default=0)
    return [CollectiveCalls(*TIED, most, len(shared), sum(each.nbytes for each in shared))] if shared else []


def _sends(stages: Stages, stage: int, grid: RankGrid) -> list[CollectiveCalls]:
    """What goes to other stages and comes from them, a call for each tensor."""
    collectives = []
    for kind, side in (("send", "source"), ("receive", "target")):
        those = [each for each in stages.crossings if getattr(each, side) == stage]
        calls, nbytes = sum(each.tensors for each in those), sum(each.nbytes for each in those)
        if calls:
            collectives.append(
                CollectiveCalls(kind, "pp", grid.pp, calls * grid.microbatches, nbytes * grid.microbatches)
            )
    return collectives


def _replicas(recording: RankRecording, grid: RankGrid) -> tuple[Replica, ...]:
    """Work that the tensor axis, or replicas and micro-batches, do not divide."""
    ranks: Counter[tuple[str, str, str]] = Counter()
    for trace in recording.ranks:
        ranks.update(work_of(trace.operations))
    micro, whole = work_of(recording.micro.operations), work_of(recording.whole.operations)
    shares = grid.dp * grid.microbatches
    replicas = []
    for key in whole:
        if key[0] == "recompute":
            continue
        if grid.tp > 1 and ranks[key] == grid.tp * micro[key]:
            replicas.append(Replica(*key, "tp", grid.tp, shares * (grid.tp - 1) * micro[key]))
        if shares > 1 and micro[key] == whole[key]:
            replicas.append(Replica(*key, "dp", shares, (shares - 1) * whole[key]))
    return tuple(replicas)
