"""Definition, law, known answer: the footprint of a step by hand and by naive count, and bytes that others measured."""

import random
from dataclasses import replace

import pytest
import sympy

from analysis.footprint.device_memory import replay
from analysis.footprint.live_bytes import BEFORE, CAST, CATEGORIES, Footprint, LiveStorage, StepMoment, footprint
from analysis.operators.step_table import Table
from measure.operations.tracer import Trace
from results.errors import Inconsistent
from results.records.counts import Operation, Storage
from runners.workers.traced_step import StepOptions, trace_batch
from tests.support.made_up_operations.made_up_operations import operation
from tests.support.nets.memory_steps import NETS
from tests.support.nets.small_steps import fake_trace, parts

MADE_UP = 60
ROLES = [category for category in CATEGORIES if category != CAST]


def steps(count: int) -> tuple[Operation, ...]:
    """Operations "aten.op0", "aten.op1", … each in a module of its own."""
    plain = operation("aten.relu", {"self": (1,)}, [(1,)])
    return tuple(replace(plain, index=i, name=f"aten.op{i}", module=f"m{i}") for i in range(count))


def made_up(seed: int) -> tuple[tuple[Operation, ...], tuple[Storage, ...]]:
    """A ledger of any lives that a ledger may have."""
    dice = random.Random(seed)
    count = dice.randint(0, 9)
    storages = []
    for number in range(dice.randint(0, 12)):
        born = dice.randint(-1, count - 1)
        died = dice.choice([None, dice.randint(born, count - 1)])
        storages.append(Storage(number, dice.choice([0, 1, 7, 512]), dice.choice(ROLES), born, died))
    return steps(count), tuple(storages)


def naive(operations: tuple[Operation, ...], storages: tuple[Storage, ...]) -> list[dict[str, int]]:
    """Bytes by category at each moment: every storage asked at every moment, by the list of moments that it lives."""
    moments = range(-1, len(operations))
    rows = []
    for moment in moments:
        row = dict.fromkeys(CATEGORIES, 0)
        for each in storages:
            end = len(operations) if each.died_index is None else each.died_index + 1
            if moment in range(each.born_index, end):
                row[each.role] += each.nbytes
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(MADE_UP))
def test_equals_the_naive_count(seed: int) -> None:
    operations, storages = made_up(seed)
    found, rows = footprint(operations, storages), naive(operations, storages)
    assert [{c: found.timeline[c][i] for c in CATEGORIES} for i in range(len(rows))] == rows
    assert list(found.total_bytes) == [sum(row.values()) for row in rows]
    highest = max(sum(row.values()) for row in rows)
    first = min(i for i, row in enumerate(rows) if sum(row.values()) == highest)
    assert (found.peak_bytes, found.peak_moment.index) == (highest, first - 1)
    assert found.by_category == rows[first]
    check_laws(found)


def check_laws(found: Footprint) -> None:
    """What fills the peak is all of it, in order; every category has a moment for each of the total."""
    assert sum(each.nbytes for each in found.held) == found.peak_bytes == sum(found.by_category.values())
    sizes = [(-each.nbytes, each.storage) for each in found.held]
    assert sizes == sorted(sizes)
    assert {len(row) for row in found.timeline.values()} == {len(found.total_bytes)}
    assert all(bytes_ >= 0 for row in found.timeline.values() for bytes_ in row)


@pytest.mark.parametrize(
    ("storage", "fault", "message"),
    [
        (Storage(0, sympy.Symbol("n"), "weight", -1, None), ValueError, "a number of bytes for storage 0, got n"),
        (Storage(0, 1, "workspace", -1, None), ValueError, "got 'workspace'"),
        (Storage(0, 1, "weight", 1, 0), Inconsistent, "from operation 1 to 0 of 2"),
        (Storage(0, 1, "weight", -2, None), Inconsistent, "from operation -2"),
        (Storage(0, 1, "weight", 2, None), Inconsistent, "from operation 2"),
        (Storage(0, 1, "weight", 0, 2), Inconsistent, "from operation 0 to 2 of 2"),
    ],
)
def test_refused(storage: Storage, fault: type[Exception], message: str) -> None:
    with pytest.raises(fault, match=message):
        footprint(steps(2), [storage])


