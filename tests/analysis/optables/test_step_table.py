"""Definition, law, injected fault: costs and links of operation tables by hand, and edits that keep them whole."""

from dataclasses import replace

import pytest
import sympy

from analysis.operators.registry import total
from analysis.operators.step_table import StepTable, Table, insert, replaced
from tests.support.oracles.graph_counts import check_whole

B, H, V = sympy.symbols("batch hidden vocabulary", integer=True, positive=True)


def a_layer(b, h, v) -> StepTable:
    """relu(x · w) · u, and the gradients of both products; storages: x 0, w 1, u 2, then the outputs."""
    table = Table()
    x, w, u = table.input((b, h)), table.weight((h, 4 * h)), table.weight((4 * h, v))
    with table.at(module="up"):
        y = table.mm(x, w)
    z = table.relu(y)
    out = table.mm(z, u)
    grad = table.input((b, v))
    of_z, _ = table.mm_backward(out, grad, z, u)
    with table.at(phase="backward"):
        of_y = table.call("aten.threshold_backward", {"grad_output": of_z, "self": z}, [z.shape], of=z)[0]
    table.mm_backward(y, of_y, x, w)
    return table.done()


def test_a_table_costs_what_its_sizes_say():
    symbols = total(a_layer(B, H, V).operations)
    # Forward 2·b·h·4h + 2·b·4h·v; backward twice that. relu and its derivative 4·b·h each.
    assert sympy.expand(symbols.model_flop - 3 * (8 * B * H**2 + 8 * B * H * V)) == 0
    assert symbols.other_flop == 8 * B * H
    numbers = total(a_layer(2, 3, 5).operations)
    assert numbers.model_flop == 3 * (8 * 2 * 9 + 8 * 2 * 3 * 5)
    point = {B: 2, H: 3, V: 5}
    for name in ("model_flop", "other_flop", "read_bytes", "written_bytes"):
        assert getattr(symbols, name).subs(point) == getattr(numbers, name)
    # mm reads 6 + 36 and writes 24 floats; relu 24, 24; mm 24 + 60, 10; its gradients 10 + 60, 24 and 24 + 10, 60; the
    # derivative 24 + 24, 24; the first product's gradients 24 + 36, 6 and 6 + 24, 36.
    assert numbers.read_bytes == 4 * (42 + 24 + 84 + 70 + 34 + 48 + 60 + 30)
    assert numbers.written_bytes == 4 * (24 + 24 + 10 + 24 + 60 + 24 + 6 + 36)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mm", [(2, 3), (4, 5)]),
        ("mm", [(2, 3), (3,)]),
        ("mm", [(B, H), (V, H)]),
        ("bmm", [(2, 3, 4), (5, 4, 3)]),
        ("add", [(2, 3), (2, 4)]),
        ("mul", [(B, H), (B, V)]),
    ],
)
def test_sizes_that_do_not_fit(name, shapes):
    table = Table()
    with pytest.raises(ValueError, match=f"{name}: expected sizes that"):
        getattr(table, name)(*(table.input(shape) for shape in shapes))
    assert table.operations == ()


# --- edits -----------------------------------------------------------------------------------------------------------


def test_insert_moves_everything_behind_it():
    table = a_layer(2, 3, 5)
    extra = replace(table.operations[1], name="aten.tanh_", reads=(3,), writes=(3,))
    longer = insert(table, 1, [extra])
    check_whole(longer)
    assert len(longer.operations) == 9
    assert longer.operations[1].name == "aten.tanh_"
    assert [operation.forward_index for operation in longer.operations] == [None] * 4 + [3, 3, 2, 0, 0]
    assert total(longer.operations).other_flop == total(table.operations).other_flop + 24
    lives = {storage.id: (storage.born_index, storage.died_index) for storage in longer.storages}
    assert lives[4] == (2, 6)
    assert lives[3] == (0, 2)
    assert len(insert(table, 8, [extra]).operations) == 9
    with pytest.raises(ValueError, match="expected a position from 0 to 8, got 9"):
        insert(table, 9, [extra])
    assert table == a_layer(2, 3, 5)  # what was given is as it was


def test_replace_leads_links_to_the_first_in_its_place():
    table = a_layer(2, 3, 5)
    first, second = Table(first_storage=100), table.operations[2]
    half = first.scratch((2, 12))
    first.call("aten.mul", {"self": half, "other": half}, [(2, 12)], into=half)
    read = replace(first.operations[0], reads=(4, 4), writes=(100,))
    last = replace(second, reads=(100, 2))
    longer = replaced(table, {2: [read, last]}, first.storages)
    check_whole(longer)
    assert [operation.forward_index for operation in longer.operations] == [None] * 4 + [2, 2, 1, 0, 0]
    assert next(s for s in longer.storages if s.id == 100).born_index == 2


def test_other_dtypes_move_other_bytes():
    table = Table("bfloat16")
    table.embedding(table.weight((100, 8)), table.input((4, 6), "int64"))
    assert total(table.operations).read_bytes == 4 * 6 * 8 * 2 + 4 * 6 * 8  # as many rows as it returns, and indices
    table.softmax(table.bmm(table.input((2, 3, 4)), table.input((2, 4, 3))))
    assert total(table.operations).model_flop == 2 * 2 * 3 * 3 * 4
