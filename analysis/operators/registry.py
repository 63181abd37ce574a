"""Maps each operation name to its rule (kind, bucket, reader), and computes costs and totals of a trace from the rules.

`cost` takes an `Operation` and returns its `Cost`; `total` sums over operations. Names are those of `Operation`: ATen's
("aten.convolution"), torchvision's, collectives' and the backends' own (cuDNN, oneDNN, MIOpen), for traces of any
device. An in-place form has the rule of its bare name. A reader is the function that takes an `Operation` and returns
its `Cost`. The bucket is *counted*, *ignored* on purpose (views, copies, random numbers) or *not understood*. The last
is for a name without a rule, which is listed with every total and never silently zero. Another counting convention is
another table, passed as `rules`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from analysis.operators import names, nonproducts, read_products, windows
from analysis.operators.cost import NEEDS, ZERO, Cost, Size
from analysis.operators.names import FOREACH, PER_INPUT, PER_OUTPUT
from analysis.operators.traffic import bytes_moved, nothing
from results.records.counts import Operation

PRODUCTS = ("convolution", "matmul", "attention", "recurrent")
"""Kinds whose multiply-adds are model FLOP."""


Reader = Callable[[Operation], Cost]
Traffic = Callable[[Operation], tuple[Size, Size]]


@dataclass(frozen=True)
class Rule:
    """The rule for one operation name. reader returns an operation's FLOP, traffic its (bytes read, bytes written)."""

    kind: str
    bucket: str
    reader: Reader
    traffic: Traffic = bytes_moved


Rules = Mapping[str, Rule]


def _counted_rules(kind: str, reader: Reader, listed: str, prefix: str = "aten.") -> dict[str, Rule]:
    return {prefix + name: Rule(kind, "counted", reader) for name in listed.split()}


def _ignored(kind: str, listed: str, traffic: Traffic = bytes_moved) -> dict[str, Rule]:
    return {f"aten.{name}": Rule(kind, "ignored", nonproducts.free, traffic) for name in listed.split()}


def _merged(*parts: Rules) -> dict[str, Rule]:
    """Merge tables into one. Raises ValueError for a name with two rules: the second would hide the first."""
    table: dict[str, Rule] = {}
    for part in parts:
        if twice := set(table) & set(part):
            raise ValueError(f"two rules for {', '.join(sorted(twice))}")
        table.update(part)
    return table


