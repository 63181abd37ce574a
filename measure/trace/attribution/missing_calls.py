"""Which calls a recording lacks, of which phase, and how that is known.

Signs: numbers of events that are left out; a file without the end that its recorder writes; arrows from forward to
backward calls that begin or end where no call is.

Not claimed: that a recording without a sign is whole. Calls in products that count by their own sizes, and in
operators that are none, change no total and are not asked for.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas as pd

from analysis.trace.calls import Calls
from analysis.trace.missing import Missing
from analysis.trace.operations import is_product, kind_of_call, product_flop
from measure.trace.attribution.nesting import NODE, OPERATOR, Flags, Ints, innermost, matches, starting_at
from measure.trace.attribution.recording import Recording
from results.errors import Unavailable

PRODUCT_NODE = re.compile(
    r"(?:\w+::)*(?:\w*Convolution\w*|MmBackward|BmmBackward|AddmmBackward|BaddbmmBackward|LinearBackward"
    r"|ScaledDotProduct\w*|\w*Conv(?:Transpose|Depthwise)?[123]d\w*Backward)(?:Backward)?\d*"
)
"""Nodes of autograd that a product made, by the names that PyTorch generates."""

WITHOUT_END = "the file has no end of its recording (Record Window End), so that its last calls are missing"

EVENTS = 2
"""So many events left out in a row are no backward pass: a node is a frame of the engine, its own, and its calls."""


FORWARD = ("forward", "loss")


class Forest(Calls):
    """The calls, with what only a search for missing ones asks. number: of autograd's node, as recorded (-1: none),
    before `attribute` hands those of nodes on."""

    def __init__(self, calls: pd.DataFrame, number: Ints) -> None:
        super().__init__(calls)
        self.number = number
        self.end = (calls["start_ns"] + calls["time_ns"]).tolist()
        self.phase: list[str] = calls["phase"].tolist()
        self.is_node: Flags = matches(NODE, calls["name"])
        """Frames of autograd by their names."""
        self.is_operator: Flags = matches(OPERATOR, calls["name"]) & ~self.is_node

    @cached_property
    def top_product(self) -> Ints:
        """Row of the outermost product around each call, itself included; -1: none."""
        return self.outermost(is_product)

    @cached_property
    def top_operator(self) -> Ints:
        """Row of the outermost operator around each call, itself included; -1: none."""
        return self.outermost(lambda name: OPERATOR.fullmatch(name) and not NODE.fullmatch(name))

    def around(self, at: int) -> list[int]:
        """A row and those around it, the inner first."""
        return [*self.between(at, -1)]


def missing_calls(forest: Forest, recording: Recording) -> tuple[Missing, ...]:
    """What is missing, each reason once a phase."""
    found = [
        *_of_numbers(forest, recording.gaps),
        *([] if recording.ends else [Missing(phase, 1, WITHOUT_END) for phase in _all_phases(forest)]),
        *_of_flows(forest, recording.flows),
    ]
    if "recompute" in forest.phase and not any(each.phase == "recompute" for each in found):  # it runs in nodes
        found += [replace(each, phase="recompute") for each in found if each.phase == "backward"]
    return tuple(sorted({*found}))


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
        rows.append(innermost(forest.table, forest.parent, points).tolist())
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
    owner = forest.top_product[around[0]]
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


def _of_flows(forest: Forest, flows: pd.DataFrame) -> Iterator[Missing]:
    """Arrows of the recorder, from a forward call to its node, one of whose ends is not there."""
    if not len(flows):
        return
    names = ("process", "thread", "ns")
    ends = {
        side: starting_at(forest.table, *(flows[f"{side}_{name}"].to_numpy(np.int64) for name in names)).tolist()
        for side in ("forward", "backward")
    }
    lost: Counter[str] = Counter()
    for forward, backward in zip(ends["forward"], ends["backward"], strict=True):
        if backward < 0 and (forward < 0 or _may_hold_products(forest, forward)):
            lost["backward"] += 1
        around = (backward, int(forest.parent[backward]))
        if forward < 0 and (
            backward < 0 or any(PRODUCT_NODE.fullmatch(forest.names[at].rsplit(" ", 1)[-1]) for at in around)
        ):
            lost["forward"] += 1
    for phase, count in lost.items():
        side = "from" if phase == "forward" else "to"
        yield Missing(phase, count, f"{count} of {len(flows)} arrows {side} {phase} calls have none there")


def _may_hold_products(forest: Forest, at: int) -> bool:
    """Whether a product is in an operator, or may be."""
    top = forest.top_operator[at]
    return top < 0 or forest.top_product[at] >= 0 or not kind_of_call(forest.names[top])
