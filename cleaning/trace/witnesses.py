"""What a recording holds of a convolution's output where its settings were not recorded: the witnesses for its count.

* Of the output itself: calls inside that take it (`aten::as_strided_` of oneDNN, `aten::add_` of the bias) and the
  output's gradient. A gradient belongs to its forward call by number or arrow; where neither was recorded by order,
  since autograd runs the nodes of one thread in the reverse order of their making.
* The tensors that later calls of the same pass (thread, step, phase) take.

Which gradients were asked for is known from the same calls: each goes into a later call of the pass.

Not claimed: that a tensor of a later call is the output because it has the right sizes;
`analysis/trace/conv_inference.py` asks which counts they leave. Nor that a gradient was asked for where input and data,
or what is made of data without parameters, have the sizes of other tensors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice
from math import prod
from typing import Any

from analysis.operators import Sizes
from analysis.trace import LEAST_DIMENSIONS, Witnesses, can_return, grad_output, is_transposed, kind_of_call, operands
from cleaning.profile import FORWARD
from cleaning.trace.frames import NONE, Calls
from results.records import ProfiledOperation

SAME_SIZES = ("normalization", "activation", "elementwise", "random", "softmax")
"""Kinds of calls that return the sizes of the largest tensor that they take."""

ADDS_GRADIENTS = "AccumulateGrad"
"""How the frames of autograd are called that add a gradient to a parameter's."""


class Outputs:
    """The witnesses for the convolutions of a recording. Nothing is worked out before it is asked for."""

    def __init__(self, calls: Calls, forward_of: Mapping[int, int], first: frozenset[int]) -> None:
        """forward_of: gradient's position → forward product's, as far as the recorder linked them.

        first: positions of products whose input is data.
        """
        self._calls = calls
        self._first = first
        self._forward_of = forward_of

    def of(self, at: int, inside_flop: int | None) -> Witnesses:
        """The witnesses for the convolution at a position. inside_flop: of the products inside, by their own sizes."""
        gradient = self._gradient_of.get(at)
        sizes = None if gradient is None else grad_output(self._calls.call(gradient))
        taken, next_taken = self._takers.after(at)
        return Witnesses((*self._inside(at), *((sizes,) if sizes else ())), taken, next_taken, inside_flop)

    def gradients_taken(self, at: int, gradient: ProfiledOperation) -> tuple[bool | None, bool | None] | None:
        """Whether the gradients of input and weight that a call calculates were asked for, each None if it is not said.

        One that was goes into a later call of the pass; of the weight into one before the next gradients, since
        autograd adds it up at once. None alone: the recorder kept no such calls.
        """
        both = operands(gradient)
        if both is None or not self._keeps_gradients:
            return None
        at_once = self._takers.until_next(at, "convolution")
        later = [self._takers.taken_after(at, sizes) for sizes in both]
        weight = True if both[1] in at_once else None if later[1] else False
        return self._needs_input_gradient(both[0], both[0] in at_once) if later[0] else False, weight

    def _needs_input_gradient(self, sizes: Sizes, at_once: bool) -> bool | None:
        """Of an input whose sizes later calls take: data has no gradient, nor what frozen parts return.

        What has as many channels as data may be data after pooling or scaling, which have no parameters.
        """
        if sizes in self._data or sizes[1] in {each[1] for each in self._data}:
            return None
        return True if at_once or not self._is_frozen else None

    @cached_property
    def _data(self) -> set[Sizes]:
        """Sizes of tensors with which forward passes begin."""
        return {sizes for at in self._first for sizes in self._takers.taken(at)} | self._takers.begin

    @cached_property
    def _is_frozen(self) -> bool:
        """Whether there are forward convolutions without gradients."""
        of = self._calls.column("phase")
        forward = (at for at in self._calls.products_of("convolution") if of[at] in FORWARD)
        return any(at not in self._gradient_of for at in forward)

    @cached_property
    def _keeps_gradients(self) -> bool:
        """Whether the recorder kept the calls that add gradients up, with sizes."""
        calls = self._calls
        names = (at for at, name in enumerate(calls.names) if name.endswith(ADDS_GRADIENTS))
        return any(calls.column("input_shapes")[at] for at in names)

    def _inside(self, at: int) -> Iterator[Sizes]:
        """Sizes of the output, from calls inside. A convolution along one dimension is made of one along two."""
        calls = self._calls
        dimensions = len((calls.column("input_shapes")[at] or ((),))[0])
        for inner in calls.within(at):
            if calls.product[calls.parent[inner]] and calls.names[inner] in ("aten::as_strided_", "aten::add_"):
                shapes = calls.column("input_shapes")[inner] or ((),)
                sizes = tuple(shapes[0])
                if calls.names[inner] == "aten::add_" and not _is_bias(*shapes[:2]):
                    continue
                if dimensions == LEAST_DIMENSIONS and len(sizes) == dimensions + 1 and sizes[2] == 1:
                    sizes = (*sizes[:2], sizes[3])
                if len(sizes) == dimensions >= LEAST_DIMENSIONS:
                    yield sizes

    @cached_property
    def forward_of(self) -> dict[int, int]:
        """Gradient's position → forward product's: by number, else by order."""
        return {gradient: forward for forward, gradient in self._gradient_of.items()} | dict(self._forward_of)

    @cached_property
    def _gradient_of(self) -> dict[int, int]:
        """Forward product → the first call that calculates its gradients: by number, else by order."""
        linked = {forward: gradient for gradient, forward in reversed(list(self._forward_of.items()))}
        return {**by_order(self._calls, self._forward_of), **linked}

    @cached_property
    def _takers(self) -> Takers:
        return Takers(self._calls)


