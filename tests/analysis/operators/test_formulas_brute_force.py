"""Formulas against plain loops: the loops' values equal torch's, and what they counted is what the formulas say.

Convolutions (1-D to 3-D, grouped, depthwise, dilated, strided, padded, transposed), products, attention and recurrent
layers, forward and every gradient. Seeded: the shapes are the same in every run. The loops are in
`tests/support/oracles/naive.py`.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from analysis.operators import products, registry
from tests.support.made_up_operations.made_up_operations import operation
from tests.support.oracles import naive
from tests.support.oracles.naive import Convolution


def random_convolution(seed: int, dimensions: int, transposed: bool) -> Convolution:
    """A shape with at least one output position, small enough for loops."""
    rng = random.Random(f"{seed} {dimensions} {transposed}")
    most = {1: 6, 2: 4, 3: 3}[dimensions]

    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randint(low, high) for _ in range(dimensions))

    while True:
        depthwise = rng.random() < 0.25
        stride, dilation = sizes(1, 3), sizes(1, 2)
        extra = tuple(rng.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))
        case = Convolution(
            batch=rng.randint(1, 2),
            groups=rng.randint(2, 4) if depthwise else rng.randint(1, 3),
            channels_in=1 if depthwise else rng.randint(1, 3),
            channels_out=rng.randint(1, 2),
            size=sizes(1, most),
            kernel=sizes(1, 3 if dimensions < 3 else 2),
            stride=stride,
            padding=sizes(0, 2),
            dilation=dilation,
            output_padding=extra if transposed else (0,) * dimensions,
            transposed=transposed,
        )
        if min(case.out_size) >= 1 and np.prod(case.out_size) * np.prod(case.kernel) <= 200:
            return case


MASKS = list(itertools.product((False, True), repeat=3))
SHAPES_EACH = 34


def tensors(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.from_numpy(rng.standard_normal(form)).requires_grad_() for form in shapes]


def close(mine: np.ndarray, torchs: torch.Tensor | None) -> bool:
    return bool(np.allclose(mine, torchs.detach().numpy(), rtol=1e-9, atol=1e-9))


# --- convolutions ----------------------------------------------------------------------------------------------------


def run_torch(case: naive.Convolution, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    d = len(case.size)
    if case.transposed:
        return (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[d - 1](
            x, w, None, case.stride, case.padding, case.output_padding, case.groups, case.dilation
        )
    return (F.conv1d, F.conv2d, F.conv3d)[d - 1](x, w, None, case.stride, case.padding, case.dilation, case.groups)


def check_convolution(case: naive.Convolution, seed: int = 0) -> None:
    """Values equal torch's, and the cost of the forward pass and of every output mask is what the loops counted."""
    rng = np.random.default_rng(seed)
    x, w = tensors(rng, (case.batch, case.groups * case.channels_in, *case.size), case.weight_shape)
    y = run_torch(case, x, w)
    g = torch.from_numpy(rng.standard_normal(tuple(y.shape)))
    y.backward(g)
    loops = naive.convolution(case, x.detach().numpy(), w.detach().numpy(), g.numpy())
    forward, grad_input, grad_weight = loops
    assert close(forward.value, y)
    assert close(grad_input.value, x.grad)
    assert close(grad_weight.value, w.grad)

    sizes = {"input": tuple(x.shape), "weight": tuple(w.shape)}
    cost = registry.cost(
        operation("aten.convolution", sizes, [y.shape], transposed=case.transposed, groups=case.groups)
    )
    assert (cost.model_flop, cost.other_flop) == (2 * forward.count, 0)
    for mask in MASKS:
        backward = registry.cost(
            operation(
                "aten.convolution_backward",
                {"grad_output": tuple(y.shape), **sizes},
                [x.shape, w.shape],
                transposed=case.transposed,
                groups=case.groups,
                output_mask=list(mask),
            )
        )
        expected = 2 * (mask[0] * grad_input.count + mask[1] * grad_weight.count)
        assert (backward.model_flop, backward.other_flop) == (expected, mask[2] * y.numel()), mask


@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("seed", range(SHAPES_EACH))
def test_convolutions(seed: int, dimensions: int, transposed: bool) -> None:
    check_convolution(random_convolution(seed, dimensions, transposed), seed)


# --- matrix products -------------------------------------------------------------------------------------------------

