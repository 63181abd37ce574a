"""Summarises block means: centre, spread, and a 95 % interval that allows for correlated neighbours.

`summarise` takes the means of consecutive blocks of steps and returns a `Summary`. The mean's interval is Student's t
on an *effective* number of blocks by a rule of INTERVAL_RULES, on a logarithmic scale for positive values. Its
simulated coverage (`tests/analysis/stats/test_statistics.py`) is 0.96 for independent blocks. For an autocorrelation of
0.4, coverage is 0.94 to 0.95 from 50 blocks on, and 0.92 with 10. Assumed: normal block means, and levels of the step
time that last no longer than a third of the window. Not corrected: differences between processes, and drift, which is
reported. Outliers are counted, never dropped.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONFIDENCE = 0.95
OUTLIER_MADS = 3.0
MAD_TO_SIGMA = 1.482602218505602
"""1 / Phi^-1(3/4): standard deviation ÷ median absolute deviation of a normal sample."""
LAG1, LAG1_RAISED, BATCHES = "lag1", "lag1_raised", "batches"
INTERVAL_RULES = {LAG1: (0.0, 2.0), LAG1_RAISED: (0.5, 3.0), BATCHES: (0.5, 3.0)}
"""Interval rule in `runs.csv` → (factor of 1 / sqrt(n) that raises the autocorrelation, least number of effective
blocks). t has the number of effective blocks less one as degrees of freedom: t(1) = 12.7 would make an interval of
± 127 % from blocks within 10 %. New runs use `batches`, which is `lag1_raised` widened by `_by_batches`."""
BATCH_COUNTS = (3, 6, 12, 24)
WIDENED_LEVEL, MARKED_LEVEL = 0.1, 0.02
"""Probabilities, by the F test, that batches of independent blocks differ as much: an interval is widened below the
first, and marked below the second."""
LEAST_BLOCKS = 8
"""Number of blocks below which none counts as far from the others."""
FAR_MADS = 5.0
"""Scaled MADs from the median beyond which a block is far from the others."""
_FOUR_EPS = 4 * np.finfo(np.float64).eps
_HIGHEST_CORRELATION = 0.95
_LARGEST_EXPONENT = 600.0
"""exp(710) is beyond float64."""


@dataclass(frozen=True)
class Summary:
    """Summary of a list of block means, in their unit (s for times).

    mean is weighted (by steps): total time ÷ total steps; median, p5 and p95 are unweighted. low, high: the 95 %
    interval of the mean, on a logarithmic scale where no value is negative or `signed`. half_width_ratio: half of its
    width on that scale, log(high / low) / 2, else half of its width ÷ mean. All three are None for a single block;
    half_width_ratio also for mean 0. drift_ratio: mean of the last third ÷ mean of the first third - 1; None below
    three blocks, or if the first third's mean is 0. outliers: blocks further than 3 scaled MAD from the median; they
    stay in every other number. effective_n: number of independent blocks that would be as informative.
    """

    n: int
    mean: float
    median: float
    p5: float
    p95: float
    low: float | None
    high: float | None
    half_width_ratio: float | None
    drift_ratio: float | None
    outliers: int
    effective_n: float


def summarise(
    block_means: Sequence[float] | Array,
    weights: Sequence[float] | None = None,
    *,
    signed: bool = False,
    rule: str = LAG1,
) -> Summary:
    """Summarise block means in order of time.

    weights: steps in each block (None: equal). signed: values such as differences, which can be negative. rule: of the
    interval, one of INTERVAL_RULES. Raises ValueError for an empty list, a value that is not finite, weights that are
    not positive or not one per block, or an unknown rule.
    """
    values = _finite(block_means)
    shares, again = _shares(values, weights)
    mean = float(shares @ values)
    ordered: list[float] = np.sort(values).tolist()
    p5, median, p95 = (_quantile(ordered, share) for share in (0.05, 0.5, 0.95))
    rounding = _rounding(max(-ordered[0], ordered[-1]))
    effective_n = _effective_size(values, again, rule, rounding)
    half = None
    if len(values) > 1:
        half = t_quantile(effective_n - 1) * math.sqrt(float(shares @ (values - mean) ** 2) / (effective_n - 1))
    if rule == BATCHES and half is not None:
        half = max([half, *(width for chance, width in _by_batches(values) if chance < WIDENED_LEVEL)])
    low, high = (None, None) if half is None else (mean - half, mean + half)
    if half is not None and not signed and mean > 0 and ordered[0] >= 0:
        low, high = log_interval(mean, half)
    distance = np.abs(values - median)
    limit = OUTLIER_MADS * MAD_TO_SIGMA * statistics.median(distance.tolist())
    return Summary(
        n=len(values),
        mean=mean,
        median=median,
        p5=p5,
        p95=p95,
        low=low,
        high=high,
        half_width_ratio=None if half is None or mean == 0 else half / abs(mean),
        drift_ratio=_drift(values, shares),
        outliers=int(np.count_nonzero(distance > max(limit, math.sqrt(rounding)))),
        effective_n=effective_n,
    )


def unsteady(values: Sequence[float]) -> str:
    """Return why the interval of the mean of these blocks may be too narrow; "" if nothing shows it.

    values: block means in order of time. Raises ValueError for an empty list, or a value that is not finite.
    """
    x = _finite(values)
    distance = np.abs(x - np.median(x))
    limit = max(FAR_MADS * MAD_TO_SIGMA * float(np.median(distance)), math.sqrt(_rounding(np.abs(x).max())))
    far = int(np.count_nonzero(distance > limit)) if len(x) >= LEAST_BLOCKS else 0
    parts = [f"{far} of {len(x)} blocks are far from the others, and decide the mean by their number"] if far else []
    if min((chance for chance, _ in _by_batches(x)), default=1.0) < MARKED_LEVEL:
        parts.append("blocks that follow one another are alike (levels, a trend)")
    return "; ".join(parts)


def _by_batches(x: Array) -> list[tuple[float, float]]:
    """Return (p, half width) for each number in BATCH_COUNTS whose batches have at least two blocks. p is the
    probability, by the F test, that batches of independent blocks differ as much; half width is that of the interval by
    the batches' means. They find levels and trends over many blocks, which a lag-1 autocorrelation does not show. The
    first blocks are left out where they fill no batch."""
    from scipy.special import fdtrc  # 0.3 s to import: not for a command's --help

    centre = float(np.median(x))
    far = OUTLIER_MADS * MAD_TO_SIGMA * float(np.median(np.abs(x - centre)))
    widths = []
    for count in BATCH_COUNTS if x.var() > _rounding(np.abs(x).max()) else ():
        if (size := len(x) // count) > 1:
            rows = x[len(x) - count * size :].reshape(count, size)
            drawn_in = np.clip(rows, centre - far, centre + far)
            between, within = size * drawn_in.mean(axis=1).var(ddof=1), drawn_in.var(axis=1, ddof=1).mean()
            chance = float(fdtrc(count - 1, count * (size - 1), between / within)) if within else float(not between)
            width = t_quantile(count - 1) * float(rows.mean(axis=1).std(ddof=1)) / math.sqrt(count)
            widths.append((chance, width))
    return widths


def log_interval(mean: float, half_width: float) -> tuple[float, float]:
    """Return (low, high): the interval of a positive mean on a logarithmic scale, mean * exp(± half_width / mean).

    half_width: of the interval mean ± half_width, in the mean's unit. half_width / mean is t times the standard error
    of log(mean) by the delta method (Casella and Berger, "Statistical Inference", section 5.5.4). Raises ValueError for
    a mean that is not positive.
    """
    if not mean > 0:
        raise ValueError(f"expected a positive mean, got {mean}")
    factor = math.exp(min(half_width / mean, _LARGEST_EXPONENT))
    return mean / factor, mean * factor


def autocorrelation(values: Sequence[float] | Array) -> float:
    """Return the lag-1 autocorrelation, corrected for its bias (Marriott and Pope, Biometrika 41, 1954): r1 + (1 + 4
    r1) / n. 0 below three values or without spread."""
    x = _finite(values)
    return _autocorrelation(x, _shares(x, None)[0], _rounding(np.abs(x).max()))


def _autocorrelation(x: Array, shares: Array, rounding: float) -> float:
    """Return the autocorrelation. shares: weights that sum to 1. rounding: `_rounding` of the values."""
    residuals = x - shares @ x
    spread = float(shares @ residuals**2)
    if len(x) < 3 or spread <= rounding:
        return 0.0
    root = np.sqrt(shares)
    r1 = float((root[1:] * residuals[1:]) @ (root[:-1] * residuals[:-1])) / spread
    return r1 + (1 + 4 * r1) / len(x)


def _effective_size(x: Array, shares: Array, rule: str, rounding: float) -> float:
    """Return n (1 - r) / (1 + r), r being the autocorrelation: the size of an independent sample whose mean is as
    certain (Bayley and Hammersley, Suppl. J. R. Stat. Soc. 8, 1946; Zwiers and von Storch, J. Climate 8, 1995).

    The rule raises r by half of its standard error (Bartlett, same volume), because few blocks cannot show how much
    they depend on each other, and stopping favours windows with a low r1. It also sets the least size, which is at most
    n. r is kept between 0 and 0.95. Raises ValueError for an unknown rule.
    """
    if rule not in INTERVAL_RULES:
        raise ValueError(f"expected a rule of intervals among {', '.join(INTERVAL_RULES)}, got {rule!r}")
    n, (raised, fewest) = len(x), INTERVAL_RULES[rule]
    r = min(max(_autocorrelation(x, shares, rounding), 0.0), _HIGHEST_CORRELATION)
    r = min(r + raised / math.sqrt(n), _HIGHEST_CORRELATION)
    return max(n * (1 - r) / (1 + r), min(fewest, float(n)))


def median_interval(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Return (low, median, high): a 95 % interval of the median from order statistics, for any distribution.

    low and high are the k-th smallest and k-th largest value, with the largest k for which fewer than k of n fair coins
    fall heads with probability 2.5 % or less (Conover, "Practical Nonparametric Statistics", section 3.2). None below
    six values. For independent values with heavy tails, whose mean depends on a few.
    """
    x = np.sort(_finite(values))
    n, below, k = len(x), 0.0, 0
    while (below := below + math.comb(n, k) / 2**n) <= (1 - CONFIDENCE) / 2:
        k += 1
    return (float(x[k - 1]), float(np.median(x)), float(x[n - k])) if k else None


