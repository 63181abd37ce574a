"""What varying lengths do to a cost: its mean, deviation and quantiles, and what padding to the longest adds.

The cost is a formula in the length's symbol; lengths are a distribution
(`analysis.formula.algebra.length_distribution`). `mean` keeps the other symbols; powers of the length need only the
distribution's moments, other parts (roundings, maxima) are taken at each length. All is exact for the distribution that
was given, but for the square root in the deviation. Not claimed: lengths are independent draws, and sorting or
bucketing is not modelled.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy

from analysis.formula.algebra.evaluate import Exact, Point, partly, values
from analysis.formula.algebra.expressions import Expr, names, rational, symbol, unknown_name
from analysis.formula.algebra.length_distribution import Lengths, quantile_place
from analysis.formula.algebra.simplify import Monomial, monomials

QUANTILES = (0.05, 0.5, 0.95, 0.99)


@dataclass(frozen=True)
class CostDistribution:
    """A cost over a distribution of lengths, in the cost's unit; mean and quantiles exact.

    quantiles: share → the least cost that at least this share of the weight does not exceed.
    """

    mean: Fraction
    deviation: float
    lowest: Exact
    highest: Exact
    quantiles: Mapping[float, Exact]


@dataclass(frozen=True)
class Padded:
    """A batch whose lengths all become its longest one, beside the same batch with each at its own.

    own: the cost with every sequence of a batch at its own length, in the mean (as if each batch held one length only).
    padded: with all at the longest of the batch, in the mean. longest: the mean of the longest length.
    """

    own: CostDistribution
    padded: CostDistribution
    longest: Fraction

    @property
    def overhead_ratio(self) -> float | None:
        """padded ÷ own - 1, of the means; None where the cost is 0."""
        return float(self.padded.mean / self.own.mean - 1) if self.own.mean else None


def mean(expression: Expr, name: str, lengths: Lengths) -> Expr:
    """The mean of a formula over one symbol's lengths, as a formula of the others, multiplied out.

    Of each term the part that depends on the length is averaged: a power by its moment, another part at each length.
    """
    _check_symbol(expression, name)
    main = symbol(name)
    by_part: dict[Monomial, list[Expr]] = {}
    for monomial, number in monomials(expression).items():
        part = tuple(pair for pair in monomial if main in pair[0].free_symbols)
        rest = sympy.Mul(*(base**power for base, power in monomial if (base, power) not in part))
        by_part.setdefault(part, []).append(rational(number) * rest)
    parts = (_mean_of(part, name, lengths) * sympy.Add(*rests) for part, rests in by_part.items())
    return sympy.expand(sympy.Add(*parts))


def spread(
    expression: Expr, name: str, lengths: Lengths, fixed: Point, shares: Sequence[float] = QUANTILES
) -> CostDistribution:
    """Mean, deviation and quantiles of a formula over one symbol's lengths, the other symbols at fixed values.

    Raises ValueError for a symbol without value or that the formula does not have, and for a fixed value of the length.
    """
    _check_symbol(expression, name)
    if name in fixed:
        raise ValueError(f"expected lengths for {name}, got a fixed value of it as well")
    held = {other: number for other, number in fixed.items() if other in names(expression)}
    only = partly(expression, held)
    if missing := [other for other in names(only) if other != name]:
        raise ValueError(f"expected a value for each of {', '.join(missing)}, got none")
    costs = values(only, ({name: length} for length in lengths.lengths), [name])
    return _spread(costs, lengths.weights, shares)


def padded(
    expression: Expr,
    name: str,
    lengths: Lengths,
    batch: int,
    fixed: Point,
    shares: Sequence[float] = QUANTILES,
) -> Padded:
    """The cost of batches of `batch` independent lengths, padded and not.

    expression: the cost of one whole batch; if it has a symbol for the batch size, `fixed` says how many there are.
    """
    longest = lengths.longest_of(batch)
    return Padded(
        own=spread(expression, name, lengths, fixed, shares),
        padded=spread(expression, name, longest, fixed, shares),
        longest=longest.moment(1),
    )


def _spread(costs: Sequence[Exact], weights: Sequence[int], shares: Sequence[float]) -> CostDistribution:
    pairs = sorted(zip(costs, weights, strict=True))
    whole = sum(weight for _, weight in pairs)
    centre = Fraction(sum(cost * weight for cost, weight in pairs)) / whole
    variance = sum(weight * (cost - centre) ** 2 for cost, weight in pairs) / whole
    ranked = [weight for _, weight in pairs]
    return CostDistribution(
        mean=centre,
        deviation=math.sqrt(variance),
        lowest=pairs[0][0],
        highest=pairs[-1][0],
        quantiles={share: pairs[quantile_place(ranked, share)][0] for share in shares},
    )


def _mean_of(part: Monomial, name: str, lengths: Lengths) -> Expr:
    """The mean of a product of powers: a number, or a formula where an atom mixes the length with other symbols."""
    if all(base == symbol(name) and power > 0 for base, power in part):
        return rational(lengths.moment(sum(power for _, power in part)))
    whole = sympy.Mul(*(base**power for base, power in part))
    if names(whole) != [name]:
        each = (partly(whole, {name: length}) for length in lengths.lengths)
        weighed = (weight * worth for weight, worth in zip(lengths.weights, each, strict=True))
        return sympy.Add(*weighed) / lengths.weight
    found = values(whole, ({name: length} for length in lengths.lengths))
    return rational(Fraction(sum(map(operator.mul, lengths.weights, found)), lengths.weight))


def _check_symbol(expression: Expr, name: str) -> None:
    if name not in (valid := names(expression)):
        raise ValueError(unknown_name("symbol", name, valid))
