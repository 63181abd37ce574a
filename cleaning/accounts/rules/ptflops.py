"""ptflops' default backend by its hooks and patches: modules of these very classes at 1 a multiply-add with bias,
divided by the batch; functions at 1 an element, not divided.

From ptflops/pytorch_ops.py and pytorch_engine.py of 0.7.4 and 0.7.5. A module whose forward calls a patched function is
counted twice. Forward only.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import prod

from cleaning.accounts.vocabulary import module_hooks, patched_functions
from cleaning.accounts.vocabulary.items import Counted, Item, bound, in_and_out, other, product
from cleaning.accounts.vocabulary.module_hooks import nn
from results.records.counts import MODULE, Call, CallRecording, ModuleInfo, tensors

UNIT = "mac"

TWICE = ("activation_counted", "pooling_counted", "resizing_counted")
"""Causes of functions that a module or function with a rule of its own may call."""


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass, as its print adds them up."""
    seen = module_hooks.visits(recording, RULES)
    modules = list(module_hooks.multiplied(module_hooks.items(recording, RULES), seen))
    functions = [_function(recording, call, item) for call, item in patched_functions.calls(recording, FUNCTIONS)]
    items = [*modules, *functions, *_divided(modules, recording.batch if len(recording.calls[0].arguments) == 1 else 1)]
    printed = sum((item.native for item in items), Fraction(0))
    if printed.denominator != 1:
        items.append(Item(int(printed) - printed, "rounded"))
    return items, module_hooks.missed(recording, RULES)


def _divided(modules: list[Item], divisor: int) -> Iterator[Item]:
    for item in modules:
        if divisor > 1 and item.native:
            yield Item(Fraction(item.native, divisor) - item.native, "divided_by_batch", item.kind, item.module)


def _function(recording: CallRecording, call: Call, item: Item) -> Item:
    """A function's item, halved to multiply-adds; under a module or function that was counted for it, a second one."""
    native = item.native // 2 if not item.cause else item.native
    above = next(recording.around(call), None)
    counted = above is not None and (above.name in FUNCTIONS or (above.what == MODULE and above.name in RULES))
    cause = f"{item.cause}_twice" if counted and item.cause in TWICE else item.cause
    return replace(item, native=native, cause=cause)


