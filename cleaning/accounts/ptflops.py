"""Recomputes what ptflops' default backend counts, to explain its differences from the exact count.

`ptflops` takes a `CallRecording` (a model's calls) and a pass, and returns `Counted`: the parts of the total. The rules
are those of pytorch_ops.py and pytorch_engine.py of 0.7.4 and 0.7.5, which hook modules and patch functions. Modules of
exact classes count 1 per multiply-add, with bias; their sum is divided by the batch. Functions count 1 per multiply-add
or element, and are not divided. A module whose forward calls a patched function is counted twice. ptflops counts the
forward pass only.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import prod

from cleaning.accounts import hooked, wrapped
from cleaning.accounts.hooked import nn
from cleaning.accounts.items import Counted, Item, bound, in_and_out, other, product
from results.records.calls import MODULE, Call, CallRecording, ModuleInfo, tensors

TWICE = ("activation_counted", "pooling_counted", "resizing_counted")
"""Causes of functions that a module or function with its own rule may call."""


def ptflops(recording: CallRecording, phase: str) -> Counted:
    """Return ptflops' items (the parts of its total) of one pass. They add up to the number that ptflops prints."""
    items = list(hooked.multiplied(hooked.items(recording, RULES), hooked.visits(recording, RULES)))
    divisor = recording.batch if len(recording.calls[0].arguments) == 1 else 1
    divided = [
        Item(Fraction(item.native, divisor) - item.native, "divided_by_batch", item.kind, item.module) for item in items
    ]
    items += [_function(recording, call, item) for call, item in wrapped.calls(recording, FUNCTIONS)]
    items += [item for item in divided if item.native]
    printed = sum((item.native for item in items), Fraction(0))
    if printed.denominator != 1:
        items.append(Item(int(printed) - printed, "rounded"))
    return items, hooked.missed(recording, RULES)


def _function(recording: CallRecording, call: Call, item: Item) -> Item:
    """Return a function's item, with products in multiply-adds. The cause ends with "_twice" where the calling module
    or function has a rule for the same operation."""
    native = item.native // 2 if not item.cause else item.native
    above = next(recording.around(call), None)
    counted = above is not None and (above.name in FUNCTIONS or (above.what == MODULE and above.name in RULES))
    cause = f"{item.cause}_twice" if counted and item.cause in TWICE else item.cause
    return replace(item, native=native, cause=cause)


def _bias(module: ModuleInfo, call: Call, native: int, kind: str) -> Iterator[Item]:
    if "bias" in module.parameters:
        yield other(call, "bias_counted", native, kind)


def _convolution(module: ModuleInfo, call: Call) -> Iterator[Item]:
    inputs, output = in_and_out(call)
    batch, positions = inputs.shape[0], (inputs if "ConvTranspose" in module.class_name else output).shape[2:]
    fault = hooked.fault_of_convolution(module, call)
    yield product(call, hooked.taps(module) * batch * prod(positions), fault, "convolution")
    yield from _bias(module, call, batch * prod(output.shape[1:]), "convolution")


def _linear(module: ModuleInfo, call: Call) -> Iterator[Item]:
    inputs, output = in_and_out(call)
    rows = prod(inputs.shape[:-1])
    yield product(call, rows * inputs.shape[-1] * output.shape[-1])
    yield from _bias(module, call, rows * output.shape[-1], "matmul")


def _norm(module: ModuleInfo, call: Call) -> Iterator[Item]:
    per_element = 2 if module.settings.get("affine") else 1
    yield other(call, "normalization_counted", per_element * in_and_out(call)[0].numel, "normalization")


def _upsample(_module: ModuleInfo, call: Call) -> Iterator[Item]:
    """Count the first sample only: ptflops takes the first element of the output for its tensor."""
    yield other(call, "resizing_counted", prod(in_and_out(call)[1].shape[1:]), "pooling")


def _attention(module: ModuleInfo, call: Call) -> Iterator[Item]:
    """Count four projections and two products; where scores are returned, the inner products are functions counted
    again."""
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
    """Count the two products of timm's attention module, whose linear layers are separate modules."""
    batch, length, _ = in_and_out(call)[0].shape
    heads, head = int(module.settings["num_heads"]), int(module.settings["head_dim"])
    yield product(call, 2 * batch * heads * length**2 * head, "attention_shapes", "attention")
    yield other(call, "attention_scalars_counted", batch * heads * (length * head + length**2), "attention")


