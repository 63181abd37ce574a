"""DeepSpeed, calflops, thop and torchinfo on torchvision's models: the totals that each gave by itself.

Measured once, without any adapter, on Python 3.11.7 with torch 2.15.0 and torchvision 0.29.2 on a CPU: deepspeed 0.19.8
and calflops 0.3.2 in FLOP, thop 0.1.1.post2209072238 and torchinfo 1.8.0 in multiply-adds. Forward, one image (or 16
frames of 112 × 112), 10 classes, random weights.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
import torch
from deepspeed.profiling.flops_profiler import profiler

from measure.counters.adapters import calflops, deepspeed, thop, torchinfo
from results.errors import Inconsistent
from tests.support.nets.counted_nets import Pair, counting, shared
from tests.support.nets.zero_models import zeroed

COUNTERS = ("deepspeed", "calflops", "thop", "torchinfo")

MEASURED = {
    "resnet18": (3_635_236_352, 3_635_236_352, 1_823_526_912, 1_813_576_074),
    "alexnet": (1_421_631_104, 1_421_631_104, 710_151_872, 710_626_634),
    "mobilenet_v2": (612_433_088, 612_433_088, 326_219_520, 299_541_194),
    "squeezenet1_0": (1_477_143_598, 1_477_143_598, 733_263_556, 737_440_794),
    "shufflenet_v2_x1_0": (293_477_952, 293_477_952, 151_695_032, 143_910_422),
    "densenet121": (5_714_853_632, 5_714_853_632, 2_895_993_344, 2_833_231_562),
    "vit_b_16": (35_152_460_544, 33_721_805_568, 11_285_494_272, 172_471_306),
    "swin_t": (9_006_488_976, 9_006_488_976, 2_977_339_392, 33_606_922),
    "convnext_tiny": (8_935_737_600, 8_935_737_600, 4_463_389_440, 321_610_282),
    "r3d_18": (81_455_678_464, 81_455_678_464, 1_591_437_824, 40_696_363_402),
}
FAST = ("squeezenet1_0", "shufflenet_v2_x1_0")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in MEASURED]
)
@pytest.mark.parametrize("counter", COUNTERS)
def test_a_models_total_is_what_the_counter_gave_alone(name, counter):
    model = zeroed(name)
    batch = torch.zeros((1, 3, 16, 112, 112) if name == "r3d_18" else (1, 3, 224, 224))
    adapter = importlib.import_module(f"measure.counters.adapters.{counter}")
    (total, *rows) = adapter.count(model, (batch,), workload=name, batch_size=1)
    assert total.native_value == MEASURED[name][COUNTERS.index(counter)]
    operators = [row for row in rows if row.operator and (row.phase, row.scope) == ("forward", "total")]
    assert sum(row.native_value for row in operators) == total.native_value
    assert total.parameters <= sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("adapter", "per_product"), [(calflops, 4), (deepspeed, 4), (thop, 2), (torchinfo, 2)]
)  # two layers of 60 multiply-adds
def test_several_inputs(adapter, per_product):
    (total, *_) = counting(adapter)(Pair(), torch.randn(5, 4), torch.randn(5, 4), batch_size=5)
    assert total.native_value == per_product * 60


WRONG_TOTALS = [
    (
        calflops, calflops, "calculate_flops", (123.0, 0.0, 0),
        r"gave 123\.0 FLOP and 0\.0 MAC, its rules 3 × 0 and 3 × 0",
    ),
    (deepspeed, profiler, "get_module_flops", 123, "gave 123 FLOP and 32 MAC, its rules 64 and 32"),
    (thop, thop, "profile", (123.0, 0.0), r"gave 123\.0, its rules 0"),
    (
        torchinfo, torchinfo, "_ask", SimpleNamespace(summary_list=[], total_mult_adds=123, total_params=0),
        "gave 123, its leaves 0",
    ),
]  # fmt: skip
"""Adapter, where its counter gives a total, what it gives instead, and the words of the fault."""


@pytest.mark.parametrize(("adapter", "owner", "name", "wrong", "words"), WRONG_TOTALS)
def test_rules_that_do_not_add_up_to_the_counters_number_are_a_fault(monkeypatch, adapter, owner, name, wrong, words):
    monkeypatch.setattr(owner, name, lambda *_, **__: wrong)
    with pytest.raises(Inconsistent, match=words):
        counting(adapter)(shared(), torch.randn(1, 4))
