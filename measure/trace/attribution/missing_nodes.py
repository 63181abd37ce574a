"""Forward products whose node of the backward pass is missing: that pass ran what takes their output, and not them.

Autograd numbers its nodes: a forward call that makes some is followed on its thread by a call with a larger number. A
node that was run hands its gradient to the nodes of its inputs, so that the node of a product must have been run, too,
if that of the call which takes its output was: the next call that makes a node and takes a tensor that the product's
can be, followed through activations, normalizations, views and pooling. Not to be confused are tensors of equal
sizes: the call which takes it is an activation or normalization right after, or no earlier call took such a tensor; and
if it is a product, its own gradient of that input is recorded.

Signs beside it: gradients were added to more parameters of a weight's sizes than recorded nodes can have made; the
recording ends in a backward pass that has not come down to the first products; the last forward pass has no backward
pass, and one that begins like it has; of passes with the same calls one has fewer gradients.

Not claimed: a node of a product whose output nobody took (an unused branch, `detach`), or that takes no gradient by
`inputs=`: its forward call needs gradients, and they are not asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from analysis.operators import Sizes
from analysis.trace import Missing, kind_of_call, to_operation
from measure.trace.attribution.autograd_nodes import forward_thread
from measure.trace.attribution.forest import FORWARD, Forest
from results import Unavailable

SAME_SIZES = ("normalization", "activation", "elementwise", "random", "softmax")
ONE_TENSOR = ("normalization", "activation", "random", "softmax")
"""Of these, those that take one tensor of data."""

BOTH = 2
"""Gradients of a product: of its input and of its weight."""

SAME_ELEMENTS = ("view", "copy")
ACCUMULATES = "torch::autograd::AccumulateGrad"
LEAST_WEIGHT = 2
"""Dimensions of a product's weight, at least."""


@dataclass(frozen=True)
class Top:
    """An outermost forward call and the numbers of the nodes that it made: from `first` to before `next_`."""

    at: int
    first: int
    next_: int

    @property
    def makes(self) -> bool:
        return self.next_ > self.first

    def ran(self, evaluated: set[int]) -> bool:
        """Whether the backward pass ran one of its nodes."""
        return any(number in evaluated for number in range(self.first, self.next_))

    def ran_products(self, evaluated: set[int], numbers: Sequence[int]) -> bool:
        """Whether it ran those of its products, which have these numbers: of a linear layer's, not that of the weight's
        transpose alone."""
        mine = [number for number in numbers if self.first <= number < self.next_]
        return all(number in evaluated for number in mine) if mine else self.ran(evaluated)


def node_lanes(forest: Forest) -> dict[int, list[int]]:
    """Thread of forward calls → frames of autograd whose nodes it made, by the numbers that most of them share."""
    nodes = np.flatnonzero(forest.is_node & (forest.number >= 0))
    made = np.flatnonzero((forest.number >= 0) & ~forest.is_node)
    process, thread = (np.asarray(forest.column(name), np.int64) for name in ("process", "forward_thread"))
    of_lane = {int(lane): made[forest.lane[made] == lane] for lane in np.unique(forest.lane[made])}
    found: dict[int, list[int]] = {}
    for who in sorted({*zip(process[nodes].tolist(), thread[nodes].tolist(), strict=True)}):
        mine = nodes[(process[nodes] == who[0]) & (thread[nodes] == who[1])]
        candidates = {lane: rows for lane, rows in of_lane.items() if process[rows[0]] == who[0]}
        numbers = np.unique(forest.number[mine])
        rows = forward_thread(numbers, {lane: (forest.number[rows], rows) for lane, rows in candidates.items()})
        if rows is not None:
            found.setdefault(int(forest.lane[rows[0]]), []).extend(mine.tolist())
    return found


def missing_nodes(forest: Forest) -> Iterator[Missing]:
    """The forward products whose nodes are missing, as one reason."""
    lost, whole, begun = 0, 0, 0
    for lane, nodes in node_lanes(forest).items():
        evaluated = {int(forest.number[at]) for at in nodes}
        given, added = _gradients_given(forest), _added(forest, evaluated)
        numbers = _product_numbers(forest)
        passes = _passes(forest, lane)
        needing = [_needing(forest, tops) for tops in passes]
        run = [any(top.ran(evaluated) for top in tops) for tops in passes]
        for at, (tops, wanting) in enumerate(zip(passes, needing, strict=True)):
            whole += len(wanting)
            absent = [place for place in wanting if not tops[place].ran_products(evaluated, numbers[tops[place].at])]
            if not run[at]:
                more = _begun(forest, passes, needing, run) if at == len(passes) - 1 else None
                begun += more or 0
                lost += len(absent) if more is not None else 0
                continue
            first = _first_taken(forest, tops) if absent else {}
            certain = {place for place in absent if _taken(forest, tops, place, evaluated, given, first)}
            certain |= _accumulated(forest, tops, passes[at + 1] if at + 1 < len(passes) else (), absent, added)
            if at == len(passes) - 1 and _ends_within(forest, nodes):
                certain |= _before_the_end(forest, tops, absent, evaluated, given)
            lost += len(certain)
        lost += max(_fewer(forest, passes, needing, run) - lost, 0)
    if lost:
        yield Missing("backward", lost, f"{lost} of {whole} forward products that need gradients have no backward call")
    if begun:
        yield Missing("forward", begun, f"the last forward pass lacks the last {begun} products of one like it")