def _is_bias(sizes: Sequence[int], bias: Sequence[int] = ()) -> bool:
    """Whether the second tensor can be a bias of the first one's channels."""
    return len(sizes) == len(bias) >= LEAST_DIMENSIONS and prod(bias) == bias[1] == sizes[1]


# --- gradients without a number --------------------------------------------------------------------------------------


def by_order(calls: Calls, forward_of: Mapping[int, int]) -> dict[int, int]:
    """Forward convolution → its gradient's call, for those that no number links, by the order in which they ran.

    A run of forward convolutions on one thread is followed by a run of gradients on one thread. These belong to some of
    them, in reverse order, with equal sizes of input and weight. Only pairs that are so in every such matching count.
    """
    linked = {*forward_of, *forward_of.values()}
    found: dict[int, int] = {}
    for forward, backward in _runs(calls, linked):
        threads = [{calls.column("thread")[at] for at in run} for run in (forward, backward)]
        if all(len(each) == 1 for each in threads):
            found.update(_matched(calls, forward, backward[::-1]))
    return found


def _runs(calls: Calls, linked: set[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Forward convolutions and the gradients after them, in the order of start; without recomputed ones."""
    runs: tuple[list[int], list[int]] = ([], [])
    again = False
    for at in calls.products_of("convolution"):
        phase = calls.column("phase")[at]
        if phase in FORWARD and runs[1]:
            if not again:
                yield runs
            runs, again = ([], []), False
        again = again or phase == "recompute"
        if at not in linked and (phase in FORWARD or phase == "backward"):
            runs[phase == "backward"].append(at)
    if runs[1] and not again:
        yield runs


def _matched(calls: Calls, forward: list[int], backward: list[int]) -> dict[int, int]:
    """The pairs on which the earliest and the latest matching of two sequences agree; {}: there is no matching."""
    keys = [[operands(calls.call(at)) for at in run] for run in (forward, backward)]
    if None in keys[1]:
        return {}
    earliest = _embedded(*keys)
    latest = _embedded(keys[0][::-1], keys[1][::-1])
    if earliest is None or latest is None:
        return {}
    last = [len(forward) - 1 - place for place in latest[::-1]]
    pairs = zip(backward, earliest, last, strict=True)
    return {forward[first]: gradient for gradient, first, other in pairs if first == other}


def _embedded(long: Sequence[Hashable], short: Sequence[Hashable]) -> list[int] | None:
    """Places of the first elements of `long` that are `short` in order; None: there are none."""
    places: list[int] = []
    at = 0
    for wanted in short:
        while at < len(long) and long[at] != wanted:
            at += 1
        if at == len(long):
            return None
        places.append(at)
        at += 1
    return places


# --- later calls -----------------------------------------------------------------------------------------------------

Pass = tuple[object, ...]
"""Process, thread, step and phase of a call; of a tensor also its number of dimensions and its batch."""


class Takers:
    """The tensors that calls take: where each size was last seen in a pass, in all calls and in free places.

    A tensor is in a free place unless the call before, of the same pass, can have returned it; for each call one, at
    most, of each size.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._known: dict[object, tuple[Sizes, ...]] = {}  # what equal arguments hold
        self._can_return = cache(can_return)
        self._last: dict[Pass, dict[Sizes, int]] = {}
        self._free: dict[Pass, dict[Sizes, int]] = {}
        self._places: dict[Pass, list[int]] = {}  # calls of a pass that take tensors
        self.begin: set[Sizes] = set()  # what the first calls of forward passes take
        self._follower: dict[int, int] = {}  # outermost call → the next one of its pass that takes a tensor
        self._read()

    def after(self, at: int) -> tuple[tuple[Sizes, ...], tuple[Sizes, ...]]:
        """(all, in free places) sizes that calls after a convolution take and that it can return.

        The second is empty if the call right after it is a product, takes none of them, or takes one of the sizes of
        the convolution's own input, since that may be the input again (a branch).
        """
        call = self._calls.call(at)
        both = operands(call)
        if both is None:
            return (), ()
        group = (*self._pass(at), len(both[0]), both[0][0])
        transposed = is_transposed([call.name])
        seen = [sizes for sizes, last in self._last.get(group, {}).items() if last > at]
        taken = tuple(sizes for sizes in seen if self._can_return(*both, transposed, sizes))
        follower = self._follower.get(at)
        if follower is None or self._calls.product[follower]:
            return taken, ()
        own = self.taken(follower)
        free = self._free.get(group, {})
        left = tuple(sizes for sizes in taken if sizes in own or free.get(sizes, NONE) > at)
        return taken, left if both[0] not in own and any(sizes in own for sizes in taken) else ()

    def taken_after(self, at: int, sizes: Sizes) -> bool:
        """Whether any later call of the pass takes a tensor of these sizes."""
        return self._last.get((*self._pass(at), len(sizes), sizes[0]), {}).get(sizes, NONE) > at

    def until_next(self, at: int, kind: str) -> set[Sizes]:
        """The tensors that the calls of the pass take after a product and before the next one of a kind."""
        found = set[Sizes]()
        mine = self._places.get(self._pass(at), [])
        for other in islice(mine, bisect_right(mine, at), None):
            if self._calls.owner[other] == other and kind_of_call(self._calls.names[other]) == kind:
                break
            found.update(self.taken(other))
        return found

    def _read(self) -> None:
        before: dict[Pass, int] = {}
        top = self._calls.topmost.tolist()
        for at in range(len(self._calls)):
            taken = self.taken(at)
            if not taken:
                continue
            group = self._pass(at)
            self._places.setdefault(group, []).append(at)
            self._keep(self._last, group, at, taken)
            if top[at]:
                last = before.get(group)
                self._keep(self._free, group, at, taken if last is None else self._unexplained(last, taken))
                if last is None:
                    self.begin.update(taken if group[-1] == "forward" else ())
                else:
                    self._follower[last] = at
                before[group] = at

    def _keep(self, table: dict[Pass, dict[Sizes, int]], group: Pass, at: int, taken: Iterable[Sizes]) -> None:
        for sizes in taken:
            table.setdefault((*group, len(sizes), sizes[0]), {})[sizes] = at

    def _pass(self, at: int) -> Pass:
        of = self._calls.column
        phase = of("phase")[at]
        return of("process")[at], of("thread")[at], of("step")[at], "forward" if phase in FORWARD else phase

    def taken(self, at: int) -> tuple[Sizes, ...]:
        """The tensors that a call takes as data. Those inside a product, and a convolution's weight, are left out."""
        calls = self._calls
        shapes = calls.column("input_shapes")[at]
        owner = calls.owner[at]
        if not shapes or (owner not in (at, NONE) and calls.product[owner]):
            return ()
        convolution = kind_of_call(calls.names[at]) == "convolution"
        key = (calls.names[at] if convolution else "", shapes)
        if key not in self._known:
            self._known[key] = _data(calls.call(at)) if convolution else tuple(_tensors(shapes))
        return self._known[key]

    def _unexplained(self, before: int, taken: Sequence[Sizes]) -> list[Sizes]:
        """The tensors without one of each size that the call before can have returned."""
        left = list(taken)
        for sizes in dict.fromkeys(taken):
            if self._returns(before, sizes):
                left.remove(sizes)
        return left

    def _returns(self, at: int, sizes: Sizes) -> bool:
        calls = self._calls
        kind, taken = kind_of_call(calls.names[at]), self.taken(at)
        if kind == "convolution":
            call = calls.call(at)
            both = operands(call)
            return both is not None and self._can_return(*both, is_transposed([call.name]), sizes)
        if "pool" in calls.names[at]:
            return any(_is_pooled(each, sizes) for each in taken)
        return kind in SAME_SIZES and sizes in taken


def _data(call: ProfiledOperation) -> tuple[Sizes, ...]:
    """What a convolution takes beside what it is made of: its input, or of its gradients that of the output."""
    gradient, both = grad_output(call), operands(call)
    return (gradient,) if gradient else both[:1] if both else ()


def _is_pooled(sizes: Sizes, pooled: Sizes) -> bool:
    """Whether pooling can return the second of the first: the same batch and channels, no more positions."""
    same = len(sizes) == len(pooled) and sizes[:2] == pooled[:2]
    return same and all(more >= less for more, less in zip(sizes[2:], pooled[2:], strict=True))


def _tensors(shapes: Sequence[Any]) -> Iterator[Sizes]:
    """The sizes in the arguments of a call, of lists of tensors too, that a convolution's output may have."""
    for each in shapes:
        if not isinstance(each, Sequence) or not each:
            continue
        if isinstance(each[0], Sequence):
            yield from _tensors(each)
        elif len(each) >= LEAST_DIMENSIONS and all(type(size) is int for size in each):
            yield tuple(each)
