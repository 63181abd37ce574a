"""Definition, injected fault: convolutions without settings have the count of those with settings, or none."""

import dataclasses
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.trace import conv_inference
from analysis.trace.conv_inference import (
    can_come_out,
    forward_flop,
    grad_output,
    gradient_flop,
    is_transposed,
    window,
)
from analysis.trace.operations import product_flop
from results.errors import Unavailable
from results.records.counts import ProfiledOperation
from tests.support.recordings.recordings import Tensor, call


def without_settings(found: ProfiledOperation) -> ProfiledOperation:
    """The call as torch 1.9 recorded it."""
    return dataclasses.replace(found, concrete_inputs=())


def conv(n: int, c: int, size: tuple[int, int], k: int, kernel: tuple[int, int], **more: Any) -> tuple[Any, Any]:
    """(the call with settings, the sizes of its output), counted by hand."""
    stride, padding, dilation, groups = (more.get(name, d) for name, d in zip(_SET, (1, 0, 1, 1), strict=True))
    each = [(value, value) for value in (stride, padding, dilation)]
    made = call("aten::conv2d", Tensor(n, c, *size), Tensor(k, c // groups, *kernel), None, *each, groups)
    out = tuple((s + 2 * padding - dilation * (t - 1) - 1) // stride + 1 for s, t in zip(size, kernel, strict=True))
    return made, (n, k, *out)


_SET = ("stride", "padding", "dilation", "groups")

sizes = st.integers(5, 20)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_output_tells_what_settings_tell(data: st.DataObject) -> None:
    draw = data.draw
    groups, kernel = draw(st.sampled_from([1, 2, 3])), (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    dilation = draw(st.integers(1, 2))
    padding = draw(st.integers(0, dilation * (min(kernel) - 1)))
    more = {"stride": draw(st.integers(1, 3)), "padding": padding, "dilation": dilation, "groups": groups}
    c, k = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    made, out = conv(draw(st.integers(1, 3)), c, (draw(sizes), draw(sizes)), k, kernel, **more)
    old = without_settings(made)
    assert forward_flop(old, (), out) == product_flop(made)
    assert gradient_flop(_gradient(old, out), ["aten::conv2d"]) == product_flop(made)
    assert window(old) == (made.input_shapes[0][2:], kernel, groups)


def _gradient(forward: ProfiledOperation, out: tuple[int, ...], name: str = "aten::convolution_backward") -> Any:
    inputs, weight = forward.input_shapes[:2]
    return without_settings(call(name, Tensor(*out), Tensor(*inputs), Tensor(*weight)))


def test_an_output_gives_a_count_or_there_is_none() -> None:
    made, out = conv(2, 4, (8, 8), 6, (3, 3), stride=2, padding=1)
    old, right = without_settings(made), product_flop(made)
    assert forward_flop(old, (), out, right) == right
    with pytest.raises(Unavailable, match="neither its stride nor the size of its output"):
        forward_flop(old, (), None)
    for each in ((2, 4, 8, 8), (1, 6, 4, 4), (2, 6, 25, 4), (2, 6), ()):  # at most 8 + dilation 8 · 2
        with pytest.raises(Unavailable, match="contradict each other"):
            forward_flop(old, (), each)
    with pytest.raises(Unavailable, match="contradict each other"):
        forward_flop(old, (), out, right + 1)


def test_what_can_come_out_is_what_brute_force_finds() -> None:
    for size, kernel in product((1, 2, 5, 9), (1, 2, 3)):
        found = set()
        for dilation, stride in product(range(1, conv_inference.MOST_DILATION + 1), range(1, size + 40)):
            for padding in range(dilation * (kernel - 1) + 1):
                starts = range(0, size + 2 * padding - dilation * (kernel - 1), stride)
                found.add(len(starts))
        found.discard(0)
        assert {out for out in range(-1, 60) if can_come_out(size, kernel, out)} == found, (size, kernel)


def test_a_transposed_convolution_is_counted_by_its_input() -> None:
    each = ((2, 2), (0, 0), (0, 0), 1, (1, 1))
    made = call("aten::conv_transpose2d", Tensor(2, 6, 5, 5), Tensor(6, 3, 2, 2), None, *each)
    old = without_settings(made)
    assert forward_flop(old, (), None) == product_flop(made) == 2 * (2 * 6 * 5 * 5) * 3 * 2 * 2
    gradient = _gradient(old, (2, 3, 10, 10))
    assert gradient_flop(gradient, ["aten::conv_transpose2d"]) == product_flop(made)
    assert gradient_flop(gradient, []) == product_flop(made)  # channels fit no other reading


def test_the_calls_inside_tell_what_kind_of_convolution_it_is() -> None:
    made = without_settings(call("aten::convolution", Tensor(2, 4, 8, 8), Tensor(4, 4, 2, 2)))
    straight = 2 * (2 * 4 * 4 * 4) * 4 * 2 * 2
    turned = 2 * (2 * 4 * 8 * 8) * 4 * 2 * 2
    assert forward_flop(made, ["aten::cudnn_convolution"], (2, 4, 4, 4)) == straight
    assert forward_flop(made, ["aten::cudnn_convolution_transpose"], None) == turned
    assert forward_flop(made, [], (2, 4, 32, 32)) == turned  # no convolution makes 32 of 8 with a window of 2
    either = Tensor(2, 4, 8, 8), Tensor(4, 4, 3, 3)
    with pytest.raises(Unavailable, match="transposed"):
        forward_flop(without_settings(call("aten::convolution", *either)), [], (2, 4, 9, 9))


@pytest.mark.parametrize(
    "broken",
    [
        call("aten::conv2d", Tensor(2, 4, 8, 8)),
        call("aten::conv2d", Tensor(2, 4, 8, 8), Tensor(4, 4)),
        call("aten::conv2d", Tensor(4, 8, 8), Tensor(4, 4, 3, 3)),
        call("aten::mm", Tensor(4, 8), Tensor(8, 3)),
        call("mine::conv", Tensor(4, 8), Tensor(8, 3)),
    ],
)
def test_what_lacks_sizes_is_unavailable(broken: ProfiledOperation) -> None:
    with pytest.raises(Unavailable):
        forward_flop(broken, (), None)
    with pytest.raises(Unavailable):
        gradient_flop(broken, ())
    with pytest.raises(Unavailable):
        window(broken)
    assert grad_output(broken) is None


def test_a_gradient_of_either_kind_is_not_guessed() -> None:
    both = without_settings(
        call("aten::convolution_backward", Tensor(2, 4, 9, 9), Tensor(2, 4, 8, 8), Tensor(4, 4, 3, 3))
    )
    with pytest.raises(Unavailable, match="do not show whether it is transposed"):
        gradient_flop(both, [])
    assert gradient_flop(both, ["aten::conv2d"]) == 2 * (2 * 4 * 9 * 9) * 4 * 9
    assert gradient_flop(both, ["aten::conv_transpose2d"]) == 2 * (2 * 4 * 8 * 8) * 4 * 9


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["aten::conv2d"], False),
        (["aten::convolution"], None),
        (["aten::convolution", "aten::miopen_convolution"], False),
        (["aten::convolution_backward", "aten::conv_transpose2d"], True),
        (["aten::_convolution", "aten::empty"], None),
        (["aten::transpose", "aten::mm"], None),
        ([], None),
    ],
)
def test_is_transposed(names: list[str], told: bool | None) -> None:
    assert is_transposed(names) is told
