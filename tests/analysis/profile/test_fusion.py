"""Definition, law: which operations ideal fusion joins and what a group moves, by hand, and laws of any step.

Bytes are derived by hand, 4 a float32.
"""

from dataclasses import replace
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.operators import registry
from analysis.operators.fusion import fused
from results.records.counts import Operation, Storage
from tests.support.made_up_operations.made_up_operations import operation

FLOAT = 4
"""Bytes of an element."""


class Step:
    """A step as it is written down. Tensors go by name, and a view by another name of the same storage."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.phase = "forward"
        self._forms: dict[str, tuple[int, ...]] = {}
        self._storage: dict[str, int] = {}
        self._kept: set[int] = set()
        self._room: dict[int, int] = {}

    def there(self, **forms: tuple[int, ...]) -> None:
        """Tensors that were there before the step and stay: weights, the batch, an optimizer's state."""
        for name, form in forms.items():
            self._new(name, form)
            self.keep(name)

    def keep(self, *names: str) -> None:
        """What outlives the step."""
        self._kept |= {self._storage[name] for name in names}

    def run(
        self, name: str, reads: str = "", makes: dict[str, tuple[int, ...]] | None = None, changes: str = ""
    ) -> int:
        """One operation: names of what it reads, forms of what it makes, what it writes in place (and reads, unless
        it overwrites). Returns its index."""
        inputs = [*dict.fromkeys((*changes.split(), *reads.split()))]
        index = len(self.operations)
        made = makes or {}
        for new, form in made.items():
            self._new(new, form)
        written = [*made, *changes.split()]
        returned = [*made] or changes.split()
        self.operations.append(
            Operation(
                index=index,
                name=f"aten.{name}",
                kind="",
                phase=self.phase,
                module="",
                sequence_nr=None,
                forward_index=None,
                input_names=tuple("self" if i == 0 else f"argument{i}" for i in range(len(inputs))),
                input_shapes=tuple(self._forms[each] for each in inputs),
                input_dtypes=("float32",) * len(inputs),
                output_shapes=tuple(self._forms[each] for each in returned),
                output_dtypes=("float32",) * len(returned),
                attributes={},
                reads=tuple(self._storage[each] for each in inputs),
                writes=tuple(dict.fromkeys(self._storage[each] for each in written)),
            )
        )
        return index

    def view(self, of: str, name: str, form: tuple[int, ...]) -> int:
        """A view: another name and form for the same storage."""
        self._forms[name], self._storage[name] = form, self._storage[of]
        index = self.run("view", of)
        last = self.operations[-1]
        self.operations[-1] = Operation(
            **{**vars(last), "output_shapes": (form,), "output_dtypes": ("float32",), "writes": last.reads}
        )
        return index

    @property
    def storages(self) -> list[Storage]:
        """The ledger. When what is not kept died says nothing to fusion: 0."""
        return [
            Storage(number, size, "temporary", -1, None if number in self._kept else 0)
            for number, size in self._room.items()
        ]

    def _new(self, name: str, form: tuple[int, ...]) -> None:
        number = len(self._room)
        self._forms[name], self._storage[name] = form, number
        self._room[number] = FLOAT * prod(form)


X, W, Y = (2, 3, 8, 8), (5, 3, 3, 3), (2, 5, 8, 8)
x, w, y = 384 * FLOAT, 135 * FLOAT, 640 * FLOAT  # bytes of the three: 2·3·8·8, 5·3·3·3, 2·5·8·8 elements
STATISTIC = 5 * FLOAT


def groups(step: Step) -> list[int | None]:
    return [group for group, _ in fused(step.operations, step.storages)]


def moved(step: Step) -> dict[int, int]:
    """Leader → bytes of its group."""
    return {i: size for i, (group, size) in enumerate(fused(step.operations, step.storages)) if group == i}


