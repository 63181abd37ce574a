"""Definition, law: FLOP of operations made by hand, each derived in place; symbols give what numbers give.

Names that only a GPU dispatches are here too, so that their formulas are proved without one.
"""

from typing import Any

import pytest
import sympy

from analysis.operators import products, registry, windows
from analysis.operators.cost import ZERO, Cost
from tests.support.made_up_operations.made_up_operations import operation

CONV = {"self": (2, 4, 8, 8), "weight": (6, 2, 3, 3)}
CONV_OUT = (2, 6, 8, 8)
CONV_FLOP = 2 * 2 * 6 * 8 * 8 * 2 * 9
Q, K, V = (2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6)  # batch, heads, length, width
SCORES = 2 * 4 * 5 * 7
LENGTH_FIRST = {"query": (2, 5, 4, 8), "key": (2, 7, 4, 8), "value": (2, 7, 4, 6)}
PACKED = {"query": (10, 4, 8), "key": (14, 4, 8), "value": (14, 4, 6), "cum_seq_q": (3,), "cum_seq_k": (3,)}
LSTM = products.network("lstm", 5, 6, layers=2, directions=2)
WEIGHTS = {f"weight[{i}]": (24, 5) for i in range(16)}
ROWS = {"self[0]": (4, 4), "self[1]": (4,), "grads[0]": (4, 4), "grads[1]": (4,)}

