"""Adds up the FLOP of a parallel step over ranks, and explains the sum by the FLOP of a single device.

`ledger_of` takes a `RankRecording` and a grid, and returns a `Ledger`. The sum over ranks is the single device's FLOP,
plus what is replicated, plus what is recomputed. A product (convolution or matrix product) is replicated over the
tensor axis if that axis does not split it. A product whose size is independent of the batch is replicated over replicas
and micro-batches. Both kinds of replication are detected module by module. In the first, the sum over the `tp` ranks is
`tp` times the micro-batch's FLOP on one device. In the second, a micro-batch has the FLOP of the global batch. The rest
is `unexplained_flop`: a bug here, or a plan that does not compute the model.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.operators.registry import model_flop
from analysis.operators.traffic import itemsize
from analysis.parallel.rank_grid import Coordinates, RankGrid
from analysis.parallel.rank_trace import FORWARD, LocalParameter, RankTrace, Stages, split
from results.records.counts import Operation

FlopByKey = Mapping[tuple[str, str, str], int]
"""(phase, module, kind) → model FLOP; phases are forward, backward and recompute."""

Buckets = Callable[[Sequence[LocalParameter]], Sequence[int]]
"""Gradients in the order in which they are ready → bytes of each all-reduce."""

EXPERTS = "experts"
"""Group of ranks that hold the same experts."""

TIED = ("all_reduce", "pp")
"""Kind and group of the collectives for weights that several stages hold."""

STATE_COPIES = 4
"""Copies of a trained parameter: weight, gradient, and Adam's two moments, each in its own dtype."""

EXPERT_COUNTS = "c10d.alltoall_base_"
"""The collective by which ranks that share experts exchange the numbers of tokens."""

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
"""Operator → name of the collective. Each has one input tensor and one output tensor."""

WAITS = ("_c10d_functional.wait_tensor", "c10d.barrier")
"""Communication operators that move nothing."""


@dataclass(frozen=True)
class CollectiveCalls:
    """One rank's collective calls of one kind in a step. group: as in `RankGrid.group_size`; size: ranks in it; nbytes:
    of all calls, by `message_bytes`."""

    kind: str
    group: str
    size: int
    calls: int
    nbytes: int


@dataclass(frozen=True)
class RankLoad:
    """One rank's step, with all its micro-batches. parameters: numbers that it holds; activation_bytes: kept for the
    backward pass, of all micro-batches in flight."""

    flop: FlopByKey
    parameters: int
    state_bytes: int
    activation_bytes: int
    collectives: tuple[CollectiveCalls, ...]

    def total(self, *phases: str) -> int:
        """Return the model FLOP of these phases."""
        return sum(flop for (phase, _, _), flop in self.flop.items() if phase in phases)


@dataclass(frozen=True)
class Replica:
    """FLOP executed more than once. axis: "tp", or "dp" for replicas and micro-batches; times: how often."""

    phase: str
    module: str
    kind: str
    axis: str
    times: int
    flop: int


@dataclass(frozen=True)
class Ledger:
    """All ranks. loads: one per rank, the same object for equal ranks; single_flop: model FLOP on one device."""

    grid: RankGrid
    loads: Mapping[Coordinates, RankLoad]
    single_flop: int
    replicas: tuple[Replica, ...]

    @property
    def sum_flop(self) -> int:
        """FLOP of all ranks, with recomputation."""
        return sum(load.total("forward", "backward", "recompute") for load in self.loads.values())

    @property
    def recomputed_flop(self) -> int:
        """FLOP that activation checkpointing recomputes, on all ranks."""
        return sum(load.total("recompute") for load in self.loads.values())

    @property
    def replicated_flop(self) -> int:
        """FLOP listed in `replicas`."""
        return sum(replica.flop for replica in self.replicas)

    @property
    def unexplained_flop(self) -> int:
        """FLOP that the ledger does not explain: 0 unless something is wrong."""
        return self.sum_flop - self.single_flop - self.replicated_flop - self.recomputed_flop


@dataclass(frozen=True)
class RankRecording:
    """What `ledger_of` needs. ranks: the `tp` ranks of one replica and stage, in order; micro, whole: a single device's
    step on one micro-batch and on the global batch; single_flop: forward and backward of the latter, counted
    independently."""

    ranks: Sequence[RankTrace]
    micro: RankTrace
    whole: RankTrace
    single_flop: int


