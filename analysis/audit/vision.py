"""Products of models of pictures: the vision transformer, the diffusion transformer, a vision-language model's tower.

A picture asks for no gradient: the product that embeds its patches has one in the backward pass, its weight's.
"""

from __future__ import annotations

from analysis.audit.network import NetworkSizes
from analysis.audit.parts import DENSE, HEAD, MLP, PROJECTIONS
from analysis.audit.products import CONDITION, MERGER, PATCHES, Products, linear, scalars, scores, table

VISION, VISION_SCORES = "vision", "vision_attention"
"""Parts of a tower: its matrices, and its attention."""


def vit(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """A class token before the patches; the head sees it alone. attention: no mask is causal. tokens: not read."""
    hidden, layers, wide = network["hidden_size"], network["num_hidden_layers"], network["intermediate_size"]
    labels, positions = network["num_labels"], network["positions"]
    pixels = network["num_channels"] * network["patch_size"] ** 2
    biases = layers * (9 * hidden + wide) + hidden * (positions + 1) + 3 * hidden + labels
    return [
        linear(PATCHES, pixels * hidden, positions - 1, gradients=1),
        linear(PROJECTIONS, 4 * hidden * hidden, positions, layers),
        linear(MLP, 2 * hidden * wide, positions, layers),
        scores(positions, positions, 2 * hidden, layers),
        linear(HEAD, hidden * labels, 1),
        scalars(biases),
    ]


def dit(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """Peebles and Xie, arXiv:2212.09748: each layer is modulated by the time step and the class, once for a picture."""
    hidden, layers, positions = network["hidden_size"], network["depth"], network["positions"]
    patch = network["patch_size"] ** 2 * network["in_channels"]
    return [
        linear(PATCHES, patch * hidden, positions, gradients=1),
        linear(CONDITION, network["frequency_size"] * hidden, 1, gradients=1),
        linear(CONDITION, hidden * hidden, 1),
        linear(CONDITION, 6 * hidden * hidden, 1, layers),
        linear(CONDITION, 2 * hidden * hidden, 1),
        linear(PROJECTIONS, 4 * hidden * hidden, positions, layers),
        linear(MLP, 2 * hidden * network["mlp_ratio"] * hidden, positions, layers),
        scores(positions, positions, 2 * hidden, layers),
        linear(HEAD, hidden * 2 * patch, positions),
        scalars(hidden * (3 + 2 + layers * (11 + network["mlp_ratio"])) + 2 * patch),
        table((network["num_classes"] + 1) * hidden),
    ]


def tower(network: NetworkSizes) -> Products:
    """Qwen2-VL's, of one picture. Its attention sees the picture; four patches become one token of the decoder."""
    embed, depth, picture = network["embed_dim"], network["depth"], network["patches"]
    hidden = network.decoder.hidden_size
    merge = network["spatial_merge_size"] ** 2
    joint, wide = merge * embed, network["mlp_ratio"] * embed
    pixels = network["in_channels"] * network["temporal_patch_size"] * network["patch_size"] ** 2
    return [
        linear(PATCHES, pixels * embed, picture, gradients=1),
        linear(VISION, 4 * embed * embed + 2 * embed * wide, picture, depth),
        scores(picture, picture, 2 * embed, depth, part=VISION_SCORES),
        linear(MERGER, joint * (joint + hidden), picture // merge),
        scalars(depth * (9 * embed + wide) + 2 * embed + joint + hidden),
    ]
