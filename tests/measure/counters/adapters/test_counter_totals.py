"""DeepSpeed, calflops, thop and torchinfo on torchvision's models: the totals that each gave by itself.

Measured once, without any adapter, on Python 3.11.7 with torch 2.15.0 and torchvision 0.29.2 on a CPU: deepspeed 0.19.8
and calflops 0.3.2 in FLOP, thop 0.1.1.post2209072238 and torchinfo 1.8.0 in multiply-adds. Forward, one image (or 16
frames of 112 × 112), 10 classes, random weights.
"""

from __future__ import annotations

import importlib

import pytest
import torch

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