_PRODUCTS = _merged(
    _counted_rules("convolution", read_products.convolution, names.CONVOLUTION),
    _counted_rules("convolution", read_products.convolution_transpose, names.CONVOLUTION_TRANSPOSE),
    _counted_rules("convolution", read_products.convolution_time_first, "conv_tbc"),
    _counted_rules("convolution", read_products.convolution_time_first_backward, "conv_tbc_backward"),
    _counted_rules("convolution", read_products.convolution_relu, names.CONVOLUTION_RELU),
    _counted_rules("convolution", read_products.convolution_backward, names.CONVOLUTION_BACKWARD),
    _counted_rules("matmul", read_products.product, names.PRODUCT),
    _counted_rules("matmul", read_products.added_product, "addmm baddbmm addmv _scaled_addmm"),
    _counted_rules("matmul", read_products.added_product_sum, "addbmm"),
    _counted_rules("elementwise", nonproducts.added_outer_product, "addr"),
    _counted_rules("matmul", read_products.activated_product, "_addmm_activation"),
    _counted_rules("matmul", partial(read_products.sparse_product, "self", "mat2"), "mm bmm", "sparse."),
    _counted_rules("matmul", partial(read_products.sparse_product, "mat1", "mat2"), "addmm", "sparse."),
    _counted_rules("matmul", partial(read_products.sparse_product, "mat1", "mat2"), "_sparse_addmm hspmm"),
    _counted_rules("matmul", partial(read_products.sparse_product, "batch1", "batch2"), "baddbmm", "sparse."),
    _counted_rules("matmul", partial(read_products.sparse_product, "self", "vec"), "mv", "sparse."),
    _counted_rules("matmul", partial(read_products.sparse_product, "mat", "vec"), "addmv", "sparse."),
    _counted_rules("matmul", partial(read_products.sparse_product, "self", "other"), "_sparse_mm_reduce_impl"),
    _counted_rules("matmul", read_products.sampled_product, "sparse_sampled_addmm"),
    _counted_rules("matmul", read_products.grouped_product, "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2"),
    _counted_rules("matmul", read_products.linear_backward, "linear_backward mkldnn_linear_backward"),
    _counted_rules("matmul", read_products.linear_weight_gradient, "mkldnn_linear_backward_weights"),
    _counted_rules("matmul", read_products.matmul_backward, "matmul_backward"),
    _counted_rules("matmul", read_products.product, "linear linear_relu linear_dynamic", "quantized."),
    _counted_rules("matmul", read_products.product, "linear_relu_dynamic linear_dynamic_fp16", "quantized."),
    _counted_rules("matmul", read_products.listed_products, "_foreach_mm"),
    _counted_rules("matmul", read_products.trilinear, "_trilinear"),
    _counted_rules("matmul", read_products.distances, "_euclidean_dist _cdist_forward cdist"),
    _counted_rules("attention", read_products.attention, names.ATTENTION),
    _counted_rules("attention", read_products.attention_backward, names.ATTENTION_BACKWARD),
    _counted_rules(
        "attention",
        read_products.attention_length_first,
        "_flash_attention_forward _efficient_attention_forward _flash_attention_forward_no_dropout_inplace "
        "_cudnn_attention_forward_no_dropout_inplace",
    ),
    _counted_rules(
        "attention",
        read_products.attention_backward_length_first,
        "_flash_attention_backward _efficient_attention_backward",
    ),
    _counted_rules("attention", read_products.attention_length_first, "_varlen_attn _varlen_attn_out", "torch_attn."),
    _counted_rules("attention", read_products.attention_backward_length_first, "_varlen_attn_backward", "torch_attn."),
    _counted_rules(
        "attention", read_products.multi_head_attention, "_native_multi_head_attention _triton_multi_head_attention"
    ),
    _counted_rules("attention", read_products.encoder_layer, "_transformer_encoder_layer_fwd"),
    _counted_rules("recurrent", read_products.recurrent_layers, "_cudnn_rnn miopen_rnn"),
    _counted_rules("recurrent", read_products.recurrent_layers_backward, "_cudnn_rnn_backward miopen_rnn_backward"),
    _counted_rules("recurrent", read_products.recurrent_layer, "mkldnn_rnn_layer"),
    _counted_rules("recurrent", read_products.recurrent_layer_backward, "mkldnn_rnn_layer_backward"),
    _counted_rules("recurrent", partial(read_products.fused_gates, "lstm"), "_thnn_fused_lstm_cell"),
    _counted_rules("recurrent", partial(read_products.fused_gates, "gru"), "_thnn_fused_gru_cell"),
    _counted_rules("recurrent", partial(read_products.fused_gates_backward, "lstm"), names.LSTM_GATES_BACKWARD),
    _counted_rules("recurrent", partial(read_products.fused_gates_backward, "gru"), names.GRU_GATES_BACKWARD),
)

