"""Convolutions and products as plain loops that count their multiply-adds.

The independent route that `tests/analysis/operators/test_formulas_brute_force.py` holds the formulas to. A loop here is
right if its values equal torch's; then what it counted is what the operation takes. Taps on zero padding are multiplied
and counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

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
