"""Operations made by hand, so that a formula can be tested without a tracer, a device or torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from results.records.counts import Operation

Shape = Sequence[Any]


def operation(
    name: str,
    inputs: Mapping[str, Shape],
    outputs: Sequence[Shape] = (),
    dtype: str = "float32",
    dtypes: Mapping[str, str] | None = None,
    **attributes: Any,
) -> Operation:
    """One ATen call: shapes by argument name, all of one dtype but those that `dtypes` names.

    Every input has a storage of its own, and so has every output; an operation named "…_" writes its first input.
    """
    known = dtypes or {}
    fresh = range(len(inputs), len(inputs) + len(outputs))
    return Operation(
        index=0,
        name=name,
        kind="",
        phase="forward",
        module="",
        sequence_nr=None,
        forward_index=None,
        input_names=tuple(inputs),
        input_shapes=tuple(tuple(form) for form in inputs.values()),
        input_dtypes=tuple(known.get(argument, dtype) for argument in inputs),
        output_shapes=tuple(tuple(form) for form in outputs),
        output_dtypes=(dtype,) * len(outputs),
        attributes=attributes,
        reads=tuple(range(len(inputs))),
        writes=(0,) if name.endswith("_") else tuple(fresh),
    )
