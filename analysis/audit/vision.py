"""Products of models of pictures: the vision transformer, the diffusion transformer, vision-language models' towers.

A picture asks for no gradient: the product that embeds its patches has one in the backward pass, its weight's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from analysis.audit.network import NetworkSizes
from analysis.audit.parts import DENSE, HEAD, MLP, PROJECTIONS
from analysis.audit.products import (
    CONDITION,
    MERGER,
    PATCHES,
    Products,
    linear,
    scalars,
    scores,
    table,
)

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
    """Of one picture, with what turns its patches into the decoder's tokens."""
    return TOWERS[network.model_type](network)


def qwen2_vl_tower(network: NetworkSizes) -> Products:
    """Qwen2-VL's. Its attention sees the picture; four patches become one token of the decoder."""
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


def clip_tower(network: NetworkSizes) -> Products:
    """LLaVA's: CLIP's, with a class token that the decoder does not see. It sees what goes into the last layer, which
    runs all the same, and whose gradients no loss asks for."""
    embed, depth, wide = network["hidden_size"], network["num_hidden_layers"], network["intermediate_size"]
    hidden, patches = network.decoder.hidden_size, network["patches"]
    pixels, seen = 3 * network["patch_size"] ** 2, patches + 1
    matrices, pairs = 4 * embed * embed + 2 * embed * wide, scores(seen, seen, 2 * embed, 1, part=VISION_SCORES)
    return [
        linear(PATCHES, pixels * embed, patches, gradients=1),
        linear(VISION, matrices, seen, depth - 1),
        linear(VISION, matrices, seen, gradients=0),
        replace(pairs, multiply_adds=pairs.multiply_adds * (depth - 1)),
        replace(pairs, gradients=0),
        linear(MERGER, embed * hidden + hidden * hidden, patches),
        scalars(depth * (9 * embed + wide) + 5 * embed + 2 * hidden),
        table((patches + 1) * embed),
    ]


TOWERS: Mapping[str, Callable[[NetworkSizes], Products]] = {"qwen2_vl": qwen2_vl_tower, "llava": clip_tower}
"""Type → products of its tower."""
