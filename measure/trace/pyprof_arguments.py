"""Reads the arguments of operators from PyProf's markers and its column Params; returns `Arguments` in ATen's order.

PyProf was NVIDIA's profiler of PyTorch, and `pyprof.py` and `nsys.py` read its files. A marker (`of_marker`) is
`{'mod': 'torch.nn.functional', 'op': 'conv2d', 'args': [{'name': '', 'type': 'tensor', 'shape': (..), 'dtype':
'float32'}, {'name': 'stride', 'type': 'int', 'value': 2}, ..]}`. Params (`of_params`) of a convolution are
"N=32,C=3,H=224,W=224,K=64,P=112,Q=112,R=7,S=7,ph=3,pw=3,U=2,V=2,dh=1,dw=1,g=1,fp32,". Params of a matrix product are
"M=1000,N=32,K=2048,fp32,". Most others are "[32,64]fp32;[64]fp32" or "T=[(32,64)],['float32']". Arguments that PyProf
leaves out (bias, strides of tensors) are empty.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.trace.operations import kind_of_call
from analysis.trace.signatures import FORMS, CallArguments, convolution
from results.errors import Unavailable

CONVOLUTIONS = frozenset(("conv1d", "conv2d", "conv3d"))
LINEAR = frozenset(("linear", "bias"))
MATRICES = frozenset(("mm", "addmm", "matmul"))

OPERATORS = {
    "cross_entropy": "cross_entropy_loss",
    "__matmul__": "matmul",
    "__rmatmul__": "matmul",
    "__rsub__": "rsub",
    "__rmul__": "mul",
    "__radd__": "add",
    "__iadd__": "add",
    "__isub__": "sub",
    "__imul__": "mul",
}
"""Python's name of an operator → ATen's, where stripping the underscores does not give it."""

GRADIENTS = {
    "batch_norm": "native_batch_norm_backward",
    "layer_norm": "native_layer_norm_backward",
    "relu": "threshold_backward",
    "dropout": "native_dropout_backward",
    "softmax": "_softmax_backward_data",
    "log_softmax": "_log_softmax_backward_data",
    "max_pool2d": "max_pool2d_with_indices_backward",
    "adaptive_avg_pool2d": "_adaptive_avg_pool2d_backward",
}
"""Forward operator → the operator that calculates its gradient, where "_backward" at the end does not give it."""

DTYPES = {"fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}
"""PyProf's name of a dtype in Params → torch's; other names are the same."""

_INTS = re.compile(r"(?:^|,)([A-Za-z]+)=(\d+)(?=,|$)")
_SIZES = re.compile(r"(?:^|,)([A-Z])=\(([\d, ]*)\)")
_DTYPE = re.compile(r"(fp16|fp32|fp64|bf16|u?int\d+|bool),?$")
_TENSOR = re.compile(r"\[([\d, ]*)\](\w*)")
_LISTED = re.compile(r"^T=\[(.*)\],\[(.*)\]$")
_LIST = re.compile(r"\(([\d, ]*)\)")
_WINDOW = ("stride", "padding", "dilation", "output_padding")
_DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0, "groups": 1}
"""Default arguments of the convolutions of torch.nn.functional."""

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """Shapes, dtypes and values of a call, one entry an argument as in results.records.counts.ProfiledOperation."""

    shapes: Any
    dtypes: Any
    values: Any


MOST_PARTS = 20_000
"""Maximum number of brackets, commas and signs in a text that is parsed: each is a node of 500 bytes and more."""


def literal(text: Any) -> Mapping[str, Any] | None:
    """Return the dict that a text is a literal of; None if it is not one, or would take much more memory than the
    text."""
    try:
        if sum(str(text).count(sign) for sign in "[({,+-") > MOST_PARTS:
            return None
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def operator(op: str) -> str:
    """Return ATen's bare name of a function that PyProf patched: "__add__" → "add", "conv2d" → "conv2d"."""
    return OPERATORS.get(op, op.strip("_") if op.startswith("__") and op.endswith("__") else op)