_NORMALIZATION = _merged(
    _counted_rules("normalization", nonproducts.batch_norm, names.BATCH_NORM),
    _counted_rules("normalization", nonproducts.batch_norm_backward, names.BATCH_NORM_BACKWARD),
    _counted_rules(
        "normalization", nonproducts.per_statistic, "batch_norm_gather_stats batch_norm_gather_stats_with_counts"
    ),
    _counted_rules("normalization", nonproducts.per_statistic, "batch_norm_update_stats"),
    _counted_rules("normalization", nonproducts.layer_norm, "native_layer_norm layer_norm"),
    _counted_rules("normalization", nonproducts.layer_norm_backward, "native_layer_norm_backward"),
    _counted_rules("normalization", nonproducts.group_norm, "native_group_norm group_norm"),
    _counted_rules("normalization", nonproducts.group_norm_backward, "native_group_norm_backward"),
    _counted_rules("normalization", nonproducts.rms_norm, "_fused_rms_norm rms_norm"),
    _counted_rules("normalization", nonproducts.rms_norm_backward, "_fused_rms_norm_backward"),
    _counted_rules("normalization", nonproducts.weight_norm, "_weight_norm_interface"),
    _counted_rules("normalization", nonproducts.weight_norm_backward, "_weight_norm_interface_backward"),
    _counted_rules("softmax", nonproducts.softmax, names.SOFTMAX),
    _counted_rules("softmax", nonproducts.log_softmax, "_log_softmax log_softmax _sparse_log_softmax"),
    _counted_rules("softmax", nonproducts.softmax_backward, names.SOFTMAX_BACKWARD),
)

_LOSSES = _merged(
    _counted_rules("loss", nonproducts.nll_loss, "nll_loss_forward nll_loss2d_forward nll_loss nll_loss2d nll_loss_nd"),
    _counted_rules("loss", nonproducts.nll_loss_backward, "nll_loss_backward nll_loss2d_backward"),
    _counted_rules("loss", nonproducts.cross_entropy, "cross_entropy_loss"),
    _counted_rules("loss", nonproducts.ctc_loss, "_ctc_loss _ctc_loss_backward _cudnn_ctc_loss miopen_ctc_loss"),
)

_WINDOWS = _merged(
    _counted_rules("pooling", windows.max_pool, names.MAX_POOL),
    _counted_rules("pooling", windows.max_pool, "quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d"),
    _counted_rules("pooling", windows.avg_pool, names.AVG_POOL),
    _counted_rules("pooling", windows.adaptive_avg_pool, names.ADAPTIVE_AVG_POOL),
    _counted_rules("pooling", windows.adaptive_max_pool, "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"),
    _counted_rules("pooling", partial(windows.interpolate_backward, 1), names.NEAREST_BACKWARD),
    _counted_rules("pooling", partial(windows.interpolate, 2), "upsample_linear1d"),
    _counted_rules("pooling", partial(windows.interpolate_backward, 4), "upsample_linear1d_backward"),
    _counted_rules("pooling", partial(windows.interpolate, 4), "upsample_bilinear2d"),
    _counted_rules("pooling", partial(windows.interpolate_backward, 8), "upsample_bilinear2d_backward"),
    _counted_rules("pooling", partial(windows.interpolate, 8), "upsample_trilinear3d"),
    _counted_rules("pooling", partial(windows.interpolate_backward, 16), "upsample_trilinear3d_backward"),
    _counted_rules("pooling", partial(windows.interpolate, 16), "upsample_bicubic2d"),
    _counted_rules("pooling", partial(windows.interpolate_backward, 32), "upsample_bicubic2d_backward"),
    _counted_rules("pooling", partial(windows.interpolate_antialiased, 2), names.BILINEAR_ANTIALIASED),
    _counted_rules("pooling", partial(windows.interpolate_antialiased, 4), names.BICUBIC_ANTIALIASED),
    _counted_rules("pooling", partial(windows.interpolate_antialiased, 6), names.LANCZOS_ANTIALIASED),
    _counted_rules("pooling", windows.grid_sample, names.GRID_SAMPLE),
    _counted_rules("pooling", windows.grid_sample_backward, names.GRID_SAMPLE_BACKWARD),
    _counted_rules("pooling", windows.affine_grid, "affine_grid_generator"),
)