def geometric_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Return (mean, low, high) of independent positive values: the 95 % interval is Student's t on their logarithms.

    Raises ValueError for fewer than two.
    """
    if len(values) < 2:
        raise ValueError(f"expected at least two values, got {len(values)}")
    logs = np.log(np.asarray(values, dtype=np.float64))
    mean, half = math.exp(logs.mean()), t_quantile(len(values) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(values))
    return mean, *log_interval(mean, mean * half)


def t_quantile(degrees: float) -> float:
    """Return the two-sided 95 % quantile of Student's t; `degrees` of freedom may be fractional."""
    from scipy.special import stdtrit  # 0.3 s to import: not for a command's --help

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def _drift(values: Array, shares: Array) -> float | None:
    third = len(values) // 3
    if third == 0:
        return None
    weighted = values * shares
    first, last = (float(weighted[part].sum() / shares[part].sum()) for part in (slice(third), slice(-third, None)))
    return None if first == 0 else last / first - 1


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of sorted values, interpolated as by `np.quantile`, to the last digit."""
    position = (len(ordered) - 1) * share
    index = int(position)
    low, high, part = ordered[index], ordered[min(index + 1, len(ordered) - 1)], position - index
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


def _rounding(largest: float) -> float:
    """Return the variance that equal values can show through rounding. largest: the largest absolute value."""
    return float((_FOUR_EPS * largest) ** 2)


def _finite(values: Sequence[float] | Array) -> Array:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or len(x) == 0:
        raise ValueError(f"expected at least one block mean in one row, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(
            f"expected finite block means, got {x[~np.isfinite(x)][0]} at {int(np.argmin(np.isfinite(x)))}"
        )
    return x


def _shares(x: Array, weights: Sequence[float] | Array | None) -> tuple[Array, Array]:
    """Return weights that sum to 1, and these divided by their sum once more, with which published intervals were
    computed: so they keep each digit. Raises ValueError for weights that are not positive or not one per block."""
    count, weights = len(x), np.ones(len(x)) if weights is None else weights
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (count,) or not (w.min() > 0 and w.max() < math.inf):
        raise ValueError(f"expected {count} positive weights, one per block, got {np.asarray(weights).tolist()}")
    shares = w / w.sum()
    return shares, shares / shares.sum()