def _passes(forest: Forest, lane: int) -> list[list[Top]]:
    """The outermost forward calls of a thread with the numbers of their nodes, cut where a backward pass ran."""
    mine = np.flatnonzero((forest.lane == lane) & (np.asarray(forest.top) == np.arange(len(forest))))
    mine = mine[np.isin(np.asarray(forest.phase, object)[mine], FORWARD)]
    numbered = np.flatnonzero((forest.lane == lane) & (forest.number >= 0) & ~forest.is_node)
    starts = np.asarray(forest.start)
    frames = np.sort(starts[np.flatnonzero(forest.is_node)])
    passes: list[list[Top]] = []
    before = -1
    inside = np.asarray(forest.top)[numbered]
    firsts: dict[int, int] = {}
    for row, top in zip(numbered.tolist(), inside.tolist(), strict=True):
        firsts.setdefault(top, int(forest.number[row]))
    for at in mine.tolist():
        now = int(np.searchsorted(frames, starts[at]))
        if now != before:
            passes.append([])
            before = now
        first = firsts.get(at, -1)
        later = int(np.searchsorted(starts[numbered], forest.end[at]))
        ends = int(forest.number[numbered[later]]) if later < len(numbered) else first + 1  # taken to have made one
        passes[-1].append(Top(at, first, ends if first >= 0 else first))
    return passes


def _product_numbers(forest: Forest) -> dict[int, list[int]]:
    """Outermost call → the numbers of the products in it that hold no other with a number."""
    found: dict[int, list[int]] = {top: [] for top in forest.top}
    for at in _numbered_products(forest):
        found[forest.top[at]].append(int(forest.number[at]))
    return found


def _numbered_products(forest: Forest) -> list[int]:
    """Products with a number that hold no other with one: of a linear layer the matrix product alone."""
    rows = np.flatnonzero(forest.is_product & (forest.number >= 0) & ~forest.is_node).tolist()
    outer = {above for at in rows for above in forest.around(at)[1:]}
    return [at for at in rows if at not in outer]


def _needing(forest: Forest, tops: Sequence[Top]) -> list[int]:
    """Places of the calls that hold products and made nodes."""
    holds = {forest.top[at] for at in forest.products}
    return [place for place, top in enumerate(tops) if top.makes and top.at in holds]


# --- what takes the output -------------------------------------------------------------------------------------------


def _taken(
    forest: Forest,
    tops: Sequence[Top],
    place: int,
    evaluated: set[int],
    given: Mapping[int, int],
    first: Mapping[Sizes, int],
) -> bool:
    """Whether the backward pass ran the node of what takes a call's output, or of what takes that one's, and so on.

    first: sizes of tensors → place of the first call that takes such a one.
    """
    begin = place
    for after in range(place + 1, len(tops)):
        top, taken = tops[after], _tensors(forest, tops[after].at)
        fits = {sizes for sizes in taken if _can_return(forest, tops[place].at, sizes)}
        if forest.names[top.at] in ("aten::detach", "aten::detach_") and fits:
            return False
        if not top.makes:
            continue
        if not fits or (
            kind_of_call(forest.names[top.at]) not in ONE_TENSOR and any(first[each] <= begin for each in fits)
        ):
            return False
        if top.ran(evaluated):
            return given.get(top.at, BOTH) >= BOTH
        place = after
    return False


def _first_taken(forest: Forest, tops: Sequence[Top]) -> dict[Sizes, int]:
    """Sizes of tensors → place of the first call that takes such a one."""
    found: dict[Sizes, int] = {}
    for place, top in enumerate(tops):
        for sizes in _tensors(forest, top.at):
            found.setdefault(sizes, place)
    return found


def _gradients_given(forest: Forest) -> dict[int, int]:
    """Outermost forward call that holds products → how many gradients of them are recorded, an input's among them: of a
    convolution by its mask, of a matrix product where there are two. Others are not in it."""
    forward = forest.column("forward_index")
    given = dict.fromkeys((forest.top[at] for at in forest.products), 0)
    for at in forest.products:
        if forward[at] < 0 or forest.top[forward[at]] < 0:
            continue
        masks = [value for value in forest.column("concrete_inputs")[at] or () if _is_mask(value)]
        asked = (BOTH if masks[-1][0] else 0) if masks else 1
        given[forest.top[forward[at]]] = given.get(forest.top[forward[at]], 0) + asked
    return given


def _is_mask(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(each) is bool for each in value)


def _can_return(forest: Forest, at: int, sizes: Sizes) -> bool:
    """Whether a call can return a tensor of these sizes."""
    name = forest.names[at]
    kind = kind_of_call(name)
    if forest.is_product[at]:
        try:
            return sizes in to_operation(forest.call(at)).output_shapes
        except Unavailable:
            return False
    taken = _tensors(forest, at)
    if kind in SAME_SIZES:
        return sizes in taken
    if kind in SAME_ELEMENTS:
        return prod(sizes) in (prod(each) for each in taken)
    if kind == "pooling":
        return any(len(each) == len(sizes) and each[:2] == sizes[:2] for each in taken)
    return False


