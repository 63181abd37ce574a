"""Known answer: the tables of DeepSpeed's tutorial beside ours of the same models, and the cause of each difference.

The printed figures are those of the tutorial's earlier editions (deepspeed.ai/tutorials/flops-profiler, 2020 and 2021),
rounded as there. Their "MACs" are multiply-adds, and with them what is none: the bias of a convolution, an addition an
output; an activation's and a pooling's elements. Ours are multiply-adds alone; the rest is other FLOP.
"""

from collections import Counter
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from analysis.devices.precisions import PRECISIONS
from measure.profile.model_step import ModelStep, traced
from measure.profile.step_profile import module_rows, operation_rows, profile_step
from results.records.answers import StepModule, StepOperation


def tables(model: nn.Module, *inputs: torch.Tensor) -> tuple[tuple[StepOperation, ...], tuple[StepModule, ...]]:
    """The rows of a forward pass, exact and without times: nothing of its size is run."""
    step = ModelStep(model, inputs, {}, None, None, None, "forward", PRECISIONS["fp32"], "cpu")
    trace = traced(step)
    assert trace.notes == ("operations of a step on fake CPU tensors",)
    rows, unknown = operation_rows(trace.operations, (), "fp32", "cpu")
    assert not unknown
    return rows, tuple(module_rows(model, frozenset()))


def macs_of(rows: tuple[StepOperation, ...]) -> Counter[str]:
    """Multiply-adds by the module that does them itself."""
    found: Counter[str] = Counter()
    for row in rows:
        found[row.module] += row.model_flop // 2
    return found


def below(found: Mapping[str, int], path: str) -> int:
    return sum(count for name, count in found.items() if not path or name == path or name.startswith(f"{path}."))


def printed(value: float, unit: float, digits: int = 2) -> float:
    return round(value / unit, digits)


M, G = 1e6, 1e9


class LeNet5(nn.Module):
    """As in DeepSpeed's tutorial: 32 × 32 images of one channel, ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_extractor = nn.Sequential(
            nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(16, 120, 5), nn.Tanh(),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self.classifier(torch.flatten(self.feature_extractor(x), 1)), 1)


LENET = {
    "": 439.56, "feature_extractor": 428.37, "feature_extractor.0": 125.24, "feature_extractor.2": 4.82,
    "feature_extractor.3": 247.4, "feature_extractor.5": 1.64, "feature_extractor.6": 49.27, "classifier": 11.18,
    "classifier.0": 10.32, "classifier.2": 0.86,
}  # fmt: skip
"""MMACs as printed (its last layer as 860.16 KMACs; the total of the first edition, 439.55, has no softmax)."""

N = 1024
LENET_EXTRA = {
    "feature_extractor.0": N * 6 * 28 * 28,  # bias
    "feature_extractor.2": N * 6 * 28 * 28,  # pooling: an addition an input
    "feature_extractor.3": N * 16 * 10 * 10,
    "feature_extractor.5": N * 16 * 10 * 10,
    "feature_extractor.6": N * 120,
    "": N * 10,  # the softmax in the model's own forward
}
"""What the tutorial adds to multiply-adds."""


def test_lenet5():
    """Multiply-adds by hand: outputs × channels in × window. 120.42 instead of 125.24 M in the first convolution."""
    profile = profile_step(LeNet5(), torch.ones(N, 1, 32, 32), mode="forward", steps=1)
    found = macs_of(profile.operations)
    assert found["feature_extractor.0"] == N * 6 * 28 * 28 * (1 * 5 * 5) == 120_422_400
    assert found["feature_extractor.3"] == N * 16 * 10 * 10 * (6 * 5 * 5) == 245_760_000
    assert found["feature_extractor.6"] == N * 120 * 1 * 1 * (16 * 5 * 5) == 49_152_000
    assert (found["classifier.0"], found["classifier.2"]) == (N * 120 * 84, N * 84 * 10)
    assert below(found, "") == 426_516_480
    for path, said in LENET.items():
        assert printed(below(found, path) + below(LENET_EXTRA, path), M) == said
    assert sum(LENET_EXTRA.values()) == 13_043_712  # 439.56 - 426.52 M: biases 6.58, poolings 6.46, softmax 0.01 M
    assert printed(below(found, "") + sum(LENET_EXTRA.values()) - LENET_EXTRA[""], M) == 439.55
    assert profile.parameters == 61_706


ALEXNET = {
    "": 183.18, "features": 168.17, "features.0": 18.04, "features.3": 57.37, "features.6": 28.72,
    "features.8": 38.29, "features.10": 25.53, "classifier": 15.01, "classifier.1": 9.66, "classifier.4": 4.29,
    "classifier.6": 1.05,
}  # fmt: skip
"""GMACs as printed for a batch of 256."""

ALEXNET_SMALL = {
    "features.1": 49.56, "features.2": 49.56, "features.4": 35.83, "features.5": 35.83, "features.7": 16.61,
    "features.9": 11.08, "features.11": 11.08, "features.12": 11.08, "avgpool": 2.36, "classifier.2": 1.05,
    "classifier.5": 1.05,
}  # fmt: skip
"""MMACs as printed of modules that multiply nothing: activations (an output each) and poolings (an input each)."""

B = 256
ALEXNET_CONVOLUTIONS = {
    "features.0": (64, 55, 3 * 11 * 11),
    "features.3": (192, 27, 64 * 5 * 5),
    "features.6": (384, 13, 192 * 3 * 3),
    "features.8": (256, 13, 384 * 3 * 3),
    "features.10": (256, 13, 256 * 3 * 3),
}
"""Channels out, height and width out, multiply-adds an output."""

ALEXNET_EXTRA = {
    **{path: B * channels * size**2 for path, (channels, size, _) in ALEXNET_CONVOLUTIONS.items()},  # biases
    "features.1": B * 64 * 55**2, "features.2": B * 64 * 55**2, "features.4": B * 192 * 27**2,
    "features.5": B * 192 * 27**2, "features.7": B * 384 * 13**2, "features.9": B * 256 * 13**2,
    "features.11": B * 256 * 13**2, "features.12": B * 256 * 13**2, "avgpool": B * 256 * 6 * 6,
    "classifier.2": B * 4096, "classifier.5": B * 4096,
}  # fmt: skip


def test_alexnet():
    from torchvision.models import alexnet

    with torch.device("meta"):
        model = alexnet()
    rows, modules = tables(model, torch.empty(B, 3, 224, 224, device="meta"))
    found = macs_of(rows)
    for path, (channels, size, window) in ALEXNET_CONVOLUTIONS.items():
        assert found[path] == B * channels * size**2 * window
    assert [found[f"classifier.{place}"] for place in (1, 4, 6)] == [B * 9216 * 4096, B * 4096**2, B * 4096 * 1000]
    for path, said in ALEXNET.items():
        assert printed(below(found, path) + below(ALEXNET_EXTRA, path), G) == said
    for path, said in ALEXNET_SMALL.items():
        assert found[path] == 0
        assert printed(ALEXNET_EXTRA[path], M) == said
    assert printed(below(found, ""), G) == 182.83  # the tutorial's 183.18 G less 0.35 G that are no multiply-adds
    assert printed(sum(ALEXNET_EXTRA.values()), G) == 0.35
    assert sum(module.own_parameters for module in modules) == 61_100_840
    parameters = {module.module: module.parameters for module in modules}
    assert (parameters["features"], parameters["classifier"]) == (2_469_696, 58_631_144)


HIDDEN, HEADS, TOKENS, SEQUENCES, WORDS = 512, 16, 1024, 8, 50304


class MegatronLayer(nn.Module):
    """Attention in scores, softmax and context, as Megatron had it then, and a block of two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.query_key_value, self.dense = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, _ = x.shape
        parts = self.query_key_value(self.input_layernorm(x)).view(count, length, HEADS, -1).transpose(1, 2)
        query, key, value = parts.chunk(3, -1)
        scores = torch.softmax(query @ key.transpose(2, 3), -1)
        context = (scores @ value).transpose(1, 2).reshape(count, length, HIDDEN)
        x = x + self.dense(context)
        return x + self.mlp(self.post_attention_layernorm(x))