READ: list[tuple[str, dict[str, Any], list[Any], dict[str, Any], Cost]] = [
    # operation, inputs, outputs, attributes, FLOP
    ("aten.cudnn_convolution", CONV, [CONV_OUT], {"groups": 2}, Cost(CONV_FLOP)),
    ("aten.mkldnn_convolution", {**CONV, "bias": (6,)}, [CONV_OUT], {}, Cost(CONV_FLOP, 2 * 6 * 64)),
    ("aten.cudnn_convolution_relu", CONV, [CONV_OUT], {}, Cost(CONV_FLOP, 2 * 6 * 64)),
    ("aten.cudnn_convolution_add_relu", {**CONV, "z": CONV_OUT}, [CONV_OUT], {}, Cost(CONV_FLOP, 2 * 2 * 6 * 64)),
    ("aten._conv_depthwise2d", {"self": (1, 3, 4, 4), "weight": (3, 1, 3, 3)}, [(1, 3, 2, 2)], {}, Cost(2 * 12 * 9)),
    ("aten.cudnn_convolution_transpose", {"self": (1, 4, 5, 5), "weight": (4, 2, 2, 2)}, [(1, 2, 10, 10)], {},
     Cost(2 * 100 * 8)),
    ("aten._slow_conv2d_backward", {"grad_output": CONV_OUT, **CONV}, [], {"output_mask": [True, False, False]},
     Cost(CONV_FLOP)),
    ("torchvision.deform_conv2d",  # 9 taps of 2 channels at 25 positions, 7 for the pixels and 1 for the mask
     {"input": (1, 2, 5, 5), "weight": (3, 2, 3, 3), "offset": (1, 18, 5, 5), "mask": (1, 9, 5, 5), "bias": (3,)},
     [(1, 3, 5, 5)], {"use_mask": True}, Cost(2 * 75 * 18, 75 + 450 * 8)),
    ("torchvision._deform_conv2d_backward",
     {"grad": (1, 3, 5, 5), "input": (1, 2, 5, 5), "weight": (3, 2, 3, 3), "offset": (1, 18, 5, 5), "mask": (0,),
      "bias": (3,)}, [], {"use_mask": False}, Cost(4 * 75 * 18, 75 + 450 * 24)),
    ("aten._scaled_mm", {"self": (4, 8), "mat2": (8, 3), "scale_a": (), "scale_b": ()}, [(4, 3)], {}, Cost(192)),
    ("aten._int_mm", {"self": (4, 8), "mat2": (8, 3)}, [(4, 3)], {}, Cost(192)),
    ("aten._addmm_activation", {"self": (3,), "mat1": (4, 8), "mat2": (8, 3)}, [(4, 3)], {"use_gelu": True},
     Cost(192, 12 + 12 * 9)),
    ("aten._grouped_mm", {"self": (2, 4, 8), "mat2": (2, 8, 3)}, [(2, 4, 3)], {}, Cost(2 * 2 * 96)),
    ("aten._grouped_mm", {"self": (9, 8), "mat2": (2, 8, 3), "offs": (2,)}, [(9, 3)], {}, Cost(2 * 9 * 24)),
    ("aten._grouped_mm", {"self": (2, 4, 8), "mat2": (8, 7), "offs": (2,)}, [(4, 7)], {}, Cost(2 * 4 * 8 * 7)),
    ("aten._grouped_mm", {"self": (4, 9), "mat2": (9, 7), "offs": (2,)}, [(2, 4, 7)], {}, Cost(2 * 4 * 9 * 7)),
    ("aten._foreach_mm", {"self[0]": (2, 3), "self[1]": (4, 5), "mat2[0]": (3, 7), "mat2[1]": (5, 1)},
     [(2, 7), (4, 1)], {}, Cost(2 * (42 + 20))),
    ("aten._trilinear", {"i1": (2, 3), "i2": (5, 3, 4), "i3": (2, 4)}, [(2, 5)],
     {"expand1": [1, 3], "expand2": [0], "expand3": [1, 2], "sumdim": [2, 3]}, Cost(2 * 120 + 2 * 40)),
    ("aten._weight_int4pack_mm", {"self": (5, 64), "mat2": (1, 4, 32, 4), "qScaleAndZeros": (2, 8, 2)}, [(5, 8)], {},
     Cost(2 * 5 * 8 * 64)),
    ("quantized.linear", {"X": (5, 7)}, [(5, 8)], {}, Cost(2 * 5 * 8 * 7)),
    ("aten.mkldnn_linear_backward_weights", {"grad_output": (5, 8), "input": (5, 7)}, [(8, 7), (8,)], {},
     Cost(2 * 5 * 8 * 7)),
    ("aten.matmul_backward", {"grad": (5, 8), "self": (5, 7), "other": (7, 8)}, [(5, 7)], {"mask": [True, False]},
     Cost(2 * 5 * 8 * 7)),
    ("aten.cholesky_solve", {"self": (6, 2), "input2": (6, 6)}, [(6, 2)], {}, Cost(0, 2 * 36 * 2)),
    ("aten.triangular_solve", {"self": (6, 2), "A": (6, 6)}, [(6, 2)], {}, Cost(0, 36 * 2)),
    ("aten.linalg_solve_triangular", {"self": (6, 6), "B": (6, 2)}, [(6, 2)], {}, Cost(0, 36 * 2)),
    ("aten.geqrf", {"self": (9, 6)}, [(9, 6), (6,)], {}, Cost(0, 2 * 9 * 36 - 2 * 72)),
    ("sparse.mm", {"self": (12, 10), "mat2": (10, 6)}, [(12, 6)], {"stored_values": {"self": 40}}, Cost(2 * 40 * 6)),
    ("sparse.mm", {"self": (5, 12), "mat2": (12, 10)}, [(5, 10)], {"stored_values": {"mat2": 40}}, Cost(2 * 40 * 5)),
    ("sparse.addmv", {"self": (12,), "mat": (12, 10), "vec": (10,)}, [(12,)], {"stored_values": {"mat": 40}},
     Cost(2 * 40)),
    ("aten.sparse_sampled_addmm", {"self": (12, 10), "mat1": (12, 7), "mat2": (7, 10)}, [(12, 10)],
     {"stored_values": {"self": 40}}, Cost(2 * 40 * 7)),
    ("aten.linear_backward", {"self": (7, 8), "grad_output": (7, 3), "weight": (3, 8)}, [],
     {"output_mask": [False, True, True]}, Cost(2 * 7 * 24, 21)),
    ("aten._euclidean_dist", {"x1": (50, 32), "x2": (40, 32)}, [(50, 40)], {},
     Cost(2 * 50 * 40 * 32, 90 * 64 + 2000 * 4)),
    ("aten._cdist_forward", {"x1": (5, 8), "x2": (4, 8)}, [(5, 4)], {"p": 2.0, "compute_mode": None},
     Cost(0, 20 * 25)),
    ("aten._cdist_forward", {"x1": (26, 8), "x2": (4, 8)}, [(26, 4)], {"p": 2.0, "compute_mode": None},
     Cost(2 * 26 * 4 * 8, 30 * 16 + 104 * 4)),
    ("aten._scaled_dot_product_efficient_attention", {"query": Q, "key": K, "value": V, "attn_bias": (5, 7)},
     [(2, 4, 5, 6)], {"dropout_p": 0.1}, Cost(2 * SCORES * 14, SCORES * 9)),
    ("aten._scaled_dot_product_cudnn_attention", {"query": Q, "key": K, "value": V}, [(2, 4, 5, 6)],
     {"dropout_p": 0.0, "is_causal": True}, Cost(2 * SCORES * 14, SCORES * 6)),
    ("aten._scaled_dot_product_flash_attention_backward", {"grad_out": (2, 4, 5, 6), "query": Q, "key": K, "value": V},
     [], {}, Cost(4 * SCORES * 14, SCORES * 5)),
    ("aten._scaled_dot_product_efficient_attention_backward",
     {"grad_out_": (2, 4, 5, 6), "query": Q, "key": K, "value": V}, [],
     {"grad_input_mask": [False, False, True, False]}, Cost(2 * SCORES * 6)),
    ("aten._flash_attention_forward", LENGTH_FIRST, [(2, 5, 4, 6)], {}, Cost(2 * SCORES * 14, SCORES * 6)),
    ("aten._flash_attention_forward", PACKED, [(10, 4, 6)], {"max_q": 5, "max_k": 7},
     Cost(2 * SCORES * 14, SCORES * 6)),
    ("aten._efficient_attention_backward", {"grad_out_": (2, 5, 4, 6), **LENGTH_FIRST}, [], {},
     Cost(4 * SCORES * 14, SCORES * 5)),
    ("aten._cudnn_rnn", {"input": (7, 3, 5), **WEIGHTS, "hx": (4, 3, 6), "cx": (4, 3, 6)}, [(7, 3, 12)],
     {"mode": 2, "hidden_size": 6, "proj_size": 0, "num_layers": 2, "bidirectional": True, "weight_stride0": 4},
     products.recurrent(21, LSTM)),
    ("aten._cudnn_rnn_backward", {"input": (7, 3, 5), **WEIGHTS, "hx": (4, 3, 6), "cx": (4, 3, 6)}, [],
     {"mode": 2, "hidden_size": 6, "proj_size": 0, "num_layers": 2, "bidirectional": True, "weight_stride0": 4,
      "output_mask": [False, True, True, True]}, products.recurrent_backward(21, LSTM, grad_input=False)),
    ("aten.mkldnn_rnn_layer", {"input": (7, 3, 10), "weight0": (18, 10), "weight1": (18, 6)}, [(7, 3, 6)],
     {"mode": 3, "hidden_size": 6, "num_layers": 2, "bidirectional": True, "has_biases": True},
     products.recurrent(21, products.network("gru", 10, 6))),  # one layer, one direction, whatever it says
    ("aten._thnn_fused_lstm_cell", {"input_gates": (3, 24), "hidden_gates": (3, 24), "cx": (3, 6)}, [(3, 6)], {},
     Cost(0, 18 * 22)),
    ("aten._thnn_fused_gru_cell_backward", {"grad_hy": (3, 6), "workspace": (3, 30)}, [], {"has_bias": True},
     Cost(0, 18 * (16 + 3))),
    ("aten.cudnn_batch_norm", {"input": (2, 3, 4, 4), "weight": (3,), "bias": (3,), "running_mean": (3,)},
     [(2, 3, 4, 4)], {"training": True}, Cost(0, 9 * 96 + 9 + 18)),
    ("aten.cudnn_batch_norm_backward", {"input": (2, 3, 4, 4), "grad_output": (2, 3, 4, 4), "weight": (3,)}, [], {},
     Cost(0, 9 * 96 + 18)),
    ("aten.native_batch_norm", {"input": (2, 3, 4, 4)}, [(2, 3, 4, 4)], {"training": False}, Cost(0, 2 * 96 + 6)),
    ("aten.native_layer_norm", {"input": (2, 5, 8), "weight": (8,), "bias": (8,)}, [(2, 5, 8)],
     {"normalized_shape": [8]}, Cost(0, 9 * 80 + 30)),
    ("aten._fused_rms_norm", {"input": (2, 5, 8)}, [(2, 5, 8)], {"normalized_shape": [8]}, Cost(0, 3 * 80 + 30)),
    ("aten.native_group_norm", {"input": (2, 6, 5)}, [(2, 6, 5)], {"group": 3}, Cost(0, 7 * 60 + 36 + 24)),
    ("aten._log_softmax", {"self": (4, 10)}, [(4, 10)], {"dim": 1}, Cost(0, 204)),
    ("aten.nll_loss_forward", {"self": (4, 10), "target": (4,)}, [(), ()], {"reduction": 1}, Cost(0, 13)),
    ("aten._ctc_loss", {"log_probs": (6, 2, 5), "targets": (2, 3)}, [(2,)],
     {"input_lengths": [6, 4], "target_lengths": [3, 1]}, Cost(0, 13 * (6 * 7 + 4 * 3))),
    ("aten._ctc_loss", {"log_probs": (6, 2, 5), "targets": (2, 3)}, [(2,)], {}, Cost(0, 2 * 13 * 6 * 7)),
    ("aten.max_pool2d_with_indices", {"self": (1, 2, 8, 8)}, [(1, 2, 4, 4)], {"kernel_size": [3]}, Cost(0, 32 * 8)),
    ("aten.avg_pool3d_backward", {"grad_output": (1, 2, 2, 2, 2), "self": (1, 2, 4, 4, 4)}, [(1, 2, 4, 4, 4)],
     {"kernel_size": [2, 2, 2]}, Cost(0, 16 * 9)),
    ("aten._adaptive_avg_pool2d", {"self": (1, 2, 4, 4)}, [(1, 2, 2, 2)], {}, Cost(0, 2 * (16 + 4))),
    ("aten._adaptive_avg_pool2d_backward", {"grad_output": (1, 2, 2, 2), "self": (1, 2, 4, 4)}, [(1, 2, 4, 4)], {},
     Cost(0, 2 * (16 + 4))),
    ("aten.adaptive_max_pool2d", {"self": (1, 2, 4, 4)}, [(1, 2, 2, 2)], {}, Cost(0, 2 * (16 - 4))),
    ("aten.upsample_bicubic2d", {"self": (1, 2, 4, 4)}, [(1, 2, 8, 8)], {}, Cost(0, 128 * 31)),
    ("aten._upsample_bilinear2d_aa", {"self": (1, 2, 8, 8)}, [(1, 2, 4, 4)], {}, Cost(0, 32 * 2 * 8)),  # 4 taps twice
    ("aten.grid_sampler_2d", {"input": (1, 3, 4, 4), "grid": (1, 5, 2, 2)}, [(1, 3, 5, 2)],
     {"interpolation_mode": 0}, Cost(0, 30 * 7 + 10 * 18)),
    ("torchvision.roi_align", {"input": (1, 2, 8, 8), "rois": (3, 5)}, [(3, 2, 7, 7)], {"sampling_ratio": 2},
     Cost(0, 294 * 33)),
    ("torchvision.nms", {"dets": (5, 4), "scores": (5,)}, [(2,)], {}, Cost(0, 130)),
    ("aten.gelu_backward", {"grad_output": (3, 4), "self": (3, 4)}, [(3, 4)], {"approximate": "none"}, Cost(0, 132)),
    ("aten.gelu_backward", {"grad_output": (3, 4), "self": (3, 4)}, [(3, 4)], {"approximate": "tanh"}, Cost(0, 216)),
    ("aten.gelu", {"self": (3, 4)}, [(3, 4)], {"approximate": "tanh"}, Cost(0, 108)),
    ("aten.add", {"self": (3, 4), "other": (4,)}, [(3, 4)], {"alpha": 1}, Cost(0, 12)),
    ("aten.sub_", {"self": (3, 4), "other": (4,)}, [(3, 4)], {"alpha": 0.5}, Cost(0, 24)),
    ("aten.addcmul", {"self": (3, 4), "tensor1": (3, 4), "tensor2": (3, 4)}, [(3, 4)], {"value": 0.1}, Cost(0, 36)),
    ("aten.clamp", {"self": (5,)}, [(5,)], {"min": 0, "max": None}, Cost(0, 5)),
    ("aten.clamp", {"self": (5,), "min": (5,), "max": (5,)}, [(5,)], {}, Cost(0, 10)),
    ("aten.mean", {"self": (4, 8)}, [(4,)], {"dim": [1]}, Cost(0, 36)),
    ("aten.max", {"self": (4, 8)}, [(), ()], {}, Cost(0, 32)),
    ("aten.max", {"self": (4, 8), "other": (4, 8)}, [(4, 8)], {}, Cost(0, 32)),
    ("aten.linalg_vector_norm", {"self": (4, 8)}, [(4, 1)], {"dim": [1]}, Cost(0, 68)),
    ("aten.logsumexp", {"self": (4, 8)}, [(4,)], {"dim": [1]}, Cost(0, 136)),
    ("aten.embedding_dense_backward", {"grad_output": (2, 3, 8), "indices": (2, 3)}, [(10, 8)], {}, Cost(0, 48)),
    ("aten._embedding_bag", {"weight": (10, 8), "indices": (6,), "offsets": (2,)}, [(2, 8)], {}, Cost(0, 48)),
    ("aten.index_put_", {"self": (9, 4), "indices[0]": (5,), "values": (5, 4)}, [(9, 4)], {"accumulate": True},
     Cost(0, 20)),
    ("aten.index_put_", {"self": (9, 4), "indices[0]": (5,), "values": (5, 4)}, [(9, 4)], {"accumulate": False}, ZERO),
    ("aten._foreach_add_", {"self[0]": (4, 4), "self[1]": (4,), "other": ()}, [], {"alpha": -0.1}, Cost(0, 40)),
    ("aten._foreach_addcdiv_", {f"{n}[0]": (4, 4) for n in ("self", "tensor1", "tensor2")}, [], {"scalars": [0.1]},
     Cost(0, 48)),
    ("aten._foreach_sqrt", {"self[0]": (4, 4), "self[1]": (4,)}, [(4, 4), (4,)], {}, Cost(0, 20)),
    ("aten._fused_sgd_", ROWS, [], {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}, Cost(0, 20 * 6)),
    ("aten._fused_adam_", ROWS, [], {"amsgrad": False}, Cost(0, 20 * 13)),
    ("aten._fused_adamw_", {**ROWS, "grad_scale": ()}, [], {"weight_decay": 0.1}, Cost(0, 20 * 15)),
    ("aten._amp_foreach_non_finite_check_and_unscale_", {"self[0]": (4, 4), "found_inf": (), "inv_scale": ()}, [], {},
     Cost(0, 32)),
    ("aten.native_dropout", {"input": (4, 4)}, [(4, 4), (4, 4)], {"p": 0.1}, Cost(0, 32)),
    ("aten.dropout", {"input": (4, 4)}, [(4, 4)], {"p": 0.1, "train": False}, ZERO),
    ("aten._fft_c2r", {"self": (2, 5)}, [(2, 8)], {"dim": [1], "last_dim_size": 8}, Cost(0, 120)),
    ("aten._weight_norm_interface", {"v": (4, 8), "g": (4, 1)}, [(4, 8), (4, 1)], {}, Cost(0, 96 + 8)),
    ("aten.linalg_solve_triangular", {"self": (2, 4, 4), "B": (2, 4, 3)}, [(2, 4, 3)], {}, Cost(0, 96)),
    ("c10d.allreduce_", {"tensors[0]": (6,), "tensors[1]": (2,)}, [], {}, Cost(0, 8)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "attributes", "expected"), READ, ids=lambda value: str(value)[:40]
)
def test_readers(name: str, inputs: Any, outputs: Any, attributes: Any, expected: Cost) -> None:
    cost = registry.cost(operation(name, inputs, outputs, **attributes))
    assert (cost.model_flop, cost.other_flop) == (expected.model_flop, expected.other_flop)


