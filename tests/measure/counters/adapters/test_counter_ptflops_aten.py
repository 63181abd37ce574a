"""ptflops' aten backend: its number is its linear rule to the last unit, its rows add up, nothing stays behind."""

from __future__ import annotations

import io

import pytest
import torch
import torch.nn.functional as F
from ptflops import get_model_complexity_info
from ptflops.aten_ops import ATEN_OPS_MAPPING
from torch import nn

from analysis.operators.registry import PRODUCTS
from analysis.utilization.counter_operators import OPERATORS, kind_of_operator
from measure.counters.adapters import ptflops_aten
from results.errors import Inconsistent
from tests.support.oracles.module_walk import build, statistics
from workloads.catalogue.catalogue import SUITES

aten = torch.ops.aten

SMALL = [("resnet18", 64), ("vgg11", 32), ("mobilenet_v2", 64)]
SUITE = [pytest.param(name, 224, marks=pytest.mark.slow) for name in SUITES["post2021"].models]


def count(model, *inputs, batch_size=1):
    return ptflops_aten.count(model, inputs, workload="w", batch_size=batch_size)


def by_operator(rows):
    return {row.operator: row for row in rows if row.operator and row.scope == "total"}


def printed(model, images):
    """What a user of ptflops sees."""
    number, _ = get_model_complexity_info(
        model,
        (1,),
        print_per_layer_stat=False,
        as_strings=False,
        input_constructor=lambda _: images,
        ost=io.StringIO(),
        backend="aten",
    )
    return number


def rule(found):
    """ptflops' aten backend, in sums over modules: counters.md 2.1."""
    return found["conv_mac"] + found["conv_bias"] + found["linear_mac"] + found["linear_bias"]


@pytest.mark.parametrize(("name", "side"), [*SMALL, *SUITE])
def test_its_number_is_its_linear_rule_without_remainder(name, side):
    batch = 1 if side == 224 else 2
    model, images = build(name, batch, side)
    found = statistics(model, images)
    total, *rest = count(model, images, batch_size=batch)
    assert total.native_value == rule(found) == printed(model, images)
    assert total.flop == 2 * (found["conv_mac"] + found["linear_mac"]) + found["conv_bias"] + found["linear_bias"]
    rows = by_operator(rest)
    assert rows["aten.convolution"].native_value == found["conv_mac"]
    assert rows["aten.addmm"].native_value == found["linear_mac"]
    assert rows["aten.addmm elementwise"].native_value == found["linear_bias"]
    biases = rows.get("aten.convolution elementwise")
    assert (biases.native_value if biases else 0) == found["conv_bias"]


class Small(nn.Module):
    """On 2 × 3 × 10 × 10: conv 3→8 with bias 2·8·100 positions × 27 = 43,200 MAC and 1,600 biases; transposed conv
    8→4, 2 × 2, stride 2: 2·8·100 inputs × 4·4 = 25,600 MAC and 2·4·400 = 3,200 biases; linear 4→6: 2·4·6 = 48 MAC;
    mm 2 × 6 by 6 × 5: 60; bmm of 2 × (1 × 5) by (5 × 3): 30; baddbmm: no rule."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, stride=2))
        self.head = nn.Linear(4, 6, bias=False)
        self.seen = []

    def forward(self, images):
        self.seen.append((self.training, torch.is_grad_enabled()))
        scores = self.head(self.body(images).mean((2, 3))) @ torch.ones(6, 5)
        batches = len(images)
        product = torch.bmm(scores.unsqueeze(1), torch.ones(batches, 5, 3))
        return torch.baddbmm(torch.ones(batches, 1, 3), product, torch.ones(batches, 3, 3))


def test_a_model_of_known_sizes():
    total, *rest = count(Small(), torch.randn(2, 3, 10, 10), batch_size=2)
    assert {
        row.operator: (row.native_value, row.native_unit, row.flop)
        for row in rest
        if row.operator and row.scope == "total"
    } == {
        "aten.convolution": (43_200 + 25_600, "mac", 137_600),
        "aten.convolution elementwise": (1_600 + 3_200, "flop", 4_800),
        "aten.mm": (48 + 60, "mac", 216),
        "aten.bmm": (30, "mac", 60),
    }
    assert (total.native_value, total.native_unit) == (68_800 + 4_800 + 108 + 30, "mac")
    assert total.flop == 137_600 + 4_800 + 216 + 60
    assert (total.not_understood["aten.relu"], total.not_understood["aten.baddbmm"]) == (1, 1)
    assert {"aten.t", "aten.unsqueeze"} <= set(total.ignored)
    assert not set(total.ignored) & set(total.not_understood)
    modules = {row.scope: (row.native_value, row.flop) for row in rest if row.scope != "total" and not row.operator}
    assert modules == {
        "body": (68_800 + 4_800, 142_400),
        "body.0": (43_200 + 1_600, 88_000),
        "body.2": (25_600 + 3_200, 54_400),
        "head": (48, 96),
    }
    assert {(row.counter, row.workload, row.batch_size, row.phase) for row in (total, *rest)} == {
        ("ptflops_aten", "w", 2, "forward")
    }


def test_calls_without_a_rule_are_counted_one_by_one():
    total, *rest = count(nn.Sequential(nn.ReLU(), nn.Flatten(), nn.ReLU()), torch.randn(1, 2, 3, requires_grad=True))
    assert (total.native_value, total.not_understood, rest) == (0, {"aten.relu": 2}, [])
    assert total.ignored["aten.view"] == 1


def test_fused_attention_is_listed_as_not_understood():
    class Attention(nn.Module):
        def forward(self, tokens):
            return F.scaled_dot_product_attention(tokens, tokens, tokens)

    total, *rest = count(Attention(), torch.randn(2, 3, 5, 4), batch_size=2)
    assert (total.native_value, by_operator(rest)) == (0, {})
    assert any("scaled_dot_product" in name for name in total.not_understood)


def test_a_model_that_it_cannot_run_is_a_fault_with_its_words():
    class Broken(nn.Module):
        def forward(self, images):
            raise RuntimeError("no such thing")

    with pytest.raises(Inconsistent, match="no such thing"):
        count(Broken(), torch.randn(1, 3))


def test_rules_that_do_not_add_up_to_the_print_are_a_fault(monkeypatch):
    monkeypatch.setattr(ptflops_aten, "ask", lambda *_, **__: (123, 0))
    with pytest.raises(Inconsistent, match="printed 123, its rules gave 0"):
        count(Small(), torch.randn(1, 3, 10, 10))


def test_its_operators_are_all_known_to_analysis():
    assert {str(operator) for operator in ATEN_OPS_MAPPING} == set(OPERATORS["ptflops_aten"])
    assert set(OPERATORS["ptflops_aten"].values()) <= set(PRODUCTS)
    assert kind_of_operator("ptflops_aten", "aten.addmm elementwise", "flop") == "elementwise"
