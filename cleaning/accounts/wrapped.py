"""Recomputes what counters that replace functions (DeepSpeed's profiler, calflops) count, to explain their differences.

`deepspeed` and `calflops` take a `CallRecording` (a model's calls) and a pass, and return `Counted`: the parts of the
total. A rule takes one call and yields `Item`s in FLOP, at 2 per multiply-add; fvcore and ptflops share some rules.
DeepSpeed (deepspeed/profiling/flops_profiler/profiler.py of 0.19) counts biases of convolutions but not of linear
layers, and elements of norms, activations and pools. It hooks recurrent modules, and sees only the forward pass.
calflops (calflops/pytorch_ops.py of 0.3.2) does not count `@`, mm, bmm and fused attention, and aligns shapes from the
left. Its backward pass is twice its forward pass. Its other rules are DeepSpeed's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from cleaning.accounts import hooked
from cleaning.accounts.items import FUSED_NOT_SEEN, Counted, Item, bound, first_tensor, missed_by, other, product
from results.records.calls import FUNCTION, Call, CallRecording, Sized, tensors

Rule = Callable[[Call], Iterator[Item]]

CONVOLUTIONS = ("F.conv1d", "F.conv2d", "F.conv3d")
TRANSPOSED = ("F.conv_transpose1d", "F.conv_transpose2d", "F.conv_transpose3d")
ACTIVATIONS = tuple(f"F.{name}" for name in ["relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu"])
POOLINGS = tuple(
    f"F.{name}{rest}"
    for name in ("avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool")
    for rest in ("1d", "2d", "3d")
)
ADDITIONS = ("torch.add", "Tensor.add")
MULTIPLICATIONS = ("torch.mul", "Tensor.mul")


def calls(recording: CallRecording, rules: dict[str, Rule]) -> Iterator[tuple[Call, Item]]:
    """Yield every call of a function that has a rule, with one item at a time. A call inside another counted call is
    included."""
    for call in recording.calls:
        if call.what == FUNCTION and call.name in rules:
            for item in rules[call.name](call):
                yield call, item


def of_input(cause: str, kind: str) -> Rule:
    """Make a rule that counts 1 for each element of the first argument."""

    def rule(call: Call) -> Iterator[Item]:
        if (inputs := first_tensor((call.arguments, call.keywords))) is not None:
            yield other(call, cause, inputs.numel, kind)

    return rule


def linear(call: Call) -> Iterator[Item]:
    """Count 2 per multiply-add, without bias."""
    arguments = bound(call, "input weight bias")
    yield product(call, 2 * arguments["input"].numel * arguments["weight"].shape[0])


def convolution(call: Call) -> Iterator[Item]:
    """Count 2 per multiply-add at the positions of `conv_sizes`, and 1 for each where there is a bias."""
    arguments = bound(call, "input weight bias stride padding dilation groups")
    weight, batch = arguments["weight"].shape, arguments["input"].shape[0]
    sizes = conv_sizes(arguments, arguments["input"].shape[2:], weight[2:])
    macs = prod(weight) * batch * prod(sizes)
    yield product(call, 2 * macs, "even_kernel", "convolution")
    if arguments.get("bias") is not None:
        yield other(call, "bias_counted", weight[0] * batch * prod(sizes), "convolution")


def conv_sizes(arguments: dict[str, Any], sizes: tuple[int, ...], kernel: tuple[int, ...]) -> list[int]:
    """Return a convolution's positions by stride, padding and dilation, as DeepSpeed computes them: the padding "same"
    is taken for half on each side."""
    length = len(sizes)
    stride, dilation = (_per_dimension(arguments.get(name, 1), length) for name in ("stride", "dilation"))
    padding = arguments.get("padding", 0)
    if padding == "same":
        paddings = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    else:
        paddings = _per_dimension(0 if padding == "valid" else padding, length)
    return [
        (size + 2 * p - (d * (k - 1) + 1)) // s + 1
        for size, p, d, k, s in zip(sizes, paddings, dilation, kernel, stride, strict=True)
    ]


def _per_dimension(value: Any, length: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,) * length


def norm(names: str, in_training: bool = True) -> Rule:
    """Make a rule that counts 5 per element, less 1 without weights; 2 instead of 5 outside training. names: the
    positional arguments. in_training: the mode where no argument says."""

    def rule(call: Call) -> Iterator[Item]:
        arguments = bound(call, names)
        per_element = (5 if arguments.get("training", in_training) else 2) - (arguments.get("weight") is None)
        yield other(call, "normalization_counted", per_element * arguments["input"].numel, "normalization")

    return rule


def matmul(call: Call) -> Iterator[Item]:
    """Count the first operand's elements times the second's last size, regardless of broadcasting and of the number of
    dimensions."""
    left, right = list(tensors((call.arguments, call.keywords)))[:2]
    fault = "vector_as_matrix" if len(right.shape) == 1 else "broadcast_from_first"
    yield product(call, 2 * left.numel * right.shape[-1], fault)


def addmm(call: Call) -> Iterator[Item]:
    """Count the product, and 1 per element that is added to it."""
    added, left, right = list(tensors((call.arguments, call.keywords)))[:3]
    yield product(call, 2 * left.numel * right.shape[-1])
    yield other(call, "bias_counted", added.numel, "matmul")


def einsum(call: Call) -> Iterator[Item]:
    """Count numpy's printed "optimized FLOP count", four digits of it."""
    yield product(call, _printed(str(call.arguments[0]), call.arguments[1:]), "rounded_path")


