"""Registers the FLOP counters: how each is run and explained, its unit, the kinds of its operators, what to install.

`COUNTERS` maps a counter's name to a `CounterEntry`. Its adapter runs the counter: it takes (model, inputs, *,
workload, batch_size) and returns `FlopCount`s, the total and a row for each operator. The counts are of the forward
pass and, where the counter can, of the backward pass (of the sum of all output tensors). Its attribution explains the
number: it takes (recording, phase) and returns `Counted`, the parts that the counter's rule counts. `kind_of_operator`
takes an operator's name and returns its kind. Kinds separate model FLOP from the normalisation, pooling and resizing in
a counter's total. Model FLOP follows MLPerf's utilization appendix: convolutions and matrix products, also inside
attention and recurrent layers. An operator in no table is reported as not understood.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from analysis.operators.names import KINDS


@dataclass(frozen=True)
class CounterEntry:
    """One counter.

    adapter, attribution: "module:function". unit: the unit of the counter's total, "mac" or "flop". kinds: operator
    name → kind. requires: packages to install, separated by spaces, as in the requirements (a test compares them).
    A counter of this project or torch requires "". calflops imports transformers without declaring it.
    """

    adapter: str
    attribution: str = ""
    unit: str = "flop"
    kinds: Mapping[str, str] = field(default_factory=dict)
    requires: str = ""


_FUSED_ATTENTION = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
_RECURRENT = ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell")
_POOLS = ("avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool")


_WRAPPED = {
    **{f"F.conv{n}d": "convolution" for n in (1, 2, 3)},
    **{f"F.conv_transpose{n}d": "convolution" for n in (1, 2, 3)},
    **dict.fromkeys(("F.linear", "torch.matmul", "Tensor.matmul", "torch.addmm", "Tensor.addmm"), "matmul"),
    **dict.fromkeys(("torch.baddbmm", "torch.einsum", *_RECURRENT), "matmul"),
    **{f"F.{name}": "activation" for name in ("relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu")},
    **{f"F.{name}_norm": "normalization" for name in ("batch", "layer", "instance", "group")},
    **{f"F.{pool}{n}d": "pooling" for pool in _POOLS for n in (1, 2, 3)},
    **dict.fromkeys(("F.upsample", "F.interpolate"), "elementwise"),
    **dict.fromkeys(("torch.mul", "Tensor.mul", "torch.add", "Tensor.add"), "elementwise"),
    "F.softmax": "softmax",
    "F.embedding": "embedding",
}
"""The functions that calflops wraps, and DeepSpeed too."""


COUNTERS: Mapping[str, CounterEntry] = {
    "flopledger": CounterEntry(
        "measure.counters.adapters.dispatched:flopledger",
        "cleaning.accounts.dispatched:flopledger",
        "flop",
        {kind: kind for kind in KINDS},
    ),
    "flop_counter_mode": CounterEntry(
        "measure.counters.adapters.dispatched:flop_counter_mode",
        "cleaning.accounts.dispatched:flop_counter_mode",
        "flop",
        {
            **dict.fromkeys(("aten.convolution", "aten._convolution", "aten.convolution_backward"), "convolution"),
            **dict.fromkeys(("aten.convolution_overrideable", "aten.cudnn_convolution"), "convolution"),
            "aten._slow_conv2d_forward": "convolution",
            **dict.fromkeys(("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm", "aten._scaled_mm"), "matmul"),
            **{f"aten._scaled_dot_product_{name}": "attention" for name in _FUSED_ATTENTION},
            **{f"aten._scaled_dot_product_{name}_backward": "attention" for name in _FUSED_ATTENTION},
            **dict.fromkeys(("aten._flash_attention_forward", "aten._flash_attention_backward"), "attention"),
            **dict.fromkeys((f"torch_attn._varlen_attn{end}" for end in ("", "_out", "_backward")), "attention"),
            **dict.fromkeys(("aten._efficient_attention_forward", "aten._efficient_attention_backward"), "attention"),
            **dict.fromkeys(("flex_attention", "flex_attention_backward"), "attention"),
        },
    ),
    "torch_profiler": CounterEntry(
        "measure.counters.adapters.dispatched:torch_profiler",
        "cleaning.accounts.dispatched:torch_profiler",
        "flop",
        {
            "aten::conv2d": "convolution",
            **dict.fromkeys(("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"), "matmul"),
            **dict.fromkeys(("aten::add", "aten::mul"), "elementwise"),
        },
    ),
    "fvcore": CounterEntry(
        "measure.counters.adapters.traced:fvcore",
        "cleaning.accounts.traced:fvcore",
        "mac",
        {
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
        requires="fvcore>=0.1.5.post20221221,<0.2",
    ),
    "ptflops": CounterEntry(
        "measure.counters.adapters.ptflops:ptflops",
        "cleaning.accounts.ptflops:ptflops",
        "mac",
        {
            **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), "convolution"),
            **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), "convolution"),
            **dict.fromkeys(("Linear", "F.linear", "MultiheadAttention"), "matmul"),
            **dict.fromkeys(("torch.matmul", "torch.mm", "torch.bmm", "torch.addmm", "torch.baddbmm"), "matmul"),
            **dict.fromkeys(_RECURRENT, "matmul"),
        },
        requires="ptflops>=0.7.4,<0.8",
    ),
    "ptflops_aten": CounterEntry(
        "measure.counters.adapters.ptflops:ptflops_aten",
        "cleaning.accounts.dispatched:ptflops_aten",
        "mac",
        {
            **dict.fromkeys(("aten.convolution", "aten._convolution"), "convolution"),
            **dict.fromkeys(("aten.mm", "aten.matmul", "aten.addmm", "aten.bmm"), "matmul"),
        },
        requires="ptflops>=0.7.4,<0.8",
    ),
    "pthflops": CounterEntry(
        "measure.counters.adapters.traced:pthflops",
        "cleaning.accounts.traced:pthflops",
        "mac",
        {
            **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), "convolution"),
            **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), "convolution"),
            **dict.fromkeys(("Linear", "matmul"), "matmul"),
        },
        requires="pthflops>=0.4.2,<0.5",
    ),
    "deepspeed": CounterEntry(
        "measure.counters.adapters.wrapped:deepspeed",
        "cleaning.accounts.wrapped:deepspeed",
        "flop",
        {
            **_WRAPPED,
            **dict.fromkeys(("Tensor.__matmul__", "torch.mm", "Tensor.mm", "torch.bmm", "Tensor.bmm"), "matmul"),
            "einops.einsum": "matmul",
            "F.scaled_dot_product_attention": "attention",
        },
        requires="deepspeed>=0.19,<0.20",
    ),
    "calflops": CounterEntry(
        "measure.counters.adapters.wrapped:calflops",
        "cleaning.accounts.wrapped:calflops",
        "flop",
        _WRAPPED,
        requires="calflops>=0.3.2,<0.4 transformers>=4.44,<6",
    ),
    "thop": CounterEntry(
        "measure.counters.adapters.hooked:thop",
        "cleaning.accounts.hooked:thop",
        "mac",
        {
            **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), "convolution"),
            **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), "convolution"),
            **dict.fromkeys(("Linear", *_RECURRENT), "matmul"),
        },
        requires="thop>=0.1.1.post2209072238,<0.2",
    ),
    "torchinfo": CounterEntry(
        "measure.counters.adapters.hooked:torchinfo",
        "cleaning.accounts.hooked:torchinfo",
        "mac",
        {
            **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), "convolution"),
            **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), "convolution"),
            **dict.fromkeys(("Linear", "Bilinear", "Conv1D", *_RECURRENT), "matmul"),  # Conv1D: of transformers
            **dict.fromkeys(("Embedding", "EmbeddingBag"), "embedding"),
        },
        requires="torchinfo>=1.8,<2",
    ),
}
"""Every list of counters has this order. The names of operators come from these places:

