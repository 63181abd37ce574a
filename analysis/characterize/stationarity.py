"""Tests whether the times of a workload's steps have a trend, and fits distributions to the times of its calls.

`stationarity` takes a series of step times and returns its statistics. The median has an interval by order statistics.
The spread has the interval of a normal sample's standard deviation, s·√((n-1)/χ²). The trend is Theil's and Sen's
slope; Mann-Kendall's test for it is exact up to `EXACT_STEPS` without ties. Steps are assumed independent: with a large
`autocorrelation`, the p-values are too small. `tail` takes times of calls and fits three laws by maximum likelihood.
Exponential and Pareto (Clauset, Shalizi and Newman 2009) begin at the shortest time, log-normal at 0. Akaike's
criterion and Kolmogorov's distance compare the laws. Not claimed: that a steady series is stationary in every sense, or
that the best law fits.
"""

import math
import operator
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from analysis.stats import summary as stats_summary

LEVEL = 0.05
"""Significance level: how often the test finds a trend in a series without one."""

EXACT_STEPS = 50
"""Number of steps up to which the distribution of Mann-Kendall's statistic is exact, not approximated."""

FEWEST = 5
"""Number of steps below which no order is rare enough for a significant test: p ≥ 2/4! = 0.083 for four."""


def stationarity(times_s: Sequence[float]) -> dict[str, Any]:
    """Return the statistics of a series of times in s, in order, as a row of stationarity.csv.

    low_s, high_s: interval of the median, None below six steps. The spread is a ratio to the mean. Trends are ratios to
    the median, over the whole series rather than a step. p_value: how often a series without a trend would look at
    least as ordered; None below `FEWEST` steps. verdict: "steady", "slower", "faster", or "unknown" where the test
    cannot tell. Raises ValueError for a series that is empty, not finite or not positive.
    """
    summary = stats_summary.summarise(times_s)
    if not summary.mean > 0:
        raise ValueError(f"expected times above 0, got a mean of {summary.mean:g} s")
    n, p_value = summary.n, mann_kendall(times_s)
    spread, spread_low, spread_high = _spread(times_s, summary.mean)
    slopes = sen_slope(times_s)
    trend = (None, None, None) if slopes is None else tuple(slope * (n - 1) / summary.median for slope in slopes)
    level = stats_summary.median_interval(times_s) or (None, None, None)
    verdict = "unknown" if p_value is None else "steady" if p_value >= LEVEL else "slower"
    return {
        "n": n,
        "median_s": summary.median,
        "low_s": level[0],
        "high_s": level[2],
        "spread_ratio": spread,
        "spread_low": spread_low,
        "spread_high": spread_high,
        "trend_ratio": trend[0],
        "trend_low": trend[1],
        "trend_high": trend[2],
        "p_value": p_value,
        "autocorrelation": stats_summary.autocorrelation(times_s),
        "verdict": "faster" if verdict == "slower" and slopes and slopes[0] <= 0 else verdict,
    }


def mann_kendall(values: Sequence[float]) -> float | None:
    """Return the two-sided p-value of Mann-Kendall's test against a trend; None below `FEWEST` values."""
    from scipy.stats import kendalltau  # 1 s to import: not for a command's --help

    n = len(values)
    if n < FEWEST:
        return None
    if len(different := set(values)) == 1:
        return 1.0
    is_exact = n <= EXACT_STEPS and len(different) == n
    return float(kendalltau(range(n), values, method="exact" if is_exact else "asymptotic").pvalue)


def sen_slope(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Return (median, low, high) of the slopes per step between all pairs: Theil and Sen's, with a 95 % interval.

    None below `FEWEST` values.
    """
    from scipy.stats import theilslopes

    if len(values) < FEWEST:
        return None
    slope, _, low, high = theilslopes(values)
    return float(slope), float(low), float(high)


def _spread(values: Sequence[float], mean: float) -> tuple[float | None, float | None, float | None]:
    """Return the standard deviation ÷ mean, and its 95 % interval if the values were normal; None below two values."""
    n = len(values)
    if n < 2:
        return None, None, None
    from scipy.special import chdtri  # 0.3 s to import: not for a command's --help

    s = statistics.stdev(values) / mean
    low, high = (s * math.sqrt((n - 1) / float(chdtri(n - 1, tail))) for tail in (0.025, 0.975))
    return s, low, high


FEWEST_TIMES = 10
"""Number of calls below which nothing is fitted."""


def tail(times_s: Sequence[float]) -> dict[str, Any] | None:
    """Return how unequal times are; None for fewer than `FEWEST_TIMES` times above 0.

    calls: number of them; top_1_ratio, top_10_ratio: share of the total time in the longest 1 % and 10 %; fits: each
    law with its parameters, aic (lower is better) and distance (the greatest between survival functions), the lowest
    aic first; empty where all times are equal.
    """
    known = sorted(time for time in times_s if time > 0)
    if len(known) < FEWEST_TIMES:
        return None
    return {
        "calls": len(known),
        "median_s": statistics.median(known),
        "longest_s": known[-1],
        "top_1_ratio": _of_the_longest(known, 0.01),
        "top_10_ratio": _of_the_longest(known, 0.1),
        "fits": [] if known[0] == known[-1] else sorted(_fits(known), key=operator.itemgetter("aic")),
    }


def _of_the_longest(ordered: Sequence[float], part: float) -> float:
    count = max(1, math.ceil(part * len(ordered)))
    return math.fsum(ordered[-count:]) / math.fsum(ordered)


def _fits(ordered: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Yield each law with its parameters of maximum likelihood (scipy's closed forms); all have two parameters."""
    from scipy import stats  # 1 s to import: not for a command's --help

    least = ordered[0]
    location, mean = stats.expon.fit(ordered)
    sigma, _, scale = stats.lognorm.fit(ordered, floc=0)
    alpha, _, _ = stats.pareto.fit(ordered, floc=0, fscale=least)
    laws = {
        "exponential": (stats.expon(location, mean), {"x0_s": least, "mean_s": mean}),
        "pareto": (stats.pareto(alpha, scale=least), {"x0_s": least, "alpha": alpha}),
        "log-normal": (stats.lognorm(sigma, scale=scale), {"mu": math.log(scale), "sigma": sigma}),
    }
    for name, (law, parameters) in laws.items():
        yield {
            "law": name,
            "parameters": {key: float(value) for key, value in parameters.items()},
            "aic": float(2 * 2 - 2 * law.logpdf(ordered).sum()),
            "distance": float(stats.kstest(ordered, law.cdf).statistic),
        }