# operation without gradient, its backward, operations of each for one element, as PyTorch decomposes them
ACTIVATIONS = [
    ("relu", "threshold_backward", {}, 1, 1),
    ("hardtanh", "hardtanh_backward", {}, 2, 2),
    ("leaky_relu", "leaky_relu_backward", {}, 2, 2),
    ("gelu", "gelu_backward", {"approximate": "none"}, 5, 11),
    ("gelu", "gelu_backward", {"approximate": "tanh"}, 9, 18),
    ("silu", "silu_backward", {}, 5, 9),
    ("hardswish", "hardswish_backward", {}, 5, 5),
    ("sigmoid", "sigmoid_backward", {}, 4, 3),
    ("tanh", "tanh_backward", {}, 1, 3),
    ("native_dropout", "native_dropout_backward", {}, 2, 1),
    ("_softmax", "_softmax_backward_data", {}, 5, 4),
]


@pytest.mark.parametrize(("name", "backward", "attributes", "each", "each_backward"), ACTIVATIONS)
def test_activations_as_decomposed(name: str, backward: str, attributes: Any, each: int, each_backward: int) -> None:
    forward = operation(f"aten.{name}", {"self": (2, 4096)}, [(2, 4096)], **attributes)
    gradient = {"grad_output": (2, 4096), "self": (2, 4096)}
    assert registry.cost(forward).other_flop == 8192 * each
    assert registry.cost(operation(f"aten.{backward}", gradient, [(2, 4096)], **attributes)).other_flop == (
        8192 * each_backward
    )


