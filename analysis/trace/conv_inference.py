"""Counts a convolution whose settings were not recorded, from recorded tensor sizes only.

torch.profiler before 2.0 recorded no stride, padding, groups or requested gradients. `forward_flop` and `gradient_flop`
take a `ProfiledOperation` and the names of calls inside it, and return model FLOP. The multiply-adds need no such
setting once the output's size is known. In the backward pass, the gradient that comes in has that size. Groups follow
from the channels of input and weight, computed gradients from the calls inside. Sizes that contradict each other raise
`Unavailable` with the reason.
"""

import functools
from collections.abc import Iterable, Sequence
from math import prod

from analysis.operators import products
from analysis.operators.cost import Sizes
from analysis.trace.operations import kind_of_call
from analysis.trace.signatures import FORMS, GONE
from results.errors import Unavailable
from results.records.counts import ProfiledOperation

MOST_DILATION = 8
"""Largest dilation tried when an output is compared with its input."""

LEAST_DIMENSIONS = 3
"""Fewest dimensions of a convolution's input, weight and output: two, and one of positions."""

_AMBIGUOUS = frozenset(
    (
        "convolution",
        "_convolution",
        "convolution_overrideable",
        "convolution_backward",
        "convolution_backward_overrideable",
    )
)
"""Operators whose names do not show whether the convolution is transposed: an argument decides."""


def forward_flop(
    call: ProfiledOperation, inside: Sequence[str], output: Sizes | None, inside_flop: int | None = None
) -> int:
    """Return the model FLOP of a convolution's forward pass from its tensors' sizes only.

    inside: names of the calls inside the convolution. output: sizes of its output; None: not recorded. inside_flop:
    FLOP of the products inside, by their recorded sizes; None: there are none. Raises Unavailable, with the reason, for
    other operators, and where these values contradict each other or leave no count or several.
    """
    inputs, weight = _operands(call)
    transposed = is_transposed([call.name, *inside])
    counts = [{inside_flop}] if inside_flop is not None else []
    if output is not None:
        straight = transposed is not True and _fits(inputs, weight, output)
        turned = transposed is not False and _fits(output, weight, inputs)
        counts.append({_straight(weight, output)} if straight else set())
        counts[-1] |= {_turned(weight, inputs)} if turned else set()
    if transposed:
        counts.append({_turned(weight, inputs)})
    if not counts:
        raise Unavailable(f"{call.name}: neither its stride nor the size of its output was recorded")
    allowed = set.intersection(*counts)
    if not allowed:
        raise Unavailable(f"{call.name}: the recorded sizes contradict each other")
    if len(allowed) > 1:
        raise Unavailable(f"{call.name}: whether it is transposed was not recorded")
    return allowed.pop()


def gradient_flop(call: ProfiledOperation, names: Sequence[str]) -> int:
    """Return the model FLOP of *one* gradient of a convolution with recorded sizes of input, weight and output
    gradient.

    names: of the calls inside and of the forward call, which may show a transposed convolution. Raises Unavailable
    where the sizes were not recorded or leave both kinds of convolution possible.
    """
    inputs, weight = _operands(call)
    gradient = _of(_tensors(call), call, "grad_output")
    transposed = is_transposed([call.name, *names])
    straight, turned = _straight(weight, gradient), _turned(weight, inputs)
    if transposed is None and straight != turned:
        readings = [_fits(inputs, weight, gradient), _fits(gradient, weight, inputs)]
        if readings.count(True) != 1:
            raise Unavailable(f"{call.name}: the recorded sizes do not show whether it is transposed")
        transposed = readings[1]
    return turned if transposed else straight


def requested_gradients(inside: Iterable[str]) -> int | None:
    """Return how many of the two gradients, of input and weight, the calls inside show as computed; None: unknown."""
    bare = [name.partition("::")[2] for name in inside]
    requested = {part for part in ("backward_input", "backward_weight") if any(part in name for name in bare)}
    return len(requested) or None


def is_transposed(names: Iterable[str]) -> bool | None:
    """Return whether a convolution is transposed, by the names of the calls that make it up; None: unknown."""
    transposed = None
    for name in names:
        bare = name.partition("::")[2]
        if "transpose" in bare and "conv" in bare:
            return True
        if kind_of_call(name) == "convolution" and bare not in _AMBIGUOUS:
            transposed = False
    return transposed


