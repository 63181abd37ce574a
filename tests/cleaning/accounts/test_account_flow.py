"""What follows from what in a recording: constants, what nothing uses, functions of their own backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cleaning.accounts.account.explain import _first_time
from cleaning.accounts.vocabulary.data_flow import DataFlow, used
from measure.counters.harness.model_calls import record
from results.records.calls import APPLIED, MODULE
from tests.support.account_nets.account_nets_layers import Lambda


def recorded(function, **parts):
    return record(Lambda(function, **parts), (torch.ones(2, 4),), plain=False)


def asked(recording):
    """(name, whether any argument is traced, whether the first one is) of each function, no module standing alone."""
    traced = DataFlow(recording)
    return [(call.name, traced.any_of(call), traced.first_of(call)) for call in recording.calls if call.what != MODULE]


def names_used(recording):
    """The names of the products whose results reach an output, with their modules."""
    alive = used(recording)
    return [op.module for op in recording.operations if op.index in alive and op.name in ("aten.mm", "aten.addmm")]


class TestTraced:
    def test_inputs_and_weights_are_traced_and_constants_and_buffers_are_not(self):
        def run(m, x):
            return (x + 1) * (torch.arange(4) + 2) + m.weight * 3 + m.inner.running_mean * 5

        found = asked(recorded(run, weight=nn.Parameter(torch.ones(4)), inner=nn.BatchNorm1d(4)))
        assert found == [
            ("Tensor.__add__", True, True),
            ("Tensor.__add__", False, False),
            ("Tensor.__mul__", True, True),
            ("Tensor.__mul__", True, True),
            ("Tensor.__add__", True, True),
            ("Tensor.__mul__", False, False),
            ("Tensor.__add__", True, True),
        ]

    def test_a_constant_before_a_traced_tensor_is_a_first_argument_that_is_none(self):
        assert asked(recorded(lambda _m, x: torch.ones(4) * x.view(4, 2).mT.reshape(2, 4))) == [
            ("Tensor.__mul__", True, False)
        ]

    def test_what_is_written_in_place_is_traced_from_then_on(self):
        def run(_m, x):
            total = torch.zeros(2, 4)
            before = total * 2
            total += x
            return before + (total * 2)

        assert [any_of for _, any_of, _ in asked(recorded(run))] == [False, True, True, True]

    def test_what_a_module_that_stands_for_itself_gives_is_traced_although_its_input_is_not(self):
        recording = recorded(lambda m, x: x + m.act(torch.ones(4)) * 2, act=nn.ReLU())
        traced, found = DataFlow(recording), []
        for call in recording.calls:
            if call.path == "act" and call.what == MODULE:
                traced.leaf(call)
            elif call.name == "Tensor.__mul__":
                found.append(traced.any_of(call))
        assert found == [True]
        assert ("Tensor.__mul__", False, False) in asked(recording)


class TestUsed:
    def test_a_layer_whose_result_goes_nowhere(self):
        parts = {"first": nn.Linear(4, 4), "lost": nn.Linear(4, 4), "last": nn.Linear(4, 4)}

        def run(m, x):
            value = m.first(x)
            m.lost(value).relu()
            return {"last": [m.last(value.detach())]}

        assert names_used(recorded(run, **parts)) == ["first", "last"]

    def test_what_is_written_into_an_output_is_used(self):
        def run(m, x):
            total = torch.zeros(2, 4)
            total[:1] += m.first(x)[:1]
            return total

        assert names_used(recorded(run, first=nn.Linear(4, 4))) == ["first"]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value @ torch.ones(4, 4)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 4


def test_a_function_with_a_backward_pass_of_its_own_is_a_call_around_what_it_calls():
    before = vars(torch.autograd.Function)["apply"]
    recording = recorded(lambda m, x: Doubled.apply(m.first(x)), first=nn.Linear(4, 4))
    assert vars(torch.autograd.Function)["apply"] is before
    (call,) = [call for call in recording.calls if call.name == APPLIED]
    product = next(call for call in recording.calls if call.name == "Tensor.__matmul__")
    assert next(recording.around(product)) == call
    assert "apply" not in vars(Doubled)


@pytest.mark.parametrize("times", [1, 3])
def test_each_product_that_is_calculated_again_belongs_to_one_of_the_forward_pass(times):
    def run(m, x):
        value = m.stem(x)
        for _ in range(times):
            value = torch.utils.checkpoint.checkpoint(m.block, value, use_reentrant=True)
        return value

    recording = recorded(run, stem=nn.Linear(4, 4), block=nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    products = {
        again: first for again, first in _first_time(recording).items() if recording.operations[again].kind == "matmul"
    }
    assert len(products) == len(set(products.values())) == times
    assert {recording.operations[first].module for first in products.values()} == {"block.0"}
