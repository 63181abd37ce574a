"""Functions that counters replace by their own: the rules that DeepSpeed's profiler, calflops and ptflops share.

Sizes are those of the arguments as given. A rule gives items in FLOP, products at 2 a multiply-add, for one call.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from cleaning.accounts.vocabulary.items import Item, bound, first_tensor, other, product
from cleaning.accounts.vocabulary.module_hooks import Recurrent
from results.records.counts import FUNCTION, Call, CallRecording, Sized, tensors

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

GATE_SCALARS = {1: 1, 3: 7, 4: 10}
"""Gates of a recurrent layer → scalar operations of a step for each element of its hidden state."""


def calls(recording: CallRecording, rules: dict[str, Rule]) -> Iterator[tuple[Call, Item]]:
    """Each call of a function that has a rule, wherever it is made, with its items."""
    for call in recording.calls:
        if call.what == FUNCTION and call.name in rules:
            for item in rules[call.name](call):
                yield call, item


def _first(call: Call) -> Sized:
    given = first_tensor((call.arguments, call.keywords))
    if given is None:
        raise ValueError(f"{call.name} in {call.path or 'the model'}: expected a tensor among its arguments")
    return given


def of_input(cause: str, kind: str, each: int = 1) -> Rule:
    """`each` an element of the first argument."""

    def rule(call: Call) -> Iterator[Item]:
        yield other(call, cause, each * _first(call).numel, kind)

    return rule


def linear(call: Call) -> Iterator[Item]:
    """2 a multiply-add, no bias."""
    given = bound(call, "input weight bias")
    yield product(call, 2 * given["input"].numel * given["weight"].shape[0])


def convolution(call: Call) -> Iterator[Item]:
    """2 a multiply-add at positions that it works out itself, and 1 for each of them where there is a bias."""
    given = bound(call, "input weight bias stride padding dilation groups")
    weight, batch = given["weight"].shape, given["input"].shape[0]
    sizes = conv_sizes(given, given["input"].shape[2:], weight[2:])
    macs = prod(weight) * batch * prod(sizes)
    yield product(call, 2 * macs, "even_kernel", "convolution")
    if given.get("bias") is not None:
        yield other(call, "bias_counted", weight[0] * batch * prod(sizes), "convolution")


def conv_sizes(given: dict[str, Any], sizes: tuple[int, ...], kernel: tuple[int, ...]) -> list[int]:
    """A convolution's positions by stride, padding and dilation. The padding "same" is taken for half on each side."""
    length = len(sizes)
    stride, dilation = (_each(given.get(name, 1), length) for name in ("stride", "dilation"))
    padding = given.get("padding", 0)
    if padding == "same":
        paddings = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    else:
        paddings = _each(0 if padding == "valid" else padding, length)
    return [
        (size + 2 * p - (d * (k - 1) + 1)) // s + 1
        for size, p, d, k, s in zip(sizes, paddings, dilation, kernel, stride, strict=True)
    ]


def _each(value: Any, length: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,) * length


def batch_norm(call: Call) -> Iterator[Item]:
    """2 an element, 5 in training; one less without weights."""
    given = bound(call, "input running_mean running_var weight bias training")
    in_training, weight = given.get("training", False), given.get("weight")
    each = (5 if weight is not None else 4) if in_training else (2 if weight is not None else 1)
    yield other(call, "normalization_counted", each * given["input"].numel, "normalization")


def norm(names: str) -> Rule:
    """5 an element, 4 without weights. names: the positional arguments up to the weight."""

    def rule(call: Call) -> Iterator[Item]:
        given = bound(call, names)
        each = 5 if given.get("weight") is not None else 4
        yield other(call, "normalization_counted", each * given["input"].numel, "normalization")

    return rule


def matmul(call: Call) -> Iterator[Item]:
    """The first operand's elements times the second's last size, whatever is broadcast and however many it has."""
    left, right = list(tensors((call.arguments, call.keywords)))[:2]
    fault = "vector_as_matrix" if len(right.shape) == 1 else "broadcast_from_first"
    yield product(call, 2 * left.numel * right.shape[-1], fault)


def addmm(call: Call) -> Iterator[Item]:
    """The product, and 1 for each element that is added to it."""
    added, left, right = list(tensors((call.arguments, call.keywords)))[:3]
    yield product(call, 2 * left.numel * right.shape[-1])
    yield other(call, "bias_counted", added.numel, "matmul")


def einsum(call: Call) -> Iterator[Item]:
    """What numpy prints as the "optimized FLOP count", four digits of it."""
    yield product(call, _printed(str(call.arguments[0]), call.arguments[1:]), "rounded_path")


def einops_einsum(call: Call) -> Iterator[Item]:
    """The same for einops, which calls torch's: the second count of it."""
    yield other(call, "contraction_counted_twice", _printed(str(call.arguments[-1]), call.arguments[:-1]), "matmul")


def _printed(equation: str, operands: tuple[Any, ...]) -> int:
    return int(printed_flop(equation, list(tensors(operands))))


def attention(call: Call) -> Iterator[Item]:
    """Both products, dense."""
    query, key, value = (sized.shape for sized in list(tensors((call.arguments, call.keywords)))[:3])
    scores = prod(query[:-1]) * key[-2]
    yield product(call, 2 * scores * (query[-1] + value[-1]), "attention_shapes", "attention")


def elementwise(cause: str, left_aligned: bool) -> Rule:
    """1 an element of the broadcast result; left_aligned: shapes are laid together at their first sizes."""

    def rule(call: Call) -> Iterator[Item]:
        shapes = [value.shape for value in call.arguments[:2] if isinstance(value, Sized)]
        named = call.keywords.get("other")
        shapes += [named.shape] if isinstance(named, Sized) else []
        aligned = [shape if left_aligned else shape[::-1] for shape in shapes]
        yield other(call, cause, prod(max(sizes) for sizes in zip_longest(*aligned, fillvalue=1)), "elementwise")

    return rule


def gates(layers: Recurrent) -> int:
    """Scalar arithmetic of one step that DeepSpeed and ptflops count for a recurrent module, biases included."""
    each = GATE_SCALARS[layers.gates] + (2 * layers.gates if layers.bias else 0)
    return len(layers.widths) * layers.hidden * each


def printed_flop(equation: str, operands: Sequence[Sized]) -> float:
    """FLOP at 2 a multiply-add of the best order, as printed for operands of these sizes."""
    shapes = [np.broadcast_to(0.0, operand.shape) for operand in operands]
    printed = str(np.einsum_path(equation.replace(" ", ""), *shapes, optimize="optimal")[1])
    line = next(line for line in printed.splitlines() if "optimized flop" in line.lower())
    return float(line.split(":")[-1])
