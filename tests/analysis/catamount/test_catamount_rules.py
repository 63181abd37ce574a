"""Definition, known answer: Catamount's rules one by one, on its nodes and on ATen operations translated to them.

The rules are those of its operators' `calcAlgFlops`, `calcAlgBytes` and `calcAlgFootprint`; each expected value is
worked out beside it, float32 and int32 being 4 bytes.
"""

import pytest
import sympy

from analysis.catamount import rules
from analysis.catamount.graph_nodes import (
    SCALAR,
    GraphNode,
    Operand,
    backward_step,
    flop,
    footprint_of,
    forward_step,
    parameters,
    traffic,
)
from analysis.operators import registry
from results.records.counts import Operation
from tests.support.made_up_operations.made_up_operations import operation

SQUARE, ROW = Operand((4, 6)), Operand((6,))


def one(name: str, *inputs: Operand, to: tuple[Operand, ...] = (SQUARE,)) -> tuple[int, int, int]:
    """(FLOP, bytes, footprint) of one node."""
    nodes = (GraphNode(name, inputs, to),)
    return flop(nodes).all_flop, sum(traffic(nodes)), footprint_of(nodes)


@pytest.mark.parametrize(
    ("each", "name"),
    [(1, "Add"), (1, "Relu"), (1, "Exp"), (1, "LogicalAnd"), (1, "Erf"), (2, "Rsqrt"), (2, "Log1p"),
     (2, "SquaredDifference"), (3, "SigmoidGrad"), (3, "TanhGrad"), (4, "Sigmoid"), (6, "Tanh")],
)  # fmt: skip
def test_pointwise(each: int, name: str) -> None:
    """24 elements, 96 bytes read and 96 written."""
    assert one(name, SQUARE) == (24 * each, 192, 96)


NODES = {
    # (4, 5) · (5, 6): 2 · 24 · 5; reads 20 + 30, writes 24 numbers
    "product": (one("MatMul", Operand((4, 5)), Operand((5, 6))), (240, 296, 96)),
    # input elements, whatever is left
    "sum": (one("Reduce", SQUARE, to=(SCALAR,)), (24, 100, 4)),
    "three added": (one("AddN", SQUARE, SQUARE, SQUARE), (48, 384, 96)),
    # exp, sum, ÷; the exponentials are an output more
    "softmax": (one("Softmax", SQUARE), (72, 288, 192)),
    # logits 96, labels 16 → losses 16, gradient 96
    "cross entropy": (
        one("SparseSoftmaxCrossEntropyWithLogits", SQUARE, Operand((4,)), to=(Operand((4,)), SQUARE)),
        (72, 224, 112),
    ),
    # 3, though it squares and adds 24 numbers: Catamount's own fault
    "L2 loss": (one("L2Loss", SQUARE, to=(SCALAR,)), (3, 100, 4)),
    # indices 16, rows read and written 2 · 96
    "gather": (one("Gather", Operand((100, 6)), Operand((4,))), (0, 208, 96)),
    # indices 16, updates 96, rows read and written 2 · 96; in place
    "scatter": (
        one("ScatterUpdate", Operand((100, 6)), Operand((4,)), SQUARE, to=(Operand((100, 6)),)),
        (24, 304, 0),
    ),
    # condition 4 bytes, one branch 96, result 96; one comparison for each condition
    "select": (one("Select", Operand((4,), 1), SQUARE, SQUARE), (4, 196, 96)),
    "where": (one("Where", Operand((4,), 1), to=(Operand((4, 1), 8),)), (4, 36, 32)),
    # weight and gradient 2 · 96, rate 4, weight 96; in place
    "gradient descent": (one("ApplyGradientDescent", SQUARE, SCALAR, SQUARE), (48, 292, 0)),
    # copies: nothing computed, the form read too
    "reshape": (one("Reshape", SQUARE, Operand((2,))), (0, 200, 96)),
    "shape": (one("Shape", SQUARE, to=(Operand((2,)),)), (0, 8, 8)),
    "identity": (one("Identity", SQUARE), (0, 0, 0)),
    "variable": (one("Variable"), (0, 0, 96)),
    # 2 · 4 · 6 elements: 6 each and 3 a channel; scale, offset, two empty; four of a channel come out
    "batch norm": (
        one("FusedBatchNorm", Operand((2, 6, 4)), ROW, ROW, to=(Operand((2, 6, 4)), ROW, ROW, ROW, ROW)),
        (6 * 48 + 3 * 6, 4 * (48 + 12) + 4 * (48 + 24), 4 * (48 + 24)),
    ),
    "batch norm, gradient": (
        one("FusedBatchNormGrad", Operand((2, 6, 4)), Operand((2, 6, 4)), ROW, to=(Operand((2, 6, 4)),)),
        (6 * 48 + 6, 4 * (96 + 6) + 192, 192),
    ),
    # output 2 · 5 · 3 · 3, filters of 4 · 3 · 3
    "convolution": (
        one("Conv2D", Operand((2, 4, 3, 3)), Operand((5, 4, 3, 3)), to=(Operand((2, 5, 3, 3)),)),
        (2 * 90 * 36, 4 * (72 + 180 + 90), 360),
    ),
}


