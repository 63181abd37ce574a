"""Counts PyTorch's ATen operations as Catamount does: `RULES` is a rule table for `analysis.operators.registry.cost`.

Catamount computes costs from TensorFlow 1 graphs. Each ATen operation is translated to nodes of an equivalent graph,
and `graph_nodes.py` counts the nodes. Model FLOP and other FLOP together are Catamount's "algorithmic FLOPs". Bytes
read and written are its "algorithmic bytes". `footprint` and the storages of `VARIABLE_ROLES` together are its "total
footprint". Integers are 4 bytes, as TensorFlow's labels and indices are. An operation without nodes (fused attention,
layer norm, GELU) keeps this project's FLOP and moves each tensor once. Trace the step with the optimizer that
`optimizer_of` names. `graph_terms.py` has the nodes of Catamount's graph that no trace has (sums over no axis, shapes,
clipping). Not claimed: that a device does any of this.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod

from analysis.catamount.graph_nodes import (
    POINTWISE,
    SCALAR,
    GraphNode,
    Operand,
    backward_step,
    flop,
    footprint_of,
    forward_step,
    repeated,
    traffic,
)
from analysis.operators import names, registry
from analysis.operators.cost import Size, Sizes, attribute, first, has, needed, numel, output, output_mask, shape
from analysis.operators.registry import Rule, Rules
from analysis.operators.traffic import itemsize
from results.records.counts import Operation

VARIABLE_ROLES = ("weight", "buffer", "optimizer_state")
"""Roles of the storages that are variables of a graph."""


Nodes = tuple[GraphNode, ...]
Translation = Callable[[Operation], Nodes]

WHOLE = ("int64", "uint64")


def tensor(sizes: Sizes, dtype: str = "float32") -> Operand:
    """Return the operand for a PyTorch tensor; integers are 4 bytes."""
    return Operand(tuple(sizes), 4 if dtype in WHOLE else itemsize(dtype))


def inputs(operation: Operation) -> tuple[Operand, ...]:
    """Return the operands for all input tensors, repeated ones too."""
    return tuple(tensor(s, d) for s, d in zip(operation.input_shapes, operation.input_dtypes, strict=True))


def outputs(operation: Operation) -> tuple[Operand, ...]:
    """Return the operands for all output tensors."""
    return tuple(tensor(s, d) for s, d in zip(operation.output_shapes, operation.output_dtypes, strict=True))


def _operand(sizes: Sizes) -> tuple[Operand]:
    return (Operand(tuple(sizes)),)


def nothing(_operation: Operation) -> Nodes:
    """Return no node: Catamount counts nothing for an identity, a transposed operand, a TensorArray."""
    return ()


def same(name: str, *extra: Operand) -> Translation:
    """Translate to one node of this name. extra: tensors that TensorFlow adds, such as an axis; a number among the
    arguments is a scalar tensor."""

    def nodes(operation: Operation) -> Nodes:
        number = (SCALAR,) if attribute(operation, "overload") == "Scalar" else ()
        return (GraphNode(name, (*inputs(operation), *extra, *number), outputs(operation)),)

    return nodes


def copied(name: str, times: int = 1) -> Translation:
    """Translate a view to a copying node. times: how many vectors of integers describe the new form."""

    def nodes(operation: Operation) -> Nodes:
        forms = (Operand((len(output(operation)),)),) * times
        return (GraphNode(name, (*inputs(operation), *forms), outputs(operation)),)

    return nodes


def turned(operation: Operation) -> Nodes:
    """Translate transpose: a copy where the first dimension moves, else nothing, since batched products take transposed
    operands."""
    dims = {attribute(operation, name, 0) % len(first(operation)) for name in ("dim0", "dim1")}
    return copied("Transpose")(operation) if 0 in dims else ()


def bernoulli_nodes(operation: Operation) -> Nodes:
    """Translate bernoulli: dropout's mask, from uniform numbers that are scaled, shifted, added to what is kept and
    rounded."""
    mask = outputs(operation)
    steps = tuple(GraphNode(name, (*mask, SCALAR), mask) for name in ("Mul", "Add", "Add"))
    return (GraphNode("RandomInitializer", (), mask), *steps, GraphNode("Floor", mask, mask))


def added(name: str) -> Translation:
    """Translate add and sub, after a multiplication where alpha is not 1; in the optimizer's phase `descended`."""

    def nodes(operation: Operation) -> Nodes:
        if operation.phase == "optimizer":
            return descended(operation)
        before: Nodes = ()
        if attribute(operation, "alpha", 1) != 1:
            other = inputs(operation)[-1]
            before = (GraphNode("Mul", (other, SCALAR), (other,)),)
        number = (SCALAR,) if len(operation.input_shapes) == 1 else ()
        return (*before, GraphNode(name, inputs(operation) + number, outputs(operation)))

    return nodes