def trained() -> Step:
    """conv → batch norm → relu → conv with their backward pass, as PyTorch runs them. Ten operations."""
    step = Step()
    step.there(x=X, w=W, w2=(5, 5, 3, 3), gamma=(5,), mean=(5,))
    step.run("convolution", "x w", {"c": Y})
    step.run("native_batch_norm", "c gamma", {"n": Y, "saved": (5,)}, changes="mean")
    step.run("relu", "n", {"r": Y})
    step.run("convolution", "r w2", {"out": Y})
    step.phase = "loss"
    step.run("mse_loss", "out", {"loss": ()})
    step.phase = "backward"
    step.run("mse_loss_backward", "out", {"d_out": Y})
    step.run("convolution_backward", "d_out r w2", {"d_r": Y, "d_w2": (5, 5, 3, 3)})
    step.run("threshold_backward", "d_r r", {"d_n": Y})
    step.run("native_batch_norm_backward", "d_n c gamma saved", {"d_c": Y, "d_gamma": (5,)})
    step.run("convolution_backward", "d_c x w", {"d_w": W})
    step.keep("d_w2", "d_gamma", "d_w", "loss")
    return step


def test_bytes_of_a_convolution_with_what_follows_it() -> None:
    """Forward: reads x, w, gamma, mean; writes c and r, which the backward pass reads, mean and saved; n stays inside.
    Backward: reads d_out, r once for both that use it, w2, c, gamma, saved; writes d_c, d_w2, d_gamma; d_r and d_n
    stay inside."""
    w2 = 225 * FLOAT
    found = moved(trained())
    assert found[0] == (x + w + 2 * STATISTIC) + (2 * y + 2 * STATISTIC)
    assert found[3] == (y + w2) + y
    assert found[4] == y + 1 * FLOAT
    assert found[5] == y + y
    assert found[6] == (y + y + w2 + y + 2 * STATISTIC) + (y + w2 + STATISTIC)
    assert found[9] == (y + x + w) + w


def test_the_update_of_a_parameter_is_one_group() -> None:
    """SGD with momentum: reads the buffer, the gradient, the weight; writes the buffer and the weight."""
    step = Step()
    step.there(w=W, buffer=W, gradient=W, v=W, buffer2=W, gradient2=W)
    step.phase = "optimizer"
    for weight, buffer, gradient in (("w", "buffer", "gradient"), ("v", "buffer2", "gradient2")):
        step.run("mul_", changes=buffer)
        step.run("add_", gradient, changes=buffer)
        step.run("add_", buffer, changes=weight)
    assert groups(step) == [0, 0, 0, 3, 3, 3]
    assert moved(step) == {0: 5 * w, 3: 5 * w}


def test_slices_written_by_several_all_leave() -> None:
    """Two kernels fill the halves of one tensor that a third reads: both write, and it reads all of it."""
    step = Step()
    step.there(x=X, z=X, w=W)
    step.run("zeros", "", {"whole": (4, 5, 8, 8)})
    step.view("whole", "first", Y)
    step.view("whole", "second", Y)
    step.run("convolution", "x w", {"a": Y})
    step.run("copy_", "a", changes="first")
    step.run("convolution", "z w", {"b": Y})
    step.run("copy_", "b", changes="second")
    step.run("convolution", "whole w", {"out": Y})
    step.keep("out")
    found = moved(step)
    assert found == {0: 2 * y, 3: x + w + y, 5: x + w + y, 7: 2 * y + w + y}


# --- laws ------------------------------------------------------------------------------------------------------------

NAMES = ("mm", "add", "mul_", "view", "copy_", "relu", "cat")


@st.composite
def steps(draw: Any) -> Step:
    """A random step of up to 20 operations over tensors of two sizes, some views, some in place."""
    step = Step()
    step.there(**{f"t{i}": (4, 4) if i % 2 else (8, 4) for i in range(3)})
    known = ["t0", "t1", "t2"]
    for number in range(draw(st.integers(1, 20))):
        step.phase = "forward" if number < 10 else "backward"
        name, one, two = draw(st.sampled_from(NAMES)), draw(st.sampled_from(known)), draw(st.sampled_from(known))
        new, form = f"n{number}", draw(st.sampled_from(((4, 4), (8, 4))))
        if name == "view":
            step.view(one, new, (4, 4))
        elif name.endswith("_"):
            step.run(name, two, changes=one)
            continue
        else:
            step.run(name, f"{one} {two}", {new: form})
        known.append(new)
        if draw(st.booleans()):
            step.keep(new)
    return step


def unfused(operations: list[Operation]) -> int:
    return sum(registry.cost(each).moved_bytes for each in operations if registry.kind_of(each.name) != "view")


