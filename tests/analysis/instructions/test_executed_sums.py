"""Additions of torch's sums by hand, and those that valgrind counted."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.instructions import DIFFERENT, EQUAL, UNEXPLAINED, compare_operations, executed_additions
from results.records import Operation


def call(name: str, shape: tuple[int, ...], result: tuple[int, ...], **attributes: Any) -> Operation:
    return Operation(
        index=0, name=name, kind="", phase="forward", module="", sequence_nr=None, forward_index=None,
        input_names=("self",), input_shapes=(shape,), input_dtypes=("float32",), output_shapes=(result,),
        output_dtypes=("float32",), attributes=attributes, reads=(), writes=(),
    )  # fmt: skip


def test_a_row_is_four_sums_of_vectors_side_by_side() -> None:
    """32 numbers are 4 vectors: one to each of four sums, three empty levels of four, and the four are one: 19 vectors
    of 8 lanes; then the 8 lanes, and the result to what was there."""
    row = (4 + 3 * 4 + 3) * 8 + 8 + 1
    assert executed_additions(call("aten.sum", (32, 32), (32, 1), dim=[1], keepdim=True)) == 32 * row
    assert executed_additions(call("aten.sum", (32, 32), (32,), dim=[-1])) == 32 * row
    assert executed_additions(call("aten.sum", (32,), ())) == row
    assert executed_additions(call("aten.mean", (4, 8), ())) == row + 1, "a division"
    # 45 numbers: 5 vectors, of which one is left after four, and 5 numbers
    assert executed_additions(call("aten.sum", (45,), ())) == (4 + 3 * 4 + 1 + 3) * 8 + 5 + 8 + 1


def test_columns_are_summed_four_vectors_at_a_time() -> None:
    """32 numbers of 32 columns, which are four vectors: 32 additions of each, a second level after each 16, and three
    levels at the end; then 32 results. Of 41 columns 9 more: a vector and one more, each of which is four sums of 8
    numbers, three levels of four, and the four are one."""
    group = (32 + 2 + 3) * 4 * 8 + 32
    assert executed_additions(call("aten.sum", (32, 32), (32,), dim=[0])) == group
    line = 4 * 8 + 3 * 4 + 3
    assert executed_additions(call("aten.sum", (32, 41), (1, 41), dim=[0], keepdim=True)) == group + 9 * (line + 1)


def test_long_sums_have_more_levels() -> None:
    """256 numbers of 32 columns: 16 times to the second level, of which the last goes on to the third."""
    assert executed_additions(call("aten.sum", (256, 32), (32,), dim=[0])) == (256 + 16 + 1 + 3) * 4 * 8 + 32


@pytest.mark.parametrize(
    "asked",
    [
        call("aten.sum", (4, 8, 4), (4, 4), dim=[1]),  # between others
        call("aten.sum", (4, 4), (4,), dim=[1]),  # less than a vector
        call("aten.prod", (32, 32), (), dtype=None),
    ],
)
def test_other_sums_are_not_known(asked: Operation) -> None:
    assert executed_additions(asked) is None


def test_the_gradients_of_an_outer_product_are_products_and_sums() -> None:
    """outer.backward as valgrind counted it (torch 2.15.0, 2026-11-27): two products of 32 × 32 numbers, of which one
    is summed over rows and one over columns. Each sum is 1,024 FLOP by definition."""
    products = [call("aten.mul", (32, 32), (32, 32))] * 2
    sums = [call("aten.sum", (32, 32), (32, 1), dim=[1]), call("aten.sum", (32, 32), (1, 32), dim=[0])]
    lanes = {"mul": 2 * 1024, "add": 608 * 8 + 288 + 148 * 8 + 32}
    found = compare_operations("outer.backward", lanes, [*products, *sums])
    assert (found.other_flop, found.verdict) == (4 * 1024, DIFFERENT)
    assert found.reason.startswith("partial sums, four vectors side by side")
    assert compare_operations("outer.backward", {**lanes, "add": 1}, [*products, *sums]).verdict == UNEXPLAINED
    assert compare_operations("a", {"mul": 4 * 1024}, [*products, *sums]).verdict == EQUAL
    assert compare_operations("a", {"mul": 1}, products).verdict == UNEXPLAINED


def test_a_sum_whose_rule_is_known_has_no_other_reason() -> None:
    """16 rows of 64 numbers: 8 vectors, two to each of four sums, and so on: 193 additions a row. Four columns of four
    have no rule, and the reason of the table."""
    rows = call("aten.sum", (16, 64), (16,), dim=[1])
    known = 16 * ((2 * 4 + 3 * 4 + 3) * 8 + 8 + 1)
    for more, verdict in ((-1, UNEXPLAINED), (0, DIFFERENT), (1, UNEXPLAINED)):
        for name in ("sum_rows", "aten.sum"):
            found = compare_operations(name, {"add": known + more}, [rows])
            assert (found.verdict, found.is_tabled) == (verdict, False)
    unknown = compare_operations("aten.sum", {"add": 17}, [call("aten.sum", (4, 4), (4,), dim=[1])])
    assert (unknown.verdict, unknown.is_tabled) == (DIFFERENT, True)
