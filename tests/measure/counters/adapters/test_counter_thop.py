"""thop: hand-derived counts of its rules, its own total, and the model left as it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from analysis.operators.registry import PRODUCTS
from analysis.utilization.counter_operators import OPERATORS
from measure.counters.adapters import thop
from measure.counters.adapters.thop import profile, register_hooks  # thop itself warns when imported
from tests.support.nets.counted_nets import (
    IMAGES,
    PARAMETERS,
    Attention,
    Small,
    by_module,
    by_operator,
    counting,
    leaves_nothing,
    raises_and_leaves_nothing,
)

count = counting(thop)


def printed(model, *inputs):
    """What a user of thop sees: multiply-adds, parameters."""
    return profile(model, inputs, verbose=False)


def test_a_model_of_known_sizes():
    """The transposed convolution at its 4·4 outputs instead of 2·2 inputs; pooling 4 × 4 + 1 an output."""
    model, images = Small(), torch.randn(IMAGES)
    total, *rows = count(model, images, batch_size=2)
    assert by_operator(rows) == {
        "Conv2d": (46_800, "mac", 93_600),
        "BatchNorm2d": (4 * 400, "flop", 1_600),
        "ConvTranspose2d": (4 * 1_024, "mac", 8_192),
        "AdaptiveAvgPool2d": (17 * 8, "flop", 136),
        "Linear": (48, "mac", 96),
    }
    assert (total.native_value, total.native_unit) == (46_800 + 1_600 + 4_096 + 136 + 48, "mac")
    assert total.flop == 93_600 + 1_600 + 8_192 + 136 + 96
    assert printed(Small(), images) == (52_680, PARAMETERS) == (total.native_value, total.parameters)
    assert total.ignored == {"ReLU": 1, "MaxPool2d": 1, "Dropout": 1}
    assert (total.not_understood, total.reason) == ({"Sigmoid": 1}, "")
    assert {(row.counter, row.workload, row.batch_size, row.phase) for row in (total, *rows)} == {
        ("thop", "w", 2, "forward")
    }
    modules = by_module(rows)
    assert modules["head"] == modules["head.0"] == 48
    assert total.native_value == sum(value for path, value in modules.items() if "." not in path)


def test_subclasses_functions_and_attention_are_not_understood():
    class Mine(nn.Linear):
        pass

    class Unseen(nn.Module):
        def __init__(self):
            super().__init__()
            self.mine = Mine(4, 3)

        def forward(self, inputs):
            return self.mine(inputs) @ torch.ones(3, 2)

    total, *rows = count(Unseen(), torch.randn(5, 4))
    assert (total.native_value, rows, total.not_understood) == (0, [], {"Mine": 1, "aten.mm": 1})
    (total, *rows) = count(Attention(), torch.randn(2, 5, 12), batch_size=2)
    assert (total.native_value, rows) == (0, [])
    assert total.not_understood


def test_a_model_that_is_one_layer_has_no_parameters_by_thop():
    total, *rows = count(nn.Linear(4, 3), torch.randn(5, 4))
    assert (total.native_value, total.parameters) == (60, 0) == printed(nn.Linear(4, 3), torch.randn(5, 4))
    assert by_operator(rows) == {"Linear": (60, "mac", 120)}


def test_it_runs_in_eval_mode_without_gradients_and_leaves_nothing():
    """thop itself leaves buffers on modules without a rule: they would be saved with the weights."""
    model = leaves_nothing(count, (False, False))
    saved = set(model.state_dict())
    printed(model, torch.randn(IMAGES))
    assert set(model.state_dict()) != saved


def test_a_model_that_raises_is_left_as_it_was():
    raises_and_leaves_nothing(count)


def test_the_modules_with_products_are_known_to_analysis():
    assert set(OPERATORS["thop"].values()) <= set(PRODUCTS)
    assert set(OPERATORS["thop"]) <= {kind.__name__ for kind in register_hooks}


@pytest.mark.parametrize(
    ("layer", "gates", "beside"),
    [
        (nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True), 4, 4 * (1 + 2) + 4),
        (nn.GRU(8, 16, num_layers=2, bidirectional=True, batch_first=True), 3, 3 * (1 + 2) + 1 + 3),
        (nn.RNN(8, 16, num_layers=2, bidirectional=True, batch_first=True), 1, 1 + 2),
        (nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True, bias=False), 4, 4 + 4),
    ],
)
def test_recurrent_layers(layer, gates, beside):
    """Weights gates·16·(8 + 16) and gates·16·(32 + 16) a direction; beside them so many operations a hidden unit."""
    model = nn.Sequential(layer)
    total, *rows = count(model, torch.randn(2, 5, 8), batch_size=2)
    name, mac = type(layer).__name__, gates * 16 * (24 + 48) * 2 * 10
    assert by_operator(rows) == {
        name: (mac, "mac", 2 * mac),
        f"{name} elementwise": (beside * 16 * 4 * 10, "flop", beside * 16 * 4 * 10),
    }
    assert printed(model, torch.randn(2, 5, 8))[0] == total.native_value
    assert total.not_understood == {}
