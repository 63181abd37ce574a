"""A whole model's step, forward and backward, as valgrind counted it: each operator is equal or has its reason, by rule
or of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from analysis.instructions import UNEXPLAINED, compare_calls
from analysis.operators import total
from results.records import Operation
from runners.instructions.models import operations_of
from tests.support.recordings.record_instructions import recorded

Calls = Sequence[tuple[str, Mapping[str, int]]]

BACKWARD = "aten.convolution_backward"

TABLED = {
    "aten.native_batch_norm", "aten.native_batch_norm_backward", "aten.threshold_backward",
    "aten.max_pool2d_with_indices", "aten.mean", "aten._log_softmax", "aten._log_softmax_backward_data",
    "aten.nll_loss_forward", "aten.nll_loss_backward",
}  # fmt: skip
"""Operators with a reason of the table, which no count checks: any number of lanes would have it."""


@pytest.fixture(scope="module")
def operations() -> Sequence[Operation]:
    return operations_of("resnet18")


@pytest.fixture
def calls() -> list[tuple[str, dict[str, int]]]:
    return [(name, dict(lanes)) for name, lanes in recorded("resnet18")["calls"]]


def test_no_operator_of_a_recorded_step_is_unexplained_and_nine_have_reasons_that_no_count_checks(
    operations: Sequence[Operation], calls: Calls
) -> None:
    rows = compare_calls(calls, operations)
    assert {row.name: row.reason for row in rows if row.verdict == UNEXPLAINED} == {}
    assert {row.name for row in rows if row.is_tabled} == TABLED
    assert {"aten.sum", "aten.mm", "aten.addmm"} <= {row.name for row in rows if row.reason and not row.is_tabled}
    assert sum(row.multiply_adds for row in rows) == total(operations).model_flop // 2
    executed: Counter[str] = Counter()
    for _, lanes in calls:
        executed.update(lanes)
    assert sum(row.executed.get("fma", 0) for row in rows) == executed["fma"] > 0
    assert {"aten.convolution", BACKWARD} <= {row.name for row in rows}


def test_a_call_that_executed_one_more_is_seen(
    operations: Sequence[Operation], calls: list[tuple[str, dict[str, int]]]
) -> None:
    """The first layer's gradient, which comes last, with a product more."""
    calls[max(place for place, (name, _) in enumerate(calls) if name == BACKWARD)][1]["fma"] += 1
    rows = {row.name: row for row in compare_calls(calls, operations)}
    assert rows[BACKWARD].verdict == UNEXPLAINED
    assert rows["aten.convolution"].verdict != UNEXPLAINED