@pytest.mark.parametrize("node", NODES)
def test_nodes(node: str) -> None:
    found, expected = NODES[node]
    assert found == expected


def test_pooling_compares_each_element_of_the_smaller_tensor_with_its_window() -> None:
    small, large = (1, 2, 2), (1, 4, 4)
    name, window = "aten.max_pool2d_with_indices", {"kernel_size": [3, 3]}
    forward = operation(name, {"self": large}, [small, small], **window)
    backward = operation(f"{name}_backward", {"grad_output": small, "self": large}, [large], **window)
    assert [flop(rules.pooling(each)).all_flop for each in (forward, backward)] == [4 * 9, 4 * 9]


def test_times_multiply_and_parameters_are_variables_only() -> None:
    nodes = (
        GraphNode("Variable", (), (SQUARE,), 2),
        GraphNode("Buffer", (), (ROW,)),
        GraphNode("Add", (ROW, ROW), (ROW,), -3),
    )
    assert parameters(nodes) == 48
    assert footprint_of(nodes) == 2 * 96 + 24 - 3 * 24
    assert flop(nodes).all_flop == -18


def test_a_step_of_the_loops_is_what_catamount_prints() -> None:
    """The bodies of wordlm's while loops, in its symbols."""
    h, b = sympy.symbols("h b")
    forward, backward = forward_step(b, h, h), backward_step(b, h, h)
    assert sympy.expand(flop(forward).all_flop) == 16 * h**2 * b + 33 * h * b + 6
    assert sympy.expand(flop(backward).all_flop) == 32 * h**2 * b + 8 * h**2 + 37 * h * b + 4 * h + 3
    assert sympy.expand(sum(traffic(forward))) == 32 * h**2 + 200 * h * b + 16 * h + 155
    assert sympy.expand(sum(traffic(backward))) == 160 * h**2 + 424 * h * b + 64 * h + 295


# --- ATen operations -------------------------------------------------------------------------------------------------


def costs(made: Operation) -> tuple[int, int, int, int]:
    """(model FLOP, other FLOP, bytes, footprint) by Catamount's rules."""
    cost = registry.cost(made, rules.RULES)
    return cost.model_flop, cost.other_flop, cost.moved_bytes, rules.footprint(made)


def test_an_addmm_is_a_product_and_an_addition() -> None:
    made = operation("aten.addmm", {"self": (6,), "mat1": (4, 5), "mat2": (5, 6)}, [(4, 6)])
    # product: 2 · 24 · 5, (20 + 30 + 24) · 4 bytes; addition: 24, (24 + 6 + 24) · 4
    assert costs(made) == (240, 24, 296 + 216, 192)


def test_a_convolution_is_counted_without_its_padding() -> None:
    made = operation(
        "aten.convolution", {"input": (2, 3, 8, 8), "weight": (4, 3, 3, 3)}, [(2, 4, 4, 4)],
        stride=[2, 2], padding=[1, 1], groups=1,
    )  # fmt: skip
    assert costs(made) == (2 * 128 * 27, 0, 4 * (384 + 108 + 128), 512)


