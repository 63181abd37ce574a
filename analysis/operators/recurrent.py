"""Shape functions of recurrent networks: LSTM, GRU and plain RNN, of any depth, in one or two directions.

Every weight matrix of a recurrent network meets every token once, so its products are tokens × (sum of the matrices'
elements), whatever the order of the work. The convention is that of `analysis/operators/products.py`. Not claimed: what
a library pads, or that it multiplies a zero initial state (it does, and that counts).
"""

from dataclasses import dataclass

from analysis.operators.cost import Cost, Size
from analysis.operators.products import multiply_adds, scalars

SIGMOID, TANH = 4, 1  # as in `analysis/operators/pointwise.py`; derivatives take 3 each


@dataclass(frozen=True)
class RecurrentCell:
    """A kind of cell. gates: blocks of rows in its matrices. forward, backward: scalar operations for one element of
    one hidden state, products and biases left out."""

    gates: int
    forward: int
    backward: int


CELLS = {
    # h' = tanh(Wx + Uh): 1 addition, 1 tanh. Backward: tanh' 3.
    "rnn": RecurrentCell(gates=1, forward=1 + TANH, backward=3),
    # 4 additions Wx + Uh, 3 sigmoids, tanh; c' = f·c + i·g 3; o·tanh(c') 2.
    # Backward: tanh(c') 1, do 1, dc' = dh·o·(1 - tanh²) + dc 5, di, df, dg, dc 4, 3 sigmoid' 9, tanh' 3.
    "lstm": RecurrentCell(gates=4, forward=4 + 3 * SIGMOID + TANH + 3 + 1 + TANH, backward=23),
    # 2 additions, 2 sigmoids; n = tanh(Wx + r·Uh) 3; n + z·(h - n) 3.
    # Backward: dz = dh·(h - n)·(1 - z)·z 5, dn = dh·(1 - z)·(1 - n²) 5, d(Uh) = dn·r 1, dr = dn·Uh·(1 - r)·r 4,
    # dh·z 1.
    "gru": RecurrentCell(gates=3, forward=2 + 2 * SIGMOID + 2 + TANH + 3, backward=16),
}


@dataclass(frozen=True)
class Network:
    """What a stack of recurrent layers multiplies.

    cell: a key of CELLS. hidden_size: width of one cell's gates. cells: layers × directions.
    matrices: elements of all weight matrices together; input_matrices: of those that meet the network's own input.
    """

    cell: str
    hidden_size: Size
    cells: Size
    matrices: Size
    input_matrices: Size
    bias: bool = True


def network(
    cell: str,
    input_size: Size,
    hidden_size: Size,
    layers: int = 1,
    directions: int = 1,
    projection: Size = 0,
    bias: bool = True,
) -> Network:
    """The network that torch.nn.LSTM, GRU or RNN build from these sizes.

    Matrices of one cell: gates · hidden × (its input), gates · hidden × (its state), and with a projection
    projection × hidden. The input of a later layer is the state of all directions of the one before it.
    """
    rows = CELLS[cell].gates * hidden_size
    state = projection if projection != 0 else hidden_size
    first = directions * rows * input_size
    later = (layers - 1) * directions * rows * (directions * state)
    own = layers * directions * (rows * state + (projection * hidden_size if projection != 0 else 0))
    return Network(cell, hidden_size, layers * directions, first + later + own, first, bias)


def recurrent(tokens: Size, net: Network) -> Cost:
    """Forward pass over `tokens` tokens (sequence length × batch, or the sum of packed lengths).

    With biases, each gate adds two of them (PyTorch keeps one for the input and one for the state).
    """
    return multiply_adds(tokens * net.matrices) + recurrent_cells(tokens * net.cells, net)


def recurrent_cells(states: Size, net: Network) -> Cost:
    """The scalar work alone, for `states` hidden states: what is left when products are operations of their own."""
    cell = CELLS[net.cell]
    return scalars(states * net.hidden_size * (cell.forward + (2 * cell.gates if net.bias else 0)))


def recurrent_backward(
    tokens: Size,
    net: Network,
    grad_input: bool = True,
    grad_weight: bool = True,
    unasked_states: Size = 0,
    frozen: Size = 0,
) -> Cost:
    """Backward pass: 2 × the products of the forward pass if input, weights and initial states need gradients.

    Without grad_input the gradient of the network's own input is left out. unasked_states: elements of initial states
    that need no gradient, such as zeros; those of other states are always needed. Beside the cells' scalar work, each
    state's gradient is the sum of two: from the output and from the next step. frozen: elements of the weight matrices
    that need no gradient though others do.
    """
    states = tokens * net.cells
    elements = net.matrices - (0 if grad_input else net.input_matrices) + (net.matrices - frozen if grad_weight else 0)
    unasked = unasked_states * CELLS[net.cell].gates * net.hidden_size
    return (
        multiply_adds(tokens * elements - unasked)
        + recurrent_cells_backward(states, net, grad_weight)
        + scalars(states * net.hidden_size)
    )


def recurrent_cells_backward(states: Size, net: Network, grad_bias: bool = True) -> Cost:
    """The scalar work alone of the backward pass; the gradients of a gate's two biases are one sum."""
    cell = CELLS[net.cell]
    sums = cell.gates if net.bias and grad_bias else 0
    return scalars(states * net.hidden_size * (cell.backward + sums))
