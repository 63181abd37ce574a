"""The roofline of each operation in symbols, with no device: intensity, time bound, and when arithmetic bounds it.

`PEAK` (FLOP/s) and `BANDWIDTH` (bytes/s) stand for a device, `RIDGE` = PEAK ÷ BANDWIDTH for its ridge point in FLOP per
byte. An operation with products counts its model FLOP, another one all of its FLOP. Bytes are unfused and uncached, as
in `analysis/operators/traffic.py`: the bound is that of the operation alone, and no measured time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sympy

from analysis.operators.cost import Size
from analysis.operators.registry import TABLE, Rules, cost
from results.records import Operation

PEAK = sympy.Symbol("peak", positive=True)
BANDWIDTH = sympy.Symbol("bandwidth", positive=True)
RIDGE = sympy.Symbol("ridge", positive=True)


@dataclass(frozen=True)
class Crossing:
    """When an operation is bound by arithmetic: where `symbol` is `at_least` or more and RIDGE is below `ridge_below`.

    at_least None: it is not of first degree in the symbol, and `where` alone tells. where: the condition as an
    inequality in all symbols. ridge_below None: every ridge can be crossed.
    """

    symbol: sympy.Symbol
    at_least: Size | None
    ridge_below: Size | None
    where: sympy.Basic


@dataclass(frozen=True)
class SymbolicPlace:
    """One operation under a roof of symbols. intensity: FLOP per byte; None for one that moves nothing."""

    index: int
    name: str
    flop: Size
    moved_bytes: Size
    intensity: Size | None
    time_s: sympy.Expr
    crossing: Crossing | None


def symbolic_roofline(
    operations: Iterable[Operation], symbol: sympy.Symbol, rules: Rules = TABLE
) -> tuple[SymbolicPlace, ...]:
    """Every operation that does or moves anything, in order. symbol: what the crossing is told in (the batch)."""
    places = (place(operation, symbol, rules) for operation in operations)
    return tuple(each for each in places if each.flop != 0 or each.moved_bytes != 0)


def place(operation: Operation, symbol: sympy.Symbol, rules: Rules = TABLE) -> SymbolicPlace:
    """One operation. crossing is None for one that calculates nothing or moves nothing."""
    its = cost(operation, rules)
    flop = sympy.sympify(its.all_flop if its.model_flop == 0 else its.model_flop)
    moved = sympy.sympify(its.moved_bytes)
    return SymbolicPlace(
        index=operation.index,
        name=operation.name,
        flop=flop,
        moved_bytes=moved,
        intensity=None if moved == 0 else sympy.cancel(flop / moved),
        time_s=sympy.Max(flop / PEAK, moved / BANDWIDTH),
        crossing=None if flop == 0 or moved == 0 else crossing(flop, moved, symbol),
    )


def crossing(flop: sympy.Expr, moved: sympy.Expr, symbol: sympy.Symbol) -> Crossing:
    """flop ≥ ridge · bytes, solved for the symbol.

    With flop = a·s + a₀ and bytes = c·s + c₀, that is s·(a − ridge·c) ≥ ridge·c₀ − a₀: for a ridge below a ÷ c, s at
    least (ridge·c₀ − a₀) ÷ (a − ridge·c). Without s in either, the condition is on the ridge alone.
    """
    flop, moved = sympy.expand(flop), sympy.expand(moved)
    where = sympy.Ge(sympy.cancel(flop / moved), RIDGE, evaluate=False)
    if not (flop.has(symbol) or moved.has(symbol)):
        return Crossing(symbol, sympy.Integer(1), sympy.cancel(flop / moved), where)
    above, below = sympy.Poly(flop, symbol), sympy.Poly(moved, symbol)
    if above.degree() > 1 or below.degree() > 1:
        return Crossing(symbol, None, None, where)
    a, a0 = above.coeff_monomial(symbol), above.coeff_monomial(1)
    c, c0 = below.coeff_monomial(symbol), below.coeff_monomial(1)
    if a0 == 0 and c0 == 0:  # both in proportion: the symbol changes nothing
        return Crossing(symbol, sympy.Integer(1), sympy.cancel(a / c), where)
    limit = None if c == 0 else sympy.cancel(a / c)
    return Crossing(symbol, sympy.factor((RIDGE * c0 - a0) / (a - RIDGE * c)), limit, where)