def call_name(module: str, op: str) -> str:
    """Return the name of a call: that of the ATen operator if there is one of this name, otherwise the function's."""
    if "::" in op or not op:
        return op
    name = f"aten::{operator(op)}"
    known = kind_of_call(name) or kind_of_call(name.removesuffix("_")) or name.partition("::")[2] in FORMS
    return name if known or module in ("", "-", "na", "Tensor") else f"{module}.{op}"


def of_marker(marker: Mapping[str, Any]) -> Arguments:
    """Return the arguments in a PyProf marker; those given by name are at their position in ATen's order."""
    bare = operator(str(marker.get("op", "")))
    order = FORMS[bare][0].arguments if bare in FORMS else ()
    by_position: dict[int, Mapping[str, Any]] = {}
    for argument in marker.get("args") or ():
        if isinstance(argument, Mapping):
            name = argument.get("name")
            by_position[order.index(name) if name in order else max(by_position, default=-1) + 1] = argument
    # number of spatial dimensions of a convolution's weight: a single value applies to all of them
    dimensions = max(len(_shape(by_position.get(1, {}))) - 2, 0) if bare.startswith("conv") else 0
    shapes, dtypes, values = [], [], []
    for position in range(max(len(order) if dimensions else 0, max(by_position, default=-1) + 1)):
        name = order[position] if position < len(order) else ""
        argument = by_position.get(position, {"value": _DEFAULTS.get(name) if dimensions else None})
        is_tensor = argument.get("type") == "tensor"
        value = None if is_tensor else argument.get("value")
        value = tuple(value) if isinstance(value, list) else value
        if name in _WINDOW and dimensions and (type(value) is int or (isinstance(value, tuple) and len(value) == 1)):
            value = (value if isinstance(value, tuple) else (value,)) * dimensions
        shapes.append(_shape(argument) if is_tensor else ())
        dtypes.append(str(argument.get("dtype", "")) if is_tensor else "")
        values.append(value)
    return Arguments(tuple(shapes), tuple(dtypes), tuple(values))


def of_params(op: str, text: str) -> Arguments | None:
    """Return the arguments of a forward call by its Params; None if these do not have the sizes."""
    bare = operator(op)
    numbers = {name: int(value) for name, value in _INTS.findall(text)}
    sizes = {name: _numbers(value) for name, value in _SIZES.findall(text)}
    dtype_word = _DTYPE.search(text)
    dtype = DTYPES.get(dtype_word[1], dtype_word[1]) if dtype_word else ""
    if bare in CONVOLUTIONS:
        return _convolution(numbers, dtype)
    m, n, k = (numbers.get(name, -1) for name in "MNK")
    pair = [sizes["X"], sizes["W"]] if bare == "linear" and {"X", "W"} <= sizes.keys() else None
    if not pair and min(m, n, k) >= 0:
        batch = (numbers["B"],) if "B" in numbers else ()
        pair = [(n, k), (m, k)] if bare == "linear" else [(*batch, m, k), (*batch, k, n)]
        if bare in ("addmm", "baddbmm"):
            pair.insert(0, (*batch, m, n))
    if not pair and bare != "linear":
        if not {"A", "B"} <= sizes.keys():
            return _listed(text)
        pair = [sizes["A"], sizes["B"]]
    return _tensors(pair, [dtype] * len(pair)) if pair else None


def linear_of_gradient(text: str) -> Arguments | None:
    """Return the forward arguments of a linear layer by the Params of its input gradient's kernel, or by its X and
    W."""
    return of_params("linear", re.sub("[MK](?==)", lambda letter: "K" if letter[0] == "M" else "M", text))


def gradient_name(op: str) -> str:
    """Return the name of the call that calculates the gradients of a function's arguments."""
    bare = operator(op)
    if bare in CONVOLUTIONS:
        return "aten::convolution_backward"
    if bare in LINEAR or bare in MATRICES:
        return "aten::linear_backward"
    name = f"aten::{GRADIENTS.get(bare, f'{bare}_backward')}"
    return name if kind_of_call(name) else f"{op}Backward"


