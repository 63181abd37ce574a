"""Definition, known answer: torch.profiler's rows by hand, its own total, and what it has no formula for."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

from measure.counters.adapters.dispatched import torch_profiler
from tests.support.nets.small_steps import Calls
from tests.support.nets.zero_models import zeroed


def count(model, *inputs, batch_size=1):
    return torch_profiler(model, inputs, workload="w", batch_size=batch_size)


def total(rows, phase):
    (row,) = [row for row in rows if (row.scope, row.operator, row.phase) == ("total", "", phase)]
    return row


class Residual(nn.Module):
    """On 2 × 3 × 4 × 4: convolution 3→3, 3 × 3, padding 1: 32 × 3 × 27 = 2,592 MAC; the sum: 96; linear 48→5: 480 MAC.

    `+` counts its elements, `+=` nothing.
    """

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())
        self.head = nn.Linear(48, 5)

    def forward(self, images):
        features = self.body(images) + images
        features += images
        return self.head(features.flatten(1))


def test_rows_of_a_model_of_known_sizes():
    rows = count(Residual(), torch.randn(2, 3, 4, 4), batch_size=2)
    assert {(row.phase, row.scope, row.operator): row.native_value for row in rows} == {
        ("forward", "total", ""): 2 * (2_592 + 480) + 96,
        ("forward", "total", "aten::conv2d"): 2 * 2_592,
        ("forward", "total", "aten::add"): 96,
        ("forward", "total", "aten::addmm"): 2 * 480,
        ("backward", "total", ""): 2 * 2 * 480,
        ("backward", "total", "aten::mm"): 2 * 2 * 480,
    }
    assert {(row.counter, row.batch_size, row.native_unit) for row in rows} == {("torch_profiler", 2, "flop")}
    forward, backward = total(rows, "forward"), total(rows, "backward")
    assert forward.ignored == {"aten::batch_norm": 1, "aten::relu": 1, "aten::add_": 1}
    assert (forward.not_understood, backward.not_understood) == ({}, {"aten::convolution_backward": 1})


def test_the_total_is_what_a_user_adds_up():
    model, images = zeroed("mobilenet_v2").eval(), torch.randn(1, 3, 64, 64)
    with profile(activities=[ProfilerActivity.CPU], with_flops=True, record_shapes=True, acc_events=True) as said:
        model(images)
    assert total(count(model, images), "forward").flop == sum(event.flops for event in said.key_averages())


CALLS = {
    "conv3d": (lambda: nn.Conv3d(3, 4, 3), (1, 3, 6, 6, 6), {"aten::conv3d": 1}),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3), (1, 3, 6), {"aten::conv1d": 1}),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3), (1, 3, 6, 6), {"aten::conv_transpose2d": 1}),
    "LSTM": (lambda: Calls(lambda m, x: m.inner(x)[0], inner=nn.LSTM(3, 4)), (5, 2, 3), {"aten::lstm": 1}),
    "attention": (
        lambda: Calls(lambda _, x: F.scaled_dot_product_attention(x, x, x)),
        (2, 3, 5, 4),
        {"aten::scaled_dot_product_attention": 1},
    ),
    "a product of a vector": (lambda: Calls(lambda _, x: x @ torch.ones(x.shape[1])), (3, 4), {"aten::matmul": 1}),
    "linear": (lambda: nn.Linear(4, 4), (3, 4), {}),
    "a stranger": (
        lambda: Calls(lambda _, x: torch.ops.flopledger_tests_of_the_profiler.tripled(x)),
        (3, 4),
        {"flopledger_tests_of_the_profiler::tripled": 1},
    ),
    "GRU, whose products are counted one by one": (
        lambda: Calls(lambda m, x: m.inner(x)[0], inner=nn.GRU(3, 4)),
        (5, 2, 3),
        {},
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_it_has_no_formula_for_is_listed_once(case):
    build, shape, expected = CALLS[case]
    assert total(count(build(), torch.randn(shape)), "forward").not_understood == expected


library = torch.library.Library("flopledger_tests_of_the_profiler", "DEF")
library.define("tripled(Tensor tokens) -> Tensor")
library.impl("tripled", lambda tokens: tokens * 3, "CPU")
