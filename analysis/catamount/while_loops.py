"""TensorFlow's while loops over an LSTM's time steps, as nodes of one step: what Catamount counts, times the steps.

The cell is BasicLSTMCell: input and state are joined, multiplied with one matrix, and split into four gates; 1 is added
to the forget gate. TensorFlow's gradient of a sum or product sums and reshapes both sides, whether anything was
broadcast or not, and the gradients of matrix and bias are added up step by step: these are in its loop, and so here.
Sizes as the wordlm graph of Catamount's repository has them: 16h²b + 33hb + 6 FLOP a step forward, 32h²b + 8h² + 37hb +
4h + 3 backward, where inputs are as wide as the state. Not here: what a graph does outside of its loops.
"""

from __future__ import annotations

from analysis.catamount.graph_nodes import SCALAR, GraphNode, Tensor
from analysis.operators.cost import Size

PAIR = Tensor((2,))
"""The shape of a matrix."""
NO_AXES = Tensor((0,))
FLAG = Tensor((), 1)


def forward_step(batch: Size, inputs: Size, hidden: Size) -> tuple[GraphNode, ...]:
    """One step of the forward loop; `inputs` is the width of what the layer is fed."""
    state, joined = Tensor((batch, hidden)), Tensor((batch, inputs + hidden))
    gates, weight = Tensor((batch, 4 * hidden)), Tensor((inputs + hidden, 4 * hidden))
    return (
        GraphNode("Concat", (Tensor((batch, inputs)), state, SCALAR), (joined,)),
        GraphNode("MatMul", (joined, weight), (gates,)),
        GraphNode("Add", (gates, Tensor((4 * hidden,))), (gates,)),
        GraphNode("Split", (gates, SCALAR, SCALAR), (state,) * 4),
        GraphNode("Add", (state, SCALAR), (state,)),  # 1, to the forget gate
        GraphNode("Sigmoid", (state,), (state,), 3),
        GraphNode("Tanh", (state,), (state,), 2),
        GraphNode("Mul", (state, state), (state,), 3),
        GraphNode("Add", (state, state), (state,)),
        GraphNode("Shape", (), (PAIR,), 10),  # for the gradients
        *_counter(adds=3),
    )


def _counter(adds: int) -> tuple[GraphNode, ...]:
    """The loop's own: step, output and gradient counters, two comparisons, a condition."""
    return (
        GraphNode("Add", (SCALAR, SCALAR), (SCALAR,), adds),
        GraphNode("Less", (SCALAR, SCALAR), (FLAG,), 2),
        GraphNode("LogicalAnd", (FLAG, FLAG), (FLAG,)),
        GraphNode("LoopCondition", (FLAG,), (FLAG,)),
    )


def backward_step(batch: Size, inputs: Size, hidden: Size) -> tuple[GraphNode, ...]:
    """One step of the backward loop, with the step's share added to the gradients of matrix and bias."""
    state, joined = Tensor((batch, hidden)), Tensor((batch, inputs + hidden))
    gates, weight, bias = Tensor((batch, 4 * hidden)), Tensor((inputs + hidden, 4 * hidden)), Tensor((4 * hidden,))
    turned = Tensor((inputs + hidden, batch))
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
        GraphNode("MatMul", (gates, Tensor((4 * hidden, inputs + hidden))), (joined,)),
        GraphNode("MatMul", (turned, gates), (weight,)),
        GraphNode("Add", (weight, weight), (weight,)),
        GraphNode("Shape", (), (PAIR, PAIR)),
        GraphNode("ConcatOffset", (SCALAR, PAIR, PAIR), (PAIR, PAIR)),
        GraphNode("Slice", (joined, PAIR, PAIR), (Tensor((batch, inputs)),)),
        GraphNode("Slice", (joined, PAIR, PAIR), (state,)),
        GraphNode("Add", (SCALAR, SCALAR), (SCALAR,)),  # of the inputs' TensorArray
        GraphNode("Sub", (SCALAR, SCALAR), (SCALAR,)),
        GraphNode("GreaterEqual", (SCALAR, SCALAR), (FLAG,)),
        GraphNode("LoopCondition", (FLAG,), (FLAG,)),
    )


def repeated(nodes: tuple[GraphNode, ...], times: Size) -> tuple[GraphNode, ...]:
    """The nodes of a step, `times` times."""
    return tuple(GraphNode(node.name, node.inputs, node.outputs, node.times * times) for node in nodes)
