"""Lists, for each operator that a recording may have, its arguments in order and a function for its output sizes.

Operators are convolutions, matrix products, attention and recurrent layers; `operations.py` reads their calls by this
table and counts them. Arguments are those of PyTorch's schemas (native_functions.yaml), and for removed operators those
of PyTorch 1.5 to 1.11. A profiler records inputs and no outputs. The functions take a call's `CallArguments`, the
recorded sizes and values, and return its output sizes. They raise Unavailable where sizes or values are missing or do
not fit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.operators.cost import Sizes
from results.errors import Unavailable

# --- output sizes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallArguments:
    """A call's recorded arguments: sizes of tensors by argument ("params[2]" in a list), and the other values."""

    shapes: Mapping[str, Sizes]
    values: Mapping[str, Any]

    def shape(self, *arguments: str) -> Sizes:
        """Return the sizes of the first of these tensors that was passed. Raises Unavailable if none was."""
        for argument in arguments:
            if argument in self.shapes:
                return self.shapes[argument]
        raise Unavailable(f"no sizes of {' or '.join(arguments)} were recorded")


def window(size: int, kernel: int, stride: int, padding: int | str, dilation: int) -> int:
    """Return the number of positions of a convolution's window along one dimension; padding may be "same" or "valid".

    Raises Unavailable if the window does not fit, or an argument is invalid.
    """
    _check_steps(stride, dilation)
    reach = dilation * (kernel - 1)
    padded = {"same": reach, "valid": 0}.get(padding) if isinstance(padding, str) else 2 * padding
    if padded is None:
        raise Unavailable(f"expected numbers, 'same' or 'valid' as padding, got {padding!r}")
    positions = (size + padded - reach - 1) // stride + 1
    if positions < 1:
        raise Unavailable(f"a window of {reach + 1} does not fit into {size} positions with a padding of {padding}")
    return positions


def spread(size: int, kernel: int, stride: int, padding: int, dilation: int, output_padding: int) -> int:
    """Return the size of a transposed convolution's output along one dimension. Raises Unavailable if it is less than
    1, or an argument is invalid."""
    _check_steps(stride, dilation)
    positions = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1
    if positions < 1:
        end = f"padding {padding} and output padding {output_padding}"
        raise Unavailable(f"expected an output of at least 1, got {positions} from {size} positions with {end}")
    return positions


def _check_steps(stride: int, dilation: int) -> None:
    if stride < 1 or dilation < 1:
        raise Unavailable(f"expected a stride and a dilation of at least 1, got {stride} and {dilation}")


def matmul_shape(left: Sequence[int], right: Sequence[int]) -> Sizes:
    """Return the shape of torch.matmul's result. Raises Unavailable for sizes that do not fit."""
    if not left or not right or left[-1] != right[-2 if len(right) > 1 else 0]:
        raise Unavailable(f"sizes {tuple(left)} and {tuple(right)} do not multiply")
    batch = broadcast(left[:-2], right[:-2])
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def broadcast(left: Sequence[int], right: Sequence[int]) -> Sizes:
    """Return the sizes after broadcasting. Raises Unavailable for sizes that do not fit."""
    longest = max(len(left), len(right))
    wide = [(1,) * (longest - len(sizes)) + tuple(sizes) for sizes in (left, right)]
    if any(a != b and 1 not in (a, b) for a, b in zip(*wide, strict=True)):
        raise Unavailable(f"sizes {tuple(left)} and {tuple(right)} do not broadcast")
    return tuple(b if a == 1 else a for a, b in zip(*wide, strict=True))


_DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1}


def convolution(arguments: CallArguments) -> tuple[Sizes, ...]:
    if arguments.values.get("transposed", False):
        return transposed(arguments)
    inputs, weight = arguments.shape("input", "self"), arguments.shape("weight")
    batch, spatial = _split(inputs, weight)
    settings = [_per_dimension(arguments, name, default, len(spatial)) for name, default in _DEFAULTS.items()]
    return ((*batch, weight[0], *map(window, spatial, weight[2:], *settings)),)