def added_product(operation: Operation) -> Nodes:
    """Translate addmm: a product, then a bias for each row."""
    left, right, bias = (tensor(shape(operation, name)) for name in ("mat1", "mat2", "self"))
    results = outputs(operation)
    return (GraphNode("MatMul", (left, right), results), GraphNode("Add", (*results, bias), results))


def convolution(operation: Operation) -> Nodes:
    """Translate convolution to Conv2D, and an addition where there is a bias."""
    results = outputs(operation)
    data, weight = _operand(shape(operation, "input")), _operand(shape(operation, "weight"))
    bias = (
        (GraphNode("Add", (*results, *_operand(shape(operation, "bias"))), results),) if has(operation, "bias") else ()
    )
    return (GraphNode("Conv2D", (*data, *weight), results), *bias)


def convolution_backward(operation: Operation) -> Nodes:
    """Return one node for each requested gradient; those of data and filter read the sizes of their output."""
    gradient, data, weight = (_operand(shape(operation, name)) for name in ("grad_output", "input", "weight"))
    sizes = Operand((len(data[0].sizes),))
    nodes = (
        GraphNode("Conv2DGradInput", (sizes, *weight, *gradient), data),
        GraphNode("Conv2DGradFilter", (*data, sizes, *gradient), weight),
        GraphNode("Reduce", gradient, _operand(gradient[0].sizes[1:2])),
    )
    return tuple(node for node, wanted in zip(nodes, output_mask(operation), strict=True) if wanted)


def recurrent_layer(step: Callable[[Size, Size, Size], Nodes], input_weight: str, recurrent_weight: str) -> Translation:
    """Translate mkldnn_rnn_layer with LSTM cells, or its backward, as a while loop. step: returns the nodes of a time
    step. input_weight, recurrent_weight: names of the two matrices. There is one bias, not two."""

    def nodes(operation: Operation) -> Nodes:
        if (mode := needed(operation, "mode")) != 2:
            raise ValueError(f"{operation.name} at index {operation.index}: expected LSTM cells (mode 2), got {mode}")
        steps, batch, _ = shape(operation, "input")
        widths = (shape(operation, name)[-1] for name in (input_weight, recurrent_weight))  # columns: inputs, hidden
        return repeated(step(batch, *widths), steps)

    return nodes


def batch_norm(operation: Operation) -> Nodes:
    """Translate native_batch_norm to FusedBatchNorm: two of its five inputs are empty in training, and four of its five
    outputs have one value per channel. Separate nodes move the running mean and variance, with three operations a
    channel each: (old - new) · rate, then -."""
    data, channel = tensor(shape(operation, "input")), tensor(shape(operation, "weight"))
    empty = Operand((0,))
    fused = GraphNode("FusedBatchNorm", (data, channel, channel, empty, empty), (data, *(channel,) * 4))
    if not has(operation, "running_mean"):
        return (fused,)
    return (
        fused,
        GraphNode("Sub", (channel, channel), (channel,), 4),
        GraphNode("Mul", (channel, SCALAR), (channel,), 2),
    )


def batch_norm_backward(operation: Operation) -> Nodes:
    """Translate native_batch_norm_backward to FusedBatchNormGrad, which reads the gradient, the batch, the scale, and
    the batch's mean and variance; its last two outputs are empty."""
    data, channel = tensor(shape(operation, "input")), tensor(shape(operation, "weight"))
    empty = Operand((0,))
    read = (data, data, channel, channel, channel)
    return (GraphNode("FusedBatchNormGrad", read, (data, channel, channel, empty, empty)),)


def cross_entropy(operation: Operation) -> Nodes:
    """Translate _log_softmax: one node makes loss and gradient, with the labels of the next operation."""
    logits = inputs(operation)[0]
    rows = Operand(logits.sizes[:-1])
    return (GraphNode("SparseSoftmaxCrossEntropyWithLogits", (logits, rows), (rows, logits)),)