def of_gradient(op: str, forward: Arguments, of_input: bool) -> Arguments | None:
    """Return the arguments of a gradient's call by those of its forward call; None if these do not determine them.

    of_input: whether the gradient of the input is calculated, too.
    """
    bare = operator(op)
    if bare in CONVOLUTIONS:
        return _convolution_gradient(forward, of_input)
    first = 1 if bare == "addmm" else 0
    if bare not in LINEAR | MATRICES or len(forward.shapes) < first + 2:
        return None
    left, right = forward.shapes[first : first + 2]
    weight = right if bare in LINEAR else tuple(reversed(right))
    if len(weight) != 2 or not left or (bare not in LINEAR and len(left) != 2):
        return None
    dtype = forward.dtypes[first]
    shapes = (left, (*left[:-1], weight[0]), weight, ())
    return Arguments(shapes, (dtype,) * 3 + ("",), (None, None, None, (of_input, True, False)))


def _convolution(numbers: Mapping[str, int], dtype: str) -> Arguments | None:
    wanted = ("N", "C", "H", "W", "K", "R", "S", "U", "V", "ph", "pw", "dh", "dw", "g")
    if not set(wanted) <= numbers.keys() or not numbers["g"]:
        return None
    n, c, h, w, k, r, s, u, v, ph, pw, dh, dw, g = (numbers[name] for name in wanted)
    shapes = ((n, c, h, w), (k, c // g, r, s), (), (), (), (), ())
    return Arguments(shapes, (dtype, dtype, *("",) * 5), (None, None, None, (u, v), (ph, pw), (dh, dw), g))


def _convolution_gradient(forward: Arguments, of_input: bool) -> Arguments | None:
    names = FORMS["conv2d"][0].arguments
    sizes = {name: shape for name, shape in zip(names, forward.shapes, strict=False) if shape}
    by_name = {name: value for name, value in zip(names, forward.values, strict=False) if value is not None}
    try:
        (gradient,) = convolution(CallArguments(sizes, by_name))
    except (Unavailable, ValueError, TypeError, IndexError):
        return None  # the window does not fit into the input
    inputs, weight = sizes["input"], sizes["weight"]
    ones, zeros = (1,) * (len(weight) - 2), (0,) * (len(weight) - 2)
    settings = (by_name.get("stride", ones), by_name.get("padding", zeros), by_name.get("dilation", ones))
    rest = (None, *settings, False, zeros, by_name.get("groups", 1), (of_input, True, False))
    dtype = forward.dtypes[0]
    return Arguments(
        (gradient, inputs, weight, *((),) * len(rest)),
        (dtype,) * 3 + ("",) * len(rest),
        (None, None, None, *rest),
    )


def _tensors(shapes: Sequence[Sizes], dtypes: Sequence[str]) -> Arguments:
    return Arguments(tuple(shapes), tuple(dtypes), (None,) * len(shapes))


def _listed(text: str) -> Arguments | None:
    if lists := _LISTED.match(text):
        shapes = [_numbers(sizes_text) for sizes_text in _LIST.findall(lists[1])]
        dtypes = re.findall(r"'(\w+)'", lists[2])
        return _tensors(shapes, dtypes) if len(dtypes) == len(shapes) else None
    tensors = _TENSOR.findall(text) if text.startswith("[") else []
    if not tensors:
        return None
    return _tensors([_numbers(sizes) for sizes, _ in tensors], [DTYPES.get(word, word) for _, word in tensors])


def _numbers(text: str) -> Sizes:
    return tuple(int(part) for part in text.replace(" ", "").split(",") if part)


def _shape(argument: Mapping[str, Any]) -> Sizes:
    """Return the sizes in a marker. Raises ValueError for anything but a list or tuple of integers from 0."""
    sizes = argument.get("shape") or ()
    if not isinstance(sizes, list | tuple) or not all(type(size) is int and 0 <= size < 2**63 for size in sizes):
        raise ValueError(f"expected a shape of sizes from 0 on, got {str(sizes)[:40]!r}")
    return tuple(sizes)
