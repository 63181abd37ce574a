"""Is B slower than A? Asked again and again while pairs come in, with the chance of a false alarm over all questions.

A value is the median of ln(time of B ÷ time of A) over the rounds (A B B A) of one *pair of fresh processes*. What
processes differ by, and whatever neighbouring blocks share, is then between the values, not hidden within them
(Kalibera and Jones, ISMM 2013): the values are the block means of the method of non-overlapping batches (Schmeiser,
Operations Research 30, 1982). Values that are alike all the same widen the interval as in `summary.py`, by a
correlation that is taken for CAUTION ÷ √n higher than it is seen, since few values cannot show their own.

The interval is looked at after LOOKS values, and each look k spends its own share of the alarm rate, a ÷ (k (k + 1)),
which add up to a over any number of looks. By Bonferroni's inequality the true ratio is within *all* intervals with a
chance of 1 - a, however the looks depend on each other and whenever one stops (Pocock and Lan-DeMets spend less
wastefully, but need the dependence between looks to be known). One more look is allowed where the time has run out:
when that is does not depend on the ratio.

Assumed: values near normal at 6 and more of them, at most first-order dependence, and one ratio for the whole time.
Seen in simulation (`tests/analysis/stats/test_sequential.py`): at 5 % asked for, less than 1 % of streams of
independent values ever raise an alarm, and 4 to 5 % at an autocorrelation of 0.4. Not claimed: that an interval is as
narrow as it could be (of independent values one look alone has half the width), or that the rate holds above that
correlation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.stats.summary import autocorrelation

ALARM_RATIO = 0.05
"""Of comparisons of equal sides, how many may call any cell different."""

FIRST_LOOK = 6
GROWTH = 1.4
CAUTION = 1 / 3
HIGHEST_CORRELATION = 0.95
FEWEST_EFFECTIVE = 2.0

ABOVE, BELOW, OPEN = "above", "below", "open"


@dataclass(frozen=True)
class SequentialRatio:
    """Time of B ÷ time of A. low, high: the interval of the last look that was taken. looks: how many there were.

    pairs: values it is made of. alarm_ratio: of all looks together, past ones and those to come.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    looks: int
    alarm_ratio: float

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
    mean = sum(used) / len(used)
    half = _half_width(used, mean, alarm_ratio / (look * (look + 1)))
    low, high = math.exp(mean - half), math.exp(min(mean + half, 600.0))
    return SequentialRatio(math.exp(mean), low, high, len(used), look, alarm_ratio)


def is_look(pairs: int) -> bool:
    """Whether one looks after this many values."""
    return pairs in look_sizes(pairs)


def _half_width(values: Sequence[float], mean: float, chance: float) -> float:
    """Of the interval of the mean that misses it with this chance (Bayley and Hammersley, as in `summary.py`)."""
    from scipy.special import stdtrit  # 0.3 s to import: not for a command's --help

    n = len(values)
    r = min(max(autocorrelation(values), 0.0) + CAUTION / math.sqrt(n), HIGHEST_CORRELATION)
    degrees = max(n * (1 - r) / (1 + r), FEWEST_EFFECTIVE) - 1
    spread = sum((value - mean) ** 2 for value in values) / n
    return float(stdtrit(degrees, 1 - chance / 2)) * math.sqrt(spread / degrees)