B = sympy.Symbol("b", positive=True, integer=True)
IN_THE_BATCH: list[tuple[str, Any]] = [
    ("aten.convolution", lambda b: ({"input": (b, 4, 8, 8), "weight": (6, 2, 3, 3), "bias": (6,)}, [(b, 6, 8, 8)], {})),
    ("aten.convolution_backward", lambda b: (
        {"grad_output": (b, 6, 8, 8), "input": (b, 4, 8, 8), "weight": (6, 2, 3, 3)}, [],
        {"output_mask": [False, True, True]})),
    ("aten.addmm", lambda b: ({"self": (3,), "mat1": (b, 8), "mat2": (8, 3)}, [(b, 3)], {})),
    ("aten._scaled_dot_product_flash_attention_for_cpu_backward", lambda b: (
        {"grad_out": (b, 4, 5, 8), "query": (b, 4, 5, 8), "key": (b, 4, 7, 8), "value": (b, 4, 7, 8)}, [], {})),
    ("aten.mkldnn_rnn_layer", lambda b: (
        {"input": (7, b, 5)}, [(7, b, 6)], {"mode": 2, "hidden_size": 6, "has_biases": True})),
    ("aten.native_batch_norm", lambda b: ({"input": (b, 3, 4)}, [(b, 3, 4)], {"training": True})),
    ("aten.native_layer_norm", lambda b: ({"input": (b, 5, 8)}, [(b, 5, 8)], {"normalized_shape": [8]})),
    ("aten._log_softmax", lambda b: ({"self": (b, 10)}, [(b, 10)], {"dim": 1})),
    ("aten.max_pool2d_with_indices", lambda b: ({"self": (b, 2, 8, 8)}, [(b, 2, 4, 4)], {"kernel_size": [2, 2]})),
    ("aten._adaptive_avg_pool2d", lambda b: ({"self": (b, 2, 7, 7)}, [(b, 2, 3, 3)], {})),
    ("aten.relu", lambda b: ({"self": (b, 8)}, [(b, 8)], {})),
]  # fmt: skip


