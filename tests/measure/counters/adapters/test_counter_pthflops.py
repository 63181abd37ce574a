"""pthflops: its number is its linear rule to the last unit, its rows add up; what it cannot trace is a fault."""

from __future__ import annotations

import pytest
import torch
from pthflops import count_ops, ops_fx
from torch import nn

from analysis.operators.registry import PRODUCTS
from analysis.utilization.counter_operators import OPERATORS, kind_of_operator
from measure.counters.adapters import pthflops
from results.errors import Inconsistent, Unavailable
from tests.support.oracles.module_walk import build, statistics
from workloads.catalogue.catalogue import SUITES

SMALL = [("resnet18", 64), ("vgg11", 32), ("mobilenet_v2", 64)]
SUITE = [pytest.param(name, 224, marks=pytest.mark.slow) for name in SUITES["post2021"].models]
MULTIPLIED = {"efficientnet_b0"}
"""Models with products of tensors that no module tells (squeeze and excitation): their rule is held elsewhere."""


def count(model, *inputs, batch_size=1):
    return pthflops.count(model, inputs, workload="w", batch_size=batch_size)


def by_operator(rows):
    return {row.operator: row for row in rows if row.operator and row.scope == "total"}


def rule(found):
    """pthflops in sums over modules: counters.md 2.1."""
    convolutions = found["conv_mac"] + found["conv_bias"]
    products = found["linear_mac"] + found["linear_features"]  # the bias once, not for each sample
    pooling = found["max_window"] + found["average_window"] + found["adaptive_window"]
    return convolutions + products + pooling + 2 * (found["norm"] + found["relu"] + found["residual"])


@pytest.mark.parametrize(("name", "side"), [*SMALL, *(p for p in SUITE if p.values[0] not in MULTIPLIED)])
def test_its_number_is_its_linear_rule_without_remainder(name, side):
    batch = 1 if side == 224 else 2
    model, images = build(name, batch, side)
    found = statistics(model, images)
    total, *rest = count(model, images, batch_size=batch)
    if name == "mobilenet_v2":
        found["adaptive_window"] = 0  # a function there, which it has no rule for
    said, _ = count_ops(model, images, print_readable=False)
    assert total.native_value == rule(found) == said
    rows = by_operator(rest)
    assert rows["Conv2d"].native_value == found["conv_mac"]
    assert rows["Linear"].native_value == found["linear_mac"]
    assert rows["Linear elementwise"].native_value == found["linear_features"]
    assert total.flop == total.native_value + found["conv_mac"] + found["linear_mac"]


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
    modules = {row.scope: row.native_value for row in rest if row.scope != "total" and not row.operator}
    body = {f"body.{index}": value for index, value in enumerate((44_800, 3_200, 3_200, 1_200, 400))}
    assert modules == {"body": sum(body.values()), **body, "linear": 68}  # one that counted nothing has no row
    assert {row.operator: row.native_value for row in rest if row.scope == "linear" and row.operator} == {
        "Linear": 64,
        "Linear elementwise": 4,
    }


def test_calls_without_a_rule_are_counted_one_by_one():
    """What gives no tensor does no arithmetic worth a word."""

    class Calls(nn.Module):
        def forward(self, images):
            return images.relu().relu().unflatten(0, (images.numel(), 1)).tanh()

    total, *rest = count(Calls(), torch.ones(4))
    assert (total.native_value, rest) == (0, [])
    assert total.not_understood == {"Tensor.relu": 2, "Tensor.tanh": 1}
    assert total.ignored == {"Tensor.numel": 1, "Tensor.unflatten": 1}


def test_it_runs_with_gradients_on_and_leaves_torch_and_pthflops_as_they_were():
    seen = []
    model = Small().train()
    model.linear.register_forward_hook(lambda m, *_: seen.append((m.training, torch.is_grad_enabled())))
    original = ops_fx.ProfilingInterpreter
    with torch.no_grad():
        first = count(model, torch.randn(1, 3, 10, 10))
    assert (False, True) in seen
    assert {training for training, _ in seen} == {False}
    assert count(model, torch.randn(1, 3, 10, 10)) == first
    assert ops_fx.ProfilingInterpreter is original


def test_a_node_that_gives_a_tuple_never_becomes_a_count():
    class Sized(nn.Module):
        """Its four sizes are taken for (value, FLOP, parameters): 3 FLOP that no rule counted."""

        def forward(self, images):
            images.size()
            return images + images

    with pytest.raises(Inconsistent, match="it takes a tuple for a count"):
        count(Sized(), torch.randn(2, 3, 4, 4))


@pytest.mark.parametrize("name", [pytest.param("vit_b_32", marks=pytest.mark.slow), "shufflenet_v2_x0_5"])
def test_models_that_its_interpreter_breaks_on_say_so(name):
    model, images = build(name, 1, 32)
    with pytest.raises((AttributeError, TypeError), match="While executing"):
        count(model, images)


def test_two_inputs_are_more_than_it_takes():
    with pytest.raises(Unavailable, match="one input, this one takes 2"):
        count(nn.Bilinear(2, 2, 2), torch.ones(1, 2), torch.ones(1, 2))


def test_nodes_that_do_not_add_up_are_a_fault(monkeypatch):
    monkeypatch.setattr(pthflops, "count_ops", lambda *_, **__: (123, []))
    with pytest.raises(Inconsistent, match="said 123, its rules gave 0"):
        count(Small(), torch.randn(1, 3, 10, 10))


def test_a_call_told_twice_is_a_fault(monkeypatch):
    honest = pthflops.NodeListener._called
    monkeypatch.setattr(pthflops.NodeListener, "_called", lambda *given: (honest(*given), honest(*given)))
    with pytest.raises(Inconsistent, match="its rules gave"):
        count(Small(), torch.randn(1, 3, 10, 10))


def test_its_products_are_known_to_analysis_and_the_rest_is_elementwise():
    products = [nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear]
    assert {kind.__name__ for kind in products} | {"matmul"} == set(OPERATORS["pthflops"])
    assert set(OPERATORS["pthflops"].values()) <= set(PRODUCTS)
    assert kind_of_operator("pthflops", "add", "flop") == "elementwise"
    assert kind_of_operator("pthflops", "Quantum2d") is None