def test_the_gradients_of_a_convolution_are_two_nodes() -> None:
    made = operation(
        "aten.convolution_backward",
        {"grad_output": (2, 4, 4, 4), "input": (2, 3, 8, 8), "weight": (4, 3, 3, 3)},
        [(2, 3, 8, 8), (4, 3, 3, 3)],
        output_mask=[True, True, False],
    )
    # each reads four numbers of sizes; Catamount's own rule, 2 · 384 · 4 · 9 ÷ 2², is the same
    assert costs(made) == (2 * 2 * 384 * 4 * 9 // 4, 0, 4 * (4 + 108 + 128 + 384) + 4 * (384 + 4 + 128 + 108), 1968)


def test_running_means_are_three_operations_a_channel_each() -> None:
    inputs = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (6,))
    made = operation("aten.native_batch_norm", {"input": (2, 6, 4), **inputs}, [(2, 6, 4), (6,), (6,)], training=True)
    assert costs(made)[:2] == (0, 6 * 48 + 3 * 6 + 2 * 3 * 6)


def test_an_embedding_is_updated_where_its_gradient_is_made() -> None:
    made = operation(
        "aten.embedding_dense_backward", {"grad_output": (2, 2, 6), "indices": (2, 2)}, [(100, 6)],
        dtypes={"indices": "int64"},
    )  # fmt: skip
    # rows reshaped 192 + 8, indices 32 + 4, times the rate 192 + 4, subtracted 16 + 3 · 96
    assert costs(made) == (0, 48, 200 + 36 + 196 + 304, 96 + 16 + 96)


def test_a_view_is_a_copy_and_a_turned_operand_is_none() -> None:
    assert costs(operation("aten.view", {"self": (4, 6)}, [(24,)])) == (0, 0, 192 + 4, 96)
    assert costs(operation("aten.t", {"self": (4, 6)}, [(6, 4)])) == (0, 0, 0, 0)
    swapped = operation("aten.transpose", {"self": (2, 4, 6)}, [(2, 6, 4)], dim0=1, dim1=2)
    assert costs(swapped) == (0, 0, 0, 0)
    assert costs(operation("aten.transpose", {"self": (4, 6)}, [(6, 4)], dim0=0, dim1=1)) == (0, 0, 192 + 8, 96)


def in_optimizer(name: str, **more: object) -> tuple[int, int, int, int]:
    names = ("self",) if name == "aten.mul_" else ("self", "other")
    made = operation(name, dict.fromkeys(names, (4, 6)), [(4, 6)], **more)  # type: ignore[arg-type]
    fields = {field: getattr(made, field) for field in made.__dataclass_fields__}
    return costs(Operation(**{**fields, "phase": "optimizer"}))


def test_plain_descent_is_two_a_weight_and_momentum_four() -> None:
    plain = in_optimizer("aten.add_", alpha=-0.1)
    assert plain == (0, 48, 96 + 4 + 96 + 96, 0)
    decay, moved = in_optimizer("aten.mul_", other=0.9), in_optimizer("aten.add_", alpha=1)
    # weight, momentum, rate, gradient, decay in; weight out
    assert [sum(each) for each in zip(plain, decay, moved, strict=True)] == [0, 96, 4 * 96 + 8, 0]


def test_a_recurrent_layer_is_its_loop_unrolled() -> None:
    b, i, h, steps = 3, 5, 7, 11
    made = operation(
        "aten.mkldnn_rnn_layer",
        {"input": (steps, b, i), "weight0": (4 * h, i), "weight1": (4 * h, h), "weight2": (4 * h,),
         "weight3": (4 * h,), "hx_": (b, h), "cx_": (b, h)},
        [(steps, b, h), (b, h), (b, h)],
        mode=2, hidden_size=h,
    )  # fmt: skip
    model, other, _, _ = costs(made)
    assert model == steps * 2 * b * (i + h) * 4 * h
    assert other == steps * (33 * h * b + 6)


def test_only_lstm_cells_are_unrolled() -> None:
    made = operation("aten.mkldnn_rnn_layer", {"input": (2, 3, 4), "weight0": (7, 4), "weight1": (7, 7)}, [], mode=1)
    with pytest.raises(ValueError, match="expected LSTM cells"):
        registry.cost(made, rules.RULES)