_ARITHMETIC = _merged(
    _counted_rules("activation", partial(nonproducts.gelu, 5, 9), "gelu"),
    _counted_rules("activation", partial(nonproducts.gelu, 11, 18), "gelu_backward"),
    _counted_rules("random", nonproducts.dropout, names.DROPOUT),
    _counted_rules("elementwise", nonproducts.scaled_sum, names.SUM),
    _counted_rules("elementwise", nonproducts.scaled_product_sum, "addcmul addcdiv"),
    _counted_rules("elementwise", nonproducts.clamp, "clamp clip"),
    _counted_rules("elementwise", nonproducts.accumulated, names.ACCUMULATE),
    _counted_rules("reduction", nonproducts.maximum, "max min"),
    _counted_rules("reduction", partial(nonproducts.reduction, 1, 1), "mean nanmean"),
    _counted_rules("reduction", partial(nonproducts.reduction, 4, 1), "std std_mean"),
    _counted_rules("reduction", partial(nonproducts.reduction, 4, 2), "logsumexp"),
    _counted_rules("reduction", partial(nonproducts.reduction, 2, 1), names.NORM),
    _counted_rules("reduction", nonproducts.pair_distances, "_pdist_forward"),
    _counted_rules("reduction", nonproducts.pair_distances_backward, "_pdist_backward _cdist_backward"),
    _counted_rules("reduction", nonproducts.fft, "_fft_c2c _fft_r2c _fft_c2r"),
    _counted_rules(
        "reduction",
        partial(nonproducts.factorisation, 1, 3),
        names.CHOLESKY,
    ),
    _counted_rules("reduction", partial(nonproducts.factorisation, 2, 3), names.FACTORS),
    _counted_rules(
        "reduction",
        partial(nonproducts.factorisation, 2, 1),
        names.INVERSE,
    ),
    _counted_rules("reduction", partial(nonproducts.solve, True, 2), "_linalg_solve_ex linalg_solve_ex linalg_solve"),
    _counted_rules(
        "reduction",
        partial(nonproducts.solve, False, 1),
        names.TRIANGULAR,
    ),
    _counted_rules("reduction", partial(nonproducts.solve, False, 2), names.SUBSTITUTIONS),
    _counted_rules("reduction", partial(nonproducts.qr, 2), "linalg_qr"),
    _counted_rules("reduction", partial(nonproducts.qr, 1), "geqrf linalg_householder_product"),
    _counted_rules("embedding", nonproducts.bags, names.BAGS),
    _counted_rules("optimizer", nonproducts.scaled_sum, "_foreach_add _foreach_sub"),
    _counted_rules("optimizer", nonproducts.scaled_product_sum, "_foreach_addcmul _foreach_addcdiv"),
    _counted_rules("optimizer", nonproducts.sgd, "_fused_sgd"),
    _counted_rules("optimizer", partial(nonproducts.adam, 2), "_fused_adam"),
    _counted_rules("optimizer", partial(nonproducts.adam, 1), "_fused_adamw"),
    _counted_rules("optimizer", nonproducts.adagrad, "_fused_adagrad"),
    _counted_rules(
        "optimizer", partial(nonproducts.per_output, 3), "_amp_update_scale"
    ),  # comparison, · factor, tracker + 1
)

_PER_ELEMENT = _merged(
    *(_counted_rules(kind, partial(nonproducts.per_output, flop), listed) for kind, flop, listed in PER_OUTPUT),
    *(_counted_rules(kind, partial(nonproducts.per_input, flop), listed) for kind, flop, listed in PER_INPUT),
    *(
        _counted_rules(kind, partial(nonproducts.per_list, flop), listed, "aten._foreach_")
        for kind, flop, listed in FOREACH
    ),
)

_IGNORED = _merged(
    _ignored("view", names.VIEW, nothing),
    _ignored("view", names.ALLOCATION, nothing),
    _ignored("view", names.QUESTION, nothing),
    _ignored("copy", names.COPY),
    _ignored("copy", names.FILL),
    _ignored("elementwise", names.CHOICE),
    _ignored("elementwise", names.BITS),
    _ignored("random", names.RANDOM),
    _ignored("embedding", "embedding embedding_renorm"),
    _ignored("pooling", names.NEAREST),
    _ignored("optimizer", "_foreach_zero _foreach_copy _foreach_clone"),
)

