"""The ratio of two times measured in interleaved blocks, with the interval of its mean on the logarithmic scale.

A round measures A, B, B, A: both are as far from the middle of the round, so that a drift that is linear over it
cancels. A round gives one value, ln(time of A ÷ time of B); rounds are the sample, summarised as blocks are
(`summary.py`), so that neighbouring rounds that are correlated widen the interval.

Not claimed: what differs between processes, since both ran in one. Stopping once the interval is narrow costs a little
coverage; `python -m benchmarks.what_if` measures how much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.stats.summary import summarise


@dataclass(frozen=True)
class PairedRatio:
    """Time of A ÷ time of B: above 1, B is faster. low, high: 95 % interval; None below two rounds."""

    ratio: float
    low: float | None
    high: float | None
    rounds: int

    @property
    def half_width(self) -> float:
        """Half of the interval on the logarithmic scale, which is its half width ÷ ratio for a narrow one."""
        return math.inf if self.low is None or self.high is None else math.log(self.high / self.low) / 2


def paired_ratio(rounds: Sequence[tuple[float, float]]) -> PairedRatio:
    """rounds: (time of A, time of B) of each, s, in order of time. Raises ValueError for none, or a time of 0 or less.

    >>> paired_ratio([(2.0, 1.0), (2.0, 1.0)]).ratio
    2.0
    """
    if not rounds or any(not (a > 0 and b > 0) for a, b in rounds):
        raise ValueError(f"expected rounds of two times above 0, got {list(rounds)[:3]}")
    found = summarise([math.log(a / b) for a, b in rounds], signed=True)
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return PairedRatio(math.exp(found.mean), low, high, len(rounds))
