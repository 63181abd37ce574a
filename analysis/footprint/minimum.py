"""The minimal footprint of a step: the least peak of live bytes over all orders that its operations can run in.

`minimal` lists a few orders of independent operations, each below a limit where it can, takes the one with the lowest
peak, and says alongside what no order can be below. Where both are equal the order is one of the best, and that is
proven; elsewhere they are the two ends of what is known. The same step has the same answer everywhere, and the answer
is never above the eager footprint.

What may change its place and how long a block lives is `analysis/footprint/dependencies.py`'s. The largest
gain is usually the optimizer's step, which then takes each gradient as soon as it is made and lets it go. Nothing is
recomputed, moved to another memory or split. What kernels take for
themselves, and what an allocator rounds up, is not in it, as it is not in the footprint.

The lower bound is what must be in memory while an operation runs, in any order of the step:
what it uses; what is there from before the step and is still
used by it or by something that cannot run before it; what something that must run before it makes and something that
cannot run before it uses; and what has been made by then and stays. The largest sum over all operations bounds the
peak of every order from below. It need not be reached: two blocks may each be avoidable, and not both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter

import numpy

from analysis.footprint.dependencies import BEFORE, Graph, graph, with_views
from analysis.footprint.live_bytes import footprint
from results.records.counts import Operation, Storage

STEPS = 4
"""Limits that orders are listed for, from the bound on."""


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
    """The minimal footprint of a step, and what bounds it from below.

    Raises what `analysis.footprint.live_bytes.footprint` raises.
    """
    known = tuple(storages)
    eager = footprint(operations, known)
    step_graph = graph(operations, known)
    bound = max(forced_bytes(step_graph), default=step_graph.at_first_bytes)
    peak, order = listed(step_graph, None, True)
    span = peak - bound
    for is_eager, step in product((True, False), range(STEPS)):
        if peak > bound:
            run = listed(step_graph, bound + span * step // STEPS, is_eager)
            peak, order = min((peak, order), run, key=itemgetter(0))
    return Minimal(eager.at_least_bytes, peak, bound, with_views(operations, step_graph, order))


def listed(graph: Graph, limit: int | None, is_eager: bool) -> tuple[int, Sequence[int]]:
    """(peak, order) of a run over the graph that keeps below a limit in bytes where it can; in eager order without one.

    Of the operations that can run, the first is one that fits below the limit and leaves no more than it found: later
    it would free no more, and everything between has that much less to bear. Else it is one that fits, the first of the
    eager order or that which leaves the least; where none fits, the one that needs the least. Nothing is taken back.
    """
    made = graph.made_bytes
    waiting, gain = list(map(len, graph.before)), [0] * len(made)
    left = [0 if block.stays else len(block.users) for block in graph.blocks]
    users = [sum(block.users) for block in graph.blocks]  # the sum of the nodes that are still to use a block
    for block in graph.blocks:
        if not block.stays and len(block.users) == 1:
            gain[block.users[0]] += block.nbytes
    ready = {node for node, count in enumerate(waiting) if not count}
    live = peak = graph.at_first_bytes
    order = []

    def rank(node: int) -> tuple[int, int, int]:
        if limit is None:
            return 0, 0, node
        if live + made[node] > limit:
            return 2, made[node], node
        net = made[node] - gain[node]
        return (0, made[node], node) if net <= 0 else (1, 0 if is_eager else net, node)

    while ready:
        node = min(ready, key=rank)
        ready.remove(node)
        order.append(node)
        peak = max(peak, live + made[node])
        live += made[node] - gain[node]
        for number in graph.goes[node]:
            left[number] -= 1
            users[number] -= node
            if left[number] == 1:
                gain[users[number]] += graph.blocks[number].nbytes
        for other in graph.after[node]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.add(other)
    return peak, order


MOST_REACHED = 20_000
"""Operations of a graph in which it is looked for what is before and after each, at most: it takes their square."""


def forced_bytes(graph: Graph) -> list[int]:
    """Bytes that are there while each node runs, in any order."""
    nodes = len(graph.operations)
    if nodes > MOST_REACHED:
        always = sum(block.nbytes for block in graph.blocks if block.maker == BEFORE and block.stays)
        return [always] * nodes
    earlier, later = reach(graph.before, range(nodes)), reach(graph.after, range(nodes - 1, -1, -1))
    masks: dict[int, int] = {}  # the nodes while which something is there, as bits → its bytes
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
    return [int(each) for each in total]


def reach(neighbours: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """The nodes that each node reaches over neighbours, itself among them, as bits. order: neighbours first."""
    reached = [0] * len(neighbours)
    for node in order:
        mask = 1 << node
        for other in neighbours[node]:
            mask |= reached[other]
        reached[node] = mask
    return reached
