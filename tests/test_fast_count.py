"""The fast count of small nets, one for each rule: equal to the executed trace to the last FLOP, and to counts by hand."""

from __future__ import annotations

import pytest
import torch
from fast_nets import NETS, agree
from torch import nn

OPTIONS = {
    "as it is": {},
    "in evaluation": {"train": False},
    "inputs need a gradient": {"grad_inputs": True},
}


def made(name):
    torch.manual_seed(0)
    make, given = NETS[name]
    return make(), given if isinstance(given, torch.Tensor) else torch.randn(given)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", NETS)
def test_equal_to_the_executed_trace(name, options):
    model, x = made(name)
    agree(model, (x,), **OPTIONS[options])