def _deformable(module: ModuleInfo, call: Call) -> Iterator[Item]:
    _, output = in_and_out(call)
    kernel, positions = prod(module.settings["kernel_size"]), output.shape[0] * prod(output.shape[2:])
    yield product(call, hooked.taps(module) * positions, kind="convolution")
    extra = 25 if len(call.arguments) == 3 and call.arguments[2] is not None else 24
    yield other(call, "deformable_extra", kernel * extra * positions, "convolution")
    yield from _bias(module, call, output.numel, "convolution")


def _resizing(call: Call) -> Iterator[Item]:
    arguments = bound(call, "input size scale_factor")
    sizes, size, factor = arguments["input"].shape, arguments.get("size"), arguments.get("scale_factor")
    if size is not None:
        positions = prod(size) if isinstance(size, tuple) else int(size) ** (len(sizes) - 2)
        native = positions * prod(sizes[:2])
    elif isinstance(factor, tuple):
        native = int(prod(factor)) * arguments["input"].numel
    else:
        native = int(arguments["input"].numel * (factor or 1) ** (len(sizes) - 2))
    yield other(call, "resizing_counted", native, "pooling")


def _addmm(call: Call) -> Iterator[Item]:
    for item in wrapped.addmm(call):
        if not item.cause or call.keywords.get("beta", 1) != 0:
            yield item


POOLINGS = nn(
    "pooling",
    "MaxPool1d AvgPool1d AvgPool2d MaxPool2d MaxPool3d AvgPool3d AdaptiveMaxPool1d AdaptiveAvgPool1d AdaptiveMaxPool2d "
    "AdaptiveAvgPool2d AdaptiveMaxPool3d AdaptiveAvgPool3d",
)

RULES: dict[str, hooked.Rule] = {
    **dict.fromkeys(nn("conv", hooked.CONVOLUTIONS), _convolution),
    **dict.fromkeys(
        nn("activation", "ReLU PReLU ELU LeakyReLU ReLU6 GELU"),
        hooked.elements("activation_counted", "activation"),
    ),
    **dict.fromkeys(POOLINGS, hooked.elements("pooling_counted", "pooling", output=False)),
    **dict.fromkeys(nn("batchnorm", "BatchNorm1d BatchNorm2d BatchNorm3d"), _norm),
    **dict.fromkeys(nn("instancenorm", "InstanceNorm1d InstanceNorm2d InstanceNorm3d"), _norm),
    **dict.fromkeys(nn("normalization", "GroupNorm LayerNorm"), _norm),
    **dict.fromkeys(nn("linear", "Linear"), _linear),
    **dict.fromkeys(nn("upsampling", "Upsample"), _upsample),
    **dict.fromkeys(hooked.RECURRENT, hooked.recurrent(flop_per_multiply_add=1)),
    **dict.fromkeys(nn("activation", "MultiheadAttention"), _attention),
    "torchvision.ops.deform_conv.DeformConv2d": _deformable,
    "timm.layers.attention.Attention": _timm_attention,
}

COUNTED_ACTIVATIONS = tuple(f"F.{name}" for name in ["relu", "prelu", "elu", "relu6", "gelu", "silu"])

FUNCTIONS: dict[str, wrapped.Rule] = {
    **dict.fromkeys(COUNTED_ACTIVATIONS, wrapped.of_input("activation_counted", "activation")),
    **dict.fromkeys(wrapped.POOLINGS, wrapped.of_input("pooling_counted", "pooling")),
    "F.softmax": wrapped.of_input("softmax_counted", "softmax"),
    **dict.fromkeys(("F.upsample", "F.interpolate"), _resizing),
    **dict.fromkeys(
        ("torch.matmul", "Tensor.matmul", "torch.mm", "Tensor.mm", "torch.bmm", "Tensor.bmm"), wrapped.matmul
    ),
    **dict.fromkeys(("torch.addmm", "Tensor.addmm", "torch.baddbmm"), _addmm),
    **dict.fromkeys(wrapped.ADDITIONS, wrapped.elementwise("addition_counted", left_aligned=True)),
    **dict.fromkeys(wrapped.MULTIPLICATIONS, wrapped.elementwise("multiplication_counted", left_aligned=True)),
}