@pytest.mark.parametrize(("name", "made"), IN_THE_BATCH, ids=[name for name, _ in IN_THE_BATCH])
def test_readers_take_symbols(name: str, made: Any) -> None:
    """The count of a trace in the batch size b is, for b = 6, the count of the trace at batch 6; bytes too."""

    def count(batch: Any) -> Cost:
        inputs, outputs, attributes = made(batch)
        return registry.cost(operation(name, inputs, outputs, **attributes))

    symbolic, number = count(B), count(6)
    for field in ("model_flop", "other_flop", "read_bytes", "written_bytes"):
        assert sympy.sympify(getattr(symbolic, field)).subs(B, 6) == getattr(number, field)
    assert number.all_flop > 0


def test_integers_are_no_flop() -> None:
    """Index arithmetic costs nothing; int8 products are products."""
    for name in ("aten.add", "aten.mul", "aten.cumsum", "aten.sum", "aten.max"):
        assert registry.cost(operation(name, {"self": (8,)}, [(8,)], dtype="int64")).other_flop == 0
    compared = operation("aten.gt", {"self": (8,)}, [(8,)], dtype="bool", dtypes={"self": "float32"})
    assert registry.cost(compared).other_flop == 8
    product = operation("aten._int_mm", {"self": (4, 8), "mat2": (8, 3)}, [(4, 3)], dtype="int8")
    assert registry.cost(product).model_flop == 192


