"""Turns recorded convolutions, products, attention and recurrent layers into Operations that the registry can count.

`to_operation` takes a `ProfiledOperation` and returns an `Operation`; `product_flop` returns its model FLOP. The record
has the sizes of a call's arguments and, if requested, the values of arguments that are not tensors. `signatures.py`
supplies argument names and output sizes. Where a value that decides a count was not recorded, `Unavailable` is raised:
nothing is guessed. Not claimed: strides, layouts, and anything about other calls.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.operators.cost import Sizes
from analysis.operators.registry import PRODUCTS, TABLE, Rule, kind_of, model_flop
from analysis.operators.traffic import nothing
from analysis.trace.signatures import FORMS, GONE, CallArguments, Form
from results.errors import Unavailable
from results.records.counts import Operation, ProfiledOperation

DTYPES = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "at::Half": "float16",
    "__half": "float16",
    "half": "float16",
    "c10::BFloat16": "bfloat16",
    "at::BFloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "c10::complex<c10::Half>": "complex32",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::Float8_e8m0fnu": "float8_e8m0fnu",
    "c10::Float4_e2m1fn_x2": "float4_e2m1fn_x2",
    "long int": "int64",
    "long": "int64",
    "long long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "c10::qint8": "qint8",
    "c10::quint8": "quint8",
    "c10::qint32": "qint32",
    "bool": "bool",
}
"""A recorder's name of a dtype (the C++ type, of host or device) → torch's name."""

_TORCH_DTYPES = frozenset(DTYPES.values()) | {"uint16", "uint32", "uint64"}

_ALL = {**FORMS, **GONE}

_FLOATS = ("float", "bfloat", "complex")

_SIZES_AS_TENSORS = {"self_size": "self", "weight_size": "weight"}

_COUNT_ONLY = {name: Rule(r.kind, r.bucket, r.reader, nothing) for name, r in TABLE.items() if r.kind in PRODUCTS}
"""The project's table without bytes, so that a recording without dtypes can be counted."""

_MISFITS = (ValueError, IndexError, KeyError, TypeError, ZeroDivisionError)
"""Exceptions that formulas raise for sizes and values that do not fit the call."""


# --- reading a call --------------------------------------------------------------------------------------------------


@functools.cache
def kind_of_call(name: str) -> str:
    """Return the kind of a recorded call ("aten::conv2d" → "convolution"); "" for an unknown operator."""
    return kind_of(_current_name(name))


def is_product(name: str) -> bool:
    """Return whether a recorded call is a convolution, matrix product, attention or recurrent layer."""
    return kind_of_call(name) in PRODUCTS


def torch_dtype(dtype_name: str) -> str:
    """Return torch's name of a dtype from a recorder's; "" for an unknown one."""
    bare = dtype_name.strip().removeprefix("torch.")
    return DTYPES.get(bare, bare if bare in _TORCH_DTYPES else "")


def floating_dtype(shapes: Iterable[object], names: Iterable[str]) -> str:
    """Return the first floating dtype among a call's tensors; scalars (a factor's "double") are ignored."""
    sized = (torch_dtype(dtype_name) for dtype_name, shape in zip(names, shapes, strict=False) if shape)
    return next((dtype for dtype in sized if dtype.startswith(_FLOATS)), "")


def to_operation(call: ProfiledOperation) -> Operation:
    """Return a recorded product as an Operation. Raises Unavailable, with the reason, where the recording lacks
    something."""
    form, arguments = _read(call)
    shapes = arguments.shapes
    dtypes = _dtypes(call, form, shapes)
    dtype = next((dtype_name for dtype_name in dtypes if dtype_name), "")
    name = f"aten.{form.name}" if form.name else _current_name(call.name)
    try:
        outputs, attributes = form.outputs(arguments), _attributes(arguments, name)
    except _MISFITS as fault:
        raise Unavailable(f"{call.name}: recorded sizes {tuple(shapes.values())} fit no such call") from fault
    out = tuple(call.input_shapes[len(form.arguments)]) if len(call.input_shapes) > len(form.arguments) else ()
    if out not in ((), (0,), *outputs):  # `out` of the other overload has the sizes of the result, or none yet
        raise Unavailable(f"{call.name}: expected an `out` of the sizes {outputs}, got {out}")
    return Operation(
        index=call.index,
        name=name,
        kind=kind_of(name),
        phase=call.phase,
        module=call.module,
        sequence_nr=call.sequence_nr,
        forward_index=call.forward_index,
        input_names=tuple(shapes),
        input_shapes=tuple(shapes.values()),
        input_dtypes=dtypes,
        output_shapes=outputs,
        output_dtypes=(dtype,) * len(outputs),
        attributes=attributes,
        reads=(),
        writes=(),
    )


