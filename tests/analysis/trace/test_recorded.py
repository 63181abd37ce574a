"""Known answer, definition, injected fault: recorded calls against PyTorch's schemas and outputs and counted taps."""

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.operators.registry import TABLE, cost
from analysis.trace.operations import product_flop, to_operation
from analysis.trace.signatures import FORMS, GONE
from results.errors import Unavailable
from tests.support.oracles.naive import Convolution
from tests.support.recordings.recordings import Tensor, call

# --- the table -------------------------------------------------------------------------------------------------------


def schemas(name: str) -> list[tuple[str, ...]]:
    """The arguments of every signature of an ATen operator in the installed PyTorch."""
    packet = getattr(torch.ops.aten, name)
    return [tuple(a.name for a in getattr(packet, o)._schema.arguments) for o in packet.overloads()]


@pytest.mark.parametrize("name", FORMS)
def test_arguments_are_those_of_the_schema(name: str) -> None:
    for form in FORMS[name]:
        assert form.arguments in [arguments[: len(form.arguments)] for arguments in schemas(name)]
        assert set(form.needs) <= set(form.arguments)


@pytest.mark.parametrize("name", GONE)
def test_what_is_gone_has_a_successor_that_the_table_counts(name: str) -> None:
    for form in GONE[name]:
        assert TABLE[f"aten.{form.name}"].kind == "convolution"
        assert set(form.needs) <= set(form.arguments)
        assert name not in FORMS


# --- convolutions ----------------------------------------------------------------------------------------------------

few = st.integers(1, 2)


@st.composite
def convolutions(draw: Any) -> Convolution:
    """A small convolution of any number of dimensions, groups, stride, padding, dilation, transposed or not."""
    dimensions = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dimensions))

    kernel, stride, dilation = each(1, 3), each(1, 3), each(1, 2)
    transposed = draw(st.booleans())
    more = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    size = tuple(d * (k - 1) + 1 + draw(st.integers(0, 2)) for k, d in zip(kernel, dilation, strict=True))
    padding = (0,) * dimensions if transposed else each(0, 2)
    return Convolution(
        batch=draw(few),
        groups=draw(st.integers(1, 3)),
        channels_in=draw(few),
        channels_out=draw(few),
        size=size,
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        output_padding=more if transposed else (0,) * dimensions,
        transposed=transposed,
    )


def tensors(case: Convolution) -> tuple[Tensor, Tensor, Tensor]:
    """(input, weight, output) of a case."""
    inputs = Tensor(case.batch, case.groups * case.channels_in, *case.size)
    output = Tensor(case.batch, case.groups * case.channels_out, *case.out_size)
    return inputs, Tensor(*case.weight_shape), output


def forward_call(case: Convolution, bias: bool = False) -> Any:
    inputs, weight, _ = tensors(case)
    added = Tensor(case.groups * case.channels_out) if bias else None
    setting = (case.stride, case.padding, case.dilation, case.transposed, case.output_padding, case.groups)
    return call("aten::convolution", inputs, weight, added, *setting)


def backward_call(case: Convolution, mask: tuple[bool, bool, bool]) -> Any:
    inputs, weight, output = tensors(case)
    setting = (case.stride, case.padding, case.dilation, case.transposed, case.output_padding, case.groups, mask)
    return call("aten::convolution_backward", output, inputs, weight, (output.sizes[1],), *setting)


def taps(case: Convolution) -> int:
    """Multiply-adds of the forward pass, one by one."""
    return sum(1 for _ in case.taps())


@settings(max_examples=60, deadline=None)
@given(convolutions(), st.booleans())
def test_a_convolution_counts_its_taps_and_has_torchs_output(case: Convolution, bias: bool) -> None:
    one = forward_call(case, bias)
    assert product_flop(one) == 2 * taps(case)
    inputs, weight, _ = tensors(case)
    made = torch.ops.aten.convolution(
        torch.empty(inputs.sizes, device="meta"), torch.empty(weight.sizes, device="meta"), None,
        *one.concrete_inputs[3:],
    )  # fmt: skip
    operation = to_operation(one)
    assert operation.output_shapes == (tuple(made.shape),)
    assert cost(operation).other_flop == (made.numel() if bias else 0)


