"""The names third-party counters give their operators, and which of them are model FLOP.

Model FLOP is what MLPerf's utilization appendix counts: convolutions and matrix products. A counter's native total
also holds normalisation, pooling and resizing in units of its own; they are left out here by name. An operator that
is not in the table is not understood, and whoever asks is told; it is never taken for one or the other.
"""

from __future__ import annotations

OPERATORS = {
    "fvcore": {
        "conv": "convolution",
        "addmm": "matmul",
        "bmm": "matmul",
        "einsum": "matmul",
        "linear": "matmul",
        "matmul": "matmul",
        "mm": "matmul",
        "batch_norm": "normalization",
        "group_norm": "normalization",
        "instance_norm": "normalization",
        "layer_norm": "normalization",
        "adaptive_avg_pool2d": "pooling",
        "upsample_nearest2d": "elementwise",
        "upsample_bilinear2d": "elementwise",
        "grid_sampler": "elementwise",
    },
}
"""Counter → its operator names → kind. fvcore: `_DEFAULT_SUPPORTED_OPS` of fvcore/nn/flop_count.py."""

MODEL_KINDS = ("convolution", "matmul")

TRAINING_PER_FORWARD = 3
"""Backward is taken for twice the forward pass: each product needs one for its input and one for its weight. An
estimate: the first layer needs no input gradient."""


def kind_of_operator(counter: str, operator: str) -> str | None:
    """The kind of a counter's operator by the counter's own name for it; None if it is not understood."""
    return OPERATORS.get(counter, {}).get(operator)
