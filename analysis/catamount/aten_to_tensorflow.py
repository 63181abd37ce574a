"""ATen operations as the nodes that a TensorFlow graph of 2018 would have in their place.

What Catamount would have counted, had the same model come to it: an addmm is a product and an addition, a cross
entropy one node with its gradient, a view a Reshape that copies, a select a read of a TensorArray, which Catamount does
not know. Whole numbers count 4 bytes each, as TensorFlow's labels and indices do, whatever PyTorch makes of them. What
TensorFlow's graph does besides (sums over no axis, shapes, clipping) is in `catamount_graphs.csv`, not here.
"""

from collections.abc import Callable

from analysis.catamount.graph_nodes import SCALAR, GraphNode, Tensor, backward_step, forward_step, repeated
from analysis.operators.cost import Size, Sizes, attribute, first, has, needed, numel, output, output_mask, shape
from analysis.operators.traffic import itemsize
from results.records.counts import Operation

Nodes = tuple[GraphNode, ...]
Translation = Callable[[Operation], Nodes]

WHOLE = ("int64", "uint64")


def tensor(sizes: Sizes, dtype: str = "float32") -> Tensor:
    """A tensor of the graph: as wide as PyTorch's, but whole numbers are 4 bytes."""
    return Tensor(tuple(sizes), 4 if dtype in WHOLE else itemsize(dtype))


def inputs(operation: Operation) -> tuple[Tensor, ...]:
    """All input tensors, one passed twice twice."""
    return tuple(tensor(s, d) for s, d in zip(operation.input_shapes, operation.input_dtypes, strict=True))


def outputs(operation: Operation) -> tuple[Tensor, ...]:
    """All output tensors."""
    return tuple(tensor(s, d) for s, d in zip(operation.output_shapes, operation.output_dtypes, strict=True))


def _one(sizes: Sizes) -> tuple[Tensor]:
    return (Tensor(tuple(sizes)),)


def nothing(_operation: Operation) -> Nodes:
    """No node, or one that Catamount counts nothing for: an identity, a transposed operand, a TensorArray."""
    return ()


def same(name: str, *extra: Tensor) -> Translation:
    """One node of this name with the tensors of the operation and those that TensorFlow adds (an axis); a number among
    its arguments is a scalar tensor."""

    def nodes(operation: Operation) -> Nodes:
        number = (SCALAR,) if attribute(operation, "overload") == "Scalar" else ()
        return (GraphNode(name, (*inputs(operation), *extra, *number), outputs(operation)),)

    return nodes


def copied(name: str, times: int = 1) -> Translation:
    """A view that TensorFlow copies: the tensor and its new form, order or place, a whole number for each dimension."""

    def nodes(operation: Operation) -> Nodes:
        forms = (Tensor((len(output(operation)),)),) * times
        return (GraphNode(name, (*inputs(operation), *forms), outputs(operation)),)

    return nodes


def turned(operation: Operation) -> Nodes:
    """transpose: a copy in another order; of an operand of a batched product nothing, which takes it turned."""
    dims = {attribute(operation, name, 0) % len(first(operation)) for name in ("dim0", "dim1")}
    return copied("Transpose")(operation) if 0 in dims else ()


def bernoulli_nodes(operation: Operation) -> Nodes:
    """bernoulli: dropout's mask, from uniform numbers that are scaled, shifted, added to what is kept and rounded."""
    made = outputs(operation)
    changed = tuple(GraphNode(name, (*made, SCALAR), made) for name in ("Mul", "Add", "Add"))
    return (GraphNode("RandomInitializer", (), made), *changed, GraphNode("Floor", made, made))


def added(name: str) -> Translation:
    """add and sub: with a factor other than 1 a multiplication before. In the optimizer's phase see `descended`."""

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


# --- products ---------------------------------------------------------------------------------------------------------


def product(operation: Operation) -> Nodes:
    """mm and bmm."""
    name = "MatMul" if len(output(operation)) == 2 else "BatchMatMul"
    return (GraphNode(name, inputs(operation), outputs(operation)),)


def added_product(operation: Operation) -> Nodes:
    """addmm: a product, then a bias for each row."""
    left, right, bias = (tensor(shape(operation, name)) for name in ("mat1", "mat2", "self"))
    made = outputs(operation)
    return (GraphNode("MatMul", (left, right), made), GraphNode("Add", (*made, bias), made))


def convolution(operation: Operation) -> Nodes:
    """Conv2D, and an addition where there is a bias."""
    made = outputs(operation)
    data, weight = _one(shape(operation, "input")), _one(shape(operation, "weight"))
    bias = (GraphNode("Add", (*made, *_one(shape(operation, "bias"))), made),) if has(operation, "bias") else ()
    return (GraphNode("Conv2D", (*data, *weight), made), *bias)


def convolution_backward(operation: Operation) -> Nodes:
    """The gradients that are asked for, each a node of its own; one of them reads the sizes of what it makes."""
    gradient, data, weight = (_one(shape(operation, name)) for name in ("grad_output", "input", "weight"))
    sizes = Tensor((len(data[0].sizes),))
    nodes = (
        GraphNode("Conv2DGradInput", (sizes, *weight, *gradient), data),
        GraphNode("Conv2DGradFilter", (*data, sizes, *gradient), weight),
        GraphNode("Reduce", gradient, _one(gradient[0].sizes[1:2])),
    )
    return tuple(node for node, asked in zip(nodes, output_mask(operation), strict=True) if asked)


def recurrent_layer(operation: Operation) -> Nodes:
    """mkldnn_rnn_layer with LSTM cells: a while loop over the steps. The bias is one, not two."""
    steps, batch, _ = shape(operation, "input")
    return repeated(forward_step(batch, *_widths(operation, "weight0", "weight1")), steps)