@pytest.mark.parametrize(
    ("phase", "name", "lives", "expected"),
    [
        ("backward", "aten.add", ((8, 1), (8, 1)), 16),  # in place of the first; the second is there
        ("backward", "aten.add", ((8, None), (8, 1)), 16),  # in place of the second
        ("backward", "aten.add", ((8, None), (8, None)), 24),  # both are needed later
        ("backward", "aten.add", ((4, 1), (4, 1)), 16),  # a sum of another size has a place of its own
        ("forward", "aten.add", ((8, 1), (8, 1)), 24),
        ("backward", "aten.mul", ((8, 1), (8, 1)), 24),
    ],
)
def test_where_gradients_meet_they_are_added_in_place(phase: str, name: str, lives: tuple, expected: int) -> None:
    operations = (steps(1)[0], replace(steps(2)[1], name=name, phase=phase, reads=(0, 1), writes=(2,)))
    storages = [Storage(i, nbytes, "temporary", 0, died) for i, (nbytes, died) in enumerate(lives)]
    assert footprint(operations, [*storages, Storage(2, 8, "temporary", 1, 1)]).total_bytes[2] == expected


@pytest.mark.parametrize(
    ("name", "role", "dtypes", "category"),
    [
        ("aten._to_copy", "activation", ("float32", "bfloat16"), CAST),
        ("aten._to_copy", "temporary", ("bfloat16", "float32"), CAST),
        ("aten._to_copy", "gradient", ("bfloat16", "float32"), "gradient"),  # what a weight keeps is its gradient
        ("aten._to_copy", "activation", ("float32", "float32"), "activation"),  # another layout, no other dtype
        ("aten.mm", "activation", ("float32", "bfloat16"), "activation"),
    ],
)
def test_copies_in_another_dtype_are_casts(name: str, role: str, dtypes: tuple[str, str], category: str) -> None:
    made = replace(steps(1)[0], name=name, input_dtypes=dtypes[:1], output_dtypes=dtypes[1:], writes=(0,))
    found = footprint([made], [Storage(0, 6, role, 0, None)])
    assert found.by_category == dict.fromkeys(CATEGORIES, 0) | {category: 6}
    assert [each.category for each in found.held] == [category]


def of(trace: Trace) -> Footprint:
    """The footprint of a trace."""
    return footprint(trace.operations, trace.storages)


LAYER = 256 * 48 * 4
"""Bytes of one layer's output in the nets of linear layers."""
END = 2 * 256 * 2 * 4 + 2 * 4
"""Bytes of two classes before and after log_softmax, the loss, and the weight that it was divided by."""
WIDE, LAST = (48 * 48 + 48) * 4, (48 * 2 + 2) * 4
"""Bytes of the weights of a layer and of the last one."""


@pytest.mark.parametrize(
    ("name", "activations", "gradients"),
    [
        ("linear", 4 * LAYER, 4 * WIDE + LAST),  # what each of four tanh gives
        ("checkpoint", 2 * LAYER, 4 * WIDE + LAST),  # what the recomputed part takes and gives
        ("frozen", 2 * LAYER, WIDE + LAST),  # what the first trained layer takes, and its tanh gives
    ],
)
def test_what_is_kept_for_backward(name: str, activations: int, gradients: int) -> None:
    found = of(fake_trace(parts(*NETS[name], "sgd")))
    assert max(found.timeline["activation"]) == activations + END
    assert found.timeline["gradient"][-1] == gradients


MEASURED = {
    ("mobilenet_v2", 32): 2_581_472_256,
    ("mobilenet_v2", 128): 10_135_741_440,
    ("vgg19", 128): 11_743_401_984,
    ("googlenet", 128): 6_357_943_808,
}
"""Model, batch → `max_memory_allocated` of one step in fp32 with SGD (torch 1.13.1; pull request 23 of
github.com/facebookresearch/MODel_opt). Their gradients of an earlier trace lie there, too: a copy of the parameters."""


