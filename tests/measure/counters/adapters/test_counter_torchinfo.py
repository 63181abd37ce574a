"""torchinfo: hand-derived counts of its one rule, its own total, and the model left as it was."""

from __future__ import annotations

import pytest
import torch
import torchinfo
from torch import nn
from torch.nn.utils import prune

from analysis.utilization.counter_operators import OPERATORS
from measure.counters.adapters import torchinfo as adapters_torchinfo
from results.errors import Inconsistent
from tests.support.nets.counted_nets import (
    IMAGES,
    PARAMETERS,
    Broken,
    Small,
    by_module,
    by_operator,
    counting,
    leaves_nothing,
    left_alone,
)

count = counting(adapters_torchinfo)


def printed(model, *inputs):
    """What a user of torchinfo sees: multiply-adds, parameters."""
    summary = torchinfo.summary(model, input_data=list(inputs), verbose=0)
    return summary.total_mult_adds, summary.total_params


def test_a_model_of_known_sizes():
    """Weights and biases times positions, or times the batch of 2. The transposed convolution has 2·16 positions."""
    model, images = Small(), torch.randn(IMAGES)
    total, *rows = count(model, images, batch_size=2)
    assert by_operator(rows) == {
        "Conv2d": (216 * 200 + 72 * 50, "mac", 93_600),
        "Conv2d elementwise": (8 * 200, "flop", 1_600),
        "BatchNorm2d": (16 * 2, "flop", 32),
        "ConvTranspose2d": (128 * 32, "mac", 8_192),
        "ConvTranspose2d elementwise": (4 * 32, "flop", 128),
        "Linear": (24 * 2, "mac", 96),
        "Linear elementwise": (6 * 2, "flop", 12),
    }
    assert (total.native_value, total.native_unit) == (46_800 + 1_600 + 32 + 4_096 + 128 + 48 + 12, "mac")
    assert total.flop == 93_600 + 1_600 + 32 + 8_192 + 128 + 96 + 12
    assert printed(model, images) == (52_716, PARAMETERS + 20) == (total.native_value, total.parameters)
    without = {"aten.relu": 2, "aten.max_pool2d_with_indices": 1, "aten.mean": 1, "aten.sigmoid": 1}
    assert (total.ignored, total.not_understood, total.reason) == (without, {}, "")
    modules = by_module(rows)
    assert modules["head"] == modules["head.0"] == 60
    assert total.native_value == sum(value for path, value in modules.items() if "." not in path)


def test_subclasses_go_by_the_class_of_torch():
    class Mine(nn.Linear):
        pass

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, inputs):
            return inputs * self.weight

    found = by_operator(count(nn.Sequential(Mine(4, 3, bias=False), Scale()), torch.randn(2, 4), batch_size=2))
    assert found == {"Linear": (24, "mac", 48), "Scale": (6, "flop", 6)}


def test_pruned_weights_count_as_far_as_they_are_there():
    """4→3 with 7 of 12 weights left: torchinfo counts those."""
    layer = nn.Linear(4, 3)
    mask = torch.tensor([1.0] * 7 + [0.0] * 5).reshape(3, 4)
    prune.custom_from_mask(layer, "weight", mask)
    model = nn.Sequential(layer)
    total, *rows = count(model, torch.randn(2, 4), batch_size=2)
    assert by_operator(rows) == {"Linear": (14, "mac", 28), "Linear elementwise": (6, "flop", 6)}
    assert (total.native_value, total.parameters) == printed(model, torch.randn(2, 4)) == (20, 10)


def test_it_runs_in_eval_mode_without_gradients_and_leaves_nothing():
    leaves_nothing(count, (False, False))


def test_a_model_that_raises_is_told_with_its_words_and_left_as_it_was():
    model = Broken().train()
    with pytest.raises(Inconsistent, match="could not run the model: RuntimeError: no such thing"):
        count(model, torch.randn(2, 4))
    assert left_alone(model)
    assert model.odd.training


def test_the_modules_with_products_are_of_torch():
    known = set(OPERATORS["torchinfo"]) - {"Conv1D"}
    assert all(issubclass(getattr(nn, name), nn.Module) for name in known)