_OTHERS: dict[str, Rule] = {
    "torchvision.deform_conv2d": Rule("convolution", "counted", read_products.deformable_convolution),
    "torchvision._deform_conv2d_backward": Rule(
        "convolution", "counted", read_products.deformable_convolution_backward
    ),
    "torchvision.roi_align": Rule("pooling", "counted", windows.roi_align),
    "torchvision._roi_align_backward": Rule("pooling", "counted", windows.roi_align),
    "torchvision.ps_roi_align": Rule("pooling", "counted", windows.roi_align),
    "torchvision._ps_roi_align_backward": Rule("pooling", "counted", windows.roi_align),
    "torchvision.roi_pool": Rule("pooling", "counted", partial(nonproducts.per_output, 1)),
    "torchvision._roi_pool_backward": Rule("pooling", "counted", partial(nonproducts.per_input, 1)),
    "torchvision.ps_roi_pool": Rule("pooling", "counted", partial(nonproducts.per_output, 1)),
    "torchvision._ps_roi_pool_backward": Rule("pooling", "counted", partial(nonproducts.per_input, 2)),
    "torchvision.nms": Rule("reduction", "counted", windows.box_suppression),
    **{name: Rule("communication", "counted", partial(nonproducts.per_input, 1)) for name in names.REDUCING.split()},
    **{name: Rule("communication", "ignored", nonproducts.free) for name in names.TRANSFERRING.split()},
    **{  # primitives that torch's decompositions call in second derivatives
        name: Rule("elementwise", "counted", partial(nonproducts.per_output, 1)) for name in names.PRIMITIVES.split()
    },
    **{name: Rule("view", "ignored", nonproducts.free, nothing) for name in names.MARKERS.split()},
}

TABLE: Rules = _merged(
    _PRODUCTS,
    _NORMALIZATION,
    _LOSSES,
    _WINDOWS,
    _ARITHMETIC,
    _PER_ELEMENT,
    _IGNORED,
    _OTHERS,
)
"""The rules of this project's convention: model FLOP, other FLOP and unfused bytes."""

VERSION = 1
"""Version of the rules. A change of any number that they give raises it."""

_ADDED: dict[str, Rule] = {}
"""Rules that `add_rule` registered."""


def add_rule(name: str, rule: Rule) -> None:
    """Register a rule for a custom operation, in this process. Operations of the table keep their rule."""
    _ADDED[name] = rule


def rule_of(name: str, rules: Rules = TABLE) -> Rule | None:
    """Return the rule of an operation; an in-place form ("aten.add_") has that of its bare name. None: not
    understood."""
    rule = rules.get(name)
    if rule is None:
        rule = rules.get(name.removesuffix("_"))
    return _ADDED.get(name) if rule is None and rules is TABLE else rule


UNSUPPORTED: Mapping[str, str] = {
    f"aten.{name}": reason for reason, listed in names.UNSUPPORTED.items() for name in listed.split()
}
"""Operation that has no rule on purpose → why, worded to follow its name."""


def is_iterative(name: str) -> bool:
    """Return whether an operation without a rule is iterative: it has no model FLOP, and its other FLOP depend on
    values."""
    return rule_of(name) is None and UNSUPPORTED.get(name) == names.ITERATIVE


def registration(name: str) -> str:
    """Return the source line with which a user registers an operation. The user replaces FLOP by the FLOP of one call,
    computed from the sizes in `inputs` and `out`."""
    return f'flopledger.register("{name.replace(".", "::", 1)}", lambda *inputs, out: FLOP)'


