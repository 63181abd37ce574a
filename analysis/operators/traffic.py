"""Counts the bytes that an operation reads and writes: each input once, each output once, nothing fused or cached.

`bytes_moved` takes an `Operation` and returns bytes read and written; `reads` and `writes` return the bytes of each
tensor. This estimates unfused traffic, not the traffic of a device's memory. Views and allocations move nothing. A
tensor that is passed twice (same storage, shape, dtype) is read once. A tensor that is only overwritten, or passed for
its shape, is not read. A gather reads only the rows that it returns. A convolution or pool reads only the inputs that
its windows touch (one of four pixels for a 1 × 1 convolution of stride 2).
"""

from collections.abc import Mapping
from typing import Any

from analysis.operators.cost import Size, Sizes, attribute, has, numel, output, output_mask, shape
from analysis.operators.names import CONVOLUTION, CONVOLUTION_BACKWARD, CONVOLUTION_RELU
from results.records.counts import Operation

Form = tuple[tuple[Size, ...], str]
"""Shape and dtype of a tensor."""

Piece = tuple[int, Form, Size]
"""(storage, form of the tensor, bytes) that an operation reads or writes."""

NOWHERE = -1
"""Storage number of an output whose record has none."""

DTYPE_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "quint8": 1, "qint8": 1,
    "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2,
    "uint32": 4, "int32": 4, "qint32": 4, "float32": 4, "complex32": 4,
    "uint64": 8, "int64": 8, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,  # two numbers in one element
}  # fmt: skip
"""Bytes of one element, by torch's name of the dtype without "torch."."""

OVERWRITES = frozenset((
    "aten.copy_", "aten._foreach_copy_", "aten._foreach_zero_", "aten.fill_", "aten.zero_", "aten.normal_",
    "aten.uniform_", "aten.bernoulli_", "aten.random_", "aten.exponential_", "aten.geometric_", "aten.cauchy_",
    "aten.log_normal_",
))  # fmt: skip
"""Operations that write their first argument, `self`, without reading it."""

GATHERS = {
    "aten.embedding": "weight",
    "aten._embedding_bag": "weight",
    "aten._embedding_bag_forward_only": "weight",
    "aten.index": "self",
    "aten._unsafe_index": "self",
    "aten.index_select": "self",
    "aten.gather": "self",
    "aten.take": "self",
}
"""Operation → the argument of which it reads only the part that it returns."""

SHAPE_ONLY: Mapping[str, str] = dict.fromkeys(
    [f"aten.{name}" for names in (
        "zeros_like ones_like full_like rand_like randn_like randint_like new_zeros new_ones new_full",
        "avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward",
        "max_pool2d_with_indices_backward max_pool3d_with_indices_backward nll_loss_backward nll_loss2d_backward",
    ) for name in names.split()],
    "self",
)  # fmt: skip
"""Operation → the argument of which it reads only the shape."""

CONVOLUTION_GRADIENTS = frozenset(f"aten.{name}" for name in CONVOLUTION_BACKWARD.split())
CONVOLUTIONS = CONVOLUTION_GRADIENTS | {f"aten.{name}" for name in (CONVOLUTION + CONVOLUTION_RELU).split()}

POOLS = frozenset(f"aten.{name}" for name in (
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices",
    "max_pool2d_with_indices", "max_pool3d_with_indices",
))  # fmt: skip


def itemsize(dtype: str) -> int:
    """Return the bytes of one element. Raises ValueError for a dtype that is not in the table."""
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"expected a dtype of {', '.join(DTYPE_BYTES)}, got {dtype!r}")
    return DTYPE_BYTES[dtype]


def bytes_moved(operation: Operation) -> tuple[Size, Size]:
    """Return (bytes read, bytes written) by an operation that moves data."""
    return sum(size for *_, size in reads(operation)), sum(size for *_, size in writes(operation))


UNSIZED = frozenset(("aten.mkldnn_rnn_layer",))
"""Operations whose last output is a library's workspace, whose size fake tensors do not have."""


def lacks_sizes(operation: Operation) -> bool:
    """Return whether an operation writes a workspace whose size the trace lacks, so that its bytes are incomplete."""
    return operation.name in UNSIZED and bool(operation.output_shapes) and numel(operation.output_shapes[-1]) == 0


def nothing(_operation: Operation) -> tuple[Size, Size]:
    """Return (0, 0): traffic of a view, an allocation or a query."""
    return 0, 0


