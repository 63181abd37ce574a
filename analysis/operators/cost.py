"""Defines the cost of an operation (FLOP and bytes), and reads what a cost formula needs from an `Operation` record.

A `Cost` supports + and multiplication by a number. Its four numbers are ints, or sympy expressions where a model is
derived as a formula. Its bytes are those of unfused operations. The functions take an `Operation`, and return shapes by
argument name, attributes and element counts. Where the record lacks one, they raise ValueError with the operation's
name and index. The formulas themselves are in other modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from results.records.counts import Operation

Size = Any
"""An int or a sympy expression: formulas only add, multiply and divide exactly."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Arithmetic and traffic of one operation, or the sum over many.

    model_flop: FLOP of convolutions and matrix products, one multiply-add being 2 (MLPerf's "model FLOP").
    other_flop: FLOP of everything else, by the convention of `analysis/operators/products.py`.
    read_bytes, written_bytes: bytes of inputs and of outputs if nothing is fused and nothing stays in a cache.
    """

    model_flop: Size = 0
    other_flop: Size = 0
    read_bytes: Size = 0
    written_bytes: Size = 0

    def __add__(self, other: Cost) -> Cost:
        if not isinstance(other, Cost):
            return NotImplemented
        return Cost(
            self.model_flop + other.model_flop,
            self.other_flop + other.other_flop,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
        )

    def __radd__(self, other: object) -> Cost:
        """Return 0 + cost, so that `sum(costs)` works without a start value."""
        return self if other == 0 else NotImplemented

    def __mul__(self, times: Size) -> Cost:
        """Return the cost of the operation, repeated `times` times."""
        return Cost(
            self.model_flop * times, self.other_flop * times, self.read_bytes * times, self.written_bytes * times
        )

    __rmul__ = __mul__

    @property
    def all_flop(self) -> Size:
        """Model and other FLOP together."""
        return self.model_flop + self.other_flop

    @property
    def moved_bytes(self) -> Size:
        """Bytes read and written together."""
        return self.read_bytes + self.written_bytes


ZERO = Cost()


Sizes = tuple[Any, ...]

NEEDS = "needs_gradient"
"""Attribute of a gradient's call that lists the inputs of its forward call that need a gradient, where known."""

STORED = "stored_values"
"""Attribute of a call with sparse tensors: tensor name → number of values stored."""


def has(operation: Operation, argument: str) -> bool:
    """Return whether this tensor argument was passed; a None tensor was not."""
    return argument in operation.input_names


def has_any(operation: Operation, *arguments: str) -> bool:
    """Return whether any of these tensor arguments was passed."""
    return any(argument in operation.input_names for argument in arguments)


def shape(operation: Operation, *arguments: str) -> Sizes:
    """Return the shape of an input tensor by argument name; of several names, the first that was passed.

    Tensors in a list are "NAME[i]". Raises ValueError if none of them was passed.
    """
    for argument in arguments:
        if argument in operation.input_names:
            return tuple(operation.input_shapes[operation.input_names.index(argument)])
    raise ValueError(
        f"{operation.name} at index {operation.index}: expected a tensor {' or '.join(arguments)}, "
        f"got {', '.join(operation.input_names) or 'none'}"
    )


def shapes_in(operation: Operation, argument: str) -> list[Sizes]:
    """Return the shapes of all tensors of a list argument, in order."""
    return [
        tuple(form)
        for name, form in zip(operation.input_names, operation.input_shapes, strict=True)
        if name.startswith(f"{argument}[")
    ]


def output(operation: Operation) -> Sizes:
    """Return the shape of the first output; for an operation that returns nothing, of the first input, which it
    writes. Raises ValueError if there is neither."""
    if operation.output_shapes:
        return tuple(operation.output_shapes[0])
    return first(operation)


def first(operation: Operation) -> Sizes:
    """Return the shape of the first input tensor. Raises ValueError if there is none."""
    if not operation.input_shapes:
        raise ValueError(f"{operation.name} at index {operation.index}: expected an input tensor, got none")
    return tuple(operation.input_shapes[0])


def numel(sizes: Sizes) -> Size:
    """Return the number of elements of a tensor of this shape."""
    return prod(sizes)


def attribute(operation: Operation, name: str, default: Any = None) -> Any:
    """Return a non-tensor argument; `default` where it is absent or None."""
    value = operation.attributes.get(name)
    return default if value is None else value


def needed(operation: Operation, name: str) -> Any:
    """Return a required non-tensor argument. Raises ValueError if it is absent."""
    value = operation.attributes.get(name)
    if value is None:
        raise ValueError(f"{operation.name} at index {operation.index}: expected the attribute {name}, got none")
    return value


def needs_gradient(operation: Operation, *arguments: str) -> tuple[bool, ...]:
    """Return which of these inputs of the forward call need a gradient; all where unknown."""
    needs = operation.attributes.get(NEEDS, arguments)
    return tuple(argument in needs for argument in arguments)


def output_mask(operation: Operation) -> tuple[bool, ...]:
    """Return which gradients (of input, weight and bias) the call computes; all where it has no mask."""
    return tuple(bool(is_needed) for is_needed in attribute(operation, "output_mask", [True] * 3))


def computes(operation: Operation) -> bool:
    """Return whether floating or complex numbers are involved: arithmetic on integers and bools is not FLOP.

    An operation without dtypes (a hand-written record) counts as computing.
    """
    known = (*operation.input_dtypes, *operation.output_dtypes)
    return not known or any(dtype.startswith(("float", "bfloat", "complex")) for dtype in known)


_FLOATS = ("float", "bfloat", "half", "double")


def input_dtype(operation: Operation) -> str:
    """Return the dtype an operation computes in: that of its first floating input, or of its first input if none is."""
    floating = [dtype for dtype in operation.input_dtypes if dtype.startswith(_FLOATS)]
    return (floating or list(operation.input_dtypes) or ["none"])[0]