def kind_of(name: str, rules: Rules = TABLE) -> str:
    """Return the kind of an operation; "" if it is not understood."""
    rule = rule_of(name, rules)
    return "" if rule is None else rule.kind


def bucket_of(name: str) -> str:
    """Return "counted", "ignored" (on purpose) or "not_understood"."""
    rule = rule_of(name)
    return "not_understood" if rule is None else rule.bucket


def cost(operation: Operation, rules: Rules = TABLE) -> Cost:
    """Return the FLOP and bytes of one operation.

    An operation without a rule has bytes and no FLOP: show `unsupported` with every total. A multiply-add of complex
    numbers is four of real ones. An operation that has its cost (`with_cost`) is not counted again. Raises ValueError
    where the record lacks what its formula needs.
    """
    if _has_cost(operation, rules):
        moved = operation.read_bytes or 0, operation.written_bytes or 0
        return Cost(operation.model_flop or 0, operation.other_flop or 0, *moved)
    rule = rule_of(operation.name, rules)
    flop = ZERO if rule is None else rule.reader(operation)
    read, written = bytes_moved(operation) if rule is None else rule.traffic(operation)
    return Cost(flop.model_flop * _real_multiply_adds(operation), flop.other_flop, read, written)


def model_flop(operation: Operation, rules: Rules = TABLE) -> int:
    """Return the model FLOP of `cost` only. Raises ValueError where the record lacks what its formula needs."""
    if _has_cost(operation, rules):
        return operation.model_flop or 0
    rule = rule_of(operation.name, rules)
    return 0 if rule is None else int(rule.reader(operation).model_flop) * _real_multiply_adds(operation)


def unneeded_flop(operation: Operation) -> int:
    """Return the model FLOP of gradients that a call computes although no input of its forward call needs them."""
    computed = {name: value for name, value in operation.attributes.items() if name != NEEDS}
    anew = replace(operation, rules=0)  # both by the present rules
    return model_flop(replace(anew, attributes=computed)) - model_flop(anew)


def _has_cost(operation: Operation, rules: Rules) -> bool:
    return rules is TABLE and operation.rules > 0


def with_cost(operation: Operation) -> Operation:
    """Return the operation with its cost and the version of the rules, so that whoever reads it needs no rule."""
    computed = cost(operation)
    moved: dict[str, Any] = {"read_bytes": int(computed.read_bytes), "written_bytes": int(computed.written_bytes)}
    if rule_of(operation.name) is None:
        return replace(operation, rules=VERSION, **moved)
    flop: dict[str, Any] = {"model_flop": int(computed.model_flop), "other_flop": int(computed.other_flop)}
    return replace(operation, rules=VERSION, **flop, **moved)


def by_present_rules(operation: Operation) -> Operation:
    """Return the operation without a cost by another version of the rules; it keeps the cost if it has no rule here,
    since its model's file may have registered one."""
    is_other = operation.rules not in (0, VERSION) and rule_of(operation.name) is not None
    return replace(operation, rules=0) if is_other else operation


def _real_multiply_adds(operation: Operation) -> int:
    """Return the real multiply-adds in one multiply-add of the operation's dtype: 4 for complex numbers."""
    return 4 if any(dtype.startswith("complex") for dtype in operation.input_dtypes) else 1


def total(operations: Iterable[Operation], rules: Rules = TABLE) -> Cost:
    """Return the sum over operations. An operation without a rule adds bytes and no FLOP."""
    return sum((cost(operation, rules) for operation in operations), ZERO)


def unsupported(operations: Iterable[Operation], rules: Rules = TABLE) -> dict[str, int]:
    """Return name → number of calls of operations without a rule, the most frequent first."""
    calls = Counter(operation.name for operation in operations if _lacks_rule(operation, rules))
    return dict(calls.most_common())


def _lacks_rule(operation: Operation, rules: Rules) -> bool:
    if _has_cost(operation, rules):
        return operation.model_flop is None
    return rule_of(operation.name, rules) is None
