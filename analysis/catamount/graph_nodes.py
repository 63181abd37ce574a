"""Counts the FLOP, bytes, footprint and parameters of TensorFlow graph nodes as Catamount counts them.

Catamount (github.com/baidu-research/catamount at 4591f79, 2019-08-05, `catamount/ops`) computes a model's costs from
its TensorFlow graph. `flop` takes `GraphNode`s and returns a `Cost`, `traffic` the bytes read and written,
`footprint_of` the bytes held. A node is an operation with Catamount's name and the sizes of its tensors; "Add" is
TensorFlow's Add, BiasAdd and AssignAdd. A node without a rule here (Reshape, Concat, Cast, …) has no FLOP, and moves
each tensor once. Integers and booleans count as floats do. Catamount's faults are kept: an L2 loss is 3 FLOP whatever
its length, a mean has no division, convolutions have no padding. One rule differs: a convolution's gradients are
counted from the incoming gradient's size. This gives Catamount's number where the stride divides the input.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from analysis.operators.cost import ZERO, Cost, Size, Sizes, numel
from analysis.operators.products import multiply_adds, scalars


@dataclass(frozen=True)
class Operand:
    """A tensor: its sizes, () for a scalar, and the bytes of one element."""

    sizes: Sizes = ()
    itemsize: int = 4

    @property
    def numel(self) -> Size:
        """Number of elements."""
        return numel(self.sizes)

    @property
    def nbytes(self) -> Size:
        """Bytes of all elements."""
        return self.numel * self.itemsize


SCALAR = Operand()


@dataclass(frozen=True)
class GraphNode:
    """An operation of a TensorFlow graph, by Catamount's name, which occurs `times` times.

    Operands of a product are (…, m, k) and (…, k, n); a filter is (out, in, height, width).
    """

    name: str
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Operand, ...] = ()
    times: Size = 1


def _product(node: GraphNode) -> Cost:
    return multiply_adds(node.outputs[0].numel * node.inputs[0].sizes[-1])


def _convolution(data: int, weight: int) -> Callable[[GraphNode], Cost]:
    """Return a rule that counts a multiply-add for each element of a tensor and each weight of one filter. data,
    weight: positions of the tensor and of the filters among the inputs and outputs."""

    def count(node: GraphNode) -> Cost:
        tensors = node.inputs + node.outputs
        return multiply_adds(tensors[data].numel * numel(tensors[weight].sizes[1:]))

    return count


def _per_output(flop_per_element: int) -> Callable[[GraphNode], Cost]:
    return lambda node: scalars(flop_per_element * node.outputs[0].numel)


def _per_input(flop_per_element: int, position: int = 0) -> Callable[[GraphNode], Cost]:
    return lambda node: scalars(flop_per_element * node.inputs[position].numel)


def _normalised(channels: int) -> Callable[[GraphNode], Cost]:
    """Return a rule that counts 6 FLOP per element and `channels` per channel. Input 0 is the batch; input 2 has one
    value per channel."""
    return lambda node: scalars(6 * node.inputs[0].numel + channels * node.inputs[2].numel)


POINTWISE = {
    1: """
        Add Sub Mul Div BasePointwise Neg Reciprocal Square Sqrt Exp Log Erf Pow Floor FloorDiv FloorMod Maximum Minimum
        Equal NotEqual Greater GreaterEqual Less LessEqual LogicalAnd LogicalOr LogicalNot Relu ReluGrad
    """,
    2: "Rsqrt RsqrtGrad SqrtGrad Log1p SquaredDifference",
    3: "SigmoidGrad TanhGrad",
    4: "Sigmoid",
    6: "Tanh",
}
"""FLOP for each element of the output → names. A sigmoid is -, exp, +, ÷; a tanh -, two exp, +, -, ÷."""

FLOP: dict[str, Callable[[GraphNode], Cost]] = {
    **{
        name: _per_output(flop_per_element) for flop_per_element, listed in POINTWISE.items() for name in listed.split()
    },
    "MatMul": _product,
    "BatchMatMul": _product,
    "Conv2D": _convolution(2, 1),  # x, filter → y
    "Conv2DGradInput": _convolution(2, 1),  # sizes of x, filter, dy → dx
    "Conv2DGradFilter": _convolution(2, 3),  # x, sizes of the filter, dy → its gradient
    "FusedBatchNorm": _normalised(3),  # mean, centre, variance (2), scale, offset; ÷, ÷, √ for each channel
    "FusedBatchNormGrad": _normalised(1),
    "Reduce": _per_input(1),  # sum, mean, product, largest, any; BiasAddGrad
    "AddN": lambda node: scalars((len(node.inputs) - 1) * node.outputs[0].numel),
    "Softmax": _per_input(3),  # exp, sum, ÷; log-softmax, too
    "SparseSoftmaxCrossEntropyWithLogits": _per_input(3),
    "L2Loss": lambda _node: scalars(3),
    "Select": _per_input(1),  # of the condition
    "Where": _per_input(1),
    "ScatterUpdate": _per_input(1, 2),  # of the updates
    "UnsortedSegmentSum": _per_input(1),
    "ApplyGradientDescent": _per_input(2),
    "ApplyMomentumDecay": _per_output(1),  # these two and ApplyGradientDescent of the momentum are ApplyMomentum
    "ApplyMomentumAdd": _per_output(1),
    "CandidateSampler": lambda node: scalars(node.outputs[1].numel),
    "Multinomial": lambda node: scalars(5 * node.inputs[0].numel),  # of one sample for each row
    "ScalarFlop": lambda _node: scalars(1),  # one operation on scalars, whose bytes are in another row
}
"""Name → its FLOP; a name that is missing has none."""

IN_PLACE = ("ScatterUpdate", "ApplyGradientDescent")
"""Operations that add nothing to a footprint, because their output is an existing variable."""

UNCOUNTED = (
    "Identity", "Enter", "Exit", "Switch", "Merge", "NextIteration", "Stack", "TensorArray", "NoOp",
    "Variable", "Buffer",
)  # fmt: skip
"""Operations that read and write nothing."""

WRITTEN_ONLY = ("Shape", "Size", "Rank", "NumLike", "RandomInitializer", "Constant", "Placeholder")
"""Operations that read nothing."""

MOVED: dict[str, Callable[[GraphNode, Size, Size], tuple[Size, Size]]] = {
    **dict.fromkeys(UNCOUNTED, lambda _node, _read, _written: (0, 0)),
    **dict.fromkeys(WRITTEN_ONLY, lambda _node, _read, written: (0, written)),
    # parts of a node whose variables the part that follows reads and writes
    **dict.fromkeys(("ApplyMomentumDecay", "ApplyMomentumAdd"), lambda _node, read, _written: (read, 0)),
    # indices, and of the table as much as is returned
    "Gather": lambda node, _read, written: (node.inputs[1].nbytes + written, written),
    # indices, updates, and of the table as much as these: read and written
    "ScatterUpdate": lambda node, _read, _written: (
        node.inputs[1].nbytes + 2 * node.inputs[2].nbytes,
        node.inputs[2].nbytes,
    ),
    # one of the two branches
    "Select": lambda node, _read, written: (node.inputs[0].nbytes + node.inputs[1].nbytes, written),
    # a tensor of exponentials is written, too
    "Softmax": lambda _node, read, written: (read, read + written),
}
"""Name → (bytes read, bytes written), where these are not each tensor once."""

VARIABLES = ("Variable", "Buffer")
"""Operations that only hold memory; a Variable is also a parameter."""


def parameters(nodes: Iterable[GraphNode]) -> Size:
    """Return the number of elements of all variables among the nodes."""
    return sum(node.outputs[0].numel * node.times for node in nodes if node.name == "Variable")


def flop(nodes: Iterable[GraphNode]) -> Cost:
    """Return the FLOP of the nodes: model FLOP of products and convolutions, other FLOP of the rest."""
    return sum((FLOP[node.name](node) * node.times for node in nodes if node.name in FLOP), ZERO)


def traffic(nodes: Iterable[GraphNode]) -> tuple[Size, Size]:
    """Return (bytes read, bytes written): each input and output once, except for names in `MOVED`."""
    moved = [(_node_bytes(node), node.times) for node in nodes]
    return sum(read * times for (read, _), times in moved), sum(written * times for (_, written), times in moved)


def footprint_of(nodes: Iterable[GraphNode]) -> Size:
    """Return the bytes that the nodes add to Catamount's total footprint: all that they write, except to existing
    variables."""
    held = [node for node in nodes if node.name not in IN_PLACE]
    return sum((_bytes(node.outputs) if node.name in VARIABLES else _node_bytes(node)[1]) * node.times for node in held)


def _node_bytes(node: GraphNode) -> tuple[Size, Size]:
    read, written = _bytes(node.inputs), _bytes(node.outputs)
    return MOVED[node.name](node, read, written) if node.name in MOVED else (read, written)


def _bytes(tensors: Iterable[Operand]) -> Size:
    return sum(tensor.nbytes for tensor in tensors)


PAIR = Operand((2,))
"""A matrix's shape as a tensor."""
NO_AXES = Operand((0,))
FLAG = Operand((), 1)


