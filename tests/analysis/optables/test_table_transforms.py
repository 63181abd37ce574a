"""LSTMs in steps, fused chains and projections: what each keeps, by hand and against PyTorch's own operations."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
import sympy
import torch
from torch import nn

from analysis.operators.registry import not_understood, total
from analysis.optables.builder import StepTable, Table
from analysis.optables.fuse_pointwise import FUSED, fuse_pointwise, with_fused
from analysis.optables.lstm_projection import project_lstm
from analysis.optables.lstm_unroll import split_lstm
from results.records import Storage
from tests.analysis.optables.test_step_table import check_whole
from tests.support.made_up_operations.made_up_operations import operation
from tests.support.oracles.graph_counts import step_of

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")

B, H, P = sympy.symbols("batch hidden projection", integer=True, positive=True)


class Words(nn.Module):
    """Token ids → embedding of 6 → LSTM of 8 → 20 classes; sequence first."""

    def __init__(self, layers: int = 1, projection: int = 0) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 8, layers, proj_size=projection)
        self.head = nn.Linear(projection or 8, 20)

    def forward(self, ids):
        return self.head(self.lstm(self.words(ids))[0])


def traced(*arguments: int) -> StepTable:
    """A step at 5 tokens and a batch of 3."""
    operations, storages = step_of(Words(*arguments), torch.zeros(5, 3, dtype=torch.int64))
    return StepTable(operations, storages)


def phases(table: StepTable, rules=None) -> dict[str, tuple[int, int]]:
    """Model and other FLOP by phase."""
    names = dict.fromkeys(op.phase for op in table.operations)
    costs = {name: total((op for op in table.operations if op.phase == name), rules or with_fused()) for name in names}
    return {name: (cost.model_flop, cost.other_flop) for name, cost in costs.items()}


@pytest.mark.parametrize("layers", [1, 2])
def test_a_split_keeps_every_flop(layers):
    whole = traced(layers)
    split = split_lstm(whole)
    check_whole(split)
    assert phases(split) == phases(whole)
    assert not not_understood(split.operations)
    assert not [op for op in split.operations if "rnn" in op.name]
    before, after = total(whole.operations), total(split.operations)
    assert after.moved_bytes > before.moved_bytes  # each step reads the weights
    products = [op for op in split.operations if op.module == "lstm" and op.phase == "forward" and "mm" in op.name]
    assert len(products) == 2 * 5 * layers
    assert {op.input_shapes[1] for op in products[:2]} == {(3, 6), (3, 8)}
    assert {op.output_shapes[0] for op in products} == {(3, 32)}


def test_the_optimizer_still_finds_every_gradient():
    split = split_lstm(traced())
    written = {storage for op in split.operations for storage in op.writes}
    for update in (op for op in split.operations if op.phase == "optimizer"):
        for storage in update.reads:
            known = next(each for each in split.storages if each.id == storage)
            assert known.born_index == -1 or storage in written


def a_whole_lstm(name: str, steps: int, b, i, h, **attributes) -> StepTable:
    """One operation, its tensors before the step."""
    forms = {
        "aten.lstm": {"input": (steps, b, i), "hx[0]": (1, b, h), "hx[1]": (1, b, h), "params[0]": (4 * h, i),
                      "params[1]": (4 * h, h), "params[2]": (4 * h,), "params[3]": (4 * h,)},
        "aten.lstm_cell": {"input": (b, i), "hx[0]": (b, h), "hx[1]": (b, h), "w_ih": (4 * h, i), "w_hh": (4 * h, h),
                           "b_ih": (4 * h,), "b_hh": (4 * h,)},
    }[name]  # fmt: skip
    outputs = [(steps, b, h), (1, b, h), (1, b, h)] if name == "aten.lstm" else [(b, h), (b, h)]
    whole = operation(name, forms, outputs, **attributes)
    there = [Storage(number, 4 * prod(form), "weight", -1, None) for number, form in enumerate(forms.values())]
    made = [Storage(number + len(forms), 0, "activation", 0, None) for number in range(len(outputs))]
    return StepTable((whole,), (*there, *made))


def test_a_cell_in_symbols():
    table = a_whole_lstm("aten.lstm_cell", 1, B, 7, H)
    split = split_lstm(table)
    before, after = total(table.operations), total(split.operations)
    # Products: 4h rows by 7 inputs and h states. Others: 22 and 8 biases for each hidden state.
    for cost in (before, after):
        assert sympy.expand(cost.model_flop - 2 * B * 4 * H * (7 + H)) == 0
        assert sympy.expand(cost.other_flop - 30 * B * H) == 0
    numbers = total(split_lstm(a_whole_lstm("aten.lstm_cell", 1, 3, 7, 5)).operations)
    for name in ("model_flop", "other_flop", "read_bytes", "written_bytes"):
        assert sympy.sympify(getattr(after, name)).subs({B: 3, H: 5}) == getattr(numbers, name)


def test_a_stack_of_two_directions_keeps_its_flop():
    form = {"input": (4, 3, 6)}
    for layer, width in enumerate((6, 16)):
        for direction in range(2):
            at = 4 * (2 * layer + direction)
            names = [f"params[{at + k}]" for k in range(4)]
            form |= dict(zip(names, [(32, width), (32, 8), (32,), (32,)], strict=True))
    whole = operation("aten.lstm", form, [(4, 3, 16)], num_layers=2, bidirectional=True, has_biases=True)
    storages = [Storage(number, 0, "weight", -1, None) for number in range(len(form))]
    table = StepTable((whole,), (*storages, Storage(len(form), 768, "activation", 0, None)))
    split = split_lstm(table)
    assert total(split.operations).model_flop == total([whole]).model_flop == 2 * 12 * 32 * 2 * (6 + 8 + 16 + 8)
    assert total(split.operations).other_flop == total([whole]).other_flop


@pytest.mark.parametrize(
    ("name", "steps", "attributes", "said"),
    [
        ("aten.lstm", sympy.Symbol("seq"), {"num_layers": 1}, "expected a number of steps, got seq"),
        ("aten.lstm", 4, {"num_layers": 1, "batch_sizes": [3, 2]}, "packed"),
    ],
)
def test_what_has_no_steps_is_refused(name, steps, attributes, said):
    with pytest.raises(ValueError, match=said):
        split_lstm(a_whole_lstm(name, steps, 2, 3, 5, **attributes))


def test_a_backward_pass_needs_its_forward_pass():
    table = traced()
    forward = next(op.index for op in table.operations if op.name == "aten.mkldnn_rnn_layer")
    lost = replace(table.operations[forward], name="aten.mkldnn_rnn_layer", attributes={"mode": 3})  # a GRU
    changed = StepTable((*table.operations[:forward], lost, *table.operations[forward + 1 :]), table.storages)
    with pytest.raises(ValueError, match="its forward pass is not an LSTM of the table"):
        split_lstm(changed)


# --- chains ----------------------------------------------------------------------------------------------------------


def a_chain(n) -> Table:
    """tanh(x · y + z), then a sum that nothing of it can join, and exp on its own after it."""
    table = Table()
    x, y, z = (table.input((n, 4)) for _ in range(3))
    out = table.tanh(table.add(table.mul(x, y), z))
    table.call("aten.sum", {"self": out}, [()])
    table.pointwise("aten.exp", x)
    return table


@pytest.mark.parametrize("n", [5, B])
def test_a_chain_reads_its_inputs_once_and_writes_its_output_once(n):
    table = a_chain(n).done()
    fused = fuse_pointwise(table)
    check_whole(fused)
    assert [op.name for op in fused.operations] == [FUSED, "aten.sum", "aten.exp"]
    before, after = total(table.operations), total(fused.operations, with_fused())
    assert before.all_flop == after.all_flop == 3 * 4 * n + 4 * n + 4 * n
    size = 4 * 4 * n  # bytes of a tensor
    assert before.read_bytes == (2 + 2 + 1) * size + 2 * size
    assert after.read_bytes == 3 * size + 2 * size  # x, y, z; the sum; x again for exp
    assert before.written_bytes == 3 * size + 4 + size
    assert after.written_bytes == size + 4 + size


def test_what_others_read_is_still_written():
    table = Table()
    x = table.input((6,))
    first = table.relu(x)
    second = table.tanh(first)
    table.call("aten.sum", {"self": first}, [()])
    table.call("aten.sum", {"self": second}, [()])
    chain = fuse_pointwise(table.done()).operations[0]
    assert chain.attributes == {"other_flop": 12, "of": ["aten.relu", "aten.tanh"]}
    assert chain.writes == (first.storage, second.storage)
    assert total([chain], with_fused()).written_bytes == 48


def test_chains_apart_and_chains_in_place():
    table = Table()
    x, y = table.input((6,)), table.input((6,))
    a, b = table.relu(x), table.tanh(y)
    table.call("aten.sum", {"self": table.sigmoid(a)}, [()])
    table.call("aten.mul_", {"self": b, "other": b}, [(6,)], into=b)
    whole = table.done()
    fused = fuse_pointwise(whole)
    # relu and sigmoid join across tanh, which has nothing to do with them; the sum parts tanh from mul_.
    assert [op.name for op in fused.operations] == ["aten.tanh", FUSED, "aten.sum", "aten.mul_"]
    assert total(fused.operations, with_fused()).all_flop == total(whole.operations).all_flop


def test_a_view_inside_does_not_part_a_chain():
    table = Table()
    x = table.input((6,))
    first = table.mul(x, x)
    turned = table.call("aten.view", {"self": first}, [(2, 3)], into=first)[0]
    last = table.call("aten.add_", {"self": turned, "other": turned}, [(2, 3)], into=turned)[0]
    table.call("aten.sum", {"self": last}, [()])
    fused = fuse_pointwise(table.done())
    check_whole(fused)
    assert [op.name for op in fused.operations] == [FUSED, "aten.sum"]
    after = total(fused.operations, with_fused())
    assert (after.read_bytes, after.written_bytes) == (24 + 24, 24 + 4)
    assert after.all_flop == 6 + 6 + 6


def test_what_another_chain_overwrites_on_the_way_is_not_moved():
    table = Table()
    x, y, z = table.input((6,)), table.input((6,)), table.input((6,))
    first = table.mul(x, y)
    table.call("aten.copy_", {"self": y, "src": z}, [(6,)], into=y)  # y changes before the chain would run
    table.call("aten.sum", {"self": table.tanh(first)}, [()])
    assert fuse_pointwise(table.done()) == table.done()


def test_a_phase_ends_a_chain():
    table = Table()
    out = table.relu(table.input((6,)))
    with table.at(phase="loss"):
        table.call("aten.sum", {"self": table.tanh(out)}, [()])
    assert fuse_pointwise(table.done()) == table.done()


@pytest.mark.parametrize("layers", [1, 2])
def test_a_step_that_was_traced_keeps_its_flop(layers):
    for whole in (traced(layers), split_lstm(traced(layers))):
        fused = fuse_pointwise(whole)
        check_whole(fused)
        assert phases(fused) == phases(whole)
        before, after = total(whole.operations), total(fused.operations, with_fused())
        assert after.read_bytes < before.read_bytes
        assert after.written_bytes < before.written_bytes
        assert len(fused.operations) < len(whole.operations)
        left = {storage.id for storage in fused.storages if storage.died_index is None}
        assert left == {storage.id for storage in whole.storages if storage.died_index is None}


# --- projections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2])
def test_a_projection_costs_what_pytorchs_own_does(layers):
    """PyTorch runs an LSTM with proj_size as products and pointwise operations: an independent count.

    It leaves out one product a layer that the whole layer's count has: back to an initial state that needs no gradient,
    2 · batch 3 · 4h 32 · p 3.
    """
    projected, theirs = phases(project_lstm(traced(layers), 3)), phases(traced(layers, 3))
    assert projected["forward"][0] == theirs["forward"][0]
    assert projected["backward"][0] == theirs["backward"][0] + layers * 2 * 3 * 32 * 3


def test_a_projection_changes_sizes_wherever_they_are_read():
    projected = project_lstm(traced(), 3)
    check_whole(projected)
    recurrent = [op for op in projected.operations if op.module == "lstm" and op.phase == "forward"]
    assert [op.input_shapes[:2] for op in recurrent if op.name == "aten.mm"] == [((3, 8), (8, 3))] * 5
    assert sum(op.input_shapes[1:] == ((3, 3), (3, 32)) for op in recurrent if op.name == "aten.addmm") == 5
    head = next(op for op in projected.operations if op.module == "head" and op.name == "aten.addmm")
    assert head.input_shapes == ((20,), (15, 3), (3, 20))
    sizes = {storage.nbytes for storage in projected.storages if storage.role == "weight"}
    assert {20 * 3 * 4, 32 * 3 * 4, 3 * 8 * 4} <= sizes  # the head, the recurrent matrix, the projection
    before, after = total(traced().operations), total(projected.operations)
    tokens = 15
    # Forward: 32·(6 + 8) a token becomes 32·(6 + 3) + 8·3, and the head 8·20 becomes 3·20; backward twice.
    assert before.model_flop == 6 * tokens * (32 * 14 + 160)
    assert after.model_flop == 6 * tokens * (32 * 9 + 24 + 60)


def test_a_projection_in_symbols():
    table = a_whole_lstm("aten.lstm", 2, B, 7, H, num_layers=1)
    changed = project_lstm(table, P)
    assert changed.storages[4].nbytes == 4 * 4 * H * P  # the recurrent matrix
    projected = total(changed.operations)
    assert sympy.expand(projected.model_flop - 2 * 2 * B * (4 * H * (7 + P) + H * P)) == 0
    numbers = total(project_lstm(a_whole_lstm("aten.lstm", 2, 3, 7, 5, num_layers=1), 2).operations)
    assert projected.model_flop.subs({B: 3, H: 5, P: 2}) == numbers.model_flop
    assert projected.read_bytes.subs({B: 3, H: 5, P: 2}) == numbers.read_bytes


def test_projections_that_cannot_be():
    with pytest.raises(ValueError, match="expected a table with an LSTM; it has none"):
        project_lstm(a_chain(3).done(), 2)
    operations, storages = step_of(Words(), torch.zeros(5, 8, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"two dimensions of .* are 8; write the sizes as symbols"):
        project_lstm(StepTable(operations, storages), 3)  # a batch of 8, as wide as the state