def _tensors(forest: Forest, at: int) -> list[Sizes]:
    """The sizes of the tensors that a call takes, of lists of tensors too."""
    found: list[Sizes] = []
    for each in forest.column("input_shapes")[at] or ():
        if each and isinstance(each[0], tuple):
            found += [inner for inner in each if inner and all(type(size) is int for size in inner)]
        elif each:
            found.append(tuple(each))
    return found


# --- other signs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Added:
    """When gradients were added to parameters, and when products ran whose nodes were run; sizes beside, by time."""

    added: list[tuple[int, Sizes]]
    made: list[tuple[int, Sizes]]

    def more(self, begin: int, end: int) -> Counter[Sizes]:
        """Sizes of weights → how many gradients more were added than made in a time."""
        found: Counter[Sizes] = Counter()
        for times, sign in ((self.added, 1), (self.made, -1)):
            for _, sizes in times[bisect_left(times, (begin,)) : bisect_left(times, (end,))]:
                found[sizes] += sign
        return found


def _added(forest: Forest, evaluated: set[int]) -> Added:
    starts = forest.start
    added = [(starts[at], each) for at, name in enumerate(forest.names) if name == ACCUMULATES
             for each in _tensors(forest, at)]  # fmt: skip
    ran = {forest.owner[at] for at in _numbered_products(forest) if int(forest.number[at]) in evaluated}
    made = [(starts[at], each) for at in ran for each in set(_weights(forest, at))]
    return Added(sorted(added), sorted(made))


def _accumulated(
    forest: Forest, tops: Sequence[Top], after: Sequence[Top], absent: Sequence[int], added: Added
) -> set[int]:
    """Absent products of whose weights' sizes more gradients were added, before the next forward pass, than recorded
    nodes can have made."""
    if not absent:
        return set()
    more = added.more(forest.start[tops[0].at], forest.start[after[0].at] if after else max(forest.end) + 1)
    return {place for place in absent if any(more[sizes] > 0 for sizes in _weights(forest, tops[place].at))}


def _weights(forest: Forest, at: int) -> list[Sizes]:
    return [sizes for sizes in _tensors(forest, at)[1:2] if len(sizes) >= LEAST_WEIGHT]


def _ends_within(forest: Forest, nodes: Sequence[int]) -> bool:
    """Whether nothing but the backward pass was recorded after its last frame began."""
    last = max(forest.start[at] for at in nodes)
    return all(forest.place.node[at] >= 0 for at in range(len(forest)) if forest.start[at] > last)


def _before_the_end(
    forest: Forest, tops: Sequence[Top], absent: Sequence[int], evaluated: set[int], given: Mapping[int, int]
) -> set[int]:
    """Absent products below all that was run, which nothing cuts off from the rest, and whose gradient was made."""
    lowest = next((place for place, top in enumerate(tops) if top.ran(evaluated)), 0)
    if given.get(tops[lowest].at, BOTH) < BOTH:
        return set()
    detached = [place for place, top in enumerate(tops) if forest.names[top.at].startswith("aten::detach")]
    return {place for place in absent if place < lowest and not any(place < at < lowest for at in detached)}


def _fewer(
    forest: Forest, passes: Sequence[Sequence[Top]], needing: Sequence[Sequence[int]], run: Sequence[bool]
) -> int:
    """How many forward products have fewer gradients than that of another pass with the same calls."""
    forward = forest.column("forward_index")
    made = Counter(forest.top[forward[at]] for at in forest.products if forward[at] >= 0 and _is_backward(forest, at))
    of_key: dict[object, list[list[int]]] = {}
    for tops, wanting, ran in zip(passes, needing, run, strict=True):
        if ran and wanting:
            key = tuple(_key(forest, tops[place].at) for place in wanting)
            of_key.setdefault(key, []).append([made[tops[place].at] for place in wanting])
    return sum(
        sum(least < most for least, most in zip(counts, map(max, zip(*alike, strict=True)), strict=True))
        for alike in of_key.values()
        for counts in alike
    )


def _is_backward(forest: Forest, at: int) -> bool:
    return forest.phase[at] == "backward"


def _key(forest: Forest, at: int) -> tuple[str, object]:
    return forest.names[at], forest.column("input_shapes")[at]


def _begun(
    forest: Forest,
    passes: Sequence[Sequence[Top]],
    needing: Sequence[Sequence[int]],
    run: Sequence[bool],
) -> int | None:
    """How many products that need gradients the last forward pass lacks to one that begins like it and had a backward
    pass; None: there is no such pass."""
    keys = [[_key(forest, tops[at].at) for at in wanting] for tops, wanting in zip(passes, needing, strict=True)]
    last = keys[-1]
    longer = [len(key) for key, ran in zip(keys, run, strict=True) if ran and key[: len(last)] == last]
    return min(longer) - len(last) if last and longer else None