def product_flop(call: ProfiledOperation) -> int:
    """Return the model FLOP of a recorded product by its shapes. Raises Unavailable, with the reason, where there is no
    count."""
    operation = to_operation(call)
    try:
        return model_flop(operation, _COUNT_ONLY)
    except _MISFITS as fault:
        raise Unavailable(f"{call.name}: recorded sizes {operation.input_shapes} fit no such call") from fault


def _current_name(name: str) -> str:
    """Return the name of a recorded call in the registry: "aten::conv2d" → "aten.conv2d"."""
    space, _, bare = name.partition("::")
    if space == "aten" and bare in GONE:
        return f"aten.{GONE[bare][0].name}"
    return f"{space}.{bare}"


def _read(call: ProfiledOperation) -> tuple[Form, CallArguments]:
    """Return the form that fits a call, and the call's arguments. Raises Unavailable, with the reason, if none fits."""
    space, _, bare = call.name.partition("::")
    choices = (_ALL.get(bare) or _ALL.get(bare.removesuffix("_"))) if space == "aten" else None
    if not choices:
        raise Unavailable(f"{call.name}: the meaning of its arguments is not known")
    missing: list[str] = []
    most = max(len(form.arguments) for form in choices)
    if len(call.input_shapes) > most + 1:  # the one more is the `out` of the other overload
        raise Unavailable(f"{call.name}: expected sizes of {most} arguments, got {len(call.input_shapes)}")
    for form in choices:
        arguments = _arguments_of(call, form)
        missing = [argument for argument in form.needs if arguments.values.get(argument) is None]
        if not missing:
            return form, arguments
    raise Unavailable(f"{call.name}: not recorded: {', '.join(missing)}")


def _arguments_of(call: ProfiledOperation, form: Form) -> CallArguments:
    shapes: dict[str, Sizes] = {}
    values: dict[str, Any] = {}
    for position, argument in enumerate(form.arguments[: len(call.input_shapes)]):
        value = call.concrete_inputs[position] if position < len(call.concrete_inputs) else None
        sizes = tuple(call.input_shapes[position])
        # a tensor without dimensions has no sizes: it is recognised by a dtype and no value
        is_tensor = value is None and position < len(call.input_dtypes) and torch_dtype(call.input_dtypes[position])
        if any(isinstance(size, Sequence) for size in sizes):
            if not all(isinstance(size, Sequence) for size in sizes):
                raise Unavailable(f"{call.name}: expected sizes of a tensor or a list as {argument}, got {sizes}")
            shapes.update({f"{argument}[{i}]": tuple(size) for i, size in enumerate(sizes)})
        elif sizes or is_tensor:
            shapes[argument] = sizes
        if value is not None:
            values[argument] = value
    values.update(form.fixed)
    for sized, tensor in _SIZES_AS_TENSORS.items():
        if isinstance(values.get(sized), tuple | list):
            shapes.setdefault(tensor, tuple(values[sized]))
    return CallArguments(shapes, values)


def _dtypes(call: ProfiledOperation, form: Form, shapes: Mapping[str, Sizes]) -> tuple[str, ...]:
    """Return the dtype of each tensor; for a tensor without a recorded dtype, that of the first tensor."""
    dtypes = [torch_dtype(dtype_name) for dtype_name in call.input_dtypes]
    first = next((dtype_name for dtype_name in dtypes if dtype_name), "")
    known = dict(zip(form.arguments, dtypes, strict=False))
    return tuple(known.get(name.partition("[")[0]) or first for name in shapes)


def _attributes(arguments: CallArguments, name: str) -> dict[str, Any]:
    """Return the values that are no tensors; the output mask of a convolution's gradients is filled up to three
    entries."""
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in arguments.values.items()}
    if name == "aten.convolution_backward":
        values["output_mask"] = (*map(bool, values["output_mask"]), False)[:3]
    return values