@settings(max_examples=150, deadline=None)
@given(steps())
def test_laws_of_any_step(step: Step) -> None:
    """Each operation but views is in one group, led by its first; a group has one phase and at most one product, which
    leads; fused, no more moves than unfused; numbers of storages mean nothing."""
    found = fused(step.operations, step.storages)
    members: dict[int, list[Operation]] = {}
    for each, (group, size) in zip(step.operations, found, strict=True):
        assert (group is None) == (registry.kind_of(each.name) == "view")
        assert size == 0 or group == each.index
        if group is not None:
            members.setdefault(group, []).append(each)
    for leader, mine in members.items():
        assert mine[0].index == leader
        assert len({each.phase for each in mine}) == 1
        products = [each.index for each in mine if registry.kind_of(each.name) in registry.PRODUCTS]
        assert products in ([], [leader])
    assert sum(size for _, size in found) <= unfused(step.operations)
    assert found == fused(*renumbered(step))


@settings(max_examples=150, deadline=None)
@given(steps())
def test_groups_can_run_one_after_another(step: Step) -> None:
    """In the order of their leaders: whatever is read was made before, and is not changed before it has been read.

    By an independent route: every pair of operations on one storage, of which one writes."""
    groups = [group for group, _ in fused(step.operations, step.storages)]
    for late in step.operations:
        for early in step.operations[: late.index]:
            mine, other = groups[late.index], groups[early.index]
            touched = set(early.writes) & {*late.reads, *late.writes} | set(early.reads) & set(late.writes)
            if mine is not None and other is not None and touched:
                assert other <= mine


def renumbered(step: Step) -> tuple[list[Operation], list[Storage]]:
    """The same step with other numbers for its storages."""
    new = {storage.id: 1000 - 7 * storage.id for storage in step.storages}
    operations = [
        replace(each, reads=tuple(new[n] for n in each.reads), writes=tuple(new[n] for n in each.writes))
        for each in step.operations
    ]
    return operations, [replace(storage, id=new[storage.id]) for storage in reversed(step.storages)]


def test_an_operation_without_storages_is_refused() -> None:
    blank = replace(operation("aten.relu", {"self": (3,)}, [(3,)]), reads=())
    with pytest.raises(ValueError, match=r"aten.relu at index 0: expected a storage for each of 1 tensors, got 0"):
        fused([blank], [])


def test_in_place_is_written_once_and_read_not_at_all() -> None:
    """relu_ changes what the convolution made, inside the group: one tensor leaves, in one form."""
    step = Step()
    step.there(x=X, w=W)
    step.run("convolution", "x w", {"c": Y})
    step.run("relu_", changes="c")
    step.keep("c")
    assert groups(step) == [0, 0]
    assert moved(step) == {0: x + w + y}


def test_views_belong_to_nobody_and_hide_nothing() -> None:
    """A flattened tensor is the tensor: what reads it joins who made it."""
    step = Step()
    step.there(x=X, w=W)
    step.run("convolution", "x w", {"c": Y})
    step.view("c", "flat", (2, 320))
    step.run("relu", "flat", {"r": (2, 320)})
    step.keep("r")
    assert groups(step) == [0, None, 0]
    assert moved(step) == {0: x + w + y}


def test_an_expanded_tensor_has_the_bytes_of_its_storage() -> None:
    """The gradient of a mean is one number, seen as many."""
    step = Step()
    step.there(number=(1,))
    step.view("number", "many", Y)
    step.run("mul", "many", {"out": Y})
    step.keep("out")
    assert moved(step) == {1: 1 * FLOAT + y}


def test_a_sum_runs_with_the_later_of_two_branches() -> None:
    """out = relu(b + a): a, made first, is read from memory; b never gets there."""
    step = Step()
    step.there(x=X, w=W, v=(5, 5, 1, 1))
    step.run("convolution", "x w", {"a": Y})
    step.run("convolution", "a v", {"b": Y})
    step.run("add", "b a", {"s": Y})
    step.run("relu", "s", {"out": Y})
    step.keep("out")
    assert groups(step) == [0, 1, 1, 1]
    assert moved(step) == {0: x + w + y, 1: y + 25 * FLOAT + y}