* flopledger: its kinds. flop_counter_mode: torch's `flop_registry`.
* torch_profiler: the names with a formula in `with_flops` (torch/csrc/profiler/util.cpp).
* fvcore: `_DEFAULT_SUPPORTED_OPS` in fvcore/nn/flop_count.py.
* deepspeed, calflops: the functions that they wrap and the recurrent modules that they hook.
* The others: the rules that give multiply-adds (ptflops/pytorch_ops.py, ptflops/aten_ops.py; pthflops: a module's class
  or a function's name; thop, torchinfo: a module's class). Their adapters give all other counts in the unit `flop`.
"""

ELEMENTS = " elementwise"
"""Suffix of the row with an operator's counted elements, where the operator has multiply-adds, too."""


ELEMENTS_APART = ("ptflops", "ptflops_aten", "pthflops", "thop", "torchinfo")
"""Counters whose adapter gives multiply-adds and counted elements as separate rows, by unit."""


FLOP_PER_NATIVE = {"mac": 2, "flop": 1}
"""Native unit of a counter → FLOP. PaLM, MLPerf and Epoch count a multiply-add as two."""


TRAINING_PER_FORWARD = 3
"""Training ÷ forward FLOP: each product needs one more for its input and one for its weight. An estimate: the first
layer needs no input gradient."""


def kind_of_operator(counter: str, operator: str, native_unit: str = "mac") -> str | None:
    """Return the kind of a counter's operator, by the counter's name for it; None if it is in no table."""
    if operator.endswith(ELEMENTS) or (native_unit == "flop" and counter in ELEMENTS_APART):
        return "elementwise"
    return COUNTERS[counter].kinds.get(operator) if counter in COUNTERS else None


def install_line(requirement: str) -> str:
    """Return the command that installs a missing counter, or a sentence that nothing has to be installed."""
    if not requirement:
        return "nothing to install: this project or torch brings it"
    return f"python -m pip install {' '.join(map(shlex.quote, requirement.split()))}"