def transposed(arguments: CallArguments) -> tuple[Sizes, ...]:
    inputs, weight = arguments.shape("input", "self"), arguments.shape("weight")
    batch, spatial = _split(inputs, weight)
    settings = [
        _per_dimension(arguments, name, default, len(spatial))
        for name, default in (_DEFAULTS | {"output_padding": 0}).items()
    ]
    channels = weight[1] * arguments.values.get("groups", 1)
    return ((*batch, channels, *map(spread, spatial, weight[2:], *settings)),)


def _split(inputs: Sizes, weight: Sizes) -> tuple[Sizes, Sizes]:
    """Return (batch, spatial sizes) of a convolution's input, without the channels; batch is () for a single sample."""
    dimensions = len(weight) - 2
    if dimensions < 1 or not 0 <= len(inputs) - dimensions - 1 <= 1:
        raise Unavailable(f"expected sizes of a convolution, got input {inputs} and weight {weight}")
    return inputs[: len(inputs) - dimensions - 1], inputs[len(inputs) - dimensions :]


def _per_dimension(arguments: CallArguments, argument: str, default: int, dimensions: int) -> Sequence[Any]:
    """Return a setting for each spatial dimension: a single number or word applies to all."""
    value = arguments.values.get(argument, default)
    if isinstance(value, (int, str)):
        return (value,) * dimensions
    values = tuple(value)
    if len(values) not in (1, dimensions):
        raise Unavailable(f"expected 1 or {dimensions} numbers as {argument}, got {len(values)}")
    return values * dimensions if len(values) == 1 else values


def convolution_backward(arguments: CallArguments) -> tuple[Sizes, ...]:
    _split(arguments.shape("grad_output"), arguments.shape("weight"))
    return ()


def matmul(arguments: CallArguments) -> tuple[Sizes, ...]:
    return (matmul_shape(arguments.shape("self"), arguments.shape("mat2", "other", "vec", "tensor")),)


def added(arguments: CallArguments) -> tuple[Sizes, ...]:
    left, right = arguments.shape("mat1", "batch1", "mat"), arguments.shape("mat2", "batch2", "vec")
    return (matmul_shape(left, right),)


def time_first(arguments: CallArguments) -> tuple[Sizes, ...]:
    """Return the output's sizes of conv_tbc: time, batch, channels."""
    (time, batch, _), (taps, _, channels) = arguments.shape("self"), arguments.shape("weight")
    return ((time + 2 * arguments.values["pad"] - taps + 1, batch, channels),)


def added_sum(arguments: CallArguments) -> tuple[Sizes, ...]:
    return (matmul_shape(arguments.shape("batch1"), arguments.shape("batch2"))[1:],)


def inner(arguments: CallArguments) -> tuple[Sizes, ...]:
    return ((*arguments.shape("self")[:-1], *arguments.shape("other")[:-1]),)


def linear(arguments: CallArguments) -> tuple[Sizes, ...]:
    inputs, weight = arguments.shape("input", "self"), arguments.shape("weight")
    if not inputs or inputs[-1] != weight[-1]:
        raise Unavailable(f"an input of {inputs} and a weight of {weight} do not multiply")
    return ((*inputs[:-1], *weight[:-1]),)


def distances(arguments: CallArguments) -> tuple[Sizes, ...]:
    left, right = arguments.shape("x1"), arguments.shape("x2")
    return ((*broadcast(left[:-2], right[:-2]), left[-2], right[-2]),)


def unread(_given: CallArguments) -> tuple[Sizes, ...]:
    """Return no sizes, for an operator whose count follows from its inputs."""
    return ()


# --- arguments -------------------------------------------------------------------------------------------------------

Outputs = Callable[[CallArguments], tuple[Sizes, ...]]


@dataclass(frozen=True)
class Form:
    """How to read a call: its arguments in order, those required to count it, and its outputs.

    name: the operator's current name, if it was recorded under an old one. fixed: what the old name implied.
    """

    arguments: tuple[str, ...]
    needs: tuple[str, ...]
    outputs: Outputs
    name: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)


_DECIDING = ("stride", "padding", "dilation", "transposed", "output_padding", "output_mask", "grad_input_mask")

_IMPLIED_BY_SIZES = ("stride", "padding", "dilation", "output_padding")
"""Arguments that a call for gradients does not require, because it has the sizes of the output's gradient."""

