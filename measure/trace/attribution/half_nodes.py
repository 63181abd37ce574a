"""Nodes of a matrix product that lost one of their two gradients, which the nodes after them take.

A node carries the sizes of the gradient that it takes. Where the node of a product M × K by K × N holds one product
alone or none, and the next frames, down to the next that holds a product, take a gradient of the other one's sizes,
it was calculated and is not there: K × N, or N × K, by the weight's transpose or by the gradient's addition; or M × K,
by the node of the call right before the product, which may have made its input.

Asked of files without the recorder's numbers alone, which say themselves what is missing. Not claimed: anything where
both gradients have equal sizes. An input without gradients of the sizes that the call right before it returns is named,
though nothing is missing: no total then, never a wrong one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from analysis.operators import Sizes
from analysis.trace import Missing
from measure.trace.attribution.forest import FORWARD, Forest

MATRIX_NODE = re.compile(r"(?:Mm|Addmm)Backward\d*")

MATRIX = 2
"""Dimensions of an operand."""

ACCUMULATES = "torch::autograd::AccumulateGrad"


def half_nodes(forest: Forest) -> Iterator[Missing]:
    """What these nodes lack, as one reason."""
    if (np.asarray(forest.column("external_id"), np.int64) >= 0).any():
        return
    lost = sum(_is_half(forest, at) for at, name in enumerate(forest.names) if MATRIX_NODE.fullmatch(name))
    if lost:
        yield Missing("backward", lost, f"nodes of matrix products lack {lost} of the gradients that later nodes take")


def _is_half(forest: Forest, node: int) -> bool:
    products = [at for at in range(node + 1, _after(forest, node)) if forest.names[at] == "aten::mm"]
    maker = _maker(forest, node)
    if len(products) > 1 or maker < 0:
        return False
    left, right = _matrices(forest, maker)[-MATRIX:]
    made = [sorted(_result(forest, at)) for at in products]
    if sorted(left) == sorted(right) and made:
        return False
    takers = list(_takers(forest, node))
    before = _number_before(forest, maker)
    of_weight = [sizes for at, sizes in takers if _is_of_weight(forest, at, node) and sorted(sizes) == sorted(right)]
    of_data = [sizes for at, sizes in takers if before >= 0 and int(forest.number[at]) == before and sizes == left]
    return bool((of_weight and sorted(right) not in made) or (of_data and sorted(left) not in made))


def _after(forest: Forest, at: int) -> int:
    """Row of the first call that begins after a call's end, on whatever thread."""
    return bisect_left(forest.start, forest.end[at], lo=at + 1)


def _maker(forest: Forest, node: int) -> int:
    """Row of the matrix product that made a node; -1: not recorded."""
    wanted = int(forest.number[node])
    names = ("aten::mm", "aten::addmm")
    rows = np.flatnonzero((forest.number == wanted) & ~forest.is_node).tolist() if wanted >= 0 else []
    found = [at for at in rows if forest.names[at] in names and forest.phase[at] in FORWARD and at < node]
    return found[-1] if found and len(_matrices(forest, found[-1])) >= MATRIX else -1


def _matrices(forest: Forest, at: int) -> list[Sizes]:
    return [tuple(sizes) for sizes in forest.column("input_shapes")[at] or () if sizes and len(sizes) == MATRIX]


def _result(forest: Forest, at: int) -> Sizes:
    found = _matrices(forest, at)
    return (found[0][0], found[1][1]) if len(found) >= MATRIX else ()


def _takers(forest: Forest, node: int) -> Iterator[tuple[int, Sizes]]:
    """(row, sizes of its gradient) of the nodes after one on its thread, to the next that holds a product."""
    for at in range(_after(forest, node), len(forest)):
        if forest.lane[at] != forest.lane[node] or not forest.is_node[at]:
            continue
        taken = forest.column("input_shapes")[at] or ()
        if taken and taken[0] and all(type(size) is int for size in taken[0]):
            yield at, tuple(taken[0])
            if any(forest.is_product[inner] for inner in range(at + 1, _after(forest, at))):
                return


def _is_of_weight(forest: Forest, at: int, node: int) -> bool:
    """Whether a node takes a weight's gradient right from another one: its transpose was made before that one."""
    return forest.names[at] == ACCUMULATES or int(forest.number[at]) == int(forest.number[node]) - 1


def _number_before(forest: Forest, maker: int) -> int:
    """The number of the last node that another outermost call made before this one, on its thread; -1: none."""
    top = forest.top[maker]
    first = min(int(forest.number[at]) for at in (top, maker) if forest.number[at] >= 0)
    rows = np.flatnonzero((forest.lane == forest.lane[maker]) & (forest.number >= 0) & (forest.number < first))
    rows = rows[~forest.is_node[rows]]
    return int(forest.number[rows].max()) if len(rows) else -1