@settings(max_examples=60, deadline=None)
@given(convolutions(), st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_gradients_of_a_convolution_count_by_mask(case: Convolution, mask: tuple[bool, bool, bool]) -> None:
    one = backward_call(case, mask)
    assert product_flop(one) == 2 * taps(case) * (mask[0] + mask[1])


@settings(max_examples=40, deadline=None)
@given(convolutions().filter(lambda case: not case.transposed), st.booleans())
def test_backends_take_their_settings_in_another_order(case: Convolution, unbatched: bool) -> None:
    inputs, weight, output = tensors(case)
    inputs = Tensor(*inputs.sizes[unbatched and case.batch == 1 :])
    stride, padding, dilation, groups = case.stride, case.padding, case.dilation, case.groups
    tuning = (True, False, True)
    calls = [
        call("aten::cudnn_convolution", inputs, weight, padding, stride, dilation, groups, *tuning),
        call("aten::mkldnn_convolution", inputs, weight, None, padding, stride, dilation, groups),
        call("aten::miopen_convolution", inputs, weight, None, padding, stride, dilation, groups, True, True),
        call("aten::slow_conv_dilated2d", inputs, weight, case.kernel, None, stride, padding, dilation),
        call("aten::thnn_conv_depthwise2d", inputs, weight, case.kernel, None, stride, padding, dilation),
    ]
    for one in calls:
        assert product_flop(one) == 2 * taps(case)
        assert to_operation(one).output_shapes[0][-len(case.size) :] == output.sizes[2:]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")  # that is what is tested
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2])
def test_padding_by_name(padding: str, kernel: int, dilation: int) -> None:
    one = call("aten::conv2d", Tensor(2, 4, 9, 8), Tensor(6, 2, kernel, kernel), None, 1, padding, dilation, 2)
    made = F.conv2d(torch.zeros(2, 4, 9, 8), torch.zeros(6, 2, kernel, kernel), None, 1, padding, dilation, 2)
    assert to_operation(one).output_shapes == (tuple(made.shape),)
    assert product_flop(one) == 2 * made.numel() * 2 * kernel * kernel


# --- older recordings ------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(convolutions().filter(lambda case: not case.transposed))
def test_gradients_by_names_that_are_gone(case: Convolution) -> None:
    inputs, weight, output = tensors(case)
    setting = (case.padding, case.stride, case.dilation, case.groups)
    single = 2 * taps(case)
    of_input = call("aten::cudnn_convolution_backward_input", inputs.sizes, output, weight, *setting, True, True, True)
    of_weight = call("aten::mkldnn_convolution_backward_weights", weight.sizes, output, inputs, *setting, True)
    both = call("aten::cudnn_convolution_backward", inputs, output, weight, *setting, True, True, True, (True, True))
    older = call("aten::cudnn_convolution_backward", inputs, output, weight, *setting, True, True, (False, True))
    assert [product_flop(one) for one in (of_input, of_weight, both, older)] == [single, single, 2 * single, single]
    assert to_operation(of_weight).name == "aten.convolution_backward"