_SETTINGS = "input weight bias stride padding dilation groups"
_TRANSPOSED = "input weight bias stride padding output_padding groups dilation"
_WHOLE = "weight bias stride padding dilation transposed output_padding groups"
_TUNING = "benchmark deterministic allow_tf32"
_SLOW = "self weight kernel_size bias stride padding"
_GRADIENTS = "grad_output input weight bias_sizes stride padding dilation transposed output_padding groups output_mask"
_FLASH = "logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal"
_PHILOX = "out logsumexp philox_seed philox_offset"
_LAYER = "input weight0 weight1 weight2 weight3 hx_ cx_ reverse batch_sizes mode hidden_size num_layers has_biases"
_LAYER_BACKWARD = """
    input weight1 weight2 weight3 weight4 hx_ cx_tmp output hy_ cy_ grad_output grad_hy grad_cy reverse mode hidden_size
    num_layers has_biases train bidirectional batch_sizes batch_first workspace
"""
_CUDNN_GRADIENTS = "input weight weight_stride0 weight_buf hx cx output grad_output grad_hy grad_cy mode hidden_size"
_CUDNN_END = "num_layers batch_first dropout train bidirectional batch_sizes dropout_state"

Lines = Mapping[str, str]


def _forms(outputs: Outputs, needs: str, lines: Lines) -> dict[str, tuple[Form, ...]]:
    """Return name → its form. lines: names → arguments. A form requires `needs`, and those of its arguments that decide
    sizes."""
    table: dict[str, tuple[Form, ...]] = {}
    for listed, text in lines.items():
        arguments = tuple(text.split())
        deciding = [
            a for a in _DECIDING if a in arguments and not ("grad_output" in arguments and a in _IMPLIED_BY_SIZES)
        ]
        for name in listed.split():
            table[name] = (Form(arguments, (*needs.split(), *deciding), outputs),)
    return table