def forward_step(batch: Size, inputs: Size, hidden: Size) -> tuple[GraphNode, ...]:
    """Return one time step of an LSTM's forward loop. inputs: width of the layer's input.

    The cell is BasicLSTMCell: input and state are joined, multiplied with one matrix and split into four gates; 1 is
    added to the forget gate. With inputs = hidden = h: 16h²b + 33hb + 6 FLOP, as in Catamount's wordlm graph.
    """
    state, joined = Operand((batch, hidden)), Operand((batch, inputs + hidden))
    gates, weight = Operand((batch, 4 * hidden)), Operand((inputs + hidden, 4 * hidden))
    return (
        GraphNode("Concat", (Operand((batch, inputs)), state, SCALAR), (joined,)),
        GraphNode("MatMul", (joined, weight), (gates,)),
        GraphNode("Add", (gates, Operand((4 * hidden,))), (gates,)),
        GraphNode("Split", (gates, SCALAR, SCALAR), (state,) * 4),
        GraphNode("Add", (state, SCALAR), (state,)),  # 1, to the forget gate
        GraphNode("Sigmoid", (state,), (state,), 3),
        GraphNode("Tanh", (state,), (state,), 2),
        GraphNode("Mul", (state, state), (state,), 3),
        GraphNode("Add", (state, state), (state,)),
        GraphNode("Shape", (), (PAIR,), 10),  # for the gradients
        # the loop's own: step, output and gradient counters, two comparisons, a condition
        GraphNode("Add", (SCALAR, SCALAR), (SCALAR,), 3),
        GraphNode("Less", (SCALAR, SCALAR), (FLAG,), 2),
        GraphNode("LogicalAnd", (FLAG, FLAG), (FLAG,)),
        GraphNode("LoopCondition", (FLAG,), (FLAG,)),
    )


