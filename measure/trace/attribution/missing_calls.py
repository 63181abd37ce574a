"""Which calls a recording lacks, of which phase, and how that is known: by the recorder's numbers and by the calls.

Signs: numbers of events that are left out; a file without the end that its recorder writes; arrows from forward to
backward calls that begin or end where no call is; nodes of autograd without what they run, or whose forward call is not
there; gradients outside of all nodes; forward products whose node the backward pass must have run and did not
(`missing_nodes.py`); marked steps with less of a backward pass than others (`unequal_steps.py`), or silent where others
have products (`silent_steps.py`).

Not claimed: that a recording without a sign is whole. Calls in products that count by their own sizes, and in
operators that are none, change no total and are not asked for.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pandas as pd

from analysis.trace import Missing, kind_of_call, product_flop
from measure.trace.attribution.autograd_nodes import starting_at
from measure.trace.attribution.forest import FORWARD, Forest
from measure.trace.attribution.half_nodes import half_nodes
from measure.trace.attribution.missing_nodes import missing_nodes, node_lanes
from measure.trace.attribution.nesting import innermost
from measure.trace.attribution.recording import Recording
from measure.trace.attribution.silent_steps import silent_steps
from measure.trace.attribution.unequal_steps import unequal_steps
from results import Unavailable

PRODUCT_NODE = re.compile(
    r"(?:\w+::)*(?:\w*Convolution\w*|MmBackward|BmmBackward|AddmmBackward|BaddbmmBackward|LinearBackward"
    r"|ScaledDotProduct\w*|\w*Conv(?:Transpose|Depthwise)?[123]d\w*Backward)(?:Backward)?\d*"
)
"""Nodes of autograd that a product made, by the names that PyTorch generates."""

EVALUATES = "autograd::engine::evaluate_function: "
"""Before the name of a node, of the engine's frame around it."""

SUMS_ONLY = re.compile(r"(?:Addmm|Baddbmm)Backward\d*")
"""Those that may run without a call: only the bias has a gradient, which the engine sums up."""

MATRIX_NODE = re.compile(r"(?:Mm|Addmm)Backward\d*")

NO_GRADIENT_YET = ("aten::ones_like", "aten::full_like", "aten::zeros_like")
"""What autograd calls for the gradient of a loss before it runs the first node."""

EVENTS = 2
"""So many events left out in a row are no backward pass: a node is a frame of the engine, its own, and its calls."""

Row = tuple[str, int]


def missing_calls(forest: Forest, recording: Recording) -> tuple[Missing, ...]:
    """What is missing, each reason once a phase."""
    found = [
        *_of_numbers(forest, recording.gaps),
        *([] if recording.ends else _without_end(forest)),
        *_of_flows(forest, recording.flows),
        *_empty_nodes(forest),
        *_too_few_in_nodes(forest),
        *half_nodes(forest),
        *_without_forward(forest),
        *_begins_within(forest),
        *_outside_of_nodes(forest),
        *_forward_between_nodes(forest),
        *missing_nodes(forest),
        *unequal_steps(forest),
        *([] if recording.numbered else silent_steps(forest, recording.ranges)),
    ]
    return tuple(sorted({*found, *_recomputed(forest, found)}))


# --- numbers of events -----------------------------------------------------------------------------------------------


def _of_numbers(forest: Forest, gaps: pd.DataFrame) -> Iterator[Missing]:
    lost: Counter[str] = Counter()
    for gap, before, after in _places(forest, gaps):
        for phase in _phases(forest, gap, before, after):
            lost[phase] += int(gap.count_)
    for phase, count in lost.items():
        many = "1 numbered call is" if count == 1 else f"{count} numbered calls are"
        yield Missing(phase, count, f"{many} not in the file, by its recorder's numbers")


class _Gap:
    """One row of the gaps."""

    def __init__(self, row: dict[str, int]) -> None:
        self.count_ = row["count"]
        self.at = {side: (row[f"{side}_process"], row[f"{side}_thread"], row[f"{side}_ns"]) for side in SIDES}

    @property
    def one_thread(self) -> bool:
        """Whether both of its neighbours are known and on one thread."""
        before, after = (self.at[side] for side in SIDES)
        return before[2] >= 0 and after[2] >= before[2] and before[:2] == after[:2]


