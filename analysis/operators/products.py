"""Counts convolutions and matrix products by their shapes; only this module contains 2·m·n·k.

Each function takes sizes, which are ints or sympy expressions, and returns a `Cost`. Convention of `analysis/`:
*model_flop* counts convolutions and matrix products, a multiply-add as 2. Zero padding is included, causal attention is
dense, and sparsity is ignored. *other_flop* counts scalar arithmetic: an addition, multiplication, division,
comparison, negation, exp, log, erf, tanh, sqrt or rsqrt is 1. A sum, mean or maximum over n elements is n; selecting,
copying, casting and integers are 0. A recurrent network's products are tokens × (elements of its weight matrices), in
any order. What a kernel executes beyond that (recomputation, Winograd, padding to tiles) is not claimed, except in
`attention_backward_executed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from analysis.operators.cost import Cost, Size

Shape = Sequence[Size]


def multiply_adds(count: Size) -> Cost:
    """Count `count` multiply-adds of a convolution or matrix product: 2 model FLOP each."""
    return Cost(model_flop=2 * count)


def scalars(count: Size) -> Cost:
    """Count `count` scalar operations that belong to no product."""
    return Cost(other_flop=count)


def exact_ratio(numerator: Size, denominator: Size) -> Size:
    """Return numerator ÷ denominator, where that is exact; 0 where both are 0 (an empty tensor)."""
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator if denominator else 0
    return numerator / denominator


def convolution(out_numel: Size, weight_shape: Shape, bias: bool = False) -> Cost:
    """Count the forward pass of a convolution of any dimension.

    out_numel: elements of the output (N · C_out · spatial). weight_shape: (C_out, C_in / groups, *kernel). Each output
    element is a sum over C_in / groups · kernel taps; stride, padding and dilation do not appear.
    """
    products = multiply_adds(out_numel * prod(weight_shape[1:]))
    return products + scalars(out_numel) if bias else products


def convolution_transpose(in_numel: Size, weight_shape: Shape, bias_numel: Size = 0) -> Cost:
    """Count the forward pass of a transposed convolution.

    in_numel: elements of the *input* (N · C_in · spatial). weight_shape: (C_in, C_out / groups, *kernel). Each input
    element is multiplied with C_out / groups · kernel weights, taps that fall outside the output included. bias_numel:
    elements of the output if there is a bias, else 0.
    """
    return multiply_adds(in_numel * prod(weight_shape[1:])) + scalars(bias_numel)


def convolution_backward(forward: Cost, grad_out_numel: Size, output_mask: Sequence[bool]) -> Cost:
    """Count the gradients of a convolution or transposed convolution, whatever its groups, stride, padding and
    dilation.

    forward: the cost of its forward pass. grad_out_numel: elements of the output's gradient. output_mask: which of
    (input, weight, bias) need a gradient. Input and weight each take the forward pass's multiply-adds, because each
    pairs every product of the forward pass with one element of the output's gradient.
    """
    grad_input, grad_weight, grad_bias = output_mask
    products = Cost(model_flop=forward.model_flop * (int(grad_input) + int(grad_weight)))
    return products + scalars(grad_out_numel) if grad_bias else products


def matmul(m: Size, n: Size, k: Size, batch: Size = 1) -> Cost:
    """Count batch products of an (m, k) with a (k, n) matrix."""
    return multiply_adds(batch * m * n * k)


def addmm(m: Size, n: Size, k: Size, batch: Size = 1, alpha: Any = 1, beta: Any = 1) -> Cost:
    """Count beta · C + alpha · (A @ B): the product, an addition, and a multiplication for each factor that is not 1.

    beta = 0 leaves C out, addition and all.
    """
    flop_per_element = int(beta != 0) + int(beta not in (0, 1)) + int(alpha != 1)
    return matmul(m, n, k, batch) + scalars(batch * m * n * flop_per_element)


def linear(rows: Size, in_features: Size, out_features: Size, bias: bool = False) -> Cost:
    """Count x @ W.T + b for `rows` rows."""
    return addmm(rows, out_features, in_features, beta=int(bias))


def linear_backward(rows: Size, in_features: Size, out_features: Size, output_mask: Sequence[bool]) -> Cost:
    """Count the gradients of (input, weight, bias) of `linear` that the mask selects."""
    grad_input, grad_weight, grad_bias = output_mask
    products = matmul(rows, out_features, in_features) * (int(grad_input) + int(grad_weight))
    return products + scalars(rows * out_features * int(grad_bias))


def attention(rows: Size, keys: Size, qk_dim: Size, v_dim: Size, masked: bool = False, dropout: bool = False) -> Cost:
    """Count softmax(scale · Q Kᵀ + mask) V.

    rows: query rows over all batches and query heads (B · H · L_q; with grouped queries, H of the queries). keys: L_k.
    qk_dim, v_dim: head sizes. A causal mask changes nothing (dense convention). Other FLOP for each score: scale 1,
    softmax 5, an additive mask 1, dropout 2.
    """
    scores = rows * keys
    return multiply_adds(scores * (qk_dim + v_dim)) + scalars(scores * (6 + int(masked) + 2 * int(dropout)))


def attention_backward(
    rows: Size, keys: Size, qk_dim: Size, v_dim: Size, mask: Sequence[bool] = (True, True, True, False)
) -> Cost:
    """Count the gradients of `attention`: 2 × the products of the forward pass for query, key and value together.

    mask: which of (query, key, value, bias) need a gradient. dP = dO Vᵀ serves query, key and bias; dV = Pᵀ dO, dQ = dS
    K, dK = dSᵀ Q. Other FLOP for each score: softmax 4, scale 1. Recomputed scores are not model FLOP.
    """
    query, key, value, bias = (*mask, False)[:4]
    scores = rows * keys
    through_softmax = bool(query or key or bias)
    widths = v_dim * (int(through_softmax) + int(value)) + qk_dim * (int(query) + int(key))
    return multiply_adds(scores * widths) + scalars(scores * 5 * int(through_softmax))


def attention_backward_executed(rows: Size, keys: Size, qk_dim: Size, v_dim: Size) -> Size:
    """Return the FLOP that a fused backward kernel executes in products: 2.5 × forward for equal head sizes.

    These are hardware FLOP, not model FLOP: the scores are computed again from Q and K (FlashAttention, Dao et al.
    2022, algorithm 4).
    """
    return (attention_backward(rows, keys, qk_dim, v_dim) + multiply_adds(rows * keys * qk_dim)).model_flop


def multi_head_attention(
    batch: Size, queries: Size, keys: Size, width: Size, heads: Size, masked: bool = False
) -> Cost:
    """Count nn.MultiheadAttention's fused forward pass: three projections in, attention, one projection out, with
    biases.

    batch · queries and batch · keys rows of `width` features. Self-attention has queries == keys.
    """
    head = exact_ratio(width, heads)
    projections = linear(batch * queries, width, width, bias=True) * 2 + linear(batch * keys, width, width, True) * 2
    return projections + attention(batch * heads * queries, keys, head, head, masked)


def deformable_convolution(out_numel: Size, weight_shape: Shape, sampled: Size, mask: bool, bias: bool) -> Cost:
    """Count a deformable convolution: the products of the plain one, over taps that are sampled between pixels.

    sampled: taps sampled (N · C_in · kernel · output positions), 7 scalar operations each (4 multiplications and 3
    additions; the weights are shared by channels and left out), and one more where a mask scales them.
    """
    return convolution(out_numel, weight_shape, bias) + scalars(sampled * (7 + int(mask)))


def deformable_convolution_backward(
    grad_out_numel: Size, weight_shape: Shape, sampled: Size, mask: bool, output_mask: Sequence[bool]
) -> Cost:
    """Count the gradients of a deformable convolution. Each sampled tap passes its gradient to 4 pixels (a multiply-add
    each: 8), to 2 coordinates (8 each) and to the mask (8). output_mask: which of the taps, weight and bias need a
    gradient."""
    products = convolution_backward(convolution(grad_out_numel, weight_shape), grad_out_numel, output_mask)
    return products + scalars(sampled * (24 + 8 * int(mask)))


def euclidean_distance(rows: Size, columns: Size, width: Size, batch: Size = 1) -> Cost:
    """Count the distances by |x|² + |y|² - 2 x·y: a product; the norms; and for each pair 2 additions, a maximum, a
    root."""
    norms = batch * (rows + columns) * width * 2
    return matmul(rows, columns, width, batch) + scalars(norms + batch * rows * columns * 4)


SIGMOID, TANH = 4, 1  # as in `analysis/operators/names.py`; derivatives take 3 each


@dataclass(frozen=True)
class RecurrentCell:
    """A kind of recurrent cell. gates: blocks of rows in its matrices. forward, backward: scalar operations per element
    of one hidden state, without products and biases."""

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
    """Sizes of a stack of recurrent layers.

    cell: a key of CELLS. hidden_size: width of one cell's gates. cells: layers × directions. matrices: elements of all
    weight matrices together; input_matrices: of those that meet the network's own input.
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
    """Return the network that torch.nn.LSTM, GRU or RNN builds from these sizes.

    Matrices of one cell: gates · hidden × (its input), gates · hidden × (its state), and with a projection projection ×
    hidden. The input of a later layer is the state of all directions of the layer before it.
    """
    rows = CELLS[cell].gates * hidden_size
    state = projection if projection != 0 else hidden_size
    first = directions * rows * input_size
    later = (layers - 1) * directions * rows * (directions * state)
    own = layers * directions * (rows * state + (projection * hidden_size if projection != 0 else 0))
    return Network(cell, hidden_size, layers * directions, first + later + own, first, bias)


def recurrent(tokens: Size, net: Network) -> Cost:
    """Count the forward pass over `tokens` tokens (sequence length × batch, or the sum of packed lengths).

    With biases, each gate adds two of them (PyTorch keeps one for the input and one for the state).
    """
    return multiply_adds(tokens * net.matrices) + recurrent_cells(tokens * net.cells, net)


def recurrent_cells(states: Size, net: Network) -> Cost:
    """Count the scalar arithmetic only, for `states` hidden states, where the products are separate operations."""
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
    """Count the backward pass: 2 × the products of the forward pass if input, weights and initial states need
    gradients.

    Without grad_input the gradient of the network's own input is left out. unasked_states: elements of initial states
    that need no gradient, such as zeros; those of other states are always needed. Besides the cells' scalar arithmetic,
    each state's gradient is a sum of two: from the output and from the next step. frozen: elements of the weight
    matrices that need no gradient though others do.
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
    """Count the scalar arithmetic of the backward pass only; the gradients of a gate's two biases are one sum."""
    cell = CELLS[net.cell]
    sums = cell.gates if net.bias and grad_bias else 0
    return scalars(states * net.hidden_size * (cell.backward + sums))
