"""Definition: rows of each rule of ptflops' aten backend on a model of known sizes."""

import torch
from torch import nn

from measure.counters.adapters.ptflops import ptflops_aten
from tests.support.nets.small_steps import Calls


def count(model, *inputs, batch_size=1):
    return ptflops_aten(model, inputs, workload="w", batch_size=batch_size)


def test_a_model_of_known_sizes():
    """On 2 × 3 × 10 × 10: conv 3→8 with bias 2·8·100 positions × 27 = 43,200 MAC and 1,600 biases; transposed conv
    8→4, 2 × 2, stride 2: 2·8·100 inputs × 4·4 = 25,600 MAC and 2·4·400 = 3,200 biases; linear 4→6: 2·4·6 = 48 MAC,
    12 biases; mm 2 × 6 by 6 × 5: 60; bmm of 2 × (1 × 5) by (5 × 3): 30; baddbmm: no rule."""

    def forward(m, images):
        scores = m.head(m.body(images).mean((2, 3))) @ torch.ones(6, 5)
        batches = len(images)
        product = torch.bmm(scores.unsqueeze(1), torch.ones(batches, 5, 3))
        return torch.baddbmm(torch.ones(batches, 1, 3), product, torch.ones(batches, 3, 3))

    body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, stride=2))
    total, *rest = count(Calls(forward, body=body, head=nn.Linear(4, 6)), torch.randn(2, 3, 10, 10), batch_size=2)
    assert {
        row.operator: (row.native_value, row.native_unit, row.flop)
        for row in rest
        if row.operator and row.scope == "total"
    } == {
        "aten.convolution": (43_200 + 25_600, "mac", 137_600),
        "aten.convolution elementwise": (1_600 + 3_200, "flop", 4_800),
        "aten.addmm": (48, "mac", 96),
        "aten.addmm elementwise": (12, "flop", 12),
        "aten.mm": (60, "mac", 120),
        "aten.bmm": (30, "mac", 60),
    }
    assert (total.native_value, total.native_unit) == (68_800 + 4_800 + 48 + 12 + 60 + 30, "mac")
    assert total.flop == 137_600 + 4_800 + 96 + 12 + 120 + 60
    assert (total.not_understood["aten.relu"], total.not_understood["aten.baddbmm"]) == (1, 1)
    assert {"aten.t", "aten.unsqueeze"} <= set(total.ignored)
    assert not set(total.ignored) & set(total.not_understood)
    assert {(row.counter, row.workload, row.batch_size, row.phase) for row in (total, *rest)} == {
        ("ptflops_aten", "w", 2, "forward")
    }