SIDES = ("before", "after")


def _places(forest: Forest, gaps: pd.DataFrame) -> Iterator[tuple[_Gap, int, int]]:
    """Each gap with the innermost calls around the events before and after it (-1: none)."""
    if not len(gaps) or not len(forest):
        return
    rows = []
    for side in SIDES:
        points = pd.DataFrame(
            {name: gaps[f"{side}_{of}"] for name, of in (("process", "process"), ("thread", "thread"))}
        )
        points["start_ns"] = gaps[f"{side}_ns"]
        rows.append(innermost(forest.calls, np.asarray(forest.place.parent), points).tolist())
    for row, before, after in zip(gaps.to_dict("records"), *rows, strict=True):
        gap = _Gap({str(name): int(value) for name, value in row.items()})
        yield gap, before if gap.at["before"][2] >= 0 else -1, after if gap.at["after"][2] >= 0 else -1


def _phases(forest: Forest, gap: _Gap, before: int, after: int) -> set[str]:
    """The phases that the missing events may be of; none where they can change no total."""
    if not gap.one_thread:
        return _all_phases(forest)
    around = [at for at in forest.around(before) if forest.end[at] >= gap.at["after"][2]]
    if around and _changes_nothing(forest, around):
        return set()
    again = {"recompute"} & set(forest.phase)
    if any(forest.is_node[at] for at in around):
        return {"backward"} | again
    if around and forest.is_operator[around[0]]:
        return {forest.phase[around[0]]}
    if before < 0 or after < 0:
        return _all_phases(forest)
    if _descends(forest, before, after):
        return {"backward"} | again
    both = {forest.phase[before], forest.phase[after]}
    if gap.count_ <= EVENTS and both <= {*FORWARD}:
        return both
    if both == {"optimizer"} and gap.count_ <= EVENTS:
        return both
    return _all_phases(forest)


def _changes_nothing(forest: Forest, around: list[int]) -> bool:
    """Whether calls inside of these, the inner first, are in no sum: those of what is no product, or counts itself."""
    owner = forest.owner[around[0]]
    if owner >= 0:
        return owner in around and _counts_itself(forest, owner)
    inner = around[0]
    return bool(forest.is_operator[inner]) and kind_of_call(forest.names[inner]) != ""


def _counts_itself(forest: Forest, at: int) -> bool:
    try:
        product_flop(forest.call(at))
    except Unavailable:
        return False
    return True


def _descends(forest: Forest, before: int, after: int) -> bool:
    """Whether both are in nodes of one backward pass, which goes down the numbers of nodes."""
    numbers = []
    for at in (before, after):
        frames = [each for each in forest.around(at) if forest.is_node[each] and forest.number[each] >= 0]
        if not frames:
            return False
        numbers.append(int(forest.number[frames[-1]]))
    return numbers[0] >= numbers[1]


def _all_phases(forest: Forest) -> set[str]:
    """Forward, and what else the recording has, or must have had where forward calls made nodes."""
    found = {"forward"} | ({"backward", "recompute"} & set(forest.phase))
    numbers = forest.number[(forest.number >= 0) & ~forest.is_node]
    return found | ({"backward"} if len(numbers) and numbers.max() > numbers.min() else set())


def _without_end(forest: Forest) -> Iterator[Missing]:
    why = "the file has no end of its recording (Record Window End), so that its last calls are missing"
    return (Missing(phase, 1, why) for phase in _all_phases(forest))


def _of_flows(forest: Forest, flows: pd.DataFrame) -> Iterator[Missing]:
    """Arrows of the recorder, from a forward call to its node, one of whose ends is not there."""
    if not len(flows):
        return
    names = ("process", "thread", "ns")
    ends = {
        side: starting_at(forest.calls, *(flows[f"{side}_{name}"].to_numpy(np.int64) for name in names)).tolist()
        for side in ("forward", "backward")
    }
    lost: Counter[str] = Counter()
    for forward, backward in zip(ends["forward"], ends["backward"], strict=True):
        if backward < 0 and (forward < 0 or _may_hold_products(forest, forward)):
            lost["backward"] += 1
        if forward < 0 and (backward < 0 or _is_product_node(forest, backward)):
            lost["forward"] += 1
    for phase, count in lost.items():
        side = "from" if phase == "forward" else "to"
        yield Missing(phase, count, f"{count} of {len(flows)} arrows {side} {phase} calls have none there")