FORMS: Mapping[str, tuple[Form, ...]] = {
    **_forms(convolution, "", {
        "conv1d conv2d conv3d _convolution_mode": _SETTINGS,
        "convolution convolution_overrideable": f"input {_WHOLE}",
        "_convolution": f"input {_WHOLE} benchmark deterministic cudnn_enabled allow_tf32",
        "cudnn_convolution": f"self weight padding stride dilation groups {_TUNING}",
        "cudnn_convolution_relu miopen_convolution_relu": "self weight bias stride padding dilation groups",
        "cudnn_convolution_add_relu miopen_convolution_add_relu":
            "self weight z alpha bias stride padding dilation groups",
        "mkldnn_convolution": "self weight bias padding stride dilation groups",
        "miopen_convolution miopen_depthwise_convolution":
            "self weight bias padding stride dilation groups benchmark deterministic",
        "thnn_conv2d slow_conv3d _slow_conv2d_forward slow_conv3d_forward": _SLOW,
        "_conv_depthwise2d conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d": f"{_SLOW} dilation",
        "_nnpack_spatial_convolution": "input weight bias padding stride",
    }),
    **_forms(transposed, "", {
        "conv_transpose1d conv_transpose2d conv_transpose3d": _TRANSPOSED,
        "cudnn_convolution_transpose": f"self weight padding output_padding stride dilation groups {_TUNING}",
        "miopen_convolution_transpose":
            "self weight bias padding output_padding stride dilation groups benchmark deterministic",
        "slow_conv_transpose2d slow_conv_transpose3d": f"{_SLOW} output_padding dilation",
    }),
    **_forms(convolution_backward, "", {
        "convolution_backward": _GRADIENTS,
        "convolution_backward_overrideable": _GRADIENTS.replace("bias_sizes ", ""),
        "_slow_conv2d_backward": "grad_output self weight kernel_size stride padding output_mask",
    }),
    **_forms(time_first, "pad", {"conv_tbc": "self weight bias pad"}),
    **_forms(unread, "", {"conv_tbc_backward": "self input weight bias pad"}),
    **_forms(matmul, "", {
        "mm bmm _int_mm": "self mat2",
        "_scaled_mm": "self mat2 scale_a scale_b bias scale_result out_dtype use_fast_accum",
        "matmul": "self other",
        "mv": "self vec",
        "dot": "self tensor",
        "vdot": "self other",
    }),
    **_forms(inner, "", {"inner": "self other"}),
    **_forms(added, "", {
        "addmm": "self mat1 mat2 beta alpha",
        "_addmm_activation": "self mat1 mat2 beta alpha use_gelu",
        "baddbmm": "self batch1 batch2 beta alpha",
        "addmv": "self mat vec beta alpha",
    }),
    **_forms(added_sum, "", {"addbmm": "self batch1 batch2 beta alpha"}),
    **_forms(linear, "", {"linear": "input weight bias", "mkldnn_linear": "self weight bias"}),
    **_forms(unread, "", {
        "linear_backward mkldnn_linear_backward": "self grad_output weight output_mask",
    }),
    **_forms(unread, "expand1 expand2 expand3 sumdim", {
        "_trilinear": "i1 i2 i3 expand1 expand2 expand3 sumdim unroll_dim",
    }),
    **_forms(distances, "", {"_euclidean_dist": "x1 x2"}),
    **_forms(distances, "p", {"cdist _cdist_forward": "x1 x2 p compute_mode"}),
    **_forms(unread, "", {
        "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal scale enable_gqa",
        "_scaled_dot_product_attention_math":
            "query key value attn_mask dropout_p is_causal dropout_mask scale enable_gqa",
        "_scaled_dot_product_flash_attention": "query key value dropout_p is_causal return_debug_mask scale",
        "_scaled_dot_product_flash_attention_for_cpu": "query key value dropout_p is_causal attn_mask scale",
        "_scaled_dot_product_efficient_attention":
            "query key value attn_bias compute_log_sumexp dropout_p is_causal scale",
        "_scaled_dot_product_cudnn_attention":
            "query key value attn_bias compute_log_sumexp dropout_p is_causal return_debug_mask scale",
        "_scaled_dot_product_fused_attention_overrideable":
            "query key value attn_bias dropout_p is_causal return_debug_mask scale",
    }),
    **_forms(unread, "", {
        "_scaled_dot_product_flash_attention_backward":
            f"grad_out query key value out {_FLASH} philox_seed philox_offset scale",
        "_scaled_dot_product_flash_attention_for_cpu_backward":
            "grad_out query key value out logsumexp dropout_p is_causal attn_mask scale",
        "_scaled_dot_product_efficient_attention_backward":
            f"grad_out_ query key value attn_bias {_PHILOX} dropout_p grad_input_mask is_causal scale",
        "_scaled_dot_product_cudnn_attention_backward":
            f"grad_out query key value {_PHILOX} attn_bias {_FLASH.removeprefix('logsumexp ')} scale",
        "_scaled_dot_product_fused_attention_overrideable_backward":
            f"grad_out query key value attn_bias grad_input_mask out {_FLASH} philox_seed philox_offset scale",
    }),
    **_forms(unread, "mode hidden_size", {
        "mkldnn_rnn_layer": f"{_LAYER} bidirectional batch_first train",
    }),
    **_forms(unread, "mode hidden_size", {"mkldnn_rnn_layer_backward": _LAYER_BACKWARD}),
    **_forms(unread, "mode hidden_size num_layers bidirectional", {
        "_cudnn_rnn": f"input weight weight_stride0 weight_buf hx cx mode hidden_size proj_size {_CUDNN_END}",
        "miopen_rnn": f"input weight weight_stride0 hx cx mode hidden_size {_CUDNN_END}",
    }),
    **_forms(unread, "mode hidden_size num_layers bidirectional", {
        "_cudnn_rnn_backward": f"{_CUDNN_GRADIENTS} proj_size {_CUDNN_END} reserve output_mask",
        "miopen_rnn_backward": f"{_CUDNN_GRADIENTS} {_CUDNN_END} reserve output_mask",
    }),
    **_forms(unread, "", {
        "_thnn_fused_lstm_cell": "input_gates hidden_gates cx input_bias hidden_bias",
        "_thnn_fused_gru_cell": "input_gates hidden_gates hx input_bias hidden_bias",
    }),
    **_forms(unread, "has_bias", {
        "_thnn_fused_lstm_cell_backward _thnn_fused_lstm_cell_backward_impl":
            "grad_hy grad_cy cx cy workspace has_bias",
        "_thnn_fused_gru_cell_backward": "grad_hy workspace has_bias",
    }),
}  # fmt: skip
"""ATen operator → its forms; where it has several signatures, the first that fits is used.

Arguments are those of PyTorch's schemas (native_functions.yaml), in order; a recording may end before the last.
"""

