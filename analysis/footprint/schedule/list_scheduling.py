"""An order of operations that keeps below a limit where it can: one run over the graph, choosing as it goes.

Whenever an operation can run that leaves no more than it found, and fits below the limit while it runs, it runs: later
it would free no more, and everything between has that much less to bear. Of the others the first by a preference runs
that fits; where none fits, the one that needs the least. Nothing is taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from analysis.footprint.schedule.dependencies import Graph

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
