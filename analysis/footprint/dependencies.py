"""What of a step has to come before what, and which bytes come and go with each operation, whatever the order.

Two operations have an order where one writes a storage that the other reads or writes; between those that draw random
numbers, whose generator they share; and where one gives a number to the host (an operation that makes nothing), which
may decide what comes after. All others are free. Views are not here: they cost nothing, share the storage that they
look into, and can run as soon as it is written (`with_views` puts them there).

How long a block of memory lives is not what Python's references made of it, but what the step needs:

* weights, buffers, the optimizer's state and the batch stay as they are: from before the step to its end;
* any other lives from the operation that makes it to the last one that uses it. A gradient that the optimizer's step
  has used goes, though the eager step holds it until the next `zero_grad`;
* what outlives the step and nobody used is a result of it and stays, as does a gradient that no optimizer has read;
* where two gradients meet in the backward pass the sum takes the place of one
  (`analysis.footprint.live_bytes.reuse_gradients`).

A storage of unknown size counts as 0, as in the footprint.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.footprint.live_bytes import reuse_gradients
from results.errors import Inconsistent
from results.records.counts import Operation, Storage

KEPT = frozenset(("weight", "buffer", "optimizer_state", "input"))
"""Roles of storages that the next step needs, or the caller holds."""

_CHANCES = ("p", "dropout_p", "dropout")
"""Attributes by which an operation draws random numbers, where they are not 0."""

BEFORE = -1


@dataclass(frozen=True)
class SharedMemory:
    """Storages that share their memory, as one. maker: the node that makes it, -1: there before the step.

    users: the nodes that read or write it, rising, the maker among them. stays: it is there at the end.
    """

    nbytes: int
    maker: int
    users: tuple[int, ...]
    stays: bool
    storages: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """Nodes are operations without views, numbered from 0 in eager order; `operations` has their indices.

    before, after: direct neighbours of each node. made_bytes: what comes as a node runs. goes: of each node, the blocks
    that it uses and that go after their last use. at_first_bytes: what is there before the first node.
    """

    operations: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    blocks: tuple[SharedMemory, ...]
    made_bytes: tuple[int, ...]
    goes: tuple[tuple[int, ...], ...]
    at_first_bytes: int


def graph(operations: Sequence[Operation], storages: Iterable[Storage]) -> Graph:
    """The graph of a step: `operations` numbered from 0, and their storages, sizes in whole numbers or None.

    Raises Inconsistent for an operation that uses a storage which is not among them.
    """
    known = tuple(storages)
    born = {each.id: each.born_index for each in known}
    for each in operations:
        if missing := [number for number in (*each.reads, *each.writes) if number not in born]:
            raise Inconsistent(f"operation {each.index} uses storage {missing[0]}, which is not in the ledger")
    shared = _sums(operations, known)
    chosen = [each for each in operations if each.kind != "view" or any(born[n] == each.index for n in each.writes)]
    node_of = {operation.index: node for node, operation in enumerate(chosen)}
    uses = [tuple(dict.fromkeys(shared.get(n, n) for n in (*each.reads, *each.writes))) for each in chosen]
    blocks = _blocks(
        known,
        shared,
        uses,
        node_of,
        frozenset(shared.get(n, n) for each in operations if each.phase == "optimizer" for n in each.reads),
    )
    made, goes = [0] * len(chosen), [list[int]() for _ in chosen]
    for number, block in enumerate(blocks):
        if block.maker != BEFORE:
            made[block.maker] += block.nbytes
        if not block.stays and block.nbytes:
            for node in block.users:
                goes[node].append(number)
    before = _before(chosen, shared)
    return Graph(
        operations=tuple(each.index for each in chosen),
        before=before,
        after=_turned(before),
        blocks=blocks,
        made_bytes=tuple(made),
        goes=tuple(map(tuple, goes)),
        at_first_bytes=sum(b.nbytes for b in blocks if b.maker == BEFORE and (b.stays or b.users)),
    )


def with_views(operations: Sequence[Operation], graph: Graph, order: Sequence[int]) -> tuple[int, ...]:
    """Every operation of the step in an order of nodes: a view comes right after what last wrote its storage."""
    node_of = {index: node for node, index in enumerate(graph.operations)}
    turn = {node: place for place, node in enumerate(order)}
    written: dict[int, int] = {}
    slots: list[list[int]] = [[] for _ in range(len(order) + 1)]  # slot 0: before all
    for operation in operations:
        if operation.index in node_of:
            written.update(dict.fromkeys(operation.writes, turn[node_of[operation.index]] + 1))
        else:
            place = max((written.get(number, 0) for number in (*operation.reads, *operation.writes)), default=0)
            slots[place].append(operation.index)
    whole = list(slots[0])
    for place, node in enumerate(order):
        whole += [graph.operations[node], *slots[place + 1]]
    return tuple(whole)


def _sums(operations: Sequence[Operation], storages: Sequence[Storage]) -> dict[int, int]:
    """Storage → the one whose memory it shares, of sums of gradients that take the place of one of their two."""
    shared: dict[int, int] = {}
    for before, after in zip(storages, reuse_gradients(operations, storages), strict=True):
        if before.died_index != after.died_index and before.died_index is not None:
            shared[operations[before.died_index].writes[0]] = before.id
    for number in sorted(shared):
        first = shared[number]
        while first in shared:
            first = shared[first]
        shared[number] = first
    return shared


def _blocks(
    storages: Sequence[Storage],
    shared: Mapping[int, int],
    uses: Sequence[Sequence[int]],
    node_of: Mapping[int, int],
    consumed: frozenset[int],
) -> tuple[SharedMemory, ...]:
    members: dict[int, list[Storage]] = {}
    for each in storages:
        members.setdefault(shared.get(each.id, each.id), []).append(each)
    users: dict[int, list[int]] = {number: [] for number in members}
    for node, numbers in enumerate(uses):
        for number in numbers:
            users[number].append(node)
    return tuple(
        SharedMemory(
            nbytes=max(each.nbytes or 0 for each in group),
            maker=BEFORE if group[0].born_index == BEFORE else node_of[group[0].born_index],
            users=tuple(users[number]),
            stays=_stays(group, number in consumed, len(users[number])),
            storages=tuple(each.id for each in group),
        )
        for number, group in members.items()
    )


def _stays(group: Sequence[Storage], consumed: bool, uses: int) -> bool:
    if all(each.died_index is not None for each in group):
        return False
    role = group[-1].role
    if role in KEPT:
        return True
    return not consumed if role == "gradient" else uses <= 1


def _before(chosen: Sequence[Operation], shared: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """What has to come right before each node."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    barrier = drawn = BEFORE
    before = []
    for node, operation in enumerate(chosen):
        first = {barrier} | ({drawn} if _draws(operation) else set())
        reads = {shared.get(number, number) for number in operation.reads}
        writes = {shared.get(number, number) for number in operation.writes}
        for number in reads | writes:
            first.add(writer.get(number, BEFORE))
        for number in writes:
            first.update(readers.pop(number, ()))
            writer[number] = node
        for number in reads - writes:
            readers.setdefault(number, []).append(node)
        barrier = barrier if operation.writes else node
        drawn = node if _draws(operation) else drawn
        before.append(tuple(sorted(first - {BEFORE, node})))
    return tuple(before)


def _draws(operation: Operation) -> bool:
    """Whether it takes from the random generator; rather too many than too few."""
    if operation.name.endswith("_backward"):
        return False
    return operation.kind == "random" or any(operation.attributes.get(name) for name in _CHANCES)


def _turned(before: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    after: list[list[int]] = [[] for _ in before]
    for node, others in enumerate(before):
        for other in others:
            after[other].append(node)
    return tuple(map(tuple, after))
