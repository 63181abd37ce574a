"""Convolutions, products, attention and recurrent layers as plain loops that count their multiply-adds.

The independent route that `tests/analysis/operators/test_formulas_brute_force.py` holds the formulas to. A loop here is
right if its values equal torch's; then what it counted is what the operation takes. Taps on zero padding are multiplied
and counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Index = tuple[int, ...]


@dataclass(frozen=True)
class Convolution:
    """One shape. channels are those of one group; sizes have one entry a spatial dimension."""

    batch: int
    groups: int
    channels_in: int
    channels_out: int
    size: Index
    kernel: Index
    stride: Index
    padding: Index
    dilation: Index
    output_padding: Index
    transposed: bool

    @property
    def out_size(self) -> Index:
        """Spatial size of the output, by PyTorch's documentation."""
        each = zip(self.size, self.kernel, self.stride, self.padding, self.dilation, self.output_padding, strict=True)
        if self.transposed:
            return tuple((n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in each)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in each)

    @property
    def weight_shape(self) -> Index:
        """(out, in / groups, *kernel), or (in, out / groups, *kernel) if transposed."""
        if self.transposed:
            return (self.groups * self.channels_in, self.channels_out, *self.kernel)
        return (self.groups * self.channels_out, self.channels_in, *self.kernel)

    def taps(self) -> Iterator[tuple[Index | None, Index | None, Index]]:
        """(input index, output index, weight index) of every multiply-add; None where it lies outside the tensor."""
        here, there = (self.size, self.out_size) if self.transposed else (self.out_size, self.size)
        for n, group, c_in, c_out in itertools.product(
            range(self.batch), range(self.groups), range(self.channels_in), range(self.channels_out)
        ):
            first_in, first_out = group * self.channels_in + c_in, group * self.channels_out + c_out
            weight = (first_in, c_out) if self.transposed else (first_out, c_in)
            for position, tap in itertools.product(_grid(here), _grid(self.kernel)):
                each = zip(position, self.stride, self.padding, tap, self.dilation, strict=True)
                other = tuple(i * s - p + t * d for i, s, p, t, d in each)
                inside = all(0 <= i < n for i, n in zip(other, there, strict=True))
                across = other if inside else None
                source, target = (position, across) if self.transposed else (across, position)
                yield (
                    None if source is None else (n, first_in, *source),
                    None if target is None else (n, first_out, *target),
                    (*weight, *tap),
                )


def _grid(sizes: Index) -> Iterator[Index]:
    return itertools.product(*(range(size) for size in sizes))


@dataclass
class Pass:
    """Values of a pass, and the multiply-adds it took."""

    value: np.ndarray
    count: int = 0

    def add(self, index: Index | None, left: float, right: float) -> None:
        """One multiply-add, into nothing if `index` lies outside."""
        self.count += 1
        if index is not None:
            self.value[index] += left * right


def convolution(case: Convolution, x: np.ndarray, w: np.ndarray, g: np.ndarray) -> tuple[Pass, Pass, Pass]:
    """(output, gradient of the input, gradient of the weight) for input x, weight w and the output's gradient g."""
    forward, grad_input, grad_weight = Pass(np.zeros_like(g)), Pass(np.zeros_like(x)), Pass(np.zeros_like(w))
    for source, target, weight in case.taps():
        x_tap = 0.0 if source is None else x[source]
        g_tap = 0.0 if target is None else g[target]
        forward.add(target, x_tap, w[weight])
        grad_input.add(source, g_tap, w[weight])
        grad_weight.add(weight, g_tap, x_tap)
    return forward, grad_input, grad_weight


def contraction(equation: str, left: np.ndarray, right: np.ndarray) -> Pass:
    """A sum of products over every index of "ij,jk->ik"."""
    operands, result = equation.split("->")
    terms = operands.split(",")
    sizes = {i: n for term, a in zip(terms, (left, right), strict=True) for i, n in zip(term, a.shape, strict=True)}
    out = Pass(np.zeros(tuple(sizes[i] for i in result)))
    for point in _grid(tuple(sizes.values())):
        at = dict(zip(sizes, point, strict=True))
        a, b = (array[tuple(at[i] for i in term)] for term, array in zip(terms, (left, right), strict=True))
        out.add(tuple(at[i] for i in result), a, b)
    return out


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
    for n, h, i in _grid(q.shape[:3]):
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
