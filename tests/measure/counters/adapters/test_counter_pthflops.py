"""Definition, injected fault: rows of each rule of pthflops by hand; what it cannot trace is a fault."""

import pytest
import torch
from torch import nn

from measure.counters.adapters.traced import pthflops
from results.errors import Inconsistent


def count(model, *inputs, batch_size=1):
    return pthflops(model, inputs, workload="w", batch_size=batch_size)


def by_operator(rows):
    return {row.operator: row for row in rows if row.operator and row.scope == "total"}


class Small(nn.Module):
    """On 2 × 3 × 10 × 10: conv 3→8 with bias 2·8·100 positions × 27 = 43,200 MAC, 1,600 biases; batch norm and ReLU 2
    for each of 1,600; max pooling of 2 × 2: 3 for each of 400; average of 5 × 5: 25 for each of 16; linear 8→4 with
    bias: 2·8·4 = 64 MAC, 4 biases; `a + b`, `a * b`: 2 for each of 8; matmul 2 × 4 by 4 × 5: 40 MAC; sigmoid: no rule.
    """

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(5)
        )
        self.linear = nn.Linear(8, 4)
        self.drop = nn.Dropout()
        self.sigmoid = nn.Sigmoid()
        self.weight = nn.Parameter(torch.ones(4, 5))

    def forward(self, images):
        scores = self.drop(self.linear(self.body(images).flatten(1)))
        return torch.matmul(self.sigmoid(scores + scores) * scores, self.weight).relu()


def test_a_model_of_known_sizes():
    total, *rest = count(Small(), torch.randn(2, 3, 10, 10), batch_size=2)
    expected = {
        "Conv2d": (43_200, "mac", 86_400),
        "Conv2d elementwise": (1_600, "flop", 1_600),
        "BatchNorm2d": (3_200, "flop", 3_200),
        "ReLU": (3_200, "flop", 3_200),
        "MaxPool2d": (1_200, "flop", 1_200),
        "AvgPool2d": (400, "flop", 400),
        "Linear": (64, "mac", 128),
        "Linear elementwise": (4, "flop", 4),
        "add": (16, "flop", 16),
        "mul": (16, "flop", 16),
        "matmul": (40, "mac", 80),
    }
    rows = by_operator(rest)
    assert {name: (row.native_value, row.native_unit, row.flop) for name, row in rows.items()} == expected
    assert (total.native_value, total.native_unit) == (sum(value for value, _, _ in expected.values()), "mac")
    assert total.flop == sum(flop for _, _, flop in expected.values())
    assert total.ignored == {"Tensor.flatten": 1, "Dropout": 1}
    assert total.not_understood == {"Sigmoid": 1, "Tensor.relu": 1}


class Sized(nn.Module):
    """Its four sizes are taken for (value, FLOP, parameters): 3 FLOP that no rule counted."""

    def forward(self, images):
        images.size()
        return images + images


def test_a_node_that_gives_a_tuple_never_becomes_a_count():
    with pytest.raises(Inconsistent, match="it takes a tuple for a count"):
        count(Sized(), torch.randn(2, 3, 4, 4))
