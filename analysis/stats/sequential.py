"""Is B slower than A? Asked again and again while pairs come in, with the chance of a false alarm over all questions.

A value is the median of ln(time of B ÷ time of A) over the rounds (A B B A) of one *pair of fresh processes*. What
processes differ by, and whatever neighbouring blocks share, is then between the values, not hidden within them
(Kalibera and Jones, ISMM 2013): the values are the block means of the method of non-overlapping batches (Schmeiser,
Operations Research 30, 1982). Values that are alike all the same widen the interval as in `summary.py`, by a
correlation that is taken for CAUTION ÷ √n higher than it is seen, since few values cannot show their own.

The ratio is that of a *typical* pair: the mean of the values without the TRIMMED lowest and highest (a fifth at each
end, at least one), with the interval of Yuen (Biometrika 61, 1974) from the Winsorised variance. On a busy machine a
pair in ten may differ by a factor of 30: the mean is then carried by values that most streams have not met, and no
interval of it is to be believed. What happens in fewer than one in five pairs is therefore not in the ratio;
`SequentialRatio.far` says how many values that may concern.

The interval is looked at after LOOKS values, and each look k spends its own share of the alarm rate, a ÷ (k (k + 1)),
which add up to a over any number of looks. By Bonferroni's inequality the true ratio is within *all* intervals with a
chance of 1 - a, however the looks depend on each other and whenever one stops (Pocock and Lan-DeMets spend less
wastefully, but need the dependence between looks to be known). One more look is allowed where the time has run out:
when that is does not depend on the ratio.

Assumed: at most first-order dependence, and one ratio for the whole time. Seen in simulation
(`python -m benchmarks.gate --simulate 1000`, `tests/analysis/stats/test_sequential.py`): at 5 % asked for, 2 % or less
of streams of independent values ever raise an alarm, with any tails that were tried, and 4 % at an autocorrelation of
0.4 (5 to 6 % at 0.6). Not claimed: that an interval is as narrow as it could be (of independent values one look alone
has half the width), or that the rate holds above that correlation.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.stats.summary import autocorrelation

ALARM_RATIO = 0.05
"""Of comparisons of equal sides, how many may call any cell different."""

FIRST_LOOK = 6
GROWTH = 1.4
CAUTION = 1 / 3
TRIMMED = 0.2
HIGHEST_CORRELATION = 0.95
FEWEST_EFFECTIVE = 2.0

FAR_DEVIATIONS = 6.0
"""A value this many median absolute deviations (times 1.4826, as of a normal distribution) from the median is far."""

LEAST_DEVIATION = 0.005
"""Deviations below it count as this much: a pair that differs by less than 3 % from the others is not far."""

ABOVE, BELOW, OPEN = "above", "below", "open"


@dataclass(frozen=True)
class SequentialRatio:
    """Time of B ÷ time of A of a typical pair. low, high: the interval of the last look that was taken.

    pairs: values it is made of. looks: how many there were. alarm_ratio: of all looks together, past ones and those to
    come. far: how many of the values lie more than FAR_DEVIATIONS from their median.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    looks: int
    alarm_ratio: float
    far: int = 0

    def beyond(self, limit_ratio: float) -> str:
        """ABOVE: B is slower by more than the limit (0.02 is 2 %); BELOW: it is not; OPEN: neither can be said."""
        limit = 1 + limit_ratio
        return ABOVE if self.low > limit else BELOW if self.high < limit else OPEN


def look_sizes(most: int) -> tuple[int, ...]:
    """The numbers of values after which one looks, up to `most`: 6, 9, 13, 19, 27, …"""
    found: list[int] = []
    size = float(FIRST_LOOK)
    while round(size) <= most:
        found.append(round(size))
        size = math.ceil(round(size) * GROWTH)
    return tuple(found)


def sequential_ratio(
    values: Sequence[float], alarm_ratio: float = ALARM_RATIO, out_of_time: bool = False
) -> SequentialRatio | None:
    """What may be said after these values, in order of time; None before the first look.

    out_of_time: no more will come, so that all of them may be looked at. Raises ValueError for an alarm rate that is
    none.
    """
    if not 0 < alarm_ratio < 1:
        raise ValueError(f"expected an alarm rate between 0 and 1, got {alarm_ratio}")
    sizes = list(look_sizes(len(values)))
    if out_of_time and len(values) >= FIRST_LOOK and sizes[-1] < len(values):
        sizes.append(len(values))
    if not sizes:
        return None
    used, look = list(values[: sizes[-1]]), len(sizes)
    middle, half = _interval(used, alarm_ratio / (look * (look + 1)))
    low, high = math.exp(middle - half), math.exp(min(middle + half, 600.0))
    return SequentialRatio(math.exp(middle), low, high, len(used), look, alarm_ratio, _far(used))


def is_look(pairs: int) -> bool:
    """Whether one looks after this many values."""
    return pairs in look_sizes(pairs)


def _interval(values: Sequence[float], chance: float) -> tuple[float, float]:
    """Trimmed mean, and half of the interval that misses it with this chance.

    Yuen's, with the effective number of values in place of their number (Bayley and Hammersley, as in `summary.py`).
    """
    from scipy.special import stdtrit  # 0.3 s to import: not for a command's --help

    n = len(values)
    cut = max(1, math.floor(TRIMMED * n))
    kept, in_order = n - 2 * cut, sorted(values)
    middle = sum(in_order[cut : n - cut]) / kept
    drawn_in = [min(max(value, in_order[cut]), in_order[n - 1 - cut]) for value in values]
    r = min(max(autocorrelation(drawn_in), 0.0) + CAUTION / math.sqrt(n), HIGHEST_CORRELATION)
    independent = (1 - r) / (1 + r)
    mean = sum(drawn_in) / n
    spread = sum((value - mean) ** 2 for value in drawn_in) / n
    error = math.sqrt(spread / (max(n * independent, FEWEST_EFFECTIVE) - 1)) * n / kept
    degrees = max(kept * independent, FEWEST_EFFECTIVE) - 1
    return middle, float(stdtrit(degrees, 1 - chance / 2)) * error


def _far(values: Sequence[float]) -> int:
    """How many values are far from their median."""
    middle = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return sum(abs(value - middle) > FAR_DEVIATIONS * max(deviation, LEAST_DEVIATION) for value in values)
