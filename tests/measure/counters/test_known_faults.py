"""Known answer: faults of other counters that docs/counters.md marks with *, each in the smallest program.

A fault that is mended upstream turns its row red: take it out of the page.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def flop_counter_mode(call: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as mode:
        call()
    return mode.get_total_flops()


def depthwise_step() -> int:
    """64 channels, 3 × 3 on 16 × 16: 64 · 256 · 9 multiply-adds in each of three passes; the weight's is × 64."""
    layer = nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False)
    images = torch.ones(1, 64, 16, 16, requires_grad=True)
    return flop_counter_mode(lambda: layer(images).sum().backward())


def lstm() -> int:
    """10 tokens, 4 gates of 8 · (16 + 8) weights each."""
    return flop_counter_mode(lambda: nn.LSTM(16, 8)(torch.ones(5, 2, 16)))


def complex_product() -> int:
    """A complex multiply-add is 4 multiplications and 4 additions."""
    square = torch.ones(16, 16, dtype=torch.complex64)
    return flop_counter_mode(lambda: square @ square)


def profiled_sgd() -> int:
    """1,000 parameters: momentum · buffer + gradient, parameter + rate · buffer."""
    weight = torch.ones(1000, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, foreach=True)
    for _ in range(2):
        weight.grad = torch.ones(1000)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True) as profiler:
            optimizer.step()
    return sum(event.flops or 0 for event in profiler.events())


def fvcore_broadcast() -> int:
    """(5, 7) @ (4, 7, 3): 4 · 5 · 7 · 3 multiply-adds, of which fvcore counts one batch."""
    from fvcore.nn import FlopCountAnalysis

    class Product(nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return left @ right

    return 2 * int(FlopCountAnalysis(Product(), (torch.ones(5, 7), torch.ones(4, 7, 3))).total())


def ptflops_relu() -> int:
    """In multiply-adds: 2 · 10 without a bias and 10 elements of ReLU, which are counted twice."""
    from ptflops import get_model_complexity_info

    model = nn.Sequential(nn.Linear(2, 10, bias=False), nn.ReLU())
    total, _ = get_model_complexity_info(
        model, (2,), backend="pytorch", as_strings=False, print_per_layer_stat=False, verbose=False
    )
    return int(total)


def thop_transposed() -> int:
    """4 channels · 25 inputs, each with 4 · 4 weights; thop counts the 10 × 10 outputs."""
    from thop import profile

    layer = nn.ConvTranspose2d(4, 4, 2, stride=2, bias=False)
    return 2 * int(profile(layer, (torch.ones(1, 4, 5, 5),), verbose=False)[0])


def torchinfo_rows() -> int:
    """2 · 7 rows of 24 features to 10, without a bias."""
    from torchinfo import summary

    model = nn.Sequential(nn.Linear(24, 10, bias=False))
    return 2 * int(summary(model, input_data=torch.ones(2, 7, 24), verbose=0).total_mult_adds)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("count", "gives", "right"),
    [
        (depthwise_step, 19_464_192, 3 * 2 * 64 * 256 * 9),
        (lstm, 0, 2 * 10 * 4 * 8 * (16 + 8)),
        (lambda: flop_counter_mode(lambda: torch.ones(64, 32) @ torch.ones(32)), 0, 2 * 64 * 32),
        (complex_product, 8_192, 8 * 16**3),
        (profiled_sgd, 1, 4 * 1000),
        (fvcore_broadcast, 210, 2 * 4 * 5 * 7 * 3),
        (ptflops_relu, 40, 2 * 10 + 10),
        (thop_transposed, 12_800, 2 * 4 * 25 * 4 * 4),
        (torchinfo_rows, 960, 2 * 14 * 24 * 10),
    ],
)
def test_the_fault_is_there(count: Callable[[], int], gives: int, right: int) -> None:
    assert count() == gives != right
