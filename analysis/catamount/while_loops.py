"""TensorFlow's while loops over an LSTM's time steps, as nodes of one step: what Catamount counts, times the steps.

The cell is BasicLSTMCell: input and state are joined, multiplied with one matrix, and split into four gates; 1 is added
to the forget gate. TensorFlow's gradient of a sum or product sums and reshapes both sides, whether anything was
broadcast or not, and the gradients of matrix and bias are added up step by step: these are in its loop, and so here.
Sizes as the wordlm graph of Catamount's repository has them: 16h²b + 33hb + 6 FLOP a step forward, 32h²b + 8h² + 37hb +
4h + 3 backward, where inputs are as wide as the state. Not here: what a graph does outside of its loops.
"""

from __future__ import annotations

from analysis.catamount.graph_nodes import SCALAR, Node, Tensor
from analysis.operators.cost import Size

PAIR = Tensor((2,))
"""The shape of a matrix."""
NO_AXES = Tensor((0,))
FLAG = Tensor((), 1)


def forward_step(batch: Size, inputs: Size, hidden: Size) -> tuple[Node, ...]:
    """One step of the forward loop; `inputs` is the width of what the layer is fed."""
    state, joined = Tensor((batch, hidden)), Tensor((batch, inputs + hidden))
    gates, weight = Tensor((batch, 4 * hidden)), Tensor((inputs + hidden, 4 * hidden))
    return (
        Node("Concat", (Tensor((batch, inputs)), state, SCALAR), (joined,)),
        Node("MatMul", (joined, weight), (gates,)),
        Node("Add", (gates, Tensor((4 * hidden,))), (gates,)),
        Node("Split", (gates, SCALAR, SCALAR), (state,) * 4),
        Node("Add", (state, SCALAR), (state,)),  # 1, to the forget gate
        Node("Sigmoid", (state,), (state,), 3),
        Node("Tanh", (state,), (state,), 2),
        Node("Mul", (state, state), (state,), 3),
        Node("Add", (state, state), (state,)),
        Node("Shape", (), (PAIR,), 10),  # for the gradients
        *_counter(adds=3),
    )


def _counter(adds: int) -> tuple[Node, ...]:
    """The loop's own: step, output and gradient counters, two comparisons, a condition."""
    return (
        Node("Add", (SCALAR, SCALAR), (SCALAR,), adds),
        Node("Less", (SCALAR, SCALAR), (FLAG,), 2),
        Node("LogicalAnd", (FLAG, FLAG), (FLAG,)),
        Node("LoopCondition", (FLAG,), (FLAG,)),
    )


def backward_step(batch: Size, inputs: Size, hidden: Size) -> tuple[Node, ...]:
    """One step of the backward loop, with the step's share added to the gradients of matrix and bias."""
    state, joined = Tensor((batch, hidden)), Tensor((batch, inputs + hidden))
    gates, weight, bias = Tensor((batch, 4 * hidden)), Tensor((inputs + hidden, 4 * hidden)), Tensor((4 * hidden,))
    turned = Tensor((inputs + hidden, batch))
    return (
        Node("AddN", (state, state), (state,), 2),  # of output and next step; of tanh and next step
        Node("Mul", (state, state), (state,), 6),
        Node("SigmoidGrad", (state, state), (state,), 3),
        Node("TanhGrad", (state, state), (state,), 2),
        *_unbroadcast(state, 9),
        Node("Reduce", (state, PAIR), (SCALAR,)),  # of the 1 that was added to the forget gate
        Node("Reshape", (SCALAR, NO_AXES), (SCALAR,)),
        Node("BroadcastGradientArgs", (PAIR, NO_AXES), (NO_AXES, PAIR)),
        Node("BroadcastGradientArgs", (PAIR, PAIR), (NO_AXES, NO_AXES), 4),
        Node("Concat", (state, state, state, state, SCALAR), (gates,)),
        Node("Reduce", (gates,), (bias,)),
        Node("Add", (bias, bias), (bias,)),
        Node("MatMul", (gates, Tensor((4 * hidden, inputs + hidden))), (joined,)),
        Node("MatMul", (turned, gates), (weight,)),
        Node("Add", (weight, weight), (weight,)),
        Node("Shape", (), (PAIR, PAIR)),
        Node("ConcatOffset", (SCALAR, PAIR, PAIR), (PAIR, PAIR)),
        Node("Slice", (joined, PAIR, PAIR), (Tensor((batch, inputs)),)),
        Node("Slice", (joined, PAIR, PAIR), (state,)),
        Node("Add", (SCALAR, SCALAR), (SCALAR,)),  # of the inputs' TensorArray
        Node("Sub", (SCALAR, SCALAR), (SCALAR,)),
        Node("GreaterEqual", (SCALAR, SCALAR), (FLAG,)),
        Node("LoopCondition", (FLAG,), (FLAG,)),
    )


def _unbroadcast(tensor: Tensor, times: int) -> tuple[Node, ...]:
    """A sum over no axis, and a reshape: what every gradient of a sum or product ends with."""
    return (
        Node("Reduce", (tensor, NO_AXES), (tensor,), times),
        Node("Reshape", (tensor, PAIR), (tensor,), times),
    )


def repeated(nodes: tuple[Node, ...], times: Size) -> tuple[Node, ...]:
    """The nodes of a step, `times` times."""
    return tuple(Node(node.name, node.inputs, node.outputs, node.times * times) for node in nodes)
