"""Definition, law: the minimal footprint against every order of small steps, and a step run in the order found."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode_temporarily
from torch.utils._pytree import tree_leaves, tree_map

from analysis.footprint.live_bytes import footprint
from analysis.footprint.minimum import Minimal, graph, listed, minimal, with_views
from measure.operations.schemas import Plan
from measure.operations.tracer import Trace, trace_step
from results.errors import Inconsistent
from results.records.counts import Operation, Storage
from tests.support.nets.memory_steps import NETS
from tests.support.nets.small_steps import Build, fake_trace, parts, product, run


@dataclass(frozen=True)
class Name:
    """Stands for a tensor among the arguments."""

    number: int


class Recording(TorchDispatchMode):
    """Calls as (operator, arguments, names of what came out); tensors from before the step, with their values then."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[int]]] = []
        self.given: dict[int, torch.Tensor] = {}
        self.tensors: list[torch.Tensor] = []  # keeps them, so that no id is used twice
        self._numbers: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        named = tree_map(self._name, (args, kwargs))
        out = func(*args, **kwargs)
        if Plan(func).recorded:
            made = [self._number(leaf) for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
            self.calls.append((func, *named, made))
        return out

    def _number(self, tensor: torch.Tensor) -> int:
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return self._numbers[id(tensor)]

    def _name(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        number = self._number(value)
        if (
            number == len(self.tensors) - 1
            and number not in self.given
            and not any(number in made for *_, made in self.calls)
        ):
            with _pop_mode_temporarily():  # the tracer's, which would take this for a part of the step
                self.given[number] = value.detach().clone()
        return Name(number)

    def again(self, order: Sequence[int]) -> dict[int, torch.Tensor]:
        """What the tensors from before the step hold after its calls in this order."""
        known = {number: value.clone() for number, value in self.given.items()}
        with torch.no_grad():
            for index in order:
                func, args, kwargs, made = self.calls[index]
                args, kwargs = tree_map(lambda v: known[v.number] if isinstance(v, Name) else v, (args, kwargs))
                out = [leaf for leaf in tree_leaves(func(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
                known.update(zip(made, out, strict=True))
        return {number: known[number] for number in self.given}


def recorded(build: Build) -> tuple[Recording, Trace]:
    """The calls and the trace of the second step of a real one. All its tensors are kept, and so outlive it."""
    built, seen = build(None), Recording()
    before = [built.step]

    def step(mark: Callable[[str], None]) -> None:
        with contextlib.nullcontext() if before else seen:
            built.step(mark)
        before.clear()

    trace = trace_step(step, model=built.model, optimizer=built.optimizer, inputs=built.inputs)
    return seen, trace


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


FEW = settings(max_examples=60, deadline=None)


def of(step: Step) -> Minimal:
    return minimal(*step)


def there(step: Step, found: Minimal) -> tuple[int, ...]:
    """The order of what is no view."""
    return tuple(index for index in found.order if step[0][index].kind != "view")


@FEW
@given(steps(most=11))
def test_the_least_peak_of_all_orders_is_between_both_ends(step: Step) -> None:
    """And is reached where the two are equal."""
    found = of(step)
    if there(step, found):
        assert found.lower_bound_bytes <= least_peak(step) <= found.minimal_bytes


@FEW
@given(steps(most=14))
def test_the_order_has_the_peak_and_keeps_what_is_tied(step: Step) -> None:
    found = of(step)
    assert found.lower_bound_bytes <= found.minimal_bytes <= found.eager_bytes
    assert found.proven == (found.lower_bound_bytes == found.minimal_bytes)
    assert found == of(step)
    assert sorted(found.order) == list(range(len(step[0])))
    assert found.eager_bytes == footprint(*step).peak_bytes
    if order := there(step, found):
        assert peak_of(step, order) == found.minimal_bytes
        turn = {index: place for place, index in enumerate(order)}
        for second, first in ((b, a) for b in sorted(turn) for a in sorted(turn) if a < b):
            assert turn[first] < turn[second] or not tied(step[0][first], step[0][second])


@FEW
@given(steps(most=8))
def test_a_view_comes_after_what_wrote_and_before_what_uses(step: Step) -> None:
    """A view may be what a later operation reads: no one that uses its storage after it runs before it, and none that
    wrote it before runs after it."""
    operations, _ = step
    turn = {index: place for place, index in enumerate(of(step).order)}
    for view in (o for o in operations if o.kind == "view"):
        for other in operations:
            if other.kind != "view" and set(view.reads) & {*other.reads, *other.writes}:
                if other.index > view.index:
                    assert turn[view.index] < turn[other.index]
                elif set(view.reads) & set(other.writes):
                    assert turn[other.index] < turn[view.index]


TIES = {
    "none": ((0,), (1,), "elementwise", 10),
    "a read before a write": ((0,), (0, 1), "elementwise", 20),
    "both draw": ((), (1,), "random", 20),
    "a number for the host": (None, (1,), "elementwise", 20),
}


@pytest.mark.parametrize("tie", TIES)
def test_what_keeps_its_order(tie: str) -> None:
    """x (10 bytes) is made, then y (10) is used up, then x. If the two may change places, y goes before x comes."""
    first, second, kind, expected = TIES[tie]
    made = operation(0, first or (), (2,), kind=kind)
    told = [] if first is not None else [operation(1, (2,))]
    used = operation(1 + len(told), second, (0,) if 0 in second else (3,), kind=kind)
    operations = [made, *told, used, operation(2 + len(told), (2,), (3,))]
    found = of(ledger(operations, (0, 10, 10, 0), ("weight", *("temporary",) * 3), {0}))
    assert (found.minimal_bytes, found.eager_bytes, found.proven) == (expected, 20, True)


def test_a_sum_of_gradients_takes_the_place_of_one() -> None:
    """Of two gradients of 10 bytes that meet in the backward pass, beside 3 bytes: no third one of 10 is there."""
    operations = [
        operation(0, (0,), (1,), phase="backward"),
        operation(1, (0,), (2,), phase="backward"),
        operation(2, (1, 2), (3,), name="aten.add", phase="backward"),
        operation(3, (3,), (4,), phase="backward"),
    ]
    step = ledger(operations, (3, 10, 10, 10, 1), ("weight", *("temporary",) * 4), {0, 4})
    assert of(step).minimal_bytes == 23
    forward = [replace(each, phase="forward") for each in operations]
    assert of((tuple(forward), step[1])).minimal_bytes == 33


@cache
def traced(name: str, optimizer: str = "adamw", batch_size: int | None = None) -> Trace:
    make, shape = NETS[name]
    return fake_trace(parts(make, (batch_size or shape[0], *shape[1:]), optimizer))


def blocks_of(trace: Trace) -> Minimal:
    return minimal(trace.operations, trace.storages)


def test_a_traced_step_by_hand() -> None:
    """relu(x · W), summed: while xᵀ · G makes the gradient of W (48), there are W (48), x (32) and G (24).

    The eager step has the loss and its gradient beside them, 4 each, which nobody reads any more.
    """
    mode, built = product()
    found = blocks_of(run(built, mode))
    assert (found.minimal_bytes, found.lower_bound_bytes, found.eager_bytes) == (152, 152, 160)


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("convolution", "sgd"), ("in place", "sgd"), ("attention", "adamw"), ("checkpoint", "adamw"), ("frozen", "adam")],
)
def test_a_step_in_another_order_trains_the_same_weights(name: str, optimizer: str) -> None:
    """To the last bit: in the order that was found, and in one that is listed without a limit that it could keep."""
    seen, trace = recorded(parts(*NETS[name], optimizer))
    count = len(trace.operations)  # the step calls one more after it announced its end
    assert [str(func).rpartition(".")[0] for func, *_ in seen.calls[:count]] == [o.name for o in trace.operations]
    found = graph(trace.operations, trace.storages)
    _, late = listed(found, 0, False)
    wanted = seen.again(range(count))
    for order in (blocks_of(trace).order, with_views(trace.operations, found, late)):
        assert order != tuple(range(len(order)))
        after = seen.again(order)
        assert all(torch.equal(after[number], wanted[number]) for number in wanted)
    now = {number: seen.tensors[number] for number in wanted}
    assert all(torch.equal(now[number], wanted[number]) for number in wanted)


def test_an_operation_on_a_storage_that_is_not_in_the_ledger() -> None:
    trace = traced("linear")
    with pytest.raises(Inconsistent, match=r"operation 0 uses storage \d+, which is not recorded"):
        minimal(trace.operations, trace.storages[-1:])