def _convolution(module: ModuleInfo, call: Call) -> Iterator[Item]:
    given, output = in_and_out(call)
    settings = module.settings
    taps = prod(settings["kernel_size"]) * settings["in_channels"] * (settings["out_channels"] // settings["groups"])
    batch, positions = given.shape[0], (given if "ConvTranspose" in module.class_name else output).shape[2:]
    fault = module_hooks.fault_of_convolution(module, call)
    yield product(call, taps * batch * prod(positions), fault, "convolution")
    if "bias" in module.parameters:
        yield other(call, "bias_counted", batch * prod(output.shape[1:]), "convolution")


def _linear(module: ModuleInfo, call: Call) -> Iterator[Item]:
    given, output = in_and_out(call)
    rows = prod(given.shape[:-1])
    yield product(call, rows * given.shape[-1] * output.shape[-1])
    if "bias" in module.parameters:
        yield other(call, "bias_counted", rows * output.shape[-1], "matmul")


def _norm(module: ModuleInfo, call: Call) -> Iterator[Item]:
    each = 2 if module.settings.get("affine") else 1
    yield other(call, "normalization_counted", each * in_and_out(call)[0].numel, "normalization")


def _upsample(_module: ModuleInfo, call: Call) -> Iterator[Item]:
    """Of the first sample alone: it takes the first element of the output for its tensor."""
    yield other(call, "resizing_counted", prod(in_and_out(call)[1].shape[1:]), "pooling")


def _recurrent(module: ModuleInfo, call: Call) -> Iterator[Item]:
    layers = module_hooks.read(module, call)
    times = layers.rows * layers.directions
    yield product(call, times * sum(map(sum, layers.weights)), "recurrent_steps", "recurrent")
    scalars = patched_functions.gates(layers)
    yield other(call, "gates_counted", times * scalars, "recurrent")


def _attention(module: ModuleInfo, call: Call) -> Iterator[Item]:
    """Four projections and two products; where scores are asked for, its inner products are functions counted again."""
    query, key, value = (sized.shape for sized in list(tensors(call.arguments))[:3])
    sample, length = (0, 1) if module.settings.get("batch_first") else (1, 0)
    q, k, v = query[length], key[length], value[length]
    width, key_width, value_width = query[2], key[2], value[2]
    heads, batch = int(module.settings["num_heads"]), query[sample]
    projections = q * width**2 + k * key_width**2 + v * value_width**2 + q * value_width**2
    scores = heads * q * k * (width // heads + value_width // heads)
    yield product(call, batch * (projections + scores), "attention_shapes", "attention")
    bias = ((q + k + v) * width if "in_proj_bias" in module.parameters else 0) + q * value_width
    yield other(call, "bias_counted", batch * bias, "attention")
    yield other(call, "attention_scalars_counted", batch * (q * width + heads * q * k), "attention")


def _timm_attention(module: ModuleInfo, call: Call) -> Iterator[Item]:
    """The two products of timm's attention module, whose linear layers are modules of their own."""
    batch, length, _ = in_and_out(call)[0].shape
    heads, head = int(module.settings["num_heads"]), int(module.settings["head_dim"])
    yield product(call, 2 * batch * heads * length**2 * head, "attention_shapes", "attention")
    yield other(call, "attention_scalars_counted", batch * heads * (length * head + length**2), "attention")


def _deformable(module: ModuleInfo, call: Call) -> Iterator[Item]:
    _, output = in_and_out(call)
    settings = module.settings
    kernel, positions = prod(settings["kernel_size"]), output.shape[0] * prod(output.shape[2:])
    taps = kernel * settings["in_channels"] * (settings["out_channels"] // settings["groups"])
    yield product(call, taps * positions, kind="convolution")
    extra = 25 if len(call.arguments) == 3 and call.arguments[2] is not None else 24
    yield other(call, "deformable_extra", kernel * extra * positions, "convolution")
    if "bias" in module.parameters:
        yield other(call, "bias_counted", output.numel, "convolution")


def _resizing(call: Call) -> Iterator[Item]:
    given = bound(call, "input size scale_factor")
    sizes, size, factor = given["input"].shape, given.get("size"), given.get("scale_factor")
    if size is not None:
        positions = prod(size) if isinstance(size, tuple) else int(size) ** (len(sizes) - 2)
        native = positions * prod(sizes[:2])
    elif isinstance(factor, tuple):
        native = int(prod(factor)) * given["input"].numel
    else:
        native = int(given["input"].numel * (factor or 1) ** (len(sizes) - 2))
    yield other(call, "resizing_counted", native, "pooling")


def _addmm(call: Call) -> Iterator[Item]:
    for item in patched_functions.addmm(call):
        if not item.cause or call.keywords.get("beta", 1) != 0:
            yield item


POOLINGS = nn(
    "pooling",
    "MaxPool1d AvgPool1d AvgPool2d MaxPool2d MaxPool3d AvgPool3d AdaptiveMaxPool1d AdaptiveAvgPool1d AdaptiveMaxPool2d "
    "AdaptiveAvgPool2d AdaptiveMaxPool3d AdaptiveAvgPool3d",
)

RULES: dict[str, module_hooks.Rule] = {
    **dict.fromkeys(nn("conv", "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d"), _convolution),
    **dict.fromkeys(
        nn("activation", "ReLU PReLU ELU LeakyReLU ReLU6 GELU"),
        module_hooks.elements("activation_counted", "activation"),
    ),
    **dict.fromkeys(POOLINGS, module_hooks.elements("pooling_counted", "pooling", output=False)),
    **dict.fromkeys(nn("batchnorm", "BatchNorm1d BatchNorm2d BatchNorm3d"), _norm),
    **dict.fromkeys(nn("instancenorm", "InstanceNorm1d InstanceNorm2d InstanceNorm3d"), _norm),
    **dict.fromkeys(nn("normalization", "GroupNorm LayerNorm"), _norm),
    **dict.fromkeys(nn("linear", "Linear"), _linear),
    **dict.fromkeys(nn("upsampling", "Upsample"), _upsample),
    **dict.fromkeys(nn("rnn", "RNN GRU LSTM RNNCell LSTMCell GRUCell"), _recurrent),
    **dict.fromkeys(nn("activation", "MultiheadAttention"), _attention),
    "torchvision.ops.deform_conv.DeformConv2d": _deformable,
    "timm.layers.attention.Attention": _timm_attention,
}

COUNTED_ACTIVATIONS = tuple(f"F.{name}" for name in ["relu", "prelu", "elu", "relu6", "gelu", "silu"])

FUNCTIONS: dict[str, patched_functions.Rule] = {
    **dict.fromkeys(COUNTED_ACTIVATIONS, patched_functions.of_input("activation_counted", "activation")),
    **dict.fromkeys(patched_functions.POOLINGS, patched_functions.of_input("pooling_counted", "pooling")),
    "F.softmax": patched_functions.of_input("softmax_counted", "softmax"),
    **dict.fromkeys(("F.upsample", "F.interpolate"), _resizing),
    **dict.fromkeys(
        ("torch.matmul", "Tensor.matmul", "torch.mm", "Tensor.mm", "torch.bmm", "Tensor.bmm"), patched_functions.matmul
    ),
    **dict.fromkeys(("torch.addmm", "Tensor.addmm", "torch.baddbmm"), _addmm),
    **dict.fromkeys(patched_functions.ADDITIONS, patched_functions.elementwise("addition_counted", left_aligned=True)),
    **dict.fromkeys(
        patched_functions.MULTIPLICATIONS, patched_functions.elementwise("multiplication_counted", left_aligned=True)
    ),
}
