"""Sizes of what a recorded product returns, by pure functions of the sizes and values that were recorded of it.

A profiler keeps what goes into a call and not what comes out. Each function raises Unavailable where sizes do not fit
together or were not recorded. Nothing here knows an operator's name or what it costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.operators.cost import Sizes
from results.errors import Unavailable


@dataclass(frozen=True)
class CallArguments:
    """What was recorded of a call: sizes of tensors by argument ("params[2]" in a list), and the other values."""

    shapes: Mapping[str, Sizes]
    values: Mapping[str, Any]

    def shape(self, *arguments: str) -> Sizes:
        """The sizes of the first of these tensors that was passed. Raises Unavailable if none was."""
        for argument in arguments:
            if argument in self.shapes:
                return self.shapes[argument]
        raise Unavailable(f"no sizes of {' or '.join(arguments)} were recorded")

    def value(self, argument: str, default: Any) -> Any:
        """The value of an argument that is no tensor; `default` where the operator has no such argument."""
        return self.values.get(argument, default)


_DEFAULTS = (("stride", 1), ("padding", 0), ("dilation", 1))


def window(size: int, kernel: int, stride: int, padding: int | str, dilation: int) -> int:
    """Positions of a convolution's window along one dimension; padding may be "same" or "valid".

    Raises Unavailable if there is none.
    """
    _check_steps(stride, dilation)
    reach = dilation * (kernel - 1)
    both = {"same": reach, "valid": 0}.get(padding) if isinstance(padding, str) else 2 * padding
    if both is None:
        raise Unavailable(f"expected a padding of numbers, same or valid, came {padding!r}")
    positions = (size + both - reach - 1) // stride + 1
    if positions < 1:
        raise Unavailable(f"a window of {reach + 1} does not fit into {size} with a padding of {padding}")
    return positions


def spread(size: int, kernel: int, stride: int, padding: int, dilation: int, more: int) -> int:
    """Positions of a transposed convolution's output along one dimension; `more` is its output_padding.

    Raises Unavailable if there is none.
    """
    _check_steps(stride, dilation)
    positions = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
    if positions < 1:
        raise Unavailable(f"an output of {positions}: {size} positions with a padding of {padding} and {more} more")
    return positions


def _check_steps(stride: int, dilation: int) -> None:
    if stride < 1 or dilation < 1:
        raise Unavailable(f"expected a stride and a dilation from 1 on, came {stride} and {dilation}")


def matmul_shape(left: Sequence[int], right: Sequence[int]) -> Sizes:
    """What torch.matmul returns for operands of these sizes. Raises Unavailable for sizes that do not fit."""
    if not left or not right or left[-1] != right[-2 if len(right) > 1 else 0]:
        raise Unavailable(f"sizes {tuple(left)} and {tuple(right)} do not multiply")
    batch = broadcast(left[:-2], right[:-2])
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def broadcast(left: Sequence[int], right: Sequence[int]) -> Sizes:
    """Sizes after broadcasting. Raises Unavailable for sizes that do not fit."""
    longest = max(len(left), len(right))
    wide = [(1,) * (longest - len(sizes)) + tuple(sizes) for sizes in (left, right)]
    if any(a != b and 1 not in (a, b) for a, b in zip(*wide, strict=True)):
        raise Unavailable(f"sizes {tuple(left)} and {tuple(right)} do not broadcast")
    return tuple(b if a == 1 else a for a, b in zip(*wide, strict=True))


def convolution(given: CallArguments) -> tuple[Sizes, ...]:
    if given.value("transposed", False):
        return transposed(given)
    inputs, weight = given.shape("input", "self"), given.shape("weight")
    batch, spatial = _split(inputs, weight)
    settings = _settings(given, len(spatial))
    return ((*batch, weight[0], *map(window, spatial, weight[2:], *settings)),)


def transposed(given: CallArguments) -> tuple[Sizes, ...]:
    inputs, weight = given.shape("input", "self"), given.shape("weight")
    batch, spatial = _split(inputs, weight)
    settings = (*_settings(given, len(spatial)), _each(given, "output_padding", 0, len(spatial)))
    channels = weight[1] * given.value("groups", 1)
    return ((*batch, channels, *map(spread, spatial, weight[2:], *settings)),)


def _split(inputs: Sizes, weight: Sizes) -> tuple[Sizes, Sizes]:
    """(batch or nothing, spatial sizes) of a convolution's input, whose channels stand between."""
    dimensions = len(weight) - 2
    if dimensions < 1 or not 0 <= len(inputs) - dimensions - 1 <= 1:
        raise Unavailable(f"an input of {inputs} and a weight of {weight} are of no convolution")
    return inputs[: len(inputs) - dimensions - 1], inputs[len(inputs) - dimensions :]


def _settings(given: CallArguments, dimensions: int) -> tuple[Sequence[Any], ...]:
    """Stride, padding and dilation, each of every spatial dimension."""
    return tuple(_each(given, name, default, dimensions) for name, default in _DEFAULTS)


def _each(given: CallArguments, argument: str, default: int, dimensions: int) -> Sequence[Any]:
    """A setting for each spatial dimension: one number or word stands for all."""
    value = given.value(argument, default)
    if isinstance(value, (int, str)):
        return (value,) * dimensions
    values = tuple(value)
    if len(values) not in (1, dimensions):
        raise Unavailable(f"expected {dimensions} numbers of {argument}, came {len(values)}")
    return values * dimensions if len(values) == 1 else values


def convolution_backward(given: CallArguments) -> tuple[Sizes, ...]:
    _split(given.shape("grad_output"), given.shape("weight"))
    return ()


def matmul(given: CallArguments) -> tuple[Sizes, ...]:
    return (matmul_shape(given.shape("self"), given.shape("mat2", "other", "vec", "tensor")),)


def added(given: CallArguments) -> tuple[Sizes, ...]:
    left, right = given.shape("mat1", "batch1", "mat"), given.shape("mat2", "batch2", "vec")
    return (matmul_shape(left, right),)


def time_first(given: CallArguments) -> tuple[Sizes, ...]:
    """conv_tbc: time, batch, channels."""
    (time, batch, _), (taps, _, channels) = given.shape("self"), given.shape("weight")
    return ((time + 2 * given.values["pad"] - taps + 1, batch, channels),)


def added_sum(given: CallArguments) -> tuple[Sizes, ...]:
    return (matmul_shape(given.shape("batch1"), given.shape("batch2"))[1:],)


def inner(given: CallArguments) -> tuple[Sizes, ...]:
    return ((*given.shape("self")[:-1], *given.shape("other")[:-1]),)


def linear(given: CallArguments) -> tuple[Sizes, ...]:
    inputs, weight = given.shape("input", "self"), given.shape("weight")
    if not inputs or inputs[-1] != weight[-1]:
        raise Unavailable(f"an input of {inputs} and a weight of {weight} do not multiply")
    return ((*inputs[:-1], *weight[:-1]),)


def distances(given: CallArguments) -> tuple[Sizes, ...]:
    left, right = given.shape("x1"), given.shape("x2")
    return ((*broadcast(left[:-2], right[:-2]), left[-2], right[-2]),)


def unread(_given: CallArguments) -> tuple[Sizes, ...]:
    """Nothing is needed of an operator whose count follows from what goes into it."""
    return ()
