"""Definition: what fused chains of operations read, write and keep inside, by hand."""

import pytest
import sympy

from analysis.operators.fusion import FUSED, fuse_pointwise, with_fused
from analysis.operators.registry import total
from analysis.operators.step_table import Table
from tests.support.oracles.graph_counts import check_whole

B = sympy.Symbol("batch", integer=True, positive=True)


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
