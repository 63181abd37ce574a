"""Numbers and modules of autograd's nodes, in tables of real steps and with each of them changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from cleaning.facts.tables import link_faults, profile_faults
from results.records import Operation
from tests.support.nets.small_steps import Calls, Small, fake_trace, parts
from tests.support.recordings.recordings import recorded


class Double(torch.autograd.Function):
    """A function of one's own, whose first operation is not the one that autograd sees."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(2, 2).add(x, alpha=2)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def _own(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = Double.apply(self.fc(x))
    x[:, 0].mul_(3)
    x.detach()
    return x.exp()


def _penalised(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A gradient in the forward pass, which is differentiated again."""
    y = self.fc(x.requires_grad_())
    (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    return y + gradient.square().sum()


def _again(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.last(checkpoint(self.first, x, use_reentrant=False))


NETS = {
    "in place": (Small, (2, 3, 8, 8)),
    "a function of one's own": (lambda: Calls(_own, fc=nn.Linear(3, 2)), (2, 3)),
    "a gradient of a gradient": (lambda: Calls(_penalised, fc=nn.Linear(3, 2)), (2, 3)),
    "recomputation": (lambda: Calls(_again, first=nn.Linear(3, 3), last=nn.Linear(3, 2)), (2, 3)),
    "recurrent": (lambda: Calls(lambda s, x: s.cell(x)[0], cell=nn.LSTM(3, 2)), (2, 3)),
}


@pytest.mark.parametrize("net", NETS)
def test_a_real_table_has_no_fault(net: str) -> None:
    make, shape = NETS[net]
    assert list(link_faults(fake_trace(parts(make, shape)).operations)) == []


@pytest.fixture(scope="module")
def table() -> list[Operation]:
    return list(fake_trace(parts(Small)).operations)


def _changed(table: list[Operation], where: Any, **values: Any) -> list[Operation]:
    place = next(i for i, each in enumerate(table) if where(each))
    return [*table[:place], replace(table[place], **values), *table[place + 1 :]]


def _gradient(operation: Operation) -> bool:
    return operation.name == "aten.convolution_backward"


@pytest.mark.parametrize(
    ("where", "values"),
    [
        (_gradient, {"forward_index": None}),
        (_gradient, {"forward_index": 1}),
        (_gradient, {"sequence_nr": None}),
        (_gradient, {"sequence_nr": 3}),
        (_gradient, {"module": "bn"}),
        (lambda o: o.name == "aten.threshold_backward", {"module": ""}),
        (lambda o: o.name == "aten.convolution", {"sequence_nr": 5}),
        (lambda o: o.name == "aten.convolution", {"sequence_nr": None}),
        (lambda o: o.name == "aten.addmm", {"module": "conv"}),
    ],
)
def test_a_link_that_is_another_is_a_fault(where: Any, values: dict[str, Any], table: list[Operation]) -> None:
    assert list(link_faults(_changed(table, where, **values))) != []


def test_a_profile_of_a_real_step_has_no_fault_and_each_change_is_one() -> None:
    calls = list(recorded(parts(Small)))
    assert profile_faults(calls) == []
    outer = next(i for i, each in enumerate(calls) if each.forward_index is not None and each.parent is None)
    inner = next(i for i, each in enumerate(calls) if each.forward_index is not None and each.parent is not None)
    nested = next(i for i, each in enumerate(calls) if each.phase == "forward" and each.parent is not None)
    changes: list[tuple[int, dict[str, Any]]] = [
        (outer, {"module": "elsewhere"}),
        (outer, {"phase": ""}),
        (outer, {"sequence_nr": None}),
        (inner, {"forward_index": None}),
        (inner, {"sequence_nr": 0}),
        (nested, {"module": "elsewhere"}),
    ]
    for place, values in changes:
        assert profile_faults([*calls[:place], replace(calls[place], **values), *calls[place + 1 :]]) != [], values