def recurrent_layer_backward(operation: Operation) -> Nodes:
    """Its backward loop."""
    steps, batch, _ = shape(operation, "input")
    return repeated(backward_step(batch, *_widths(operation, "weight1", "weight2")), steps)


def _widths(operation: Operation, fed: str, kept: str) -> tuple[Size, Size]:
    """(inputs, hidden): columns of the two matrices."""
    if needed(operation, "mode") != 2:
        raise ValueError(f"{operation.name} at index {operation.index}: expected LSTM cells, the only ones unrolled")
    return shape(operation, fed)[-1], shape(operation, kept)[-1]


# --- normalisation, pooling, losses -----------------------------------------------------------------------------------


def batch_norm(operation: Operation) -> Nodes:
    """FusedBatchNorm: two of its five inputs are empty in training, and of its five outputs four are of one channel
    each. Running means are moved by a node of their own, three operations a channel: (old - new) · rate, then -."""
    data, channel = tensor(shape(operation, "input")), tensor(shape(operation, "weight"))
    empty = Tensor((0,))
    fused = GraphNode("FusedBatchNorm", (data, channel, channel, empty, empty), (data, *(channel,) * 4))
    if not has(operation, "running_mean"):
        return (fused,)
    return (
        fused,
        GraphNode("Sub", (channel, channel), (channel,), 4),
        GraphNode("Mul", (channel, SCALAR), (channel,), 2),
    )


def batch_norm_backward(operation: Operation) -> Nodes:
    """FusedBatchNormGrad: gradient, batch, scale, mean and variance of the batch; its last two outputs are empty."""
    data, channel = tensor(shape(operation, "input")), tensor(shape(operation, "weight"))
    empty = Tensor((0,))
    read = (data, data, channel, channel, channel)
    return (GraphNode("FusedBatchNormGrad", read, (data, channel, channel, empty, empty)),)


def cross_entropy(operation: Operation) -> Nodes:
    """_log_softmax: the one node that makes loss and gradient; its labels are the next operation's."""
    logits = inputs(operation)[0]
    rows = Tensor(logits.sizes[:-1])
    return (GraphNode("SparseSoftmaxCrossEntropyWithLogits", (logits, rows), (rows, logits)),)


def mean_loss(operation: Operation) -> Nodes:
    """nll_loss_forward: a sum over the rows."""
    return (GraphNode("Reduce", (tensor(shape(operation, "target")), Tensor((1,))), (SCALAR,)),)


def mean_loss_backward(operation: Operation) -> Nodes:
    """nll_loss_backward: the gradient of the sum, one for each row."""
    return (GraphNode("Tile", (Tensor((1,)), Tensor((1,))), (tensor(shape(operation, "target")),)),)


def cross_entropy_backward(operation: Operation) -> Nodes:
    """_log_softmax_backward_data: the gradient that is there already, times each row's; and zeros for the output that
    has no use."""
    logits = outputs(operation)[0]
    rows = logits.sizes[:-1]
    spread = Tensor((*rows, 1))
    return (
        GraphNode("NumLike", (logits,), (logits,)),
        GraphNode("ExpandDims", (Tensor(rows), SCALAR), (spread,)),
        GraphNode("Mul", (spread, logits), (logits,)),
    )


def softmax_backward(operation: Operation) -> Nodes:
    """_softmax_backward_data: gradient times result, its sum over each row, subtracted, times result."""
    made = outputs(operation)[0]
    rows = Tensor((*made.sizes[:-1], 1))
    return (
        GraphNode("Mul", (made, made), (made,), 2),
        GraphNode("Reduce", (made, Tensor((1,))), (rows,)),
        GraphNode("Sub", (made, rows), (made,)),
    )


# --- embeddings and optimizers ----------------------------------------------------------------------------------------


def embedding_backward(operation: Operation) -> Nodes:
    """The gradient stays a list of rows and their indices, which the optimizer subtracts from the table where they
    belong: rows and indices are reshaped, rows multiplied by the rate."""
    gradient, indices = tensor(shape(operation, "grad_output")), tensor(shape(operation, "indices"))
    rows = numel(indices.sizes)
    listed, places = Tensor((rows, gradient.sizes[-1])), Tensor((rows,))
    return (
        GraphNode("Reshape", (gradient, Tensor((2,))), (listed,)),
        GraphNode("Reshape", (indices, Tensor((1,))), (places,)),
        GraphNode("Mul", (listed, SCALAR), (listed,)),
        GraphNode("ScatterUpdate", (outputs(operation)[0], places, listed), outputs(operation)),
    )


def descended(operation: Operation) -> Nodes:
    """An addition of the optimizer's phase, by its factor and whether it is in place: weight -= rate · gradient, the
    gradient added to a momentum, or a decay of weights added to the gradient."""
    weight = tensor(first(operation))
    if not operation.name.endswith("_"):
        return (GraphNode("Mul", (weight, SCALAR), (weight,)), GraphNode("AddN", (weight, weight), (weight,)))
    if attribute(operation, "alpha", 1) == 1:
        return (GraphNode("ApplyMomentumAdd", (weight,), (weight,)),)
    return (GraphNode("ApplyGradientDescent", (weight, SCALAR, weight), (weight,)),)


def multiplied(operation: Operation) -> Nodes:
    """mul: in the optimizer's phase a momentum times its decay, the first part of ApplyMomentum."""
    if operation.phase == "optimizer":
        return (GraphNode("ApplyMomentumDecay", (SCALAR,), outputs(operation)),)
    number = (SCALAR,) if len(operation.input_shapes) == 1 else ()
    return (GraphNode("Mul", inputs(operation) + number, outputs(operation)),)
