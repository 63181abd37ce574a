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
    "ptflops": {
        **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), "convolution"),
        **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), "convolution"),
        **dict.fromkeys(("Linear", "F.linear", "MultiheadAttention"), "matmul"),
        **dict.fromkeys(("torch.matmul", "torch.mm", "torch.bmm", "torch.addmm", "torch.baddbmm"), "matmul"),
        **dict.fromkeys(("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell"), "matmul"),
    },
}
"""Counter → its operator names → kind. fvcore: `_DEFAULT_SUPPORTED_OPS` of fvcore/nn/flop_count.py. ptflops: those of
its mappings (ptflops/pytorch_ops.py) that hold multiply-adds; what else it counts, its adapter gives in unit `flop`."""

ELEMENTS_APART = ("ptflops",)
"""Counters whose adapter gives multiply-adds and counted elements as rows of their own, by unit."""

MODEL_KINDS = ("convolution", "matmul")

TRAINING_PER_FORWARD = 3
"""Backward is taken for twice the forward pass: each product needs one for its input and one for its weight. An
estimate: the first layer needs no input gradient."""


def kind_of_operator(counter: str, operator: str, native_unit: str = "mac") -> str | None:
    """The kind of a counter's operator by the counter's own name for it; None if it is not understood."""
    if native_unit == "flop" and counter in ELEMENTS_APART:
        return "elementwise"
    return OPERATORS.get(counter, {}).get(operator)
