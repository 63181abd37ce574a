"""Computes the minimal footprint of a step: the least peak of live bytes over all valid orders of its operations.

`minimal` takes a step's operations and storages. It tries a few greedy orders, each of which stays below a limit where
it can. It returns the order with the lowest peak, and a lower bound for all orders; if the two are equal, the minimum
is proven. `graph` has the dependencies. A write keeps its position among the uses of its storage, and random draws keep
their order. An operation that returns a number to the host comes before all later operations. A block of memory lives
as long as the step needs it, a gradient until the optimizer has used it. Not considered: recomputation, offloading,
splitting, kernels' own memory and the allocator's rounding. An unknown size counts as 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from operator import attrgetter, itemgetter

import numpy

from analysis.footprint.live_bytes import BEFORE, peak_bytes, reuse_gradients
from results.errors import Inconsistent
from results.records.counts import Operation, Storage

PERSISTENT_ROLES = frozenset(("weight", "buffer", "optimizer_state", "input"))
"""Roles of storages that the next step needs, or the caller holds."""

STEPS = 4
"""Number of limits for which orders are tried, from the lower bound upwards."""

MOST_REACHED = 20_000
"""Largest graph, in operations, for which reachability is computed, at quadratic cost."""


@dataclass(frozen=True)
class SharedMemory:
    """Storages that share one block of memory. maker: the node (see `Graph`) that makes the block; -1: none, since it
    existed before the step.

    users: the nodes that read or write the block, ascending, with the maker. stays: the block exists at the end.
    """

    nbytes: int
    maker: int
    users: tuple[int, ...]
    stays: bool
    storages: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """Nodes are operations without views, numbered from 0 in eager order; `operations` has their indices.

    before, after: direct neighbours of each node. allocated_bytes: allocated when a node runs. goes: for each node, the
    blocks that it uses and that are freed after their last use. initial_bytes: alive before the first node.
    """

    operations: tuple[int, ...]
    before: Sequence[Sequence[int]]
    after: Sequence[Sequence[int]]
    blocks: Sequence[SharedMemory]
    allocated_bytes: Sequence[int]
    goes: Sequence[Sequence[int]]
    initial_bytes: int


@dataclass(frozen=True)
class Minimal:
    """lower_bound_bytes ≤ the least peak of any order ≤ minimal_bytes ≤ eager_bytes; proven: the first two are equal.

    order: indices of all operations, in an order whose peak is minimal_bytes.
    """

    eager_bytes: int
    minimal_bytes: int
    lower_bound_bytes: int
    order: tuple[int, ...]

    @property
    def proven(self) -> bool:
        """Whether no order needs less."""
        return self.minimal_bytes == self.lower_bound_bytes


def minimal(operations: Sequence[Operation], storages: Iterable[Storage]) -> Minimal:
    """Return the minimal footprint of a step, with a lower bound.

    Raises as `analysis.footprint.live_bytes.footprint` does.
    """
    known = tuple(storages)
    eager_bytes, step_graph = peak_bytes(operations, known), graph(operations, known)
    bound = max(forced_bytes(step_graph), default=step_graph.initial_bytes)
    peak, order = listed(step_graph, None, True)
    span = peak - bound
    for is_eager, step in product((True, False), range(STEPS)):
        if peak > bound:
            run = listed(step_graph, bound + span * step // STEPS, is_eager)
            peak, order = min((peak, order), run, key=itemgetter(0))
    return Minimal(eager_bytes, peak, bound, with_views(operations, step_graph, order))


def graph(operations: Sequence[Operation], storages: Iterable[Storage]) -> Graph:
    """Return the graph of a step: `operations` numbered from 0, and their storages, sizes in whole numbers or None.

    Raises Inconsistent for an operation that uses a storage which is not among them.
    """
    known = tuple(storages)
    born = {storage.id: storage.born_index for storage in known}
    for operation in operations:
        if missing := [number for number in (*operation.reads, *operation.writes) if number not in born]:
            raise Inconsistent(f"operation {operation.index} uses storage {missing[0]}, which is not recorded")
    shared = _sums(operations, known)
    chosen = [o for o in operations if o.kind != "view" or any(born[number] == o.index for number in o.writes)]
    node_of = {operation.index: node for node, operation in enumerate(chosen)}
    reads = [{shared.get(number, number) for number in operation.reads} for operation in chosen]
    writes = [{shared.get(number, number) for number in operation.writes} for operation in chosen]
    members, users = defaultdict[int, list[Storage]](list), defaultdict[int, list[int]](list)
    for storage in known:
        members[shared.get(storage.id, storage.id)].append(storage)
    for node in range(len(chosen)):
        for number in reads[node] | writes[node]:
            users[number].append(node)
    consumed = {shared.get(n, n) for operation in operations if operation.phase == "optimizer" for n in operation.reads}
    blocks, comes, goes = list[SharedMemory](), [0] * len(chosen), [list[int]() for _ in chosen]
    for number, group in members.items():
        role = group[-1].role
        is_result = (
            number not in consumed if role == "gradient" else role in PERSISTENT_ROLES or len(users[number]) <= 1
        )
        block = SharedMemory(
            nbytes=max(storage.nbytes or 0 for storage in group),
            maker=node_of.get(group[0].born_index, BEFORE),
            users=tuple(users[number]),
            stays=is_result and any(storage.died_index is None for storage in group),
            storages=tuple(storage.id for storage in group),
        )
        if block.maker != BEFORE:
            comes[block.maker] += block.nbytes
        for node in block.users if block.nbytes and not block.stays else ():
            goes[node].append(len(blocks))
        blocks.append(block)
    before, after = _before(chosen, reads, writes), [list[int]() for _ in chosen]
    for node, predecessors in enumerate(before):
        for predecessor in predecessors:
            after[predecessor].append(node)
    initial_bytes = sum(block.nbytes for block in blocks if block.maker == BEFORE and (block.stays or block.users))
    return Graph(tuple(operation.index for operation in chosen), before, after, blocks, comes, goes, initial_bytes)


def with_views(operations: Sequence[Operation], graph: Graph, order: Sequence[int]) -> tuple[int, ...]:
    """Extend an order of nodes to all operations: a view follows the operation that last wrote its storage."""
    turn = {graph.operations[node]: position for position, node in enumerate(order, 1)}
    written: dict[int, int] = {}
    positions = []
    for operation in operations:
        position = turn.get(operation.index)
        if position is None:
            last = max((written.get(number, 0) for number in (*operation.reads, *operation.writes)), default=0)
            positions.append((last, True, operation.index))
        else:
            written.update(dict.fromkeys(operation.writes, position))
            positions.append((position, False, operation.index))
    return tuple(index for _, _, index in sorted(positions))


def _sums(operations: Sequence[Operation], storages: Sequence[Storage]) -> dict[int, int]:
    """Return the storage of each sum of gradients → the storage whose memory it reuses."""
    pairs = zip(storages, reuse_gradients(operations, storages), strict=True)
    reused = [before for before, after in pairs if before.died_index != after.died_index]
    shared: dict[int, int] = {}
    for storage in sorted(reused, key=attrgetter("died_index")):
        shared[operations[storage.died_index or 0].writes[0]] = shared.get(storage.id, storage.id)
    return shared


def _before(
    chosen: Sequence[Operation], reads: Sequence[set[int]], writes: Sequence[set[int]]
) -> list[tuple[int, ...]]:
    """Return the direct predecessors of each node. An operation that may draw random numbers is taken to do so."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    barrier = drawn = BEFORE
    before = []
    for node, operation in enumerate(chosen):
        first = {barrier} | {writer.get(number, BEFORE) for number in reads[node] | writes[node]}
        chances = operation.kind == "random" or any(map(operation.attributes.get, ("p", "dropout_p", "dropout")))
        if chances and not operation.name.endswith("_backward"):
            first.add(drawn)
            drawn = node
        for number in writes[node]:
            first.update(readers.pop(number, ()))
            writer[number] = node
        for number in reads[node] - writes[node]:
            readers.setdefault(number, []).append(node)
        barrier = barrier if operation.writes else node
        before.append(tuple(sorted(first - {BEFORE, node})))
    return before