def backward_step(batch: Size, inputs: Size, hidden: Size) -> tuple[GraphNode, ...]:
    """Return one time step of the backward loop, which adds its gradients of matrix and bias to their sums.

    TensorFlow sums and reshapes the gradients of both sides of each sum and product, broadcast or not. With inputs =
    hidden = h: 32h²b + 8h² + 37hb + 4h + 3 FLOP.
    """
    state, joined = Operand((batch, hidden)), Operand((batch, inputs + hidden))
    gates, weight, bias = (
        Operand((batch, 4 * hidden)),
        Operand((inputs + hidden, 4 * hidden)),
        Operand((4 * hidden,)),
    )
    turned = Operand((inputs + hidden, batch))
    return (
        GraphNode("AddN", (state, state), (state,), 2),  # of output and next step; of tanh and next step
        GraphNode("Mul", (state, state), (state,), 6),
        GraphNode("SigmoidGrad", (state, state), (state,), 3),
        GraphNode("TanhGrad", (state, state), (state,), 2),
        GraphNode("Reduce", (state, NO_AXES), (state,), 9),  # what every gradient of a sum or product ends with
        GraphNode("Reshape", (state, PAIR), (state,), 9),
        GraphNode("Reduce", (state, PAIR), (SCALAR,)),  # of the 1 that was added to the forget gate
        GraphNode("Reshape", (SCALAR, NO_AXES), (SCALAR,)),
        GraphNode("BroadcastGradientArgs", (PAIR, NO_AXES), (NO_AXES, PAIR)),
        GraphNode("BroadcastGradientArgs", (PAIR, PAIR), (NO_AXES, NO_AXES), 4),
        GraphNode("Concat", (state, state, state, state, SCALAR), (gates,)),
        GraphNode("Reduce", (gates,), (bias,)),
        GraphNode("Add", (bias, bias), (bias,)),
        GraphNode("MatMul", (gates, Operand((4 * hidden, inputs + hidden))), (joined,)),
        GraphNode("MatMul", (turned, gates), (weight,)),
        GraphNode("Add", (weight, weight), (weight,)),
        GraphNode("Shape", (), (PAIR, PAIR)),
        GraphNode("ConcatOffset", (SCALAR, PAIR, PAIR), (PAIR, PAIR)),
        GraphNode("Slice", (joined, PAIR, PAIR), (Operand((batch, inputs)),)),
        GraphNode("Slice", (joined, PAIR, PAIR), (state,)),
        GraphNode("Add", (SCALAR, SCALAR), (SCALAR,)),  # of the inputs' TensorArray
        GraphNode("Sub", (SCALAR, SCALAR), (SCALAR,)),
        GraphNode("GreaterEqual", (SCALAR, SCALAR), (FLAG,)),
        GraphNode("LoopCondition", (FLAG,), (FLAG,)),
    )


def repeated(nodes: tuple[GraphNode, ...], times: Size) -> tuple[GraphNode, ...]:
    """Return the nodes of a step, repeated `times` times."""
    return tuple(GraphNode(node.name, node.inputs, node.outputs, node.times * times) for node in nodes)
