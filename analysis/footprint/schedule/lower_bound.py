"""What must be in memory while an operation runs, in any order of the step: a lower bound of every footprint.

While an operation runs there is, whatever the order: what it uses; what is there from before the step and is still
used by it or by something that cannot run before it; what something that must run before it makes and something that
cannot run before it uses; and what has been made by then and stays. The largest sum over all operations bounds the
peak of every order from below. It need not be reached: two blocks may each be avoidable, and not both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from analysis.footprint.schedule.dependencies import BEFORE, Graph

MOST_REACHED = 20_000
"""Operations of a graph in which it is looked for what is before and after each, at most: it takes their square."""


def forced_bytes(graph: Graph) -> list[int]:
    """Bytes that are there while each node runs, in any order."""
    nodes = len(graph.operations)
    if nodes > MOST_REACHED:
        return _own_bytes(graph)
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


def _own_bytes(graph: Graph) -> list[int]:
    """The same without what is before and after: what each node uses, and what is there throughout."""
    always = sum(block.nbytes for block in graph.blocks if block.maker == BEFORE and block.stays)
    own = [always] * len(graph.operations)
    for block in graph.blocks:
        if not (block.maker == BEFORE and block.stays):
            for node in block.users:
                own[node] += block.nbytes
    return own


def reach(neighbours: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Of each node the nodes that are reached over neighbours, itself among them, as bits. order: neighbours first."""
    found = [0] * len(neighbours)
    for node in order:
        mask = 1 << node
        for other in neighbours[node]:
            mask |= found[other]
        found[node] = mask
    return found
