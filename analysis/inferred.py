"""What an old recording leaves out of a convolution, from what else it holds.

torch.profiler before 2.0 kept the sizes of a call's tensors and no other argument: no stride, padding, groups, nor
which gradients were asked for. A convolution's multiply-adds need none of them once the size of its output is known,
and that stands beside the call: its gradient goes into the backward call, the output itself into the next call. Groups
are those that channels of input and weight leave. Which gradients were asked for is told by the calls inside, where old
PyTorch makes one for each.

Where two readings give different counts the convolution is `Unavailable`, with why: nothing is guessed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from math import prod

from analysis import formulas
from analysis.operands import Sizes
from analysis.recorded import kind_of_call
from analysis.recorded_forms import FORMS, GONE
from results.errors import Unavailable
from results.records import ProfiledOperation

MOST_DILATION = 8
"""Dilations that are tried when an output is held against its input."""

_TELLS_NOTHING = frozenset(
    (
        "convolution",
        "_convolution",
        "convolution_overrideable",
        "convolution_backward",
        "convolution_backward_overrideable",
    )
)
"""Operators that are a convolution or a transposed one, by an argument."""


def forward_flop(call: ProfiledOperation, inside: Sequence[str], outputs: Sequence[Sizes]) -> int:
    """Model FLOP of a convolution's forward pass of which tensors' sizes were recorded, and nothing else.

    inside: names of the calls in it. outputs: sizes that its output may have, the surest first: of its gradient, of the
    next call's input. Raises Unavailable, with why, for what is no convolution or where the sizes do not decide.
    """
    tensors = _tensors(call)
    inputs, weight = _of(tensors, call, "input", "self"), _of(tensors, call, "weight")
    _check(call, inputs, weight)
    transposed = is_transposed([call.name, *inside])
    if transposed is None:
        return _either(call, inputs, weight, outputs)
    return _flop(call, inputs, weight, outputs, transposed)


def gradient_flop(call: ProfiledOperation, names: Sequence[str]) -> int:
    """Model FLOP of *one* gradient of a convolution whose input, weight and output's gradient have recorded sizes.

    names: of the calls inside and of the forward call, which tell a transposed convolution. Raises Unavailable.
    """
    tensors = _tensors(call)
    inputs, weight = _of(tensors, call, "input", "self"), _of(tensors, call, "weight")
    gradient = _of(tensors, call, "grad_output")
    _check(call, inputs, weight)
    transposed = is_transposed([call.name, *names])
    straight, turned = _straight(weight, gradient), _turned(weight, inputs)
    if transposed is None and straight != turned:
        readings = [_fits(inputs, weight, gradient), _fits(gradient, weight, inputs)]
        if readings.count(True) != 1:
            raise Unavailable(f"{call.name}: recorded sizes are of a convolution and of a transposed one")
        transposed = readings[1]
    return turned if transposed else straight


def gradients_asked(inside: Iterable[str]) -> int | None:
    """How many of the gradients of input and weight were calculated, by the calls inside; None: they do not tell."""
    bare = [name.partition("::")[2] for name in inside]
    asked = {part for part in ("backward_input", "backward_weight") if any(part in name for name in bare)}
    return len(asked) or None


def is_transposed(names: Iterable[str]) -> bool | None:
    """Whether a convolution is a transposed one, by the names of the calls that make it; None: they do not tell."""
    told = None
    for name in names:
        bare = name.partition("::")[2]
        if "transpose" in bare and "conv" in bare:
            return True
        if kind_of_call(name) == "convolution" and bare not in _TELLS_NOTHING:
            told = False
    return told


def grad_output(call: ProfiledOperation) -> Sizes | None:
    """Sizes of the output's gradient, of a call that calculates a convolution's gradients; None: not recorded."""
    try:
        return _tensors(call).get("grad_output")
    except Unavailable:
        return None


def window(call: ProfiledOperation) -> tuple[Sizes, Sizes, int]:
    """(spatial sizes of the input, of the weight, groups) of a convolution or its gradients, not transposed.

    Raises Unavailable where the sizes were not recorded or leave no groups.
    """
    tensors = _tensors(call)
    inputs, weight = _of(tensors, call, "input", "self"), _of(tensors, call, "weight")
    _check(call, inputs, weight)
    groups = inputs[1] // weight[1] if weight[1] else 0
    if groups < 1 or inputs[1] % weight[1] or weight[0] % groups:
        raise Unavailable(f"{call.name}: an input of {inputs} and a weight of {weight} leave no groups")
    return inputs[2:], weight[2:], groups


@functools.lru_cache(maxsize=4096)
def can_come_out(size: int, kernel: int, out: int) -> bool:
    """Whether a convolution can turn `size` into `out` along one dimension: (size + 2·padding - reach) ÷ stride + 1.

    Any stride, any padding up to the kernel's reach, dilations up to MOST_DILATION.
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
    """The sizes of a call's tensors by argument."""
    bare = call.name.partition("::")[2]
    forms = FORMS.get(bare) or GONE.get(bare)
    if not forms or kind_of_call(call.name) != "convolution":
        raise Unavailable(f"{call.name}: not a convolution whose arguments are known")
    sizes = zip(forms[0].arguments, call.input_shapes, strict=False)
    return {name: tuple(each) for name, each in sizes if each and all(type(size) is int for size in each)}


