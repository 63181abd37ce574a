"""Do a workload's steps take the same time all along? Level, spread and trend of a series, each with its certainty.

Fathom's Figure 1 answers with a histogram of 100 steps. Here a series has:

* its median with a 95 % interval by order statistics (`analysis/stats/summary.py`), and its spread (standard deviation
  ÷ mean) with the interval of a normal sample's: s·√((n-1)/χ²);
* its trend: the median of the slopes between all pairs of steps (Theil 1950; Sen, J. Am. Stat. Assoc. 63, 1968), with
  Sen's 95 % interval from the normal limit of Kendall's S;
* a test against a trend: Mann-Kendall (Mann, Econometrica 13, 1945; Kendall, "Rank correlation methods"), exact for
  up to 50 steps without ties, else normal with the correction for ties. It asks nothing of the distribution of the
  times, so that single slow steps do no harm.

Assumed by the intervals and the test: steps independent of their neighbours. `autocorrelation` is reported beside
them: where it is large, small probabilities are too small. Not claimed: that a series without a trend is stationary in
every sense, or that a few steps could show a small one; `trend_low`, `trend_high` say what they cannot rule out.

How unequal times are: how many single calls take longer than t, and which steps took much longer than others.

Fathom's tools draw the survival curve of the calls' times and fit an exponential, a Pareto and a log-normal to it. Here
each is fitted by greatest likelihood to all times from the shortest, x0, on: the exponential of x - x0 with mean
Σ(x - x0)/n, the Pareto with α = n / Σ ln(x/x0) (Clauset, Shalizi and Newman, SIAM Review 51, 2009, whose exponent is
α + 1), the log-normal with mean and deviation of ln x. They are compared by Akaike's criterion, 2 k - 2 ln L, and each
given with its greatest distance from the observed survival (Kolmogorov's).

Not claimed: that the best of the three fits well; of thousands of calls none would pass a test. Times of calls are
those under the profiler, where a call takes a microsecond or so at least.

"""

import math
import operator
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from analysis.stats import summary as stats_summary

LEVEL = 0.05
"""Level of the test: how often a series without a trend is said to have one."""

EXACT_STEPS = 50
"""Up to which the distribution of S is counted, not approximated."""

FEWEST = 4
"""Steps below which no order is rare enough for a test to be significant."""


def stationarity(times_s: Sequence[float]) -> dict[str, Any]:
    """What a series of times in s, in order, says of itself, as a row of stationarity.csv.

    low_s, high_s: of the median, None below six steps. The spread is a ratio to the mean; trends are ratios to the
    median, over the whole series, not a step. p_value: how often a series without a trend would look at least as
    ordered; None below `FEWEST` steps. verdict: "steady", "slower" or "faster" over the series, or "unknown" where a
    test could not tell. Raises ValueError for an empty series, or one that is not finite or not positive.
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
    """The two-sided probability of an order at least as far from none without any trend; None below `FEWEST` values."""
    from scipy.stats import kendalltau  # 1 s to import: not for a command's --help

    n = len(values)
    if n < FEWEST:
        return None
    if len(different := set(values)) == 1:
        return 1.0
    is_exact = n <= EXACT_STEPS and len(different) == n
    return float(kendalltau(range(n), values, method="exact" if is_exact else "asymptotic").pvalue)


def sen_slope(values: Sequence[float]) -> tuple[float, float, float] | None:
    """(median, low, high) of the slopes between all pairs, a step: Theil and Sen's, with a 95 % interval.

    None below `FEWEST` values.
    """
    from scipy.stats import theilslopes

    if len(values) < FEWEST:
        return None
    slope, _, low, high = theilslopes(values)
    return float(slope), float(low), float(high)


def _spread(values: Sequence[float], mean: float) -> tuple[float | None, float | None, float | None]:
    """Standard deviation ÷ mean, and its 95 % interval if the values were normal; None below two values."""
    n = len(values)
    if n < 2:
        return None, None, None
    from scipy.special import chdtri  # 0.3 s to import: not for a command's --help

    s = statistics.stdev(values) / mean
    low, high = (s * math.sqrt((n - 1) / float(chdtri(n - 1, tail))) for tail in (0.025, 0.975))
    return s, low, high


FEWEST_TIMES = 10
"""Calls below which nothing is fitted."""


def tail(times_s: Sequence[float]) -> dict[str, Any] | None:
    """How unequal times are; None for fewer than `FEWEST_TIMES` times above 0.

    calls: how many; top_1_ratio, top_10_ratio: of the whole time the share of the longest hundredth and tenth of them;
    fits: each law with its parameters, aic (lower is better) and distance (greatest between the survivals), the best
    first; none where all times are equal.
    """
    known = sorted(time for time in times_s if time > 0)
    if len(known) < FEWEST_TIMES:
        return None
    return {
        "calls": len(known),
        "median_s": known[len(known) // 2],
        "longest_s": known[-1],
        "top_1_ratio": _of_the_longest(known, 0.01),
        "top_10_ratio": _of_the_longest(known, 0.1),
        "fits": [] if known[0] == known[-1] else sorted(_fits(known), key=operator.itemgetter("aic")),
    }


def _of_the_longest(ordered: Sequence[float], part: float) -> float:
    count = max(1, math.ceil(part * len(ordered)))
    return math.fsum(ordered[-count:]) / math.fsum(ordered)


def _fits(ordered: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Each law by greatest likelihood; all have two parameters. Closed forms, as scipy has them."""
    from scipy import stats  # 1 s to import: not for a command's --help

    least = ordered[0]
    place, mean = stats.expon.fit(ordered)
    sigma, _, scale = stats.lognorm.fit(ordered, floc=0)
    alpha, _, _ = stats.pareto.fit(ordered, floc=0, fscale=least)
    laws = {
        "exponential": (stats.expon(place, mean), {"x0_s": least, "mean_s": mean}),
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
