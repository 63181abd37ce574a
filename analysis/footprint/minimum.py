"""The minimal footprint of a step: the least peak of live bytes over all orders that its operations can run in.

`minimal` lists a few orders of independent operations, each below a limit where it can, takes the one with the lowest
peak, and says alongside what no order can be below. Where both are equal the order is one of the best, and that is
proven; elsewhere they are the two ends of what is known. The same step has the same answer everywhere, and the answer
is never above the eager footprint.

What may change its place and how long a block lives is `analysis/footprint/dependencies.py`'s. The largest
gain is usually the optimizer's step, which then takes each gradient as soon as it is made and lets it go. Nothing is
recomputed, moved to another memory or split. What kernels take for
themselves, and what an allocator rounds up, is not in it, as it is not in the footprint.

An order of operations that keeps below a limit where it can: one run over the graph, choosing as it goes.

Whenever an operation can run that leaves no more than it found, and fits below the limit while it runs, it runs: later
it would free no more, and everything between has that much less to bear. Of the others the first by a preference runs
that fits; where none fits, the one that needs the least. Nothing is taken back.

What must be in memory while an operation runs, in any order of the step: a lower bound of every footprint.

While an operation runs there is, whatever the order: what it uses; what is there from before the step and is still
used by it or by something that cannot run before it; what something that must run before it makes and something that
cannot run before it uses; and what has been made by then and stays. The largest sum over all operations bounds the
peak of every order from below. It need not be reached: two blocks may each be avoidable, and not both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import product

import numpy

from analysis.footprint.dependencies import BEFORE, Graph, graph, live_bytes, with_views
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
    order: Sequence[int] = range(len(step_graph.operations))
    peak = max(live_bytes(step_graph, order), default=step_graph.at_first_bytes)
    span = peak - bound
    for prefers, step in product(PREFERENCES, range(STEPS)):
        if peak == bound:
            break
        run = listed(step_graph, bound + span * step // STEPS, prefers)
        if run.peak < peak:
            peak, order = run.peak, run.order
    return Minimal(eager.at_least_bytes, peak, bound, with_views(operations, step_graph, order))


Preference = Callable[["Running", int], tuple[int, ...]]


@dataclass
class Running:
    """A run over a graph so far. gain: what goes if a node runs now. waiting: neighbours that must run before."""

    graph: Graph
    live: int = 0
    peak: int = 0
    order: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    gain: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    users: list[int] = field(default_factory=list)

    @classmethod
    def start(cls, graph: Graph) -> Running:
        """Before the first operation. users: of each block, the sum of the nodes that are still to use it."""
        begun = cls(graph, graph.at_first_bytes)
        begun.waiting = list(map(len, graph.before))
        begun.gain = [0] * len(graph.operations)
        begun.left = [0 if block.stays else len(block.users) for block in graph.blocks]
        begun.users = [sum(block.users) for block in graph.blocks]
        for number, block in enumerate(graph.blocks):
            if begun.left[number] == 1:
                begun.gain[block.users[0]] += block.nbytes
        return begun

    def net(self, node: int) -> int:
        """Bytes that are there more after a node than before it, if it runs now."""
        return self.graph.made_bytes[node] - self.gain[node]

    def run(self, node: int) -> tuple[list[int], list[int]]:
        """Run a node. Returns (those that can run now for the first time, those whose gain has grown)."""
        graph, left, users = self.graph, self.left, self.users
        during = self.live + graph.made_bytes[node]
        self.peak = max(self.peak, during)
        self.live = during - self.gain[node]
        self.order.append(node)
        ready, grown = [], []
        for number in graph.goes[node]:
            left[number] -= 1
            users[number] -= node
            if left[number] == 1:
                last = users[number]
                self.gain[last] += graph.blocks[number].nbytes
                grown.append(last)
        for other in graph.after[node]:
            self.waiting[other] -= 1
            if not self.waiting[other]:
                ready.append(other)
        return ready, grown


PREFERENCES: tuple[Preference, ...] = (
    lambda running, node: (node,),
    lambda running, node: (running.net(node), node),
    lambda running, node: (running.graph.made_bytes[node], running.net(node), node),
    lambda running, node: (-node,),
)
"""What runs first of several operations that all leave more than they found: the first of the eager order, what grows
least, what makes least, the last of the eager order."""


def listed(graph: Graph, limit: int, prefers: Preference) -> Running:
    """The order that a preference makes, below a limit in bytes where it can."""
    running = Running.start(graph)
    made = graph.made_bytes
    done = [False] * len(made)
    free: list[tuple[int, int]] = []  # leave no more than they found, by what they need
    others: list[tuple[tuple[int, ...], int]] = []

    def enter(node: int) -> None:
        if running.net(node) <= 0:
            heappush(free, (made[node], node))
        else:
            heappush(others, (prefers(running, node), node))

    for node, count in enumerate(running.waiting):
        if not count:
            enter(node)
    while len(running.order) < len(made):
        while free and done[free[0][1]]:
            heappop(free)
        if free and (running.live + free[0][0] <= limit or not others):
            chosen = heappop(free)[1]
        else:
            chosen = _taken(running, others, done, limit)
            if chosen < 0:
                if not free:
                    continue
                chosen = heappop(free)[1]
        if done[chosen]:
            continue
        done[chosen] = True
        ready, grown = running.run(chosen)
        for node in (*ready, *grown):
            if not running.waiting[node] and not done[node]:
                enter(node)
    return running


def _taken(running: Running, others: list[tuple[tuple[int, ...], int]], done: list[bool], limit: int) -> int:
    """The preferred node that fits, else that which needs the least; -1: all of these have run already."""
    made = running.graph.made_bytes
    skipped: list[tuple[tuple[int, ...], int]] = []
    chosen = -1
    while others:
        entry = heappop(others)
        if done[entry[1]]:
            continue
        if running.live + made[entry[1]] <= limit:
            chosen = entry[1]
            break
        skipped.append(entry)
    if chosen < 0 and skipped:
        least = min(skipped, key=lambda entry: (made[entry[1]], entry))
        chosen = least[1]
    others += skipped
    heapify(others)
    return chosen


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