def _of(tensors: dict[str, Sizes], call: ProfiledOperation, *arguments: str) -> Sizes:
    for argument in arguments:
        if argument in tensors:
            return tensors[argument]
    raise Unavailable(f"{call.name}: no sizes of {' or '.join(arguments)} were recorded")


def _check(call: ProfiledOperation, inputs: Sizes, weight: Sizes) -> None:
    if len(weight) < 3 or len(inputs) != len(weight):
        raise Unavailable(
            f"{call.name}: an input of {inputs} and a weight of {weight} are of no batch of a convolution"
        )


# --- counts ----------------------------------------------------------------------------------------------------------


def _flop(call: ProfiledOperation, inputs: Sizes, weight: Sizes, outputs: Sequence[Sizes], transposed: bool) -> int:
    if transposed:
        return _turned(weight, inputs)
    fitting = [output for output in outputs if _fits(inputs, weight, output)]
    if fitting:
        return _straight(weight, fitting[0])
    if {*inputs[2:], *weight[2:]} == {1}:  # the only sizes of which one alone can come
        return _straight(weight, (inputs[0], weight[0], *inputs[2:]))
    raise Unavailable(f"{call.name}: the recording says neither its stride nor what comes out of it")


def _either(call: ProfiledOperation, inputs: Sizes, weight: Sizes, outputs: Sequence[Sizes]) -> int:
    """Of a call that may be transposed or not: the count on which all readings that fit agree."""
    counts = {_straight(weight, output) for output in outputs if _fits(inputs, weight, output)}
    if any(_fits(output, weight, inputs) for output in outputs):
        counts.add(_turned(weight, inputs))
    if len(counts) != 1:
        raise Unavailable(f"{call.name}: the recording does not say whether it is transposed, or what comes out of it")
    return counts.pop()


def _straight(weight: Sizes, output: Sizes) -> int:
    return int(formulas.convolution(prod(output), weight).model_flop)


def _turned(weight: Sizes, inputs: Sizes) -> int:
    return int(formulas.convolution_transpose(prod(inputs), weight).model_flop)


def _fits(inputs: Sizes, weight: Sizes, output: Sizes) -> bool:
    """Whether a convolution of `inputs` with `weight` can return `output`: batch, channels, groups and positions."""
    if len(output) != len(inputs) or output[:2] != (inputs[0], weight[0]) or not weight[1] or inputs[1] % weight[1]:
        return False
    groups = inputs[1] // weight[1]
    if not groups or weight[0] % groups:
        return False
    return all(map(can_come_out, inputs[2:], weight[2:], output[2:]))