def test_complex_products_are_four_real_ones() -> None:
    """16³ multiply-adds, each 4 multiplications and 4 additions."""
    product = operation("aten.mm", {"self": (16, 16), "mat2": (16, 16)}, [(16, 16)], dtype="complex64")
    assert registry.cost(product).model_flop == registry.model_flop(product) == 8 * 16**3


def test_model_flop_alone_is_that_of_the_cost() -> None:
    """Of every operation here, of products of both kinds of numbers, and of one that is not understood."""
    for name, inputs, outputs, attributes, _ in READ:
        made = operation(name, inputs, outputs, **attributes)
        assert registry.model_flop(made) == registry.cost(made).model_flop, name
    product = operation("aten.mm", {"self": (16, 8), "mat2": (8, 4)}, [(16, 4)])
    assert registry.model_flop(product) == 2 * 16 * 8 * 4
    assert registry.model_flop(product, {}) == registry.model_flop(operation("aten.unheard_of", {}, [(4,)])) == 0


@pytest.mark.parametrize(
    ("one", "other", "taps"),
    [
        (8, 4, 2 * 2),
        (4, 8, 2),
        (9, 4, 2 * 3),
        (0, 4, 2),
        (4, 0, 2),
        (sympy.Symbol("h"), 4, 2),
        (4, sympy.Symbol("h"), 2),
    ],
)
def test_taps_of_a_window_that_does_not_alias(one, other, taps):
    """`width` pixels of the coarser grid; of an unknown or empty grid, of the finer one."""
    assert windows._window(2, one, other) == taps