def _may_hold_products(forest: Forest, at: int) -> bool:
    """Whether a product is in an operator, or may be."""
    top = forest.top[at]
    return top < 0 or forest.owner[at] >= 0 or not kind_of_call(forest.names[top])


def _is_product_node(forest: Forest, at: int) -> bool:
    return any(PRODUCT_NODE.fullmatch(forest.names[each].rsplit(" ", 1)[-1]) for each in (at, forest.parent[at]))


# --- nodes -----------------------------------------------------------------------------------------------------------


def _empty_nodes(forest: Forest) -> Iterator[Missing]:
    """Nodes of products in which no product was recorded."""
    holds: set[int] = set()
    works: set[int] = set()
    for at in range(len(forest)):
        if forest.is_product[at]:
            holds.update(forest.around(at))
        elif forest.is_operator[at] and forest.names[at] != "aten::sum":
            works.update(forest.around(at)[1:2])
    nodes = [*_product_nodes(forest)]
    empty = [
        at
        for at in nodes
        if at not in holds and (at in works or not SUMS_ONLY.fullmatch(forest.names[at].removeprefix(EVALUATES)))
    ]
    if empty:
        yield Missing("backward", len(empty), f"{len(empty)} of {len(nodes)} nodes of products hold no product")


def _too_few_in_nodes(forest: Forest) -> Iterator[Missing]:
    """Nodes of a matrix product that transposed for more gradients than they hold products.

    A gradient is one product and one or two transposes (mm_mat1_grad, mm_mat2_grad in torch/csrc/autograd).
    """
    inside: dict[int, Counter[str]] = {}
    names = {"aten::t": "t", "aten::mm": "mm"}
    for at, name in enumerate(forest.names):
        above = forest.parent[at]
        if name in names and above >= 0 and MATRIX_NODE.fullmatch(forest.names[above]):
            inside.setdefault(above, Counter())[names[name]] += 1
    lost = sum(max((of["t"] + 1) // 2 - of["mm"], 0) for of in inside.values() if of["mm"])
    if lost:
        yield Missing("backward", lost, f"nodes of matrix products hold {lost} fewer than they have transposes for")


def _begins_within(forest: Forest) -> Iterator[Missing]:
    """A recording whose first node was made before it began, and in which nothing began that backward pass."""
    nodes = np.flatnonzero(forest.is_node & (forest.number >= 0))
    made = forest.number[(forest.number >= 0) & ~forest.is_node]
    if not len(nodes) or any(name in NO_GRADIENT_YET for name in forest.names[: nodes[0]]):
        return
    if nodes[0] == 0 or not len(made) or forest.number[nodes[0]] < made.min():
        for phase in ("backward", *({"recompute"} & set(forest.phase))):
            yield Missing(phase, 1, "the recording begins within a backward pass")


def _recomputed(forest: Forest, missing: list[Missing]) -> Iterator[Missing]:
    """Recomputation runs in nodes: where these are missing, it may be, too."""
    if "recompute" in forest.phase and not any(each.phase == "recompute" for each in missing):
        reasons = [each for each in missing if each.phase == "backward"]
        yield from (replace(each, phase="recompute") for each in reasons)


def _product_nodes(forest: Forest) -> Iterator[int]:
    """Nodes of products, and the engine's frames of such that hold no node."""
    known = {name for name in set(forest.names) if PRODUCT_NODE.fullmatch(name.removeprefix(EVALUATES))}
    rows = [at for at, name in enumerate(forest.names) if name in known]
    around = {forest.parent[at] for at in rows}
    return (at for at in rows if at not in around)


def _without_forward(forest: Forest) -> Iterator[Missing]:
    """Nodes of products whose forward call is not there, though calls before and after it are.

    Where nothing of the pass that came after such a call was recorded either, the same gap may reach into the backward
    pass: it has no total then.
    """
    lost, whole, last = 0, 0, 0
    for lane, nodes in node_lanes(forest).items():
        rows = np.flatnonzero((forest.lane == lane) & (forest.number >= 0) & ~forest.is_node)
        made = {int(forest.number[at]) for at in rows.tolist() if forest.is_product[at]}
        mine = {int(forest.number[at]) for at in nodes if PRODUCT_NODE.fullmatch(forest.names[at])}
        whole += len(mine)
        lost += len(mine - made)
        last += len(_after_the_forward_pass(forest, rows, [at for at in nodes if forest.number[at] in mine - made]))
    if lost:
        yield Missing("forward", lost, f"{lost} of {whole} nodes of products have no forward product")
    if last:
        why = f"the last {last} products of a forward pass are missing, and what came next may be, too"
        yield Missing("backward", last, why)


def _after_the_forward_pass(forest: Forest, rows: np.ndarray, nodes: list[int]) -> set[int]:
    """Numbers of those nodes that are higher than any of a forward call which began before the node did.

    rows: calls with a number on the thread that made the nodes.
    """
    forward = [(forest.start[at], int(forest.number[at])) for at in rows.tolist() if forest.phase[at] in FORWARD]
    forward.sort()
    starts = [start for start, _ in forward]
    highest = list(accumulate((number for _, number in forward), max))
    found = set()
    for at in nodes:
        before = bisect_left(starts, forest.start[at])
        if not before or int(forest.number[at]) > highest[before - 1]:
            found.add(int(forest.number[at]))
    return found


def _outside_of_nodes(forest: Forest) -> Iterator[Missing]:
    """Products of a backward pass that no frame of it holds: gradients by their names, and calls without a number right
    before a frame, where nothing but the pass itself can make one."""
    if not forest.is_node.any():
        return
    named = {at for at in forest.products if forest.names[at].endswith("convolution_backward")}
    free = {at for at in named | {*_before_nodes(forest)} if forest.place.node[at] < 0}
    lost = [at for at in free if forest.phase[at] != "backward"]
    if lost:
        why = f"products of the backward pass, {len(lost)}, lie outside of all its nodes"
        yield from (Missing(phase, len(lost), why) for phase in _each([forest.phase[at] for at in lost], "backward"))


def _forward_between_nodes(forest: Forest) -> Iterator[Missing]:
    """Forward products between two nodes of one backward pass, which goes down their numbers: the pass was recalculated
    (a reentrant checkpoint), and the node in which it was is not there."""
    waiting: dict[int, list[Row]] = {}  # thread → of products: name of the forward thread and number of the last node
    last: dict[int, Row] = {}
    products, lost = {*forest.products}, 0
    for at, above in enumerate(forest.parent):
        lane = int(forest.lane[at])
        if forest.names[at] in NO_GRADIENT_YET and forest.place.node[at] < 0:
            waiting.pop(lane, None)
            last.pop(lane, None)
        elif forest.is_node[at] and forest.number[at] >= 0 and (above < 0 or not forest.is_node[above]):
            node = str(forest.column("forward_thread")[at]), int(forest.number[at])
            mine = waiting.get(lane, [])
            waiting[lane] = [each for each in mine if each[0] != node[0] or each[1] <= node[1]]
            lost += len(mine) - len(waiting[lane])
            last[lane] = node
        elif at in products and forest.phase[at] in FORWARD and lane in last:
            waiting.setdefault(lane, []).append(last[lane])
    if lost:
        why = f"{lost} forward products lie within a backward pass and in none of its nodes: recalculated, it seems"
        yield from (Missing(phase, lost, why) for phase in ("forward", "backward", "recompute"))


def _before_nodes(forest: Forest) -> Iterator[int]:
    """Outermost products without a number of autograd between two frames of nodes on their thread, with nothing between
    these that is numbered or begins a backward pass."""
    last = dict[int, bool]()  # thread → whether a frame came last, and operators without a number since
    waiting: dict[int, list[int]] = {}
    for at in (at for at, above in enumerate(forest.parent) if above < 0):
        lane = int(forest.lane[at])
        if forest.is_node[at]:
            yield from waiting.pop(lane, [])
            last[lane] = True
        elif forest.number[at] >= 0 or forest.names[at] in NO_GRADIENT_YET or not forest.is_operator[at]:
            waiting.pop(lane, None)
            last[lane] = False
        elif last.get(lane) and forest.owner[at] == at:
            waiting.setdefault(lane, []).append(at)


def _each(phases: Iterable[str], *more: str) -> list[str]:
    return [*dict.fromkeys([*phases, *more])]
