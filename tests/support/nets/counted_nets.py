"""Small networks whose sizes are told beside them, for the counters that go by modules and functions."""

from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

IMAGES = (2, 3, 10, 10)
PARAMETERS = 224 + 72 + 16 + 132 + 30
"""Of the parts of `Small` that are called; `unused` has 20 more, `depthwise`, 72, is frozen."""


class Small(nn.Module):
    """Every rule once. On 2 × 3 × 10 × 10:

    conv 3→8, 3 × 3, padding 1, bias   2·8·100 positions × 27 = 43,200 MAC, 1,600 biases
    depthwise 8→8, 3 × 3, stride 2, padding 1, no bias   2·8·25 × 9 = 3,600 MAC
    batch norm and ReLU on 2·8·25 = 400 elements; max pooling of those to 2·8·2·2 = 64
    transposed 8→4, 2 × 2, stride 2, bias   2·4 inputs × 8·4·4 = 1,024 MAC, 2·4·16 = 128 biases
    adaptive pooling of 128 to 8; sigmoid of 8; linear 4→6, bias   2·4·6 = 48 MAC, 12 biases; F.relu of 12
    """

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8, bias=False).requires_grad_(False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.transposed = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout()
        self.sigmoid = nn.Sigmoid()
        self.head = nn.Sequential(nn.Linear(4, 6))
        self.unused = nn.Linear(4, 4)
        self.seen = deque()  # which nobody puts back

    def forward(self, images):
        self.seen.append((self.training, torch.is_grad_enabled()))
        features = self.pool(self.relu(self.norm(self.depthwise(self.conv(images)))))
        pooled = self.average(self.transposed(features)).flatten(1)
        return F.relu(self.head(self.sigmoid(self.drop(pooled))))


class Recurrent(nn.Module):
    """LSTM 8→16, 2 layers, both directions, on 2 × 5 × 8: weights 4·16·(8 + 16) + 4·16·(32 + 16) = 4,608 a direction,
    in 10 steps: 2 · 4,608 · 10 = 92,160 MAC. 16 cells, 64 gates and 128 biases a layer and direction."""

    MAC = 92_160

    def __init__(self):
        super().__init__()
        self.inner = nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, sequence):
        return self.inner(sequence)[0]


class Attention(nn.Module):
    """Self-attention of 2 × 5 tokens of 12 in 3 heads: projections 4·5·12² = 2,880, scores and sum 2·5·5·12 = 600 MAC
    a sample."""

    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, tokens):
        return self.inner(tokens, tokens, tokens, need_weights=False)[0]


class Pair(nn.Module):
    """Two inputs of 5 × 4, linear 4→3 without bias on each: 2 · 60 MAC. A nested dictionary as output."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3, bias=False)

    def forward(self, left, right):
        return {"out": self.linear(left), "more": [self.linear(right)]}


class Broken(nn.Module):
    """Raises when half of it has run."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.odd = nn.Tanh()

    def forward(self, inputs):
        self.odd(self.first(inputs))
        raise RuntimeError("no such thing")


def shared():
    """One layer of 16 weights in two parents: 16 MAC a call and sample, two calls."""
    layer = nn.Linear(4, 4, bias=False)
    return nn.Sequential(nn.Sequential(layer), nn.Sequential(layer))


def by_operator(rows, phase="forward"):
    """Operator → (native value, unit, FLOP) of the whole model."""
    return {
        row.operator: (row.native_value, row.native_unit, row.flop)
        for row in rows
        if row.operator and (row.phase, row.scope) == (phase, "total")
    }


def counting(adapter):
    """An adapter's count, with what no test varies."""

    def count(model, *inputs, batch_size=1):
        return adapter(model, inputs, workload="w", batch_size=batch_size)

    return count