def cross_entropy_backward(operation: Operation) -> Nodes:
    """Translate _log_softmax_backward_data: the existing gradient times each row's, and zeros for the unused output."""
    logits = outputs(operation)[0]
    rows = logits.sizes[:-1]
    spread = Operand((*rows, 1))
    return (
        GraphNode("NumLike", (logits,), (logits,)),
        GraphNode("ExpandDims", (Operand(rows), SCALAR), (spread,)),
        GraphNode("Mul", (spread, logits), (logits,)),
    )


def softmax_backward(operation: Operation) -> Nodes:
    """Translate _softmax_backward_data: gradient times result, its sum over each row, subtracted, times result."""
    result = outputs(operation)[0]
    rows = Operand((*result.sizes[:-1], 1))
    return (
        GraphNode("Mul", (result, result), (result,), 2),
        GraphNode("Reduce", (result, Operand((1,))), (rows,)),
        GraphNode("Sub", (result, rows), (result,)),
    )


def pooling(operation: Operation) -> Nodes:
    """Translate max_pool and its gradient: a comparison for each element of the smaller tensor and each position of its
    window.

    MaxPool returns no indices; its gradient reads batch, result and gradient, equally large.
    """
    if operation.name.endswith("backward"):
        data, smaller = (tensor(shape(operation, name)) for name in ("self", "grad_output"))
        node = GraphNode("MaxPoolGrad", (data, smaller, smaller), (data,))
    else:
        smaller = outputs(operation)[0]
        node = GraphNode("MaxPool", inputs(operation), (smaller,))
    window = prod(attribute(operation, "kernel_size", [1]))
    return node, GraphNode("ScalarFlop", (), (), smaller.numel * window)


def embedding_backward(operation: Operation) -> Nodes:
    """Translate the gradient of an embedding. It stays a list of rows with their indices: both are reshaped, and the
    rows are multiplied by the rate and subtracted from those of the table."""
    gradient, indices = tensor(shape(operation, "grad_output")), tensor(shape(operation, "indices"))
    rows = numel(indices.sizes)
    listed, places = Operand((rows, gradient.sizes[-1])), Operand((rows,))
    return (
        GraphNode("Reshape", (gradient, Operand((2,))), (listed,)),
        GraphNode("Reshape", (indices, Operand((1,))), (places,)),
        GraphNode("Mul", (listed, SCALAR), (listed,)),
        GraphNode("ScatterUpdate", (outputs(operation)[0], places, listed), outputs(operation)),
    )


def descended(operation: Operation) -> Nodes:
    """Translate an addition of the optimizer. Its factor and whether it is in place show what it is: weight -= rate ·
    gradient, the gradient added to a momentum, or weight decay added to the gradient."""
    weight = tensor(first(operation))
    if not operation.name.endswith("_"):
        return (GraphNode("Mul", (weight, SCALAR), (weight,)), GraphNode("AddN", (weight, weight), (weight,)))
    if attribute(operation, "alpha", 1) == 1:
        return (GraphNode("ApplyMomentumAdd", (weight,), (weight,)),)
    return (GraphNode("ApplyGradientDescent", (weight, SCALAR, weight), (weight,)),)


def multiplied(operation: Operation) -> Nodes:
    """Translate mul; in the optimizer it is a momentum times its decay, the first part of ApplyMomentum."""
    if operation.phase == "optimizer":
        return (GraphNode("ApplyMomentumDecay", (SCALAR,), outputs(operation)),)
    number = (SCALAR,) if len(operation.input_shapes) == 1 else ()
    return (GraphNode("Mul", inputs(operation) + number, outputs(operation)),)


