"""What an old recording leaves out of a convolution, from what else it holds.

torch.profiler before 2.0 kept the sizes of a call's tensors and no other argument: no stride, padding, groups, nor
which gradients were asked for. A convolution's multiply-adds need none of them once the size of its output is known,
and that is recorded elsewhere: in calls inside the convolution, in the call that calculates its gradients, in later
calls that take the output. Groups are those that channels of input and weight leave. Which gradients were asked for is
told by the calls inside, where old PyTorch makes one for each.

Each witness allows some counts. All must agree: where they allow no common count, or several, the convolution is
`Unavailable`, with why. Nothing is guessed.

Assumed: what a convolution returns goes into a recorded call of the same pass, if later calls are all that is known.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from analysis.operators import Sizes, products
from analysis.trace.operations import kind_of_call
from analysis.trace.signatures import FORMS, GONE
from results import Unavailable
from results.records import ProfiledOperation

MOST_DILATION = 8
"""Dilations that are tried when an output is compared with its input."""

LEAST_DIMENSIONS = 3
"""Of a convolution's input, weight and output: two, and one of positions."""

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


@dataclass(frozen=True, slots=True)
class Witnesses:
    """What a recording holds of the output of one convolution, beside the call itself.

    output: sizes of the output itself, from calls inside and from its gradient. taken: the different sizes of all
    tensors that later calls of the pass take. next_taken: of those, without what a later call is known to take from
    another call; empty where the call right after the convolution takes nothing that fits. inside_flop: FLOP of the
    products inside the call, by their own sizes.
    """

    output: tuple[Sizes, ...] = ()
    taken: tuple[Sizes, ...] = ()
    next_taken: tuple[Sizes, ...] = ()
    inside_flop: int | None = None


def forward_flop(call: ProfiledOperation, inside: Sequence[str], witnesses: Witnesses) -> int:
    """Model FLOP of a convolution's forward pass of which tensors' sizes were recorded, and nothing else.

    inside: names of the calls in it. Raises Unavailable, with why, for what is no convolution, or where the witnesses
    do not decide or contradict each other.
    """
    tensors = _tensors(call)
    inputs, weight = _of(tensors, call, "input", "self"), _of(tensors, call, "weight")
    _check(call, inputs, weight)
    transposed = is_transposed([call.name, *inside])

    def counts(*outputs: Sizes) -> frozenset[int]:
        return frozenset(flop for sizes in outputs for flop in _readings(inputs, weight, sizes, transposed))

    spoken = [counts(sizes) for sizes in witnesses.output]
    if not all(spoken):
        raise Unavailable(f"{call.name}: what was recorded of its output, {witnesses.output}, cannot come out of it")
    if witnesses.inside_flop is not None:
        spoken.append(frozenset((witnesses.inside_flop,)))
    if transposed:
        spoken.append(frozenset((_turned(weight, inputs),)))
    else:
        spoken.append(counts(*witnesses.taken))
    allowed = _common(call, spoken)
    if len(allowed) > 1:
        allowed = _common(call, [allowed, counts(*witnesses.next_taken)])
    if not allowed and not transposed and {*inputs[2:], *weight[2:]} == {1}:  # of these sizes only one output can come
        allowed = counts((inputs[0], weight[0], *inputs[2:]))
    return _only(call, allowed, transposed)


def _common(call: ProfiledOperation, spoken: Iterable[frozenset[int]]) -> frozenset[int]:
    """The counts that all witnesses allow which say anything; none: nobody said anything. Raises Unavailable."""
    heard = [counts for counts in spoken if counts]
    common = frozenset.intersection(*heard) if heard else frozenset()
    if heard and not common:
        raise Unavailable(f"{call.name}: what was recorded of its output does not agree")
    return common


def _only(call: ProfiledOperation, allowed: frozenset[int], transposed: bool | None) -> int:
    if len(allowed) == 1:
        return next(iter(allowed))
    if transposed is None:
        raise Unavailable(f"{call.name}: the recording does not say whether it is transposed, or what comes out of it")
    if allowed:
        raise Unavailable(f"{call.name}: later calls take tensors of {len(allowed)} sizes that could come out of it")
    raise Unavailable(f"{call.name}: the recording says neither its stride nor what comes out of it")


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


def requested_gradients(inside: Iterable[str]) -> int | None:
    """How many of the gradients of input and weight were calculated, by the calls inside; None: they do not tell."""
    bare = [name.partition("::")[2] for name in inside]
    asked = {part for part in ("backward_input", "backward_weight") if any(part in name for name in bare)}
    return len(asked) or None


def is_transposed(names: Iterable[str]) -> bool | None:
    """Whether a convolution is a transposed one, by the names of the calls that make it; None: they do not tell."""
    transposed = None
    for name in names:
        bare = name.partition("::")[2]
        if "transpose" in bare and "conv" in bare:
            return True
        if kind_of_call(name) == "convolution" and bare not in _TELLS_NOTHING:
            transposed = False
    return transposed


def grad_output(call: ProfiledOperation) -> Sizes | None:
    """Sizes of the output's gradient, of a call that calculates a convolution's gradients; None: not recorded."""
    try:
        return _tensors(call).get("grad_output")
    except Unavailable:
        return None


def operands(call: ProfiledOperation) -> tuple[Sizes, Sizes] | None:
    """(input, weight) of a convolution or of a call that calculates its gradients; None: not recorded."""
    try:
        tensors = _tensors(call)
        return _of(tensors, call, "input", "self"), _of(tensors, call, "weight")
    except Unavailable:
        return None


def is_readable(call: ProfiledOperation) -> bool:
    """Whether the recorded sizes are of a batch of a convolution."""
    both = operands(call)
    return both is not None and len(both[0]) == len(both[1]) >= LEAST_DIMENSIONS


def can_return(inputs: Sizes, weight: Sizes, transposed: bool | None, sizes: Sizes) -> bool:
    """Whether a convolution of these operands can return a tensor of these sizes; transposed None: of either kind."""
    return bool(_readings(inputs, weight, sizes, transposed))


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
    if len(weight) < LEAST_DIMENSIONS or len(inputs) != len(weight):
        raise Unavailable(
            f"{call.name}: an input of {inputs} and a weight of {weight} are of no batch of a convolution"
        )


# --- counts ----------------------------------------------------------------------------------------------------------


def _readings(inputs: Sizes, weight: Sizes, output: Sizes, transposed: bool | None) -> tuple[int, ...]:
    """The counts of a convolution, and of a transposed one, that can return such an output."""
    straight = transposed is not True and _fits(inputs, weight, output)
    turned = transposed is not False and _fits(output, weight, inputs)
    return (*((_straight(weight, output),) if straight else ()), *((_turned(weight, inputs),) if turned else ()))


def _straight(weight: Sizes, output: Sizes) -> int:
    return int(products.convolution(prod(output), weight).model_flop)


def _turned(weight: Sizes, inputs: Sizes) -> int:
    return int(products.convolution_transpose(prod(inputs), weight).model_flop)


def _fits(inputs: Sizes, weight: Sizes, output: Sizes) -> bool:
    """Whether a convolution of `inputs` with `weight` can return `output`: batch, channels, groups and positions."""
    if (
        not len(output) == len(inputs) == len(weight)
        or output[:2] != (inputs[0], weight[0])
        or not weight[1]
        or inputs[1] % weight[1]
    ):
        return False
    groups = inputs[1] // weight[1]
    if not groups or weight[0] % groups:
        return False
    return all(map(can_come_out, inputs[2:], weight[2:], output[2:]))
