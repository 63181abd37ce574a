"""How to read a recorded product: a literal table, operator → its arguments in order and the sizes it returns.

The arguments are those of PyTorch's schemas (native_functions.yaml), and of operators that it no longer has those of
PyTorch 1.5 to 1.11. Data only: `operations.py` reads calls by it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.operators.cost import Sizes
from analysis.trace import output_shapes
from analysis.trace.output_shapes import CallArguments

Outputs = Callable[[CallArguments], tuple[Sizes, ...]]


@dataclass(frozen=True)
class Form:
    """How to read a call: its arguments in order, those without which it cannot be counted, and its outputs.

    name: what the operator is called today, if no longer as recorded. fixed: what its old name implied.
    """

    arguments: tuple[str, ...]
    needs: tuple[str, ...]
    outputs: Outputs
    name: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)


_DECIDING = ("stride", "padding", "dilation", "transposed", "output_padding", "output_mask", "grad_input_mask")

_TOLD_BY_SIZES = ("stride", "padding", "dilation", "output_padding")
"""What gradients do without: the sizes of the output's gradient are among their arguments."""

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
    """Name → its form. lines: names → arguments. Beside `needs`, a form needs whatever it has of what decides sizes."""
    table: dict[str, tuple[Form, ...]] = {}
    for listed, text in lines.items():
        arguments = tuple(text.split())
        deciding = [a for a in _DECIDING if a in arguments and not ("grad_output" in arguments and a in _TOLD_BY_SIZES)]
        for name in listed.split():
            table[name] = (Form(arguments, (*needs.split(), *deciding), outputs),)
    return table


