"""Definition: FLOP of attention and recurrent layers against loops that differentiate and count their multiply-adds.

A loop is right if its values and gradients equal torch's; then what it counted is what the operation takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from analysis.operators import products, registry
from tests.support.made_up_operations.made_up_operations import operation


def tensors(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.from_numpy(rng.standard_normal(form)).requires_grad_() for form in shapes]


def close(values: np.ndarray, torchs: torch.Tensor | None) -> bool:
    return bool(np.allclose(values, torchs.detach().numpy(), rtol=1e-9, atol=1e-9))


@dataclass
class Tape:
    """Reverse-mode differentiation of scalars, which counts the multiply-adds of sums of products and no other work."""

    forward: int = 0
    backward: int = 0
    steps: list[Callable[[], None]] = field(default_factory=list)

    def leaf(self, value: float, wanted: bool = True) -> Number:
        """An input; its gradient is computed if it is wanted."""
        return Number(self, float(value), wanted)

    def array(self, values: np.ndarray, wanted: bool = True) -> np.ndarray:
        """An array of leaves."""
        return np.vectorize(lambda value: self.leaf(value, wanted), otypes=[object])(values)

    def dot(self, left: Sequence[Number], right: Sequence[Number]) -> Number:
        """A sum of products: one multiply-add a pair, and backward one for each wanted factor of it."""
        pairs = list(zip(left, right, strict=True))
        self.forward += len(pairs)
        out = Number(self, sum(a.value * b.value for a, b in pairs), True)

        def differentiate() -> None:
            for a, b in pairs:
                for factor, other in ((a, b), (b, a)):
                    if factor.wanted:
                        self.backward += 1
                        factor.grad += out.grad * other.value

        self.steps.append(differentiate)
        return out

    def differentiate(self, outputs: Sequence[Number], gradients: Sequence[float]) -> None:
        """Run backward from these outputs."""
        for out, gradient in zip(outputs, gradients, strict=True):
            out.grad += float(gradient)
        for step in reversed(self.steps):
            step()


@dataclass(eq=False)
class Number:
    """A scalar with a gradient."""

    tape: Tape
    value: float
    wanted: bool
    grad: float = 0.0

    def _of(self, value: float, *slopes: tuple[Number, float]) -> Number:
        out = Number(self.tape, value, True)

        def differentiate() -> None:
            for source, slope in slopes:
                source.grad += out.grad * slope

        self.tape.steps.append(differentiate)
        return out

    def __add__(self, other: Number) -> Number:
        return self._of(self.value + other.value, (self, 1.0), (other, 1.0))

    def __mul__(self, other: Number) -> Number:
        return self._of(self.value * other.value, (self, other.value), (other, self.value))

    def plus(self, constant: float) -> Number:
        return self._of(self.value + constant, (self, 1.0))

    def times(self, constant: float) -> Number:
        return self._of(self.value * constant, (self, constant))

    def tanh(self) -> Number:
        y = math.tanh(self.value)
        return self._of(y, (self, 1 - y * y))

    def sigmoid(self) -> Number:
        y = 1 / (1 + math.exp(-self.value))
        return self._of(y, (self, y * (1 - y)))

    def exp(self) -> Number:
        y = math.exp(self.value)
        return self._of(y, (self, y))

    def inverse(self) -> Number:
        return self._of(1 / self.value, (self, -1 / self.value**2))


def grads(numbers: np.ndarray) -> np.ndarray:
    """The gradients of an array of leaves."""
    return np.vectorize(lambda number: number.grad, otypes=[float])(numbers)


def values(numbers: Any) -> np.ndarray:
    """The values of an array of numbers."""
    return np.vectorize(lambda number: number.value, otypes=[float])(np.array(numbers, dtype=object))


def attention(tape: Tape, q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """softmax(Q Kᵀ / √d) V for arrays (batch, heads, length, width); a causal mask hides scores that were computed."""
    out = np.empty((*q.shape[:-1], v.shape[-1]), dtype=object)
    for n, h, i in np.ndindex(*q.shape[:3]):
        shown = [j for j in range(k.shape[2]) if not causal or j <= i]
        scores = [tape.dot(q[n, h, i], k[n, h, j]).times(q.shape[-1] ** -0.5) for j in range(k.shape[2])]
        powers = [score.exp() if j in shown else score.times(0.0) for j, score in enumerate(scores)]
        total = powers[0]
        for power in powers[1:]:
            total = total + power
        weights = [power * total.inverse() for power in powers]
        for d in range(v.shape[-1]):
            out[n, h, i, d] = tape.dot(weights, v[n, h, :, d])
    return out


def recurrent(
    tape: Tape, cell: str, x: np.ndarray, weights: Sequence[Sequence[np.ndarray]], directions: int, hidden: int
) -> np.ndarray:
    """LSTM, GRU or RNN over x (time, batch, features); `weights` has (W, U, b, c[, projection]) for each layer and
    direction, as torch orders them. Initial states are leaves that want their gradient."""
    for layer in range(len(weights) // directions):
        sides = []
        for direction in range(directions):
            order = range(x.shape[0]) if direction == 0 else reversed(range(x.shape[0]))
            own = weights[layer * directions + direction]
            sides.append(_direction(tape, cell, x, own, list(order), hidden))
        x = np.concatenate(sides, axis=2)
    return x


def _direction(
    tape: Tape, cell: str, x: np.ndarray, own: Sequence[np.ndarray], order: list[int], hidden: int
) -> np.ndarray:
    width = own[4].shape[0] if len(own) > 4 else hidden
    out = np.empty((x.shape[0], x.shape[1], width), dtype=object)
    for n in range(x.shape[1]):
        state, memory = tape.array(np.zeros(width)), tape.array(np.zeros(hidden))
        for t in order:
            inside = [tape.dot(row, x[t, n]) + b for row, b in zip(own[0], own[2], strict=True)]
            around = [tape.dot(row, state) + b for row, b in zip(own[1], own[3], strict=True)]
            state, memory = _CELLS[cell](inside, around, state, memory, hidden)
            if len(own) > 4:
                state = np.array([tape.dot(row, state) for row in own[4]], dtype=object)
            out[t, n] = state
    return out


def _rnn(inside: Any, around: Any, _state: Any, memory: Any, _hidden: int) -> tuple[np.ndarray, Any]:
    return np.array([(a + b).tanh() for a, b in zip(inside, around, strict=True)], dtype=object), memory


def _lstm(inside: Any, around: Any, _state: Any, memory: Any, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    gates = [a + b for a, b in zip(inside, around, strict=True)]
    i, f, g, o = (gates[k * hidden : (k + 1) * hidden] for k in range(4))
    cell = [f[k].sigmoid() * memory[k] + i[k].sigmoid() * g[k].tanh() for k in range(hidden)]
    state = [o[k].sigmoid() * cell[k].tanh() for k in range(hidden)]
    return np.array(state, dtype=object), np.array(cell, dtype=object)


def _gru(inside: Any, around: Any, state: Any, memory: Any, hidden: int) -> tuple[np.ndarray, Any]:
    new = []
    for k in range(hidden):
        r = (inside[k] + around[k]).sigmoid()
        z = (inside[hidden + k] + around[hidden + k]).sigmoid()
        n = (inside[2 * hidden + k] + r * around[2 * hidden + k]).tanh()
        new.append(z.times(-1.0).plus(1.0) * n + z * state[k])
    return np.array(new, dtype=object), memory


_CELLS = {"rnn": _rnn, "lstm": _lstm, "gru": _gru}


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
    tape = Tape()
    mine = [tape.array(t.detach().numpy()) for t in (q, k, v)]
    out = attention(tape, *mine, causal)
    tape.differentiate(list(out.flat), list(g.numpy().flat))
    assert close(values(out), y)
    for numbers, tensor in zip(mine, (q, k, v), strict=True):
        assert close(grads(numbers), tensor.grad)

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
    tape = Tape()
    arrays = [tape.array(rng.standard_normal(s), w) for s, w in zip(shapes, wanted, strict=True)]
    out = attention(tape, *arrays, causal=False)
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

    tape = Tape()
    numbers = tape.array(x.detach().numpy(), wanted=grad_input)
    weights = [[tape.array(w.detach().numpy()) for w in of_cell] for of_cell in layer.all_weights]
    out = recurrent(tape, cell, numbers, weights, directions, hidden)
    tape.differentiate(list(out.flat), list(g.numpy().flat))
    assert close(values(out), y)
    if grad_input:
        assert close(grads(numbers), x.grad)
    for mine, torchs in zip(itertools.chain(*weights), itertools.chain(*layer.all_weights), strict=True):
        assert close(grads(mine), torchs.grad)

    net = products.network(cell, features, hidden, layers, directions, projection)
    tokens = time * batch
    assert products.recurrent(tokens, net).model_flop == 2 * tape.forward
    assert products.recurrent_backward(tokens, net, grad_input).model_flop == 2 * tape.backward