TRANSLATIONS: dict[str, Translation] = {
    "mm": same("MatMul"),
    "bmm": same("BatchMatMul"),
    "addmm": added_product,
    "convolution": convolution,
    "convolution_backward": convolution_backward,
    "mkldnn_rnn_layer": recurrent_layer(forward_step, "weight0", "weight1"),
    "mkldnn_rnn_layer_backward": recurrent_layer(backward_step, "weight1", "weight2"),
    "native_batch_norm": batch_norm,
    "native_batch_norm_backward": batch_norm_backward,
    "_softmax": same("Softmax"),
    "_softmax_backward_data": softmax_backward,
    "_log_softmax": cross_entropy,
    "_log_softmax_backward_data": cross_entropy_backward,
    # a sum over the rows, and its gradient, one for each row
    "nll_loss_forward": lambda operation: (
        GraphNode("Reduce", (tensor(shape(operation, "target")), Operand((1,))), (SCALAR,)),
    ),
    "nll_loss_backward": lambda operation: (
        GraphNode("Tile", (Operand((1,)), Operand((1,))), (tensor(shape(operation, "target")),)),
    ),
    "embedding": same("Gather"),
    "embedding_dense_backward": embedding_backward,
    "add": added("Add"),
    "sub": added("Sub"),
    "mul": multiplied,
    "threshold_backward": same("ReluGrad"),
    "sum mean amax amin prod any all argmax argmin": same("Reduce"),
    "cat": same("Concat", SCALAR),
    "split split_with_sizes chunk": same("Split", SCALAR),
    "slice": copied("Slice", 2),
    "view _unsafe_view reshape": copied("Reshape"),
    "transpose": turned,
    "permute": copied("Transpose"),
    "squeeze": same("Squeeze"),
    "unsqueeze": same("ExpandDims", SCALAR),
    "bernoulli": bernoulli_nodes,
    "expand": copied("Tile"),
    "zeros zeros_like new_zeros": same("NumLike"),
    "rand rand_like randn randn_like": same("RandomInitializer"),
    "where": same("Select"),
    "multinomial": same("Multinomial"),
    "constant_pad_nd": same("Pad"),
    "select select_backward unbind stack t clone detach alias empty empty_like ones_like": nothing,
    "_to_copy": same("Cast"),
}
"""ATen names → the nodes in their place. Those of POINTWISE are added by `_pointwise`."""

RENAMED = {
    "add": "", "sub": "", "mul": "", "base_pointwise": "", "floor_div": "", "floor_mod": "",
    "neg": "neg negative", "div": "div true_divide", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge", "equal": "eq", "not_equal": "ne", "relu_grad": "", "rsqrt_grad": "", "sqrt_grad": "",
    "sigmoid_grad": "sigmoid_backward", "tanh_grad": "tanh_backward", "squared_difference": "",
}  # fmt: skip
"""Nodes in ATen's spelling → the ATen names, where these are not the same."""


def _pointwise() -> dict[str, Translation]:
    translations: dict[str, Translation] = {}
    for listed in POINTWISE.values():
        for node in listed.split():
            spelled = "".join("_" + c.lower() if c.isupper() else c for c in node).removeprefix("_")
            translations |= {name: same(node) for name in RENAMED.get(spelled, spelled).split()}
    return translations


NODES: dict[str, Translation] = {
    **{f"aten.{name}": how for name, how in _pointwise().items()},
    **{f"aten.{name}": how for line, how in TRANSLATIONS.items() for name in line.split()},
    **{f"aten.{name}{end}": pooling for name in names.MAX_POOL.split() for end in ("", "_backward")},
}
"""ATen operation → its nodes."""


def _unknown_nodes(operation: Operation) -> Nodes:
    """Translate an operation without a known node: every tensor is read or written once."""
    return (GraphNode("Unknown", inputs(operation), outputs(operation)),)


def _rule(name: str, own: Rule) -> Rule:
    """Return Catamount's rule for a name of this project's table. Only FLOP and bytes change; the kind stays."""
    how = NODES.get(name, _unknown_nodes)

    def moved(operation: Operation) -> tuple[Size, Size]:
        return traffic(how(operation))

    if name in NODES:
        bucket = "ignored" if how is nothing else "counted"
        return Rule(own.kind, bucket, lambda operation: flop(how(operation)), moved)
    return own if own.kind == "view" else replace(own, traffic=moved)


RULES: Rules = {name: _rule(name, own) for name, own in registry.TABLE.items()}
"""Catamount's rule for every operation of this project's own table."""


def footprint(operation: Operation) -> Size:
    """Return the bytes that an operation adds to Catamount's total footprint: its outputs and what it holds meanwhile;
    0 for an update of a variable."""
    name = operation.name if operation.name in NODES else operation.name.removesuffix("_")
    if name in NODES:
        return footprint_of(NODES[name](operation))
    rule = registry.rule_of(operation.name)
    return 0 if rule is not None and rule.kind == "view" else footprint_of(_unknown_nodes(operation))


def optimizer_of(model: str) -> str:
    """Return the optimizer, by the name that `workloads` has for it, of the graph that Catamount counted."""
    return "sgd" if model.startswith("resnet") else "sgd-plain"
