"""Rooflines in symbols: intensities, time bounds and crossings, by hand and by numbers put in."""

from __future__ import annotations

import pytest
import sympy

from analysis.formula.derivation.roofline import BANDWIDTH, PEAK, RIDGE, symbolic_roofline
from analysis.optables.builder import Table

B, N, K = sympy.symbols("batch n k", integer=True, positive=True)


def places(*, batch=B, n=N, k=K):
    """A product (batch, k) by (k, n), a relu of it, and one product without the batch."""
    table = Table()
    weight = table.weight((k, n))
    table.relu(table.mm(table.input((batch, k)), weight))
    table.mm(table.weight((n, k)), weight)
    return symbolic_roofline(table.done().operations, B)


def test_a_product():
    product = places()[0]
    assert sympy.expand(product.flop - 2 * B * N * K) == 0
    assert sympy.expand(product.moved_bytes - 4 * (B * K + K * N + B * N)) == 0
    assert sympy.simplify(product.intensity - B * N * K / (2 * (B * K + K * N + B * N))) == 0
    assert product.time_s == sympy.Max(product.flop / PEAK, product.moved_bytes / BANDWIDTH)
    # 2·b·n·k ≥ r·4·(b·k + k·n + b·n) ⇔ b·(n·k − 2·r·(k + n)) ≥ 2·r·k·n, for r below n·k ÷ 2(k + n).
    crossing = product.crossing
    assert sympy.simplify(crossing.at_least - 2 * RIDGE * K * N / (N * K - 2 * RIDGE * (K + N))) == 0
    assert sympy.simplify(crossing.ridge_below - N * K / (2 * (K + N))) == 0
    assert crossing.symbol == B


def test_a_crossing_is_where_the_two_times_meet():
    crossing, product = places()[0].crossing, places()[0]
    point = {N: 4096, K: 4096, PEAK: 20 * 10**12, BANDWIDTH: 10**12}
    ridge = {RIDGE: 20}
    at = crossing.at_least.subs(point).subs(ridge)
    assert at == sympy.Rational(2 * 20 * 4096**2, 4096**2 - 40 * 8192)  # 40.8 samples
    for batch, is_arithmetic in ((40, False), (41, True)):
        here = {B: batch, **point}
        flop_s, bytes_s = (product.flop / PEAK).subs(here), (product.moved_bytes / BANDWIDTH).subs(here)
        assert (flop_s >= bytes_s) is sympy.true if is_arithmetic else (flop_s < bytes_s) is sympy.true
        assert product.time_s.subs(here) == (flop_s if is_arithmetic else bytes_s)
        assert bool(crossing.where.subs({**here, **ridge})) is is_arithmetic
        assert (batch >= at) == is_arithmetic


def test_flop_that_the_batch_adds_to():
    """A product of batch + 3 rows crosses three samples sooner than one of batch rows."""
    (more, *_), (plain, *_) = places(batch=B + 3), places()
    assert sympy.simplify(more.crossing.at_least - (plain.crossing.at_least - 3)) == 0
    assert sympy.simplify(more.crossing.ridge_below - plain.crossing.ridge_below) == 0


def test_numbers_put_in_are_numbers_counted():
    for symbolic, counted in zip(places(), places(batch=6, n=8, k=10), strict=True):
        point = {B: 6, N: 8, K: 10}
        assert symbolic.flop.subs(point) == counted.flop
        assert symbolic.moved_bytes.subs(point) == counted.moved_bytes
        assert symbolic.intensity.subs(point) == counted.intensity
        assert symbolic.time_s.subs(point) == counted.time_s


def test_what_the_batch_does_not_change():
    _, relu, weights = places()
    assert relu.intensity == sympy.Rational(1, 8)  # one FLOP for 4 bytes read and 4 written, at any batch
    assert (relu.crossing.at_least, relu.crossing.ridge_below) == (1, sympy.Rational(1, 8))
    assert sympy.simplify(weights.crossing.ridge_below - weights.intensity) == 0
    assert weights.crossing.at_least == 1
    assert not weights.intensity.has(B)


def test_other_degrees_are_told_by_the_inequality_alone():
    table = Table()
    table.bmm(table.input((B, B, N)), table.input((B, N, B)))
    (place,) = symbolic_roofline(table.done().operations, B)
    assert place.crossing.at_least is None
    assert place.crossing.where == sympy.Ge(place.intensity, RIDGE, evaluate=False)
    assert place.intensity.subs({B: 3, N: 5}) == sympy.Rational(2 * 27 * 5, 4 * (2 * 3 * 3 * 5 + 27))


def test_what_calculates_nothing_and_what_does_nothing():
    table = Table()
    x = table.input((B, N))
    table.call("aten.view", {"self": x}, [(B * N,)])
    table.call("aten.clone", {"self": x}, [(B, N)])
    (copy,) = symbolic_roofline(table.done().operations, B)
    assert (copy.name, copy.flop, copy.crossing) == ("aten.clone", 0, None)
    assert copy.time_s == 8 * B * N / BANDWIDTH
    assert copy.intensity == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_half_the_bytes_are_twice_the_intensity(dtype):
    table = Table(dtype)
    table.mm(table.input((B, N)), table.weight((N, N)))
    (place,) = symbolic_roofline(table.done().operations, B)
    size = {"float32": 4, "bfloat16": 2}[dtype]
    assert sympy.simplify(place.crossing.ridge_below - N / size) == 0  # 2·b·n² over 2·b·n tensors, as the batch grows
