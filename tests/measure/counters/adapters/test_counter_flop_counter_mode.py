"""Known answer, definition: FlopCounterMode's rows are its own numbers, and what it has no formula for is listed."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from measure.counters.adapters.dispatched import flop_counter_mode
from tests.support.nets.small_steps import Calls
from tests.support.nets.zero_models import zeroed


def count(model, *inputs, batch_size=1):
    return flop_counter_mode(model, inputs, workload="w", batch_size=batch_size)


def flop(rows, phase, scope="total"):
    return sum(row.flop for row in rows if (row.phase, row.scope, row.operator) == (phase, scope, ""))


def total(rows, phase):
    (row,) = [row for row in rows if (row.scope, row.operator, row.phase) == ("total", "", phase)]
    return row


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_its_two_phases_are_what_it_says_of_both_together(name):
    model, images = zeroed(name).eval(), torch.randn(2, 3, 64, 64)
    with FlopCounterMode(display=False) as said:
        model(images).sum().backward()
    rows = count(model, images, batch_size=2)
    assert flop(rows, "forward") + flop(rows, "backward") == said.get_total_flops()
    with torch.no_grad(), FlopCounterMode(display=False) as forward:
        model(images)
    assert flop(rows, "forward") == forward.get_total_flops()


def test_rows_of_a_model_of_known_sizes():
    """2 × 3 × 4 × 4, convolution 3→4, 3 × 3, padding 1: 3,456 MAC; linear 64→5: 640 MAC, twice that backward."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    rows = count(model, torch.randn(2, 3, 4, 4), batch_size=2)
    assert {(row.phase, row.scope, row.operator): row.native_value for row in rows} == {
        ("forward", "total", ""): 2 * 4_096,
        ("forward", "total", "aten.convolution"): 2 * 3_456,
        ("forward", "total", "aten.addmm"): 2 * 640,
        ("backward", "total", ""): 2 * 4_736,
        ("backward", "total", "aten.convolution_backward"): 2 * 3_456,
        ("backward", "total", "aten.mm"): 2 * 1_280,
    }
    assert {(row.counter, row.batch_size, row.native_unit) for row in rows} == {("flop_counter_mode", 2, "flop")}
    assert set(total(rows, "forward").ignored.values()) == {1}  # normalisation and activation, one call each
    assert total(rows, "forward").ignored["aten.relu"] == 1
    assert total(rows, "forward").not_understood == total(rows, "backward").not_understood == {}


def test_what_it_has_no_formula_for_is_listed():
    def forward(m, sequence):
        features = m.recurrent(sequence)[0][-1]
        return m.bilinear(features, features) @ torch.ones(3)

    model = Calls(forward, recurrent=nn.LSTM(8, 4), bilinear=nn.Bilinear(4, 4, 3))
    rows = count(model, torch.randn(5, 2, 8))
    assert flop(rows, "forward") == 0
    assert total(rows, "forward").not_understood == {"aten.mkldnn_rnn_layer": 1, "aten._trilinear": 1, "aten.mv": 1}
    assert total(rows, "backward").not_understood["aten.mkldnn_rnn_layer_backward"] == 1
