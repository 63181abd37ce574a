"""A compiled model counts as its own code; operators that had no rule: expected numbers stand beside each."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flopledger
from measure.profile.unseen_operations import _is_whole

LINEAR = 2 * 4 * 16 * 16
"""Model FLOP of a pass of 4 rows through a layer of 16 × 16."""


def linear() -> nn.Module:
    return nn.Linear(16, 16, bias=False)


def compiled() -> nn.Module:
    return torch.compile(linear())  # type: ignore[return-value]


def compiled_in_place() -> nn.Module:
    layer = linear()
    layer.compile()
    return layer


class Method(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()

    @torch.compile
    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


@pytest.mark.filterwarnings("ignore:Using .torch.compile")  # while torch looks at hooks of all modules
@pytest.mark.parametrize("make", [compiled, compiled_in_place, Method])
def test_a_compiled_model_or_layer_or_method_counts_as_its_code(make) -> None:
    x = torch.randn(4, 16)
    alone, inside = (flopledger.count(model, x) for model in (make(), nn.Sequential(linear(), make())))
    assert (alone.forward_flop, alone.backward_flop) == (LINEAR, LINEAR)
    assert (inside.forward_flop, inside.backward_flop) == (2 * LINEAR, 3 * LINEAR)


@pytest.mark.parametrize("gradients", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("padding", [0, 2])
def test_a_convolution_with_time_first(padding: int, gradients: tuple[bool, bool]) -> None:
    """5 steps of 2 samples by windows of 3: 3 outputs, 7 with the padding, each of 7 channels from 3 × 10 numbers. Each
    gradient that is needed is as much, though the kernel computes both, and in pieces that leave the padding out."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(3, 10, 7), gradients[1]), nn.Parameter(torch.zeros(7))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.conv_tbc(x, self.weight, self.bias, padding)

    model, x = Net(), torch.randn(5, 2, 10, requires_grad=gradients[0])
    product = 2 * ((3 + 2 * padding) * 2 * 7) * (3 * 10)
    step = flopledger.count(model, x)
    assert (step.forward_flop, step.backward_flop) == (product, sum(gradients) * product)
    with flopledger.flop_counter_mode(display=False) as mode:
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert mode.get_total_flops() == product + 2 * sum(gradients) * product
    with flopledger.UtilizationMeter(model, warm_up_steps=0, energy=False) as meter:
        for _ in range(3):
            with meter.step():
                model(x).sum().backward()
    found = meter.summary()
    assert (found.model_flop_per_step, found.unverified_steps, len(found.warnings)) == (step.model_flop, 1, 1)


@pytest.mark.filterwarnings("ignore")  # it is to move to another package
def test_fake_quantisation_makes_no_product() -> None:
    """Of each of 64 inputs: its least and largest, 7 to round it to the grid, the mask of the gradient; of each of 64
    outputs the sum that is the loss."""
    from torch.ao.quantization import FusedMovingAvgObsFakeQuantize

    model = nn.Sequential(FusedMovingAvgObsFakeQuantize(), linear())
    step = flopledger.count(model, torch.randn(4, 16, requires_grad=True))
    assert (step.forward_flop, step.not_understood) == (LINEAR, {})
    assert step.other_flop == (9 + 1) * 4 * 16 + 4 * 16


@pytest.mark.parametrize("name", ["aten::mul_", "aten::add", "aten::sum", "aten::pow", "aten::index", "aten::bmm"])
def test_an_operator_with_an_overload_of_torchscript_is_whole(name: str) -> None:
    assert _is_whole(name)


def test_a_linear_layer_is_made_of_other_operators() -> None:
    assert not _is_whole("aten::linear")