def ledger_of(recording: RankRecording, grid: RankGrid, buckets: Buckets) -> Ledger:
    """Return the ledger of a step. Raises ValueError where there are fewer layers than stages."""
    loads: dict[Coordinates, RankLoad] = {}
    known: dict[int, list[list[RankLoad]]] = {}
    for tensor, trace in enumerate(recording.ranks):
        if id(trace) not in known:
            stages = split(trace, grid.pp)
            known[id(trace)] = [_replica_loads(trace, stages, stage, grid, buckets) for stage in range(grid.pp)]
        for stage, copies in enumerate(known[id(trace)]):
            loads.update({Coordinates(stage, data, tensor): load for data, load in enumerate(copies)})
    return Ledger(grid, loads, recording.single_flop, _replicas(recording, grid))


def flop_by_key(operations: Sequence[Operation]) -> Counter[tuple[str, str, str]]:
    """Return the model FLOP by phase, module and kind; the loss is forward."""
    flop_by: Counter[tuple[str, str, str]] = Counter()
    for operation in operations:
        if flop := model_flop(operation):
            flop_by["forward" if operation.phase in FORWARD else operation.phase, operation.module, operation.kind] += (
                flop
            )
    return flop_by


def _replica_loads(trace: RankTrace, stages: Stages, stage: int, grid: RankGrid, buckets: Buckets) -> list[RankLoad]:
    """Return the loads of the ranks of the data axis. Where these ranks share weights, they differ in the weights that
    they hold, and in the gradients that they reduce with other stages that hold the same weights."""
    first = _rank_load(trace, stages, stage, grid, buckets)
    loads = [first]
    for replica in range(1, grid.dp):
        held = [_part(parameter, replica, grid) for parameter in _held(trace, stages, stage)]
        sizes = sum(parameter.numel for parameter in held), _state_bytes(trace, stages, stage, held)
        if sizes == (loads[-1].parameters, loads[-1].state_bytes):
            loads.append(loads[-1])
            continue
        others = (call for call in first.collectives if (call.kind, call.group) != TIED)
        collectives = (*others, *_tied(held, trace, stages))
        loads.append(replace(first, parameters=sizes[0], state_bytes=sizes[1], collectives=collectives))
    return loads


def _held(trace: RankTrace, stages: Stages, stage: int) -> list[LocalParameter]:
    return [parameter for parameter, homes in zip(trace.parameters, stages.of_parameter, strict=True) if stage in homes]


def _part(parameter: LocalParameter, replica: int, grid: RankGrid) -> LocalParameter:
    """Return a replica's part of a parameter; a stage's step is recorded with whole weights, even where replicas share
    them."""
    if grid.shares_stages and parameter.shape:
        parameter = replace(parameter, rows=parameter.shape[0])
    return parameter.part(replica, grid.dp)


def _state_bytes(trace: RankTrace, stages: Stages, stage: int, held: Sequence[LocalParameter]) -> int:
    buffers = sum(n for n, home in zip(trace.buffers.values(), stages.of_buffer, strict=True) if home == stage)
    return buffers + sum(parameter.nbytes * (STATE_COPIES if parameter.trained else 1) for parameter in held)