FORMS: Mapping[str, tuple[Form, ...]] = {
    **_forms(output_shapes.convolution, "", {
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
    **_forms(output_shapes.transposed, "", {
        "conv_transpose1d conv_transpose2d conv_transpose3d": _TRANSPOSED,
        "cudnn_convolution_transpose": f"self weight padding output_padding stride dilation groups {_TUNING}",
        "miopen_convolution_transpose":
            "self weight bias padding output_padding stride dilation groups benchmark deterministic",
        "slow_conv_transpose2d slow_conv_transpose3d": f"{_SLOW} output_padding dilation",
    }),
    **_forms(output_shapes.convolution_backward, "", {
        "convolution_backward": _GRADIENTS,
        "convolution_backward_overrideable": _GRADIENTS.replace("bias_sizes ", ""),
        "_slow_conv2d_backward": "grad_output self weight kernel_size stride padding output_mask",
    }),
    **_forms(output_shapes.time_first, "pad", {"conv_tbc": "self weight bias pad"}),
    **_forms(output_shapes.unread, "", {"conv_tbc_backward": "self input weight bias pad"}),
    **_forms(output_shapes.matmul, "", {
        "mm bmm _int_mm": "self mat2",
        "_scaled_mm": "self mat2 scale_a scale_b bias scale_result out_dtype use_fast_accum",
        "matmul": "self other",
        "mv": "self vec",
        "dot": "self tensor",
        "vdot": "self other",
    }),
    **_forms(output_shapes.inner, "", {"inner": "self other"}),
    **_forms(output_shapes.added, "", {
        "addmm": "self mat1 mat2 beta alpha",
        "_addmm_activation": "self mat1 mat2 beta alpha use_gelu",
        "baddbmm": "self batch1 batch2 beta alpha",
        "addmv": "self mat vec beta alpha",
    }),
    **_forms(output_shapes.added_sum, "", {"addbmm": "self batch1 batch2 beta alpha"}),
    **_forms(output_shapes.linear, "", {"linear": "input weight bias", "mkldnn_linear": "self weight bias"}),
    **_forms(output_shapes.unread, "", {
        "linear_backward mkldnn_linear_backward": "self grad_output weight output_mask",
    }),
    **_forms(output_shapes.unread, "expand1 expand2 expand3 sumdim", {
        "_trilinear": "i1 i2 i3 expand1 expand2 expand3 sumdim unroll_dim",
    }),
    **_forms(output_shapes.distances, "", {"_euclidean_dist": "x1 x2"}),
    **_forms(output_shapes.distances, "p", {"cdist _cdist_forward": "x1 x2 p compute_mode"}),
    **_forms(output_shapes.unread, "", {
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
    **_forms(output_shapes.unread, "", {
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
    **_forms(output_shapes.unread, "mode hidden_size", {
        "mkldnn_rnn_layer": f"{_LAYER} bidirectional batch_first train",
    }),
    **_forms(output_shapes.unread, "mode hidden_size", {"mkldnn_rnn_layer_backward": _LAYER_BACKWARD}),
    **_forms(output_shapes.unread, "mode hidden_size num_layers bidirectional", {
        "_cudnn_rnn": f"input weight weight_stride0 weight_buf hx cx mode hidden_size proj_size {_CUDNN_END}",
        "miopen_rnn": f"input weight weight_stride0 hx cx mode hidden_size {_CUDNN_END}",
    }),
    **_forms(output_shapes.unread, "mode hidden_size num_layers bidirectional", {
        "_cudnn_rnn_backward": f"{_CUDNN_GRADIENTS} proj_size {_CUDNN_END} reserve output_mask",
        "miopen_rnn_backward": f"{_CUDNN_GRADIENTS} {_CUDNN_END} reserve output_mask",
    }),
    **_forms(output_shapes.unread, "", {
        "_thnn_fused_lstm_cell": "input_gates hidden_gates cx input_bias hidden_bias",
        "_thnn_fused_gru_cell": "input_gates hidden_gates hx input_bias hidden_bias",
    }),
    **_forms(output_shapes.unread, "has_bias", {
        "_thnn_fused_lstm_cell_backward _thnn_fused_lstm_cell_backward_impl":
            "grad_hy grad_cy cx cy workspace has_bias",
        "_thnn_fused_gru_cell_backward": "grad_hy workspace has_bias",
    }),
}  # fmt: skip
"""ATen operator → how to read its calls; where it has several signatures, the first that fits.

The arguments are those of PyTorch's schemas (native_functions.yaml), in order; a recording may end before the last."""

_INPUT, _WEIGHT = (True, False, False), (False, True, False)
_SIZED = "grad_output weight padding stride dilation groups"
_BOTH = "self grad_output weight padding stride dilation groups"
_OLD_SLOW = "grad_output self weight kernel_size stride padding"


def _removed_forms(lines: Lines, today: str, outputs: Outputs, **fixed: Any) -> dict[str, tuple[Form, ...]]:
    """Name → its form, of operators that PyTorch no longer has; several signatures stand between bars."""
    table: dict[str, tuple[Form, ...]] = {}
    for listed, texts in lines.items():
        forms = []
        for text in texts.split("|"):
            arguments = tuple(text.split())
            known = (*fixed, *(_TOLD_BY_SIZES if "grad_output" in arguments else ()))
            needs = tuple(a for a in arguments if a in (*_DECIDING, "weight_size") and a not in known)
            forms.append(Form(arguments, needs, outputs, today, fixed))
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
        "convolution_backward", output_shapes.convolution_backward, transposed=False,
    ),
    **_removed_forms(
        {"cudnn_convolution_backward_input": f"self_size {_SIZED} {_TUNING}",
         "mkldnn_convolution_backward_input": f"self_size {_SIZED} bias_defined",
         "miopen_convolution_backward_input miopen_depthwise_convolution_backward_input":
            f"self_size {_SIZED} benchmark deterministic"},
        "convolution_backward", output_shapes.convolution_backward, transposed=False, output_mask=_INPUT,
    ),
    **_removed_forms(
        {"cudnn_convolution_backward_weight": f"weight_size {_SIZED} {_TUNING}".replace(" weight ", " self "),
         "mkldnn_convolution_backward_weights": f"weight_size {_SIZED} bias_defined".replace(" weight ", " self "),
         "miopen_convolution_backward_weight miopen_depthwise_convolution_backward_weight":
            f"weight_size {_SIZED} benchmark deterministic".replace(" weight ", " self ")},
        "convolution_backward", output_shapes.convolution_backward, transposed=False, output_mask=_WEIGHT,
    ),
    **_removed_forms(
        {"cudnn_convolution_transpose_backward":
            f"self grad_output weight padding output_padding stride dilation groups {_TUNING} output_mask"},
        "convolution_backward", output_shapes.convolution_backward, transposed=True,
    ),
    **_removed_forms({"thnn_conv2d_forward": _SLOW}, "thnn_conv2d", output_shapes.convolution),
    **_removed_forms(
        {"thnn_conv_depthwise2d thnn_conv_depthwise2d_forward": f"{_SLOW} dilation"},
        "_conv_depthwise2d", output_shapes.convolution,
    ),
}  # fmt: skip
"""Operators of older recordings: what they are today, and what their names implied (PyTorch 1.5 to 1.11)."""