_INPUT, _WEIGHT = (True, False, False), (False, True, False)
_SIZED = "grad_output weight padding stride dilation groups"
_BOTH = "self grad_output weight padding stride dilation groups"
_OLD_SLOW = "grad_output self weight kernel_size stride padding"


def _removed_forms(lines: Lines, current_name: str, outputs: Outputs, **fixed: Any) -> dict[str, tuple[Form, ...]]:
    """Return name → its forms, for operators that PyTorch no longer has. lines: names → arguments, with "|" between
    several signatures. current_name: the operator that replaced them. fixed: arguments that the old name implied."""
    table: dict[str, tuple[Form, ...]] = {}
    for listed, texts in lines.items():
        forms = []
        for text in texts.split("|"):
            arguments = tuple(text.split())
            known = (*fixed, *(_IMPLIED_BY_SIZES if "grad_output" in arguments else ()))
            needs = tuple(a for a in arguments if a in (*_DECIDING, "weight_size") and a not in known)
            forms.append(Form(arguments, needs, outputs, current_name, fixed))
        table.update(dict.fromkeys(listed.split(), tuple(forms)))
    return table


GONE: Mapping[str, tuple[Form, ...]] = {
    **_removed_forms(
        {
            "cudnn_convolution_backward":
                f"{_BOTH} {_TUNING} output_mask | {_BOTH} benchmark deterministic output_mask",
            "mkldnn_convolution_backward": f"{_BOTH} output_mask",
            "miopen_convolution_backward miopen_depthwise_convolution_backward":
                f"{_BOTH} benchmark deterministic output_mask",
            "thnn_conv2d_backward slow_conv3d_backward": f"{_OLD_SLOW} finput fgrad_input output_mask",
            "thnn_conv_depthwise2d_backward _conv_depthwise2d_backward conv_depthwise3d_backward"
            " slow_conv_dilated2d_backward slow_conv_dilated3d_backward": f"{_OLD_SLOW} dilation output_mask",
        },
        "convolution_backward", convolution_backward, transposed=False,
    ),
    **_removed_forms(
        {"cudnn_convolution_backward_input": f"self_size {_SIZED} {_TUNING}",
         "mkldnn_convolution_backward_input": f"self_size {_SIZED} bias_defined",
         "miopen_convolution_backward_input miopen_depthwise_convolution_backward_input":
            f"self_size {_SIZED} benchmark deterministic"},
        "convolution_backward", convolution_backward, transposed=False, output_mask=_INPUT,
    ),
    **_removed_forms(
        {"cudnn_convolution_backward_weight": f"weight_size {_SIZED} {_TUNING}".replace(" weight ", " self "),
         "mkldnn_convolution_backward_weights": f"weight_size {_SIZED} bias_defined".replace(" weight ", " self "),
         "miopen_convolution_backward_weight miopen_depthwise_convolution_backward_weight":
            f"weight_size {_SIZED} benchmark deterministic".replace(" weight ", " self ")},
        "convolution_backward", convolution_backward, transposed=False, output_mask=_WEIGHT,
    ),
    **_removed_forms(
        {"cudnn_convolution_transpose_backward":
            f"self grad_output weight padding output_padding stride dilation groups {_TUNING} output_mask"},
        "convolution_backward", convolution_backward, transposed=True,
    ),
    **_removed_forms({"thnn_conv2d_forward": _SLOW}, "thnn_conv2d", convolution),
    **_removed_forms(
        {"thnn_conv_depthwise2d thnn_conv_depthwise2d_forward": f"{_SLOW} dilation"},
        "_conv_depthwise2d", convolution,
    ),
}  # fmt: skip
"""Operators of older recordings: their current names, and what the old names implied (PyTorch 1.5 to 1.11)."""
