"""Lengths of sequences as a distribution over whole numbers: from a file of lengths, or from a name and parameters.

A distribution is a list of lengths with whole weights, so that everything computed from it is exact. A file's weights
are its counts. A named one's are its probabilities in units of 2⁻⁶⁰, rounded; what rounds to 0 is left out:

* `uniform:LOW:HIGH`: each whole number from LOW to HIGH, equally likely;
* `poisson:MEAN`: Poisson, given that the length is at least 1;
* `geometric:MEAN`: P(n) = p (1 - p)ⁿ⁻¹ for n ≥ 1 with p = 1/MEAN;
* `normal:MEAN:DEVIATION`, `lognormal:MEAN:SIGMA`: P(n) is what lies between n - ½ and n + ½, given that it is above ½.
  The lognormal's MEAN is that of the lengths, SIGMA the deviation of their logarithm.

A length is at least 1. Where there are more than MOST different ones, neighbours are put together, each group at the
two whole numbers beside its mean (`grouped` says so): what depends on a remainder is then not to be trusted.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from analysis.formula.algebra.expressions import unknown_name
from results import csv_lines

WEIGHT = 2**60
MOST = 20_000
WIDEST = 1024
PLACES = 256

_FARTHEST = 2**40


@dataclass(frozen=True)
class Lengths:
    """Different lengths, rising, each with its weight, a whole number above 0. source: what they were made of."""

    lengths: tuple[int, ...]
    weights: tuple[int, ...]
    source: str
    grouped: bool = False

    @property
    def weight(self) -> int:
        """All weights together."""
        return sum(self.weights)

    def moment(self, power: int) -> Fraction:
        """The mean of length ** power, exactly."""
        return Fraction(sum(w * n**power for n, w in zip(self.lengths, self.weights, strict=True)), self.weight)

    def longest_of(self, draws: int) -> Lengths:
        """The distribution of the longest of several independent draws: P(longest ≤ n) = P(one ≤ n)^draws.

        Exact where the power has at most WIDEST bits; beyond, each probability is cut to PLACES bits.
        """
        if draws < 1:
            raise ValueError(f"expected at least one draw, got {draws}")
        upto = list(itertools.accumulate(self.weights))
        exact = upto[-1].bit_length() * draws <= WIDEST
        below = [0, *(_power(share, upto[-1], draws, exact) for share in upto)]
        weights = [high - low for low, high in itertools.pairwise(below)]
        common = math.gcd(*weights)
        kept = [(length, weight // common) for length, weight in zip(self.lengths, weights, strict=True) if weight]
        source = f"longest of {draws} of {self.source}"
        return Lengths(tuple(n for n, _ in kept), tuple(w for _, w in kept), source, self.grouped)


def _power(share: int, whole: int, draws: int, exact: bool) -> int:
    """share ** draws in units of whole ** -draws if exact, else (share ÷ whole) ** draws in units of 2 ** -PLACES."""
    if exact:
        return int(share**draws)
    found, factor, left = 1 << PLACES, (share << PLACES) // whole, draws
    while left:
        if left % 2:
            found = found * factor >> PLACES
        factor, left = factor * factor >> PLACES, left // 2
    return found


def of(lengths: Iterable[int], source: str = "a list") -> Lengths:
    """The distribution of these lengths. Raises ValueError for none, and for one below 1."""
    counts = Counter(lengths)
    if not counts or min(counts) < 1:
        raise ValueError(f"expected lengths of at least 1, got {min(counts, default='none')} in {source}")
    return Lengths(tuple(sorted(counts)), tuple(counts[n] for n in sorted(counts)), source)


def read(text: str, source: str, column: str | None = None) -> Lengths:
    """The lengths in a file's text: one whole number a line, or a column of CSV with a header.

    column: the column's name; None: the only one. Blank lines count for nothing. Raises ValueError, naming the line,
    for what is no whole number, and for a column that there is not.
    """
    lines = [(number, cells) for number, cells in enumerate(csv_lines(text), 1) if any(cells)]
    if not lines:
        raise ValueError(f"expected lengths, one a line, got nothing in {source}")
    header = [" ".join(cell.split()) for cell in lines[0][1]]
    if not _is_whole(header[0]) or len(header) > 1:
        place, lines = _place(header, column, source), lines[1:]
    elif column is not None:
        raise ValueError(f"expected a header with {column!r} in the first line of {source}, got {header[0]!r}")
    else:
        place = 0
    return of([_cell(cells, place, number, source) for number, cells in lines], source)


def named(text: str) -> Lengths:
    """The distribution that a text names, such as `poisson:20`. Raises ValueError, in one line, for any other text."""
    name, *given = (piece.strip() for piece in text.split(":"))
    if name not in DISTRIBUTIONS:
        raise ValueError(unknown_name("distribution", name, DISTRIBUTIONS))
    words, make = DISTRIBUTIONS[name]
    try:
        parameters = [float(piece) for piece in given]
    except ValueError as fault:
        raise ValueError(f"expected {name}:{words} in numbers, got {text!r}") from fault
    if len(parameters) != len(words.split(":")) or not all(map(math.isfinite, parameters)):
        raise ValueError(f"expected {name}:{words}, got {text!r}")
    try:
        return make(parameters, text)
    except ValueError as fault:
        raise ValueError(f"expected {name}:{words}, got {text!r}: {fault}") from fault


def _uniform(parameters: Sequence[float], source: str) -> Lengths:
    low, high = parameters
    if not (low.is_integer() and high.is_integer() and 1 <= low <= high < _FARTHEST):
        raise ValueError("both are whole, and 1 ≤ LOW ≤ HIGH")
    first, count = int(low), int(high) - int(low) + 1
    if count <= MOST:
        return Lengths(tuple(range(first, first + count)), (1,) * count, source)
    return _from_survival(lambda x: min(1.0, max(0.0, (first + count - 0.5 - x) / count)), first, first + count, source)


def _poisson(parameters: Sequence[float], source: str) -> Lengths:
    from scipy.special import pdtrc  # 0.3 s to import: not for a command's --help

    mean = _above(0, parameters[0], "MEAN")
    return _from_survival(lambda x: float(pdtrc(max(0, math.floor(x)), mean)), 1, 2 * mean + 200, source)


def _geometric(parameters: Sequence[float], source: str) -> Lengths:
    mean = _above(1, parameters[0], "MEAN", least=True)
    if mean == 1:
        return Lengths((1,), (1,), source)
    rate = math.log1p(-1 / mean)
    return _from_survival(lambda x: math.exp(rate * max(0, math.floor(x))), 1, 50 * mean + 50, source)


def _normal(parameters: Sequence[float], source: str) -> Lengths:
    mean, deviation = _above(0, parameters[0], "MEAN"), _above(0, parameters[1], "DEVIATION")
    return _from_survival(
        lambda x: math.erfc((x - mean) / deviation / math.sqrt(2)) / 2, 1, mean + 10 * deviation + 10, source
    )


def _lognormal(parameters: Sequence[float], source: str) -> Lengths:
    mean, sigma = _above(0, parameters[0], "MEAN"), _above(0, parameters[1], "SIGMA")
    centre = math.log(mean) - sigma**2 / 2
    if sigma > 3:
        raise ValueError("SIGMA is at most 3")
    highest = math.exp(centre + 9 * sigma) + 10
    return _from_survival(lambda x: math.erfc((math.log(x) - centre) / sigma / math.sqrt(2)) / 2, 1, highest, source)


DISTRIBUTIONS: Mapping[str, tuple[str, Callable[[Sequence[float], str], Lengths]]] = {
    "uniform": ("LOW:HIGH", _uniform),
    "poisson": ("MEAN", _poisson),
    "geometric": ("MEAN", _geometric),
    "normal": ("MEAN:DEVIATION", _normal),
    "lognormal": ("MEAN:SIGMA", _lognormal),
}
"""Name → (its parameters, what makes it)."""


def _from_survival(above: Callable[[float], float], first: int, highest: float, source: str) -> Lengths:
    """Lengths from `first` on, n weighing above(n - ½) - above(n + ½), up to where no weight is left.

    above: the probability of more than x, falling. Beyond MOST lengths in groups whose width grows with the length.
    """
    if highest >= _FARTHEST:
        raise ValueError(f"lengths go beyond {_FARTHEST:,}")
    edges = _edges(first, max(first, math.ceil(highest)))
    remaining = [above(edge - 0.5) for edge in edges]
    found: Counter[int] = Counter()
    for (low, high), (more, less) in zip(itertools.pairwise(edges), itertools.pairwise(remaining), strict=True):
        if (weight := round((more - less) * WEIGHT)) > 0:
            place = _mean_between(above, low, high)
            found[math.floor(place)] += weight - (upper := round(weight * (place % 1)))
            found[math.floor(place) + 1] += upper
    lengths = sorted(length for length, weight in found.items() if weight)
    if not lengths:
        raise ValueError("no length of at least 1 has any weight")
    weights = tuple(found[length] for length in lengths)
    return Lengths(tuple(lengths), weights, source, len(edges) - 1 < edges[-1] - edges[0])


def _edges(first: int, last: int) -> list[int]:
    """First numbers of groups, and one past the last; single numbers where there are at most MOST of them."""
    if last - first < MOST:
        return list(range(first, last + 2))
    ratio = (last / first) ** (1 / MOST)
    edges = [first]
    while edges[-1] <= last:
        edges.append(max(edges[-1] + 1, math.floor(edges[-1] * ratio)))
    return edges


def _mean_between(above: Callable[[float], float], low: int, high: int) -> float:
    """The mean length of a group from low to below high, by Simpson's rule over its survival."""
    if high == low + 1:
        return low
    start, end = low - 0.5, high - 0.5
    first, middle, final = above(start), above((start + end) / 2), above(end)
    area = (end - start) * (first + 4 * middle + final) / 6 - (end - start) * final
    return min(high - 1.0, max(float(low), start + area / (first - final)))


