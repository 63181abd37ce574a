"""A whole model's step, forward and backward, as valgrind counted it: each operator is equal or has its reason."""

from __future__ import annotations

from collections import Counter

import pytest

from analysis.instructions import UNEXPLAINED, compare_calls
from analysis.operators import total
from runners.instructions.models import operations_of
from tests.support.recordings.record_instructions import recorded


@pytest.mark.parametrize("model", ["resnet18"])
def test_no_operator_of_a_recorded_step_is_unexplained(model: str) -> None:
    operations = operations_of(model)
    rows = compare_calls([(name, lanes) for name, lanes in recorded(model)["calls"]], operations)
    assert {row.name: row.reason for row in rows if row.verdict == UNEXPLAINED} == {}
    cost = total(operations)
    assert sum(row.multiply_adds for row in rows) == cost.model_flop // 2
    executed: Counter[str] = Counter()
    for _, lanes in recorded(model)["calls"]:
        executed.update(lanes)
    assert sum(row.executed.get("fma", 0) for row in rows) == executed["fma"] > 0
    assert {"aten.convolution", "aten.convolution_backward"} <= {row.name for row in rows}


def test_a_call_that_executed_one_more_is_seen() -> None:
    """The first layer's gradient, which comes last, with a product more."""
    calls = [(name, dict(lanes)) for name, lanes in recorded("resnet18")["calls"]]
    place = max(place for place, (name, _) in enumerate(calls) if name == "aten.convolution_backward")
    calls[place][1]["fma"] += 1
    rows = {row.name: row for row in compare_calls(calls, operations_of("resnet18"))}
    assert rows["aten.convolution_backward"].verdict == UNEXPLAINED
    assert rows["aten.convolution"].verdict != UNEXPLAINED