def listed(graph: Graph, limit: int | None, is_eager: bool) -> tuple[int, Sequence[int]]:
    """Return (peak, order) of a greedy run over the graph. limit: bytes that the run stays within where it can; None:
    the eager order.

    The next operation is one that is ready, fits within the limit and leaves no more memory in use than before, as it
    would not help to postpone it. Without one, it is one that fits: the first in eager order (is_eager), or the one
    that leaves the least memory in use. Without one, it is the one that allocates the least. There is no backtracking.
    """
    comes = graph.allocated_bytes
    waiting, gain = list(map(len, graph.before)), [0] * len(comes)
    left = [0 if block.stays else len(block.users) for block in graph.blocks]
    users = [sum(block.users) for block in graph.blocks]  # the sum of the nodes that are still to use a block
    for number, block in enumerate(graph.blocks):
        if left[number] == 1:
            gain[block.users[0]] += block.nbytes
    ready = {node for node, count in enumerate(waiting) if not count}
    live = peak = graph.initial_bytes
    order = []

    def rank(node: int) -> tuple[int, int, int]:
        if limit is None:
            return 0, 0, node
        if live + comes[node] > limit:
            return 2, comes[node], node
        net = comes[node] - gain[node]
        return (0, comes[node], node) if net <= 0 else (1, 0 if is_eager else net, node)

    while ready:
        node = min(ready, key=rank)
        ready.remove(node)
        order.append(node)
        peak = max(peak, live + comes[node])
        live += comes[node] - gain[node]
        for number in graph.goes[node]:
            left[number] -= 1
            users[number] -= node
            if left[number] == 1:
                gain[users[number]] += graph.blocks[number].nbytes
        for successor in graph.after[node]:
            waiting[successor] -= 1
            if not waiting[successor]:
                ready.add(successor)
    return peak, order