def reads(operation: Operation) -> list[Piece]:
    """Return the pieces that an operation reads: each tensor once, without those that it only overwrites."""
    table = GATHERS.get(operation.name)
    sizes: dict[tuple[int, Form], Size] = {}
    for name, form, dtype, storage in _inputs(operation):
        if operation.name in OVERWRITES:
            is_only_written = name == "self" or name.startswith("self[")
        else:
            is_only_written = "out" in str(operation.attributes.get("overload", "")) and name.startswith("out")
        if not is_only_written and not _not_read(operation, name):
            count = numel(output(operation) if name == table else _touched(operation, name, form))
            sizes[storage, (form, dtype)] = count * itemsize(dtype)
    return [(storage, form, size) for (storage, form), size in sizes.items()]


def _not_read(operation: Operation, name: str) -> bool:
    """Return whether a tensor is passed for its shape only, or for a gradient that is not computed."""
    if operation.name in CONVOLUTION_GRADIENTS:
        of_input, of_weight, *_ = output_mask(operation)
        return (name == "weight" and not of_input) or (name in ("input", "self") and not of_weight)
    return SHAPE_ONLY.get(operation.name) == name


def touched_size(size: Size, taps: Size, positions: Size, stride: int, padding: int, dilation: int = 1) -> Size:
    """Return how many elements of a dimension windows touch: positions × taps where there is no padding and the stride
    exceeds the window; otherwise all `size` of them."""
    return positions * taps if padding == 0 and dilation * (taps - 1) + 1 < stride else size


def _touched(operation: Operation, name: str, form: Sizes) -> Sizes:
    """Return the sizes of the part of an input that is read: the whole for an operation without windows."""
    window = _window(operation, name, form)
    if window is None:
        return form
    taps, out = window
    first = len(form) - len(taps)
    steps = [_by_dimension(operation, setting, len(taps), default) for setting, default in SETTINGS]
    return (*form[:first], *map(touched_size, form[first:], taps, out, *steps))


SETTINGS: tuple[tuple[str, Any], ...] = (("stride", 1), ("padding", 0), ("dilation", 1))
"""Window attributes and their defaults."""


def _window(operation: Operation, name: str, form: Sizes) -> tuple[Sizes, Sizes] | None:
    """Return (taps, positions) by dimension of the window that passes over this input; None without a window."""
    if name not in ("input", "self") or len(form) < 3:
        return None
    if operation.name in POOLS:
        taps = attribute(operation, "kernel_size", ())
        out = output(operation)
        return (tuple(taps), tuple(out[-len(taps) :])) if taps else None
    if operation.name not in CONVOLUTIONS or attribute(operation, "transposed", False):
        return None
    weight = shape(operation, "weight") if has(operation, "weight") else ()
    out = shape(operation, "grad_output") if has(operation, "grad_output") else output(operation)
    return (tuple(weight[2:]), tuple(out[2:])) if len(weight) == len(form) == len(out) else None


def _by_dimension(operation: Operation, name: str, count: int, default: int) -> list[Any]:
    """Return a window setting by dimension. A pool's empty stride means the window's own size, which leaves no gap."""
    value = attribute(operation, name, default)
    if isinstance(value, str):  # "same": padded
        return [1 if value == "same" else 0] * count
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values if len(values) == count else [(values or [default])[0]] * count


def writes(operation: Operation) -> list[Piece]:
    """Return the pieces that an operation writes: outputs, and inputs written in place. An input that is also returned
    counts once."""
    written = set(operation.writes)
    inputs = _inputs(operation)
    in_place = list(dict.fromkeys((s, (form, dtype)) for _, form, dtype, s in inputs if s in written))
    in_place_storages = {storage for storage, _ in in_place}
    fresh = [storage for storage in operation.writes if storage not in in_place_storages]
    outputs = list(zip(operation.output_shapes, operation.output_dtypes, strict=True))
    returned = len(outputs) - len(fresh)
    for _, form in in_place:
        if returned > 0 and form in outputs:
            outputs.remove(form)
            returned -= 1
    owners = [*fresh[: len(outputs)], *[fresh[-1] if fresh else NOWHERE] * (len(outputs) - len(fresh))]
    pieces = [*in_place, *zip(owners, outputs, strict=True)]
    return [(storage, form, numel(form[0]) * itemsize(form[1])) for storage, form in pieces]


def _inputs(operation: Operation) -> list[tuple[str, tuple[Size, ...], str, int]]:
    """Return (argument, shape, dtype, storage) of each input tensor. A record without storages gets one per
    argument."""
    count = len(operation.input_names)
    storages = operation.reads if len(operation.reads) == count else tuple(-1 - i for i in range(count))
    return list(zip(operation.input_names, operation.input_shapes, operation.input_dtypes, storages, strict=True))
