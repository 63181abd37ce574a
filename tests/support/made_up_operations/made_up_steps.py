"""Made-up steps for the search of orders, and their least peak by trying every order.

The oracle knows no graph: two operations keep their order if one writes a storage that the other uses, if both draw
random numbers, or if the first makes nothing; and a storage is there from its first use to its last, or, of those that
stay, to the end. It is written anew from the definition in `analysis/footprint/dependencies.py`.
"""

from collections.abc import Iterator, Sequence
from functools import cache

from hypothesis import strategies as st

from results.records.operations import Operation, Storage

Step = tuple[tuple[Operation, ...], tuple[Storage, ...]]


def operation(
    index: int,
    reads: Sequence[int] = (),
    writes: Sequence[int] = (),
    *,
    name: str = "aten.mul",
    kind: str = "elementwise",
    phase: str = "forward",
) -> Operation:
    """An operation of which only storages matter."""
    names = tuple(f"x{i}" for i in range(len(reads)))
    shapes, kinds = ((1,),) * len(reads), ("float32",) * len(reads)
    return Operation(
        index, name, kind, phase, "", None, None, names, shapes, kinds, ((1,),) * len(writes),
        ("float32",) * len(writes), {}, tuple(reads), tuple(writes),
    )  # fmt: skip


def ledger(operations: Sequence[Operation], sizes: Sequence[int], roles: Sequence[str], outlive: set[int]) -> Step:
    """The step with its storages: born where they are first written, unless they are read before."""
    storages = []
    for number, (nbytes, role) in enumerate(zip(sizes, roles, strict=True)):
        uses = [o.index for o in operations if number in (*o.reads, *o.writes)]
        made = uses and number not in operations[uses[0]].reads
        died = None if number in outlive else max(uses, default=-1)
        storages.append(Storage(number, nbytes, role, uses[0] if made else -1, died))
    return tuple(operations), tuple(storages)


@st.composite
def steps(draw: st.DrawFn, most: int = 7) -> Step:
    """Steps of up to so many operations: products, writes in place, random draws, views, what makes nothing."""
    before = draw(st.integers(1, 3))
    known, operations = before, []
    for index in range(draw(st.integers(1, most))):
        reads = draw(st.lists(st.integers(0, known - 1), max_size=2, unique=True))
        how = draw(st.sampled_from(("makes", "makes", "makes", "in place", "random", "view", "tells")))
        if how == "in place" and reads:
            operations.append(operation(index, reads, reads[:1], name="aten.mul_"))
        elif how == "view" and reads:
            operations.append(operation(index, reads[:1], reads[:1], name="aten.t", kind="view"))
        elif how == "tells" and reads:
            operations.append(operation(index, reads, (), name="aten._local_scalar_dense", kind="copy"))
        else:
            count = draw(st.integers(1, 2))
            kind = "random" if how == "random" else "elementwise"
            operations.append(operation(index, reads, range(known, known + count), kind=kind))
            known += count
    sizes = draw(st.lists(st.integers(0, 12), min_size=known, max_size=known))
    roles = draw(st.lists(st.sampled_from(("weight", "activation", "temporary")), min_size=known, max_size=known))
    return ledger(operations, sizes, roles, draw(st.sets(st.integers(0, known - 1))))


def stays(storage: Storage, uses: int) -> bool:
    """Whether a storage is there after its last use."""
    return storage.died_index is None and (storage.role == "weight" or uses <= 1)


def tied(first: Operation, second: Operation) -> bool:
    """Whether two operations, which are no views, keep their order."""
    shared = set(first.writes) & {*second.reads, *second.writes} | set(second.writes) & set(first.reads)
    return bool(shared) or (first.kind == second.kind == "random") or not first.writes


def peak_of(step: Step, order: Sequence[int]) -> int:
    """The peak of live bytes in an order of operations that are no views."""
    operations, storages = step
    turn = {index: place for place, index in enumerate(order)}
    live = [0] * len(order)
    for storage in storages:
        uses = [turn[i] for i in order if storage.id in (*operations[i].reads, *operations[i].writes)]
        begins = 0 if storage.born_index == -1 else turn[storage.born_index]
        ends = len(order) - 1 if stays(storage, len(uses)) else max(uses, default=-1)
        for place in range(begins, ends + 1):
            live[place] += storage.nbytes
    return max(live)


def orders(step: Step) -> Iterator[tuple[int, ...]]:
    """Every order of the operations that are no views."""
    nodes = [o for o in step[0] if o.kind != "view"]
    ties = {b.index: {a.index for a in nodes[:place] if tied(a, b)} for place, b in enumerate(nodes)}

    def rest(done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(done) == len(nodes):
            yield done
        for node in nodes:
            if node.index not in done and ties[node.index] <= set(done):
                yield from rest((*done, node.index))

    return rest(())


def least_peak(step: Step) -> int:
    """The least peak of all orders, by what can be reached from each set of operations."""
    operations, storages = step
    nodes = [o.index for o in operations if o.kind != "view"]
    ties = {b: {a for a in nodes if a < b and tied(operations[a], operations[b])} for b in nodes}
    uses = {s.id: {i for i in nodes if s.id in (*operations[i].reads, *operations[i].writes)} for s in storages}

    def live(done: frozenset[int], now: int) -> int:
        """While `now` runs after `done`."""
        return sum(
            s.nbytes
            for s in storages
            if (s.born_index == -1 or s.born_index == now or s.born_index in done)
            and (stays(s, len(uses[s.id])) or uses[s.id] - done)
        )

    @cache
    def least(done: frozenset[int]) -> int:
        following = [i for i in nodes if i not in done and ties[i] <= done]
        return min((max(live(done, i), least(done | {i})) for i in following), default=0)

    return least(frozenset())