def forced_bytes(graph: Graph) -> list[int]:
    """Return for each node the bytes that are alive while it runs, whatever the order.

    They are the blocks that it uses, those that a predecessor made and a successor uses, and those that stay to the end
    and existed before the step or were made by a predecessor. Their maximum is a lower bound of every order's peak. No
    order need reach it: of two blocks that are each avoidable, an order may be unable to avoid both.
    """
    nodes = len(graph.operations)
    if nodes > MOST_REACHED:
        always = sum(block.nbytes for block in graph.blocks if block.maker == BEFORE and block.stays)
        return [always] * nodes
    earlier, later = _reach(graph.before, range(nodes)), _reach(graph.after, range(nodes - 1, -1, -1))
    masks: dict[int, int] = {}  # the nodes during which blocks are alive, as bits → their bytes
    for block in graph.blocks:
        if block.nbytes and (block.stays or block.users):
            mask = (1 << nodes) - 1 if block.maker == BEFORE else later[block.maker]
            if not block.stays:
                needed = 0
                for node in block.users:
                    needed |= earlier[node]
                mask &= needed
            masks[mask] = masks.get(mask, 0) + block.nbytes
    total = numpy.zeros(nodes, dtype=numpy.int64)
    for mask, nbytes in masks.items():
        bits = numpy.frombuffer(mask.to_bytes((nodes + 7) // 8, "little"), dtype=numpy.uint8)
        total += nbytes * numpy.unpackbits(bits, count=nodes, bitorder="little").astype(numpy.int64)
    return total.tolist()


def _reach(neighbours: Sequence[Sequence[int]], order: Iterable[int]) -> list[int]:
    """Return the nodes that each node reaches over neighbours, itself included, as bits. order: the nodes, each after
    its neighbours."""
    reached = [0] * len(neighbours)
    for node in order:
        reached[node] = 1 << node
        for neighbour in neighbours[node]:
            reached[node] |= reached[neighbour]
    return reached