# --- the other products ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)),
     ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((5, 1, 2, 3), (6, 3, 4)), ((1, 2, 3), (5, 3, 1)), ((0, 2, 3), (0, 3, 4))],
)  # fmt: skip
def test_matmul_has_torchs_output_and_counts_every_term(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    made = torch.matmul(torch.zeros(left), torch.zeros(right))
    one = call("aten::matmul", Tensor(*left), Tensor(*right))
    assert to_operation(one).output_shapes == (tuple(made.shape),)
    assert product_flop(one) == 2 * made.numel() * 3


QUERY, KEY = Tensor(2, 3, 5, 4), Tensor(2, 3, 7, 4)

PRODUCT_CALLS = [
    # name, arguments, output, multiply-adds by the definition
    ("linear", (Tensor(2, 5, 3), Tensor(4, 3), Tensor(4)), (2, 5, 4), 2 * 5 * 4 * 3),
    ("linear", (Tensor(5, 3), Tensor(3), None), (5,), 5 * 3),
    ("addmm", (Tensor(4), Tensor(2, 3), Tensor(3, 4), 1, 1), (2, 4), 2 * 3 * 4),
    ("addmm_", (Tensor(2, 4), Tensor(2, 3), Tensor(3, 4), 1, 1), (2, 4), 2 * 3 * 4),
    ("bmm", (Tensor(5, 2, 3), Tensor(5, 3, 4)), (5, 2, 4), 5 * 2 * 3 * 4),
    ("baddbmm", (Tensor(5, 2, 4), Tensor(5, 2, 3), Tensor(5, 3, 4), 1, 1), (5, 2, 4), 5 * 2 * 3 * 4),
    ("addbmm", (Tensor(2, 4), Tensor(5, 2, 3), Tensor(5, 3, 4), 1, 1), (2, 4), 5 * 2 * 3 * 4),
    ("mv", (Tensor(2, 3), Tensor(3)), (2,), 2 * 3),
    ("addmv_", (Tensor(2), Tensor(2, 3), Tensor(3), 0, 1), (2,), 2 * 3),
    ("dot", (Tensor(3), Tensor(3)), (), 3),
    ("inner", (Tensor(2, 3), Tensor(4, 3)), (2, 4), 2 * 4 * 3),
    ("_trilinear", (Tensor(2, 3), Tensor(5, 3, 4), Tensor(2, 4), (1, 3), (0,), (1, 2), (2, 3), 1), (2, 5), 160),
    ("_euclidean_dist", (Tensor(6, 2, 3), Tensor(6, 4, 3)), (6, 2, 4), 6 * 2 * 4 * 3),
    ("_cdist_forward", (Tensor(2, 3), Tensor(4, 3), 1.0, None), (2, 4), 0),
    ("linear_backward", (Tensor(2, 3), Tensor(2, 4), Tensor(4, 3), (False, True, True)), (4, 3), 2 * 3 * 4),
    ("scaled_dot_product_attention", (Tensor(2, 3, 5, 4), Tensor(2, 3, 7, 4), Tensor(2, 3, 7, 6)), (2, 3, 5, 6),
     2 * 3 * 5 * 7 * (4 + 6)),
    ("_scaled_dot_product_flash_attention_for_cpu_backward",
     (QUERY, QUERY, KEY, KEY, QUERY, Tensor(2, 3, 5)), (2, 3, 5, 4), 4 * 2 * 3 * 5 * 7 * 4),
    ("mkldnn_rnn_layer",
     (Tensor(4, 3, 5), Tensor(24, 5), Tensor(24, 6), Tensor(24), Tensor(24), Tensor(3, 6), Tensor(3, 6), False, (),
      2, 6, 2, True, False, True, True), (4, 3, 6), 4 * 3 * 24 * (5 + 6)),
    ("_cudnn_rnn",
     (Tensor(4, 3, 5), Tensor((24, 5), (24, 6), (24,), (24,)), 4, None, Tensor(1, 3, 6), Tensor(1, 3, 6), 2, 6, 0, 1,
      False, 0.0, True, True, (), None), (4, 3, 12), 2 * 4 * 3 * 24 * (5 + 6)),
    ("_thnn_fused_lstm_cell", (Tensor(3, 24), Tensor(3, 24), Tensor(3, 6), None, None), None, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "output", "multiply_adds"), PRODUCT_CALLS, ids=[c[0] for c in PRODUCT_CALLS]
)
def test_products(name: str, arguments: tuple[Any, ...], output: Any, multiply_adds: int) -> None:
    one = call(f"aten::{name}", *arguments)
    assert product_flop(one) == 2 * multiply_adds
    assert to_operation(one).output_shapes[:1] in ((), (output,))


CONV = (Tensor(1, 3, 9, 9), Tensor(4, 3, 3, 3), None)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (call("aten::mm", Tensor(2, 3), Tensor(4, 5)), r"sizes \(2, 3\) and \(4, 5\) do not multiply"),
        (call("aten::linear", Tensor(2, 3), Tensor(5, 4), None), "do not multiply"),
        (call("aten::mm", Tensor(2, 3)), "no sizes of mat2 or other or vec or tensor were recorded"),
        (call("aten::conv2d", *CONV, (2, 2, 2), 1, 1, 1), "expected 1 or 2 numbers as stride, got 3"),
        (call("aten::conv2d", *CONV, 1, "full", 1, 1), "expected numbers, 'same' or 'valid' as padding, got 'full'"),
        (call("aten::conv2d", *CONV, 0, 1, 1, 1), "of at least 1, got 0 and 1"),
        (call("aten::conv2d", *CONV, 1, 1, -2, 1), "of at least 1, got 1 and -2"),
        (call("aten::conv2d", Tensor(3, 9), Tensor(4, 3, 3, 3), None, 1, 1, 1, 1), "sizes of a convolution, got input"),
        (call("aten::_grouped_mm", Tensor(2, 3), Tensor(3, 4)), "the meaning of its arguments is not known"),
        (call("custom::conv2d", Tensor(2, 3), Tensor(3, 4)), "the meaning of its arguments is not known"),
        (call("aten::mkldnn_rnn_layer", Tensor(4, 3, 5)), "not recorded: mode, hidden_size"),
        (call("aten::scaled_dot_product_attention", Tensor(2, 3, 5, 4)), "fit no such call"),
        (call("aten::conv2d", Tensor(), Tensor(), None, 1, 0, 1, 1), "sizes of a convolution, got input"),
        (
            call("aten::convolution_backward", *[Tensor()] * 3, None, 1, 0, 1, False, 0, 1, (True,) * 3),
            "sizes of a convolution, got input",
        ),
        (call("aten::linear_backward", *[Tensor()] * 3, (True,) * 3), "aten::linear_backward: "),
        (
            call("aten::_cudnn_rnn", Tensor(), Tensor(), 4, None, None, None, 2, 6, 0, 1, True, 0, 1, False),
            "_cudnn_rnn",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_what_cannot_be_counted_says_why(one: Any, why: str) -> None:
    with pytest.raises(Unavailable, match=why):
        product_flop(one)


sizes = st.lists(st.integers(0, 4), max_size=5)
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 4),
    st.sampled_from(["same", "ij,jk->ik", "ij->i", ""]),
    st.lists(st.integers(-1, 3), max_size=3).map(tuple),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    sizes.map(lambda form: Tensor(*form)),
    st.lists(sizes.map(tuple), max_size=3).map(lambda forms: Tensor(*forms)),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*FORMS, *GONE]), st.lists(anything, max_size=17))
def test_any_nonsense_is_counted_or_unavailable(name: str, arguments: list[Any]) -> None:
    """Never another error, never a count below zero."""
    with contextlib.suppress(Unavailable):
        assert product_flop(call(f"aten::{name}", *arguments)) >= 0