# operation, its inputs' names, their indices, and torch's own function
PRODUCTS = (
    ("aten.mm", ("self", "mat2"), "ij,jk->ik", torch.mm),
    ("aten.bmm", ("self", "mat2"), "bij,bjk->bik", torch.bmm),
    ("aten.mv", ("self", "vec"), "ij,j->i", torch.mv),
    ("aten.dot", ("self", "tensor"), "j,j->", torch.dot),
    ("aten.linear", ("input", "weight"), "abj,kj->abk", F.linear),
    ("aten.matmul", ("self", "other"), "bij,jk->bik", torch.matmul),
    ("aten.matmul", ("self", "other"), "bij,j->bi", torch.matmul),
)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("name", "arguments", "equation", "torchs"), PRODUCTS, ids=lambda value: str(value)[:20])
def test_products(seed: int, name: str, arguments: tuple[str, str], equation: str, torchs: object) -> None:
    """One product and its two gradients, each of them a product again."""
    rng = np.random.default_rng([seed, *map(ord, equation)])
    left, _, rest = equation.partition(",")
    right, _, result = rest.partition("->")
    size = {index: int(rng.integers(1, 6)) for index in left + right}
    a, b = tensors(rng, *(tuple(size[i] for i in term) for term in (left, right)))
    y = torchs(a, b)  # type: ignore[operator]
    g = torch.from_numpy(rng.standard_normal(tuple(y.shape)))
    y.backward(g)
    forward = naive.contraction(equation, a.detach().numpy(), b.detach().numpy())
    grad_a = naive.contraction(f"{result},{right}->{left}", g.numpy(), b.detach().numpy())
    grad_b = naive.contraction(f"{left},{result}->{right}", a.detach().numpy(), g.numpy())
    assert close(forward.value, y)
    assert close(grad_a.value, a.grad)
    assert close(grad_b.value, b.grad)

    shapes = dict(zip(arguments, (tuple(a.shape), tuple(b.shape)), strict=True))
    cost = registry.cost(operation(name, shapes, [y.shape]))
    assert (cost.model_flop, cost.other_flop) == (2 * forward.count, 0)
    assert grad_a.count == grad_b.count == forward.count  # so that backward is 2 × forward


# operation, names of what is added and of the factors, indices, torch's function
ADDED = (
    ("aten.addmm", ("self", "mat1", "mat2"), "ij,jk->ik", torch.addmm),
    ("aten.baddbmm", ("self", "batch1", "batch2"), "bij,bjk->bik", torch.baddbmm),
    ("aten.addbmm", ("self", "batch1", "batch2"), "bij,bjk->ik", torch.addbmm),
    ("aten.addmv", ("self", "mat", "vec"), "ij,j->i", torch.addmv),
    ("aten.addr", ("self", "vec1", "vec2"), "i,k->ik", torch.addr),
)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("name", "arguments", "equation", "torchs"), ADDED, ids=lambda value: str(value)[:20])
def test_added_products(seed: int, name: str, arguments: tuple[str, str, str], equation: str, torchs: object) -> None:
    """beta · C + alpha · (A B), with the scalar work counted one by one."""
    rng = np.random.default_rng([seed, *map(ord, equation)])
    left, _, rest = equation.partition(",")
    right, _, result = rest.partition("->")
    size = {index: int(rng.integers(1, 6)) for index in left + right}
    a, b, c = tensors(rng, *(tuple(size[i] for i in term) for term in (left, right, result)))
    alpha, beta = ((1, 1), (2, 1), (1, 3), (2, 3), (1, 0), (2, 0))[seed % 6]
    product = naive.contraction(equation, a.detach().numpy(), b.detach().numpy())
    value, scalars = product.value, 0
    if alpha != 1:
        value, scalars = value * alpha, scalars + value.size
    if beta != 0:
        addend = c.detach().numpy()
        scalars += addend.size if beta != 1 else 0
        value, scalars = value + beta * addend, scalars + value.size
    y = torchs(c, a, b, alpha=alpha, beta=beta)  # type: ignore[operator]
    assert close(value, y)
    shapes = dict(zip(arguments, (tuple(c.shape), tuple(a.shape), tuple(b.shape)), strict=True))
    for suffix in ("", "_"):  # in place too
        cost = registry.cost(operation(name + suffix, shapes, [y.shape], alpha=alpha, beta=beta))
        summed = name != "aten.addr"  # an outer product sums nothing: its multiplications are elementwise
        assert (cost.model_flop, cost.other_flop) == (2 * product.count * summed, scalars + value.size * (not summed))