class Megatron(nn.Module):
    """Four layers of GPT-2; the logits are a product with the embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, HIDDEN), nn.Embedding(TOKENS, HIDDEN)
        self.layers = nn.Sequential(*(MegatronLayer() for _ in range(4)))
        self.final_layernorm = nn.LayerNorm(HIDDEN)

    def forward(self, words: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.final_layernorm(self.layers(self.words(words) + self.positions(positions)))
        return F.linear(x, self.words.weight)


def test_four_layers_of_megatron_gpt2():
    """hidden 512, 16 heads, batch 8, 1024 tokens: 38,890,496 parameters, and 314.61 GMACs in the tutorial.

    It has the logits and the linear layers as we do, and a softmax's elements on top; the two products of attention,
    scores and context, are not in it (they were called by names that were not replaced then).
    """
    with torch.device("meta"):
        model = Megatron()
        words = torch.empty(SEQUENCES, TOKENS, dtype=torch.long)
        positions = torch.empty(TOKENS, dtype=torch.long)
    rows, modules = tables(model, words, positions)
    found = macs_of(rows)
    assert modules[0].parameters == 38_890_496  # the tutorial's, to the last one
    rows_ = SEQUENCES * TOKENS
    logits = rows_ * HIDDEN * WORDS
    linear = {
        "query_key_value": rows_ * HIDDEN * 3 * HIDDEN,  # 6.44 G
        "dense": rows_ * HIDDEN * HIDDEN,  # 2.15 G
        "mlp": 2 * rows_ * HIDDEN * 4 * HIDDEN,  # 17.18 G
    }
    attention = 2 * SEQUENCES * TOKENS * TOKENS * HIDDEN
    for name, count in linear.items():
        assert below(found, f"layers.0.{name}") == count
    assert [printed(count, G) for count in linear.values()] == [6.44, 2.15, 17.18]
    assert found["layers.0"] == attention  # of the layer itself
    assert below(found, "layers.0") == sum(linear.values()) + attention
    assert found[""] == logits
    softmax = SEQUENCES * HEADS * TOKENS * TOKENS
    assert printed(softmax, M) == 134.22
    layer_there = sum(linear.values()) + softmax
    assert printed(layer_there, G) == 25.90
    assert printed(4 * layer_there, G) == 103.62
    assert printed(4 * layer_there + logits, G) == 314.61
    assert below(found, "") == 4 * (layer_there - softmax + attention) + logits
    assert printed(below(found, ""), G) == 348.43