def einops_einsum(call: Call) -> Iterator[Item]:
    """Count what einops adds: its function calls torch's, so that one contraction counts twice."""
    yield other(call, "contraction_counted_twice", _printed(str(call.arguments[-1]), call.arguments[:-1]), "matmul")


def _printed(equation: str, operands: tuple[Any, ...]) -> int:
    return int(printed_flop(equation, list(tensors(operands))))


def attention(call: Call) -> Iterator[Item]:
    """Count both products, dense."""
    query, key, value = (sized.shape for sized in list(tensors((call.arguments, call.keywords)))[:3])
    scores = prod(query[:-1]) * key[-2]
    yield product(call, 2 * scores * (query[-1] + value[-1]), "attention_shapes", "attention")


def elementwise(cause: str, left_aligned: bool) -> Rule:
    """Make a rule that counts 1 per element of the broadcast result; left_aligned: shapes are aligned at their first
    sizes."""

    def rule(call: Call) -> Iterator[Item]:
        shapes = [value.shape for value in call.arguments[:2] if isinstance(value, Sized)]
        named = call.keywords.get("other")
        shapes += [named.shape] if isinstance(named, Sized) else []
        aligned = [shape if left_aligned else shape[::-1] for shape in shapes]
        yield other(call, cause, prod(max(sizes) for sizes in zip_longest(*aligned, fillvalue=1)), "elementwise")

    return rule


def printed_flop(equation: str, operands: Sequence[Sized]) -> float:
    """Return FLOP at 2 per multiply-add of the best order, as NumPy prints them for operands of these sizes."""
    shapes = [np.broadcast_to(0.0, operand.shape) for operand in operands]
    printed = str(np.einsum_path(equation.replace(" ", ""), *shapes, optimize="optimal")[1])
    line = next(line for line in printed.splitlines() if "optimized flop" in line.lower())
    return float(line.split(":")[-1])


def _transposed(call: Call) -> Iterator[Item]:
    arguments = bound(call, "input weight bias stride padding output_padding groups dilation")
    weight, sizes = arguments["weight"].shape, arguments["input"].shape
    yield product(call, 2 * prod(weight) * sizes[0] * prod(sizes[2:]), kind="convolution")
    if arguments.get("bias") is not None and call.output is not None:
        yield other(call, "bias_counted", call.output.numel, "convolution")


def _resizing(call: Call) -> Iterator[Item]:
    """Count the product of the size, if one is given; else the elements of the output by the factor."""
    arguments = bound(call, "input size scale_factor")
    size, factor = arguments.get("size"), arguments.get("scale_factor")
    if size is not None:
        native = prod(size) if isinstance(size, tuple) else int(size)
    else:
        times = prod(factor) if isinstance(factor, tuple) else (factor or 1) ** (len(arguments["input"].shape) - 2)
        native = int(arguments["input"].numel * times)
    yield other(call, "resizing_counted", native, "pooling")