@pytest.mark.parametrize(("model", "batch"), MEASURED)
def test_bytes_that_others_saw_allocated(model: str, batch: int) -> None:
    step = trace_batch(StepOptions(model, "fp32", "sgd-plain", "cuda"), batch)
    ledger = footprint(step.operations, step.storages).ledger
    fresh = max(each.id for each in ledger) + 1
    weights = [each for each in ledger if each.role == "weight"]
    copies = [replace(each, id=fresh + place, born_index=BEFORE) for place, each in enumerate(weights)]
    predicted = replay([*ledger, *copies]).allocated_bytes
    assert predicted == pytest.approx(MEASURED[model, batch], rel=0.002)


def test_operations_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="numbered from 0, got 1 at 0"):
        footprint(steps(2)[::-1], [])


def test_two_layers_by_hand() -> None:
    """x (2, 3) · V (3, 5) → relu → · W (5, 4), with the gradients of both weights; elements of 4 bytes.

    V 60, W 80, x 24 bytes: 164 always. h = x · V: 40. r = relu(h): 40; h is needed no more. y = r · W: 32, the last
    of the forward pass. g = ones like y: 32. dr = g · Wᵀ: 40, dW = rᵀ · g: 80, after which r and g are gone. dh = dr
    masked by r's sign (kept by hand until there): 40, dr gone. dV = xᵀ · dh: 60.
    """
    table = Table()
    x, v, w = table.input((2, 3)), table.weight((3, 5)), table.weight((5, 4))
    with table.at(module="first"):
        h = table.mm(x, v)
        r = table.relu(h)
    with table.at(module="second"):
        y = table.mm(r, w)
    with table.at(phase="backward"):
        g = table.pointwise("aten.ones_like", y)
    with table.at(module="second"):
        dr, _dw = table.mm_backward(y, g, r, w)
    inputs = {"grad_output": dr, "self": r}
    with table.at(phase="backward", module="first"):
        (dh,) = table.call("aten.threshold_backward", inputs, [(2, 5)], of=r, role="temporary")
        turned = replace(x, shape=(3, 2))
        table.mm(turned, dh, of=h, role="gradient")
    done = table.done()
    found = footprint(done.operations, done.storages)
    assert found.total_bytes == (
        164,  # before: V, W, x
        164 + 40,  # h
        164 + 40 + 40,  # h, r
        164 + 40 + 32,  # r, y
        164 + 40 + 32 + 32,  # r, y, g
        164 + 40 + 32 + 40,  # y is gone: r, g, dr
        164 + 40 + 32 + 40 + 80,  # r, g, dr, dW: the peak
        164 + 40 + 40 + 40 + 80,  # g is gone: r, dr, dh, dW
        164 + 40 + 80 + 60,  # dh, dW, dV
    )
    assert found.peak_bytes == 364
    assert found.peak_moment == StepMoment(6, "aten.threshold_backward", "first", "backward")
    categories = {"weight": 140, "input": 24, "activation": 80, "gradient": 80, "temporary": 40}
    assert found.by_category == dict.fromkeys(CATEGORIES, 0) | categories
    before = StepMoment(BEFORE, "", "", "")
    assert found.held[0] == LiveStorage(w.storage, 80, "weight", before, "second")  # who reads it first
    assert found.held[1] == LiveStorage(
        done.operations[5].writes[0], 80, "gradient", StepMoment(5, "aten.mm", "second", "backward"), "second"
    )
    assert [each.nbytes for each in found.held] == [80, 80, 60, 40, 40, 40, 24]


def test_a_view_is_not_added_to_in_place() -> None:
    """Storage 0 was looked at through a view: 1 gives its place; if both were, neither."""
    last = replace(steps(3)[2], name="aten.add", phase="backward", reads=(0, 1), writes=(2,))
    storages = [Storage(0, 8, "temporary", 0, 2), Storage(1, 8, "temporary", 0, 2), Storage(2, 8, "temporary", 2, 2)]
    for viewed, expected in (((0,), 16), ((0, 1), 24)):
        view = replace(steps(2)[1], name="aten.t", kind="view", reads=viewed, writes=viewed)
        assert footprint((steps(1)[0], view, last), storages).total_bytes[3] == expected
