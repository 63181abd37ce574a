"""Definition: FLOP of convolutions and products against plain loops whose values equal torch's.

Convolutions (1-D to 3-D, grouped, depthwise, dilated, strided, padded, transposed) and products, forward and every
gradient. Seeded: the shapes are the same in every run. The loops are in `tests/support/oracles/naive.py`.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from analysis.operators import registry
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