# --- attention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(16))
def test_attention(seed: int) -> None:
    """Forward and the three gradients of one head shape; value and key widths differ, a causal mask counts dense."""
    rng = np.random.default_rng(seed)
    n, h, queries, keys, width, v_width = (int(i) for i in rng.integers(1, 4, 6))
    causal = seed % 2 == 1
    q, k, v = tensors(rng, (n, h, queries, width), (n, h, keys, width), (n, h, keys, v_width))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    g = torch.from_numpy(rng.standard_normal(tuple(y.shape)))
    y.backward(g)
    tape = naive.Tape()
    mine = [tape.array(t.detach().numpy()) for t in (q, k, v)]
    out = naive.attention(tape, *mine, causal)
    tape.differentiate(list(out.flat), list(g.numpy().flat))
    assert close(naive.values(out), y)
    for numbers, tensor in zip(mine, (q, k, v), strict=True):
        assert close(naive.grads(numbers), tensor.grad)

    shapes = {"query": q.shape, "key": k.shape, "value": v.shape}
    forward = registry.cost(operation("aten._scaled_dot_product_flash_attention_for_cpu", shapes, [y.shape]))
    assert forward.model_flop == 2 * tape.forward
    shapes = {"grad_out": y.shape, **shapes}
    backward = registry.cost(operation("aten._scaled_dot_product_flash_attention_for_cpu_backward", shapes, [q.shape]))
    assert backward.model_flop == 2 * tape.backward == 2 * forward.model_flop
    rows, again = n * h * queries, 2 * n * h * queries * keys * width
    assert products.attention_backward_executed(rows, keys, width, v_width) == backward.model_flop + again


@pytest.mark.parametrize("wanted", list(itertools.product((False, True), repeat=3)))
def test_attention_backward_by_mask(wanted: tuple[bool, bool, bool]) -> None:
    """Only the gradients that are asked for. The loops differentiate through the weights even if only V wants it."""
    rng = np.random.default_rng(3)
    shapes = ((1, 2, 3, 2), (1, 2, 4, 2), (1, 2, 4, 3))
    tape = naive.Tape()
    arrays = [tape.array(rng.standard_normal(s), w) for s, w in zip(shapes, wanted, strict=True)]
    out = naive.attention(tape, *arrays, causal=False)
    tape.differentiate(list(out.flat), [1.0] * out.size)
    scores = 2 * 3 * 4
    through_weights = 0 if wanted[0] or wanted[1] else scores * 3  # dO Vᵀ, which nobody asked for
    cost = products.attention_backward(2 * 3, 4, 2, 3, (*wanted, False))
    assert cost.model_flop == 2 * (tape.backward - through_weights)


# --- recurrent layers ------------------------------------------------------------------------------------------------

RECURRENT = [
    # cell, layers, directions, projection
    ("rnn", 1, 1, 0),
    ("rnn", 2, 2, 0),
    ("gru", 1, 1, 0),
    ("gru", 2, 1, 0),
    ("gru", 2, 2, 0),
    ("lstm", 1, 1, 0),
    ("lstm", 1, 2, 0),
    ("lstm", 3, 1, 0),
    ("lstm", 2, 2, 0),
    ("lstm", 1, 1, 2),
    ("lstm", 2, 2, 2),
]


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize(("cell", "layers", "directions", "projection"), RECURRENT)
@pytest.mark.parametrize("grad_input", [True, False])
def test_recurrent_layers(cell: str, layers: int, directions: int, projection: int, grad_input: bool) -> None:
    """Outputs and every gradient of torch's layer, and the multiply-adds of both passes."""
    time, batch, features, hidden = 3, 2, 2, 3
    torch.manual_seed(layers + 10 * directions)
    kind = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell]
    options = {"proj_size": projection} if projection else {}
    layer = kind(features, hidden, layers, bidirectional=directions == 2, dtype=torch.float64, **options)
    x = torch.randn(time, batch, features, dtype=torch.float64, requires_grad=True)
    y = layer(x)[0]
    g = torch.randn_like(y)
    y.backward(g)

    tape = naive.Tape()
    numbers = tape.array(x.detach().numpy(), wanted=grad_input)
    weights = [[tape.array(w.detach().numpy()) for w in of_cell] for of_cell in layer.all_weights]
    out = naive.recurrent(tape, cell, numbers, weights, directions, hidden)
    tape.differentiate(list(out.flat), list(g.numpy().flat))
    assert close(naive.values(out), y)
    if grad_input:
        assert close(naive.grads(numbers), x.grad)
    for mine, torchs in zip(itertools.chain(*weights), itertools.chain(*layer.all_weights), strict=True):
        assert close(naive.grads(mine), torchs.grad)

    net = products.network(cell, features, hidden, layers, directions, projection)
    tokens = time * batch
    assert products.recurrent(tokens, net).model_flop == 2 * tape.forward
    assert products.recurrent_backward(tokens, net, grad_input).model_flop == 2 * tape.backward