def _above(least_value: float, number: float, name: str, least: bool = False) -> float:
    if number < least_value or (number == least_value and not least):
        raise ValueError(f"{name} is {'at least' if least else 'above'} {least_value}")
    return number


def _is_whole(cell: str) -> bool:
    return cell.strip().lstrip("-").isdigit()


def _place(header: Sequence[str], column: str | None, source: str) -> int:
    if column is None and len(header) > 1:
        raise ValueError(f"expected one column, or the name of one, in {source}, got {', '.join(header)}")
    if column is not None and column not in header:
        raise ValueError(unknown_name("column", column, header))
    return header.index(column) if column is not None else 0


def _cell(cells: Sequence[str], place: int, number: int, source: str) -> int:
    cell = cells[place].strip() if place < len(cells) else ""
    if not _is_whole(cell) or int(cell) < 1:
        raise ValueError(f"expected a whole number of at least 1 in line {number} of {source}, got {cell!r}")
    return int(cell)


def quantile_place(weights: Sequence[int], share: float | Fraction) -> int:
    """The first place at which the weights so far are at least this share of all. Raises ValueError outside 0 to 1."""
    if not 0 <= share <= 1:
        raise ValueError(f"expected a share from 0 to 1, got {share}")
    upto = list(itertools.accumulate(weights))
    return bisect_left(upto, max(Fraction(share) * upto[-1], Fraction(1)))
