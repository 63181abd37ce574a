"""DeepSpeed's flops profiler by its patches: functions of torch and of torch.nn.functional at 2 FLOP a multiply-add,
biases of convolutions but not of linear layers, elements of norms, activations and pools; recurrent modules by a hook
(deepspeed/profiling/flops_profiler/profiler.py of 0.19). Forward only."""

from collections.abc import Iterator
from math import prod

from cleaning.accounts.vocabulary import module_hooks, patched_functions
from cleaning.accounts.vocabulary.items import FUSED_NOT_SEEN, Counted, Item, bound, missed_by, other, product
from cleaning.accounts.vocabulary.module_hooks import nn
from results.records.counts import Call, CallRecording, ModuleInfo

UNIT = "flop"


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass."""
    found = [item for _, item in patched_functions.calls(recording, FUNCTIONS)]
    found += [item for _, item in module_hooks.items(recording, MODULES)]
    return found, missed_by(FUSED_NOT_SEEN, "operator_without_rule")


def _transposed(call: Call) -> Iterator[Item]:
    given = bound(call, "input weight bias stride padding output_padding groups dilation")
    weight, sizes = given["weight"].shape, given["input"].shape
    yield product(call, 2 * prod(weight) * sizes[0] * prod(sizes[2:]), kind="convolution")
    if given.get("bias") is not None and call.output is not None:
        yield other(call, "bias_counted", call.output.numel, "convolution")


def resized(call: Call) -> int:
    """With a size, its own product alone; with a factor, the elements of the output."""
    given = bound(call, "input size scale_factor")
    size, factor = given.get("size"), given.get("scale_factor")
    if size is not None:
        return prod(size) if isinstance(size, tuple) else int(size)
    dims = len(given["input"].shape) - 2
    times = prod(factor) if isinstance(factor, tuple) else (factor or 1) ** dims
    return int(given["input"].numel * times)


def _resizing(call: Call) -> Iterator[Item]:
    yield other(call, "resizing_counted", resized(call), "pooling")


def recurrent_module(module: ModuleInfo, call: Call) -> Iterator[Item]:
    """Weights at 2 FLOP, less one a gate for each matrix; both directions as twice the forward one."""
    layers = module_hooks.read(module, call)
    times = layers.rows * layers.directions
    yield product(call, 2 * times * sum(map(sum, layers.weights)), "recurrent_steps", "recurrent")
    scalars = patched_functions.gates(layers)
    less = 2 * layers.gates * layers.hidden * len(layers.widths)
    yield other(call, "gates_counted", times * (scalars - less), "recurrent")


NORMS: dict[str, patched_functions.Rule] = {
    "F.batch_norm": patched_functions.batch_norm,
    "F.layer_norm": patched_functions.norm("input normalized_shape weight"),
    "F.group_norm": patched_functions.norm("input num_groups weight"),
    "F.instance_norm": patched_functions.norm("input running_mean running_var weight"),
}

SHARED: dict[str, patched_functions.Rule] = {
    "F.linear": patched_functions.linear,
    **dict.fromkeys(patched_functions.CONVOLUTIONS, patched_functions.convolution),
    **dict.fromkeys(patched_functions.ACTIVATIONS, patched_functions.of_input("activation_counted", "activation")),
    **NORMS,
    **dict.fromkeys(patched_functions.POOLINGS, patched_functions.of_input("pooling_counted", "pooling")),
    "F.softmax": patched_functions.of_input("softmax_counted", "softmax"),
    **dict.fromkeys(("torch.matmul", "Tensor.matmul"), patched_functions.matmul),
    **dict.fromkeys(("torch.addmm", "Tensor.addmm", "torch.baddbmm"), patched_functions.addmm),
    "torch.einsum": patched_functions.einsum,
}
"""What calflops has, too."""

FUNCTIONS: dict[str, patched_functions.Rule] = {
    **SHARED,
    **dict.fromkeys(patched_functions.TRANSPOSED, _transposed),
    **dict.fromkeys(("F.upsample", "F.interpolate"), _resizing),
    **dict.fromkeys(
        ("Tensor.__matmul__", "torch.mm", "Tensor.mm", "torch.bmm", "Tensor.bmm"), patched_functions.matmul
    ),
    "F.scaled_dot_product_attention": patched_functions.attention,
    "einops.einsum": patched_functions.einops_einsum,
    **dict.fromkeys(patched_functions.ADDITIONS, patched_functions.elementwise("addition_counted", left_aligned=False)),
    **dict.fromkeys(
        patched_functions.MULTIPLICATIONS, patched_functions.elementwise("multiplication_counted", left_aligned=False)
    ),
}

MODULES: dict[str, module_hooks.Rule] = dict.fromkeys(
    nn("rnn", "RNN GRU LSTM RNNCell GRUCell LSTMCell"), recurrent_module
)