SHARED: dict[str, Rule] = {
    "F.linear": linear,
    **dict.fromkeys(CONVOLUTIONS, convolution),
    **dict.fromkeys(ACTIVATIONS, of_input("activation_counted", "activation")),
    "F.batch_norm": norm("input running_mean running_var weight bias training", in_training=False),
    "F.layer_norm": norm("input normalized_shape weight"),
    "F.group_norm": norm("input num_groups weight"),
    "F.instance_norm": norm("input running_mean running_var weight"),
    **dict.fromkeys(POOLINGS, of_input("pooling_counted", "pooling")),
    "F.softmax": of_input("softmax_counted", "softmax"),
    **dict.fromkeys(("torch.matmul", "Tensor.matmul"), matmul),
    **dict.fromkeys(("torch.addmm", "Tensor.addmm", "torch.baddbmm"), addmm),
    "torch.einsum": einsum,
}
"""Rules that calflops has, too."""

DEEPSPEED: dict[str, Rule] = {
    **SHARED,
    **dict.fromkeys(TRANSPOSED, _transposed),
    **dict.fromkeys(("F.upsample", "F.interpolate"), _resizing),
    **dict.fromkeys(("Tensor.__matmul__", "torch.mm", "Tensor.mm", "torch.bmm", "Tensor.bmm"), matmul),
    "F.scaled_dot_product_attention": attention,
    "einops.einsum": einops_einsum,
    **dict.fromkeys(ADDITIONS, elementwise("addition_counted", left_aligned=False)),
    **dict.fromkeys(MULTIPLICATIONS, elementwise("multiplication_counted", left_aligned=False)),
}


def _calflops_transposed(call: Call) -> Iterator[Item]:
    arguments = bound(call, "input weight bias stride padding output_padding groups dilation")
    weight, sizes, groups = arguments["weight"].shape, arguments["input"].shape, arguments.get("groups", 1)
    macs = prod(weight[2:]) * sizes[1] * (weight[1] // groups) * sizes[0] * prod(sizes[2:])
    yield product(call, 2 * macs, "transposed_divided_by_groups", "convolution")
    if arguments.get("bias") is not None:
        positions = conv_sizes(arguments, sizes[2:], weight[2:])
        yield other(call, "bias_counted", weight[1] * sizes[0] * prod(positions), "convolution")


def _calflops_resizing(call: Call) -> Iterator[Item]:
    arguments = bound(call, "input size scale_factor")
    size = arguments.get("size")
    native = arguments["input"].numel if size is None else prod(size) if isinstance(size, tuple) else int(size)
    yield other(call, "resizing_counted", native, "pooling")


CALFLOPS: dict[str, Rule] = {
    **SHARED,
    **dict.fromkeys(TRANSPOSED, _calflops_transposed),
    **dict.fromkeys(("F.upsample", "F.interpolate"), _calflops_resizing),
    **dict.fromkeys(ADDITIONS, elementwise("addition_counted", left_aligned=True)),
    **dict.fromkeys(MULTIPLICATIONS, elementwise("multiplication_counted", left_aligned=True)),
}


RECURRENT: dict[str, hooked.Rule] = dict.fromkeys(hooked.RECURRENT, hooked.recurrent(flop_per_multiply_add=2))


def deepspeed(recording: CallRecording, phase: str) -> Counted:
    """Return DeepSpeed's items of one pass."""
    counted = [item for _, item in calls(recording, DEEPSPEED)]
    counted += [item for _, item in hooked.items(recording, RECURRENT)]
    return counted, missed_by(FUSED_NOT_SEEN, "operator_without_rule")


def calflops(recording: CallRecording, phase: str) -> Counted:
    """Return calflops' items of one pass. A module with several parents is visited once for each of them."""
    counted = [
        (next((around.serial for around in (call, *recording.around(call)) if around.serial >= 0), 0), item)
        for call, item in calls(recording, CALFLOPS)
    ]
    counted += list(hooked.items(recording, RECURRENT))
    items = list(hooked.multiplied(iter(counted), hooked.visits(recording)))
    if phase == "forward":
        return items, missed_by(FUSED_NOT_SEEN, "operator_without_rule")
    twice = [replace(item, native=2 * item.native, fault="backward_as_twice_forward") for item in items]
    return twice, missed_by({}, "backward_not_counted")
