"""Products of encoder-decoders (T5, BART): an encoder of the source, a decoder of a target that attends to it.

The target has a quarter of the source's tokens. Keys and values of the attention to the source are computed for the
source's positions, its queries for the target's.
"""

from __future__ import annotations

from analysis.audit.network import NetworkSizes
from analysis.audit.parts import DENSE, HEAD, MLP, PROJECTIONS
from analysis.audit.products import Products, linear, scalars, scores, table, with_table

SOURCE_PER_TARGET = 4


def target(tokens: int) -> int:
    """Tokens of the target, for so many of the source."""
    return max(1, tokens // SOURCE_PER_TARGET)


def t5(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """transformers ties the head to the table in all of T5's versions. Positions are biases of the scores."""
    hidden, layers, heads = network["d_model"], network["num_layers"], network["num_heads"]
    inner, words = heads * network["d_kv"], network["vocab_size"] * hidden
    matrices = 3 if "gated" in network.words["feed_forward_proj"] else 2
    mlp = matrices * hidden * network["d_ff"]
    return [
        *_stacks(tokens, (layers, layers), hidden * inner, mlp, 2 * inner, attention),
        with_table(linear(HEAD, words, target(tokens))),
        scalars(hidden * (5 * layers + 2)),
        table(words + 2 * network["relative_attention_num_buckets"] * heads),
    ]


def bart(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """With biases, normalisations of a weight and a bias, and two tables of positions that have two rows to spare."""
    hidden, wide = network["d_model"], network["encoder_ffn_dim"]
    before, after = network["encoder_layers"], network["decoder_layers"]
    words = network["vocab_size"] * hidden
    biases = before * (9 * hidden + wide) + after * (15 * hidden + wide) + 4 * hidden
    return [
        *_stacks(tokens, (before, after), hidden * hidden, 2 * hidden * wide, 2 * hidden, attention),
        with_table(linear(HEAD, words, target(tokens))),
        scalars(biases),
        table(words + 2 * (network["positions"] + 2) * hidden),
    ]


def _stacks(tokens: int, layers: tuple[int, int], square: int, mlp: int, width: int, attention: str) -> Products:
    """Encoder and decoder. layers: of each; square: weights of one of the four projections of an attention."""
    before, after = layers
    short = target(tokens)
    return [
        linear(PROJECTIONS, 4 * square, tokens, before),
        linear(MLP, mlp, tokens, before),
        scores(tokens, tokens, width, before),
        linear(PROJECTIONS, 6 * square, short, after),
        linear(PROJECTIONS, 2 * square, tokens, after),
        linear(MLP, mlp, short, after),
        scores(short, short, width, after, attention),
        scores(short, tokens, width, after),
    ]
