"""Definition, law: rows and totals from counts by hand; every counter leaves the model as it was."""

import importlib

import pytest
import torch
from torch import nn

from analysis.counters import COUNTERS
from measure.counters.rows import UncountedCalls, rows, uncounted
from measure.model.state_snapshot import sum_of_outputs, tensors
from results.records.counts import FlopCount

BLANK = FlopCount(
    counter="c",
    workload="w",
    batch_size=3,
    phase="forward",
    native_unit="mac",
    ignored={"relu": 2},
    not_understood={"odd": 1},
    reason="note: said",
    parameters=6,
    printed=5,
)


def test_totals_are_the_sums_of_their_operators_each_in_its_unit():
    """7 multiply-adds are 14 FLOP; 5 elements are 5."""
    found = rows(BLANK, {("conv", "mac"): 7, ("norm", "flop"): 5.0})
    assert [(row.scope, row.operator, row.native_value, row.native_unit, row.flop) for row in found] == [
        ("total", "", 12, "mac", 19),
        ("total", "conv", 7, "mac", 14),
        ("total", "norm", 5, "flop", 5),
    ]
    assert type(found[2].native_value) is int
    assert {(row.counter, row.workload, row.batch_size, row.phase) for row in found} == {("c", "w", 3, "forward")}


def test_what_a_counter_says_is_said_once_on_the_total():
    first, *others = rows(BLANK, {("o", "mac"): 1, ("p", "mac"): 1})
    assert (first.ignored, first.not_understood, first.reason) == ({"relu": 2}, {"odd": 1}, "note: said")
    assert (first.parameters, first.printed) == (6, 5)
    assert {(row.parameters, row.printed) for row in others} == {(None, None)}
    assert [(row.ignored, row.not_understood, row.reason) for row in others] == 2 * [({}, {}, "")]


@pytest.mark.parametrize("counter", COUNTERS)
def test_every_counter_leaves_the_model_as_it_was(counter):
    module, _, function = COUNTERS[counter].adapter.partition(":")
    adapter = getattr(importlib.import_module(module), function)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)).train()
    model[1].eval()
    model[0].weight.grad = gradient = torch.ones(4, 3, 3, 3)
    adapter(model, (torch.randn(2, 3, 6, 6),), workload="w", batch_size=2)
    assert [module.training for module in model] == [True, False, True, True]
    assert model[0].weight.grad is gradient
    assert model[3].weight.grad is None
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    assert type(model) is nn.Sequential


def test_all_tensors_of_an_output_are_summed_those_without_gradient_left_out():
    weight = torch.ones(2, requires_grad=True)
    output = {"a": weight * 3, "more": [weight * 4, (torch.tensor([1, 2]), "text", None)]}
    assert len(list(tensors(output))) == 3
    total = sum_of_outputs(output)
    assert total.item() == 2 * 3 + 2 * 4
    total.backward()
    assert weight.grad.tolist() == [7, 7]
    assert sum_of_outputs([torch.ones(2)]) is None
    assert sum_of_outputs(weight * 5).item() == 10


# --- what a counter passed over ---


def test_calls_by_what_they_are() -> None:
    calls = {
        "aten.add": 2,
        "aten.mm": 3,
        "aten.view": 5,  # moves nothing and calculates nothing
        "aten.clone": 7,
        "house.own": 11,  # no table has it
        "prim.device": 13,
        "profiler._record_function_exit": 17,
    }
    assert uncounted(calls) == ({"aten.add": 2}, {"aten.mm": 3, "house.own": 11})


def test_each_call_is_counted_once_where_the_counter_does_not_look() -> None:
    looking = [False]
    with UncountedCalls(lambda: looking[0]) as seen:
        x = torch.ones(2).mul(3).mul(4)
        looking[0] = True
        x.mul(5)
    assert seen.calls["aten.mul"] == 2
    assert x.tolist() == [12.0, 12.0]