def _rank_load(trace: RankTrace, stages: Stages, stage: int, grid: RankGrid, buckets: Buckets) -> RankLoad:
    operations = [
        operation for operation, home in zip(trace.operations, stages.of_operation, strict=True) if home == stage
    ]
    held = _held(trace, stages, stage)
    parts = [_part(parameter, 0, grid) for parameter in held] if grid.shares_stages else held
    flop = {key: flop * grid.microbatches for key, flop in flop_by_key(operations).items()}
    return RankLoad(
        flop=flop,
        parameters=sum(parameter.numel for parameter in parts),
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
    """Return the bytes of one micro-batch that are kept for its backward pass here: made or received here, without
    gathered weights."""
    gathers = [gather for gather in trace.operations if gather.name.startswith(("fsdp.", "c10d."))]
    gathered = {number for gather in gathers for number in (*gather.reads, *gather.writes)}
    nbytes = sum(
        int(storage.nbytes)
        for number, storage in enumerate(trace.storages)
        if storage.role == "activation" and number not in gathered and stages.of_operation[storage.born_index] == stage
    )
    return nbytes + sum(
        crossing.nbytes for crossing in stages.crossings if crossing.target == stage and not crossing.backward
    )


def _collectives(operations: Sequence[Operation], trace: RankTrace, grid: RankGrid) -> list[CollectiveCalls]:
    """Return the collectives among the step's operations. Raises ValueError for an unknown one."""
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
    """Return the all-reduces of gradients between ranks with the same weights, once a step; experts' gradients are
    reduced separately, in the group of the ranks that hold them."""
    named = {name: parameter for parameter in held for name in parameter.names}
    arrived = [named[name] for name in trace.gradients if name in named]
    if grid.replicas == "fsdp":
        return _of_shared_stage(held, arrived, grid) if grid.shares_stages else []
    dense = [gradient for gradient in arrived if gradient.names[0] not in trace.experts]
    experts = [gradient.nbytes for gradient in arrived if gradient.names[0] in trace.experts]
    sizes = _dense_sizes(dense, grid, buckets) if grid.dp > 1 else ()
    return [
        CollectiveCalls("all_reduce", group, grid.group_size(group), len(gradient_bytes), sum(gradient_bytes))
        for group, gradient_bytes in (("dp", sizes), (EXPERTS, experts))
        if gradient_bytes and grid.group_size(group) > 1
    ]


def _dense_sizes(gradients: Sequence[LocalParameter], grid: RankGrid, buckets: Buckets) -> Sequence[int]:
    """Return the bytes of each all-reduce. Plain replicas have the buckets of DistributedDataParallel. Split modules
    use torch's `replicate`: one reduction per element of the outermost module lists and one for the rest. A pipeline
    stage, in which torch.export leaves no such list, is reduced as a whole."""
    if grid.tp == 1:
        return buckets(gradients)
    sizes: Counter[str] = Counter()
    for gradient in gradients:
        sizes["" if grid.pp > 1 else gradient.element] += gradient.nbytes
    return list(sizes.values())


def _of_shared_stage(
    held: Sequence[LocalParameter], arrived: Sequence[LocalParameter], grid: RankGrid
) -> list[CollectiveCalls]:
    """Return the collectives of `fully_shard` for a stage, which is one group of weights: gathered in its first
    micro-batch and kept to the end of the last one, when the gradients that arrived are scattered. Rows are padded to
    the same number for each replica. Raises ValueError for a parameter without a dimension, as torch does."""
    if scalars := [parameter.names[0] for parameter in held if not parameter.shape]:
        raise ValueError(f"fsdp: expected parameters of one dimension or more, got {scalars[0]}, which has none")
    collectives = []
    for kind, those in (("all_gather", held), ("reduce_scatter", arrived)):
        if sizes := [
            parameter.nbytes // parameter.shape[0] * -(-parameter.shape[0] // grid.dp)
            for parameter in those
            if parameter.numel
        ]:
            collectives.append(CollectiveCalls(kind, "dp", grid.dp, 1, sum(sizes) * grid.dp))
    return collectives


def _tied(held: Sequence[LocalParameter], trace: RankTrace, stages: Stages) -> list[CollectiveCalls]:
    """Return the all-reduces of gradients between stages that hold the same parameter, once a step. held: this
    replica's parameters, or its parts of them where replicas share weights."""
    homes = {
        parameter.names: len(where) for parameter, where in zip(trace.parameters, stages.of_parameter, strict=True)
    }
    shared = [parameter for parameter in held if homes[parameter.names] > 1 and parameter.trained]
    most = max((homes[parameter.names] for parameter in shared), default=0)
    return [CollectiveCalls(*TIED, most, len(shared), sum(parameter.nbytes for parameter in shared))] if shared else []


def _sends(stages: Stages, stage: int, grid: RankGrid) -> list[CollectiveCalls]:
    """Return the transfers to and from other stages, one call per tensor."""
    collectives = []
    for kind, side in (("send", "source"), ("receive", "target")):
        those = [crossing for crossing in stages.crossings if getattr(crossing, side) == stage]
        calls, nbytes = sum(crossing.tensors for crossing in those), sum(crossing.nbytes for crossing in those)
        if calls:
            collectives.append(
                CollectiveCalls(kind, "pp", grid.pp, calls * grid.microbatches, nbytes * grid.microbatches)
            )
    return collectives


def _replicas(recording: RankRecording, grid: RankGrid) -> tuple[Replica, ...]:
    """Return the FLOP that the tensor axis, or replicas and micro-batches, do not divide."""
    ranks: Counter[tuple[str, str, str]] = Counter()
    for trace in recording.ranks:
        ranks.update(flop_by_key(trace.operations))
    micro, whole = flop_by_key(recording.micro.operations), flop_by_key(recording.whole.operations)
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


def message_bytes(operation: Operation) -> int:
    """Return the bytes of the larger of a collective's input and output on one rank, the size that benchmarks state
    (nccl-tests). Raises ValueError for a dtype of unknown size."""
    shapes = (*operation.input_shapes, *operation.output_shapes)
    dtypes = (*operation.input_dtypes, *operation.output_dtypes)
    sizes: list[int] = [math.prod(shape) * itemsize(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return max(sizes)