def grad_output(call: ProfiledOperation) -> Sizes | None:
    """Return the sizes of the output's gradient, from a call that computes a convolution's gradients; None: not
    recorded."""
    return _tensors(call).get("grad_output")


def is_readable(call: ProfiledOperation) -> bool:
    """Return whether the recorded sizes are of a batched convolution."""
    try:
        _operands(call)
    except Unavailable:
        return False
    return True


def window(call: ProfiledOperation) -> tuple[Sizes, Sizes, int]:
    """Return (spatial sizes of the input, of the weight, groups) of a plain convolution or its gradients.

    Raises Unavailable where the sizes were not recorded or fit no groups.
    """
    inputs, weight = _operands(call)
    groups = _groups(inputs, weight)
    if not groups:
        raise Unavailable(f"{call.name}: the channels of input {inputs} and weight {weight} fit no number of groups")
    return inputs[2:], weight[2:], groups


@functools.lru_cache(maxsize=4096)
def can_come_out(size: int, kernel: int, out: int) -> bool:
    """Return whether a convolution can turn `size` into `out` along one dimension: (size + 2·padding - reach) ÷ stride
    + 1.

    Tries any stride, any padding up to the kernel's reach, dilations up to MOST_DILATION.
    """
    for dilation in range(1, MOST_DILATION + 1 if kernel > 1 else 2):
        reach = dilation * (kernel - 1)
        for padding in range(reach + 1):
            room = size + 2 * padding - reach - 1
            if room >= 0 and (out == 1 or (1 < out <= room + 1 and room // (room // (out - 1)) == out - 1)):
                return True
    return False


# --- sizes of arguments ----------------------------------------------------------------------------------------------


def _tensors(call: ProfiledOperation) -> dict[str, Sizes]:
    """Return the sizes of a call's tensors by argument; empty for an operator whose arguments are unknown."""
    bare = call.name.partition("::")[2]
    forms = (FORMS.get(bare) or GONE.get(bare)) if kind_of_call(call.name) == "convolution" else None
    sizes = zip(forms[0].arguments if forms else (), call.input_shapes, strict=False)
    return {name: tuple(shape) for name, shape in sizes if shape and all(type(size) is int for size in shape)}


def _of(tensors: dict[str, Sizes], call: ProfiledOperation, *arguments: str) -> Sizes:
    for argument in arguments:
        if argument in tensors:
            return tensors[argument]
    raise Unavailable(f"{call.name}: no sizes of {' or '.join(arguments)} were recorded")


def _operands(call: ProfiledOperation) -> tuple[Sizes, Sizes]:
    """Return the sizes of input and weight. Raises Unavailable."""
    tensors = _tensors(call)
    inputs, weight = _of(tensors, call, "input", "self"), _of(tensors, call, "weight")
    if len(weight) < LEAST_DIMENSIONS or len(inputs) != len(weight):
        raise Unavailable(
            f"{call.name}: expected sizes of a batched convolution, got input {inputs} and weight {weight}"
        )
    return inputs, weight


def _groups(inputs: Sizes, weight: Sizes) -> int:
    """Return the groups that follow from the channels of input and weight; 0: none fit."""
    groups = inputs[1] // weight[1] if weight[1] else 0
    return groups if groups and not inputs[1] % weight[1] and not weight[0] % groups else 0


# --- counts ----------------------------------------------------------------------------------------------------------


def _straight(weight: Sizes, output: Sizes) -> int:
    return int(products.convolution(prod(output), weight).model_flop)


def _turned(weight: Sizes, inputs: Sizes) -> int:
    return int(products.convolution_transpose(prod(inputs), weight).model_flop)


def _fits(inputs: Sizes, weight: Sizes, output: Sizes) -> bool:
    """Return whether a convolution of `inputs` with `weight` can return `output`: batch, channels, groups and
    positions."""
    if (
        not len(output) == len(inputs) == len(weight)
        or output[:2] != (inputs[0], weight[0])
        or not _groups(inputs, weight)
    ):
        return False
    return all(map(can_come_out, inputs[2:], weight[2:], output[2:]))
